package logstore

import (
	"testing"
	"time"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

// fillSegments appends n batches of one record, two to a segment, of which the
// i-th is stamped by stamp.
func fillSegments(t *testing.T, s *running, n int64, stamp func(i int64) int64) storage.Handle {
	t.Helper()
	res := s.mustOpen(t, 1)
	for i := range n {
		if _, err := s.append(request(res.Handle, i, storage.SurvivesProcess, batch(i, 1, 1, 400, stamp(i)))); err != nil {
			t.Fatal(err)
		}
	}
	return res.Handle
}

// A record stamped in 2050 does not pin its segment, nor those after it: the
// time at which it was written counts, and the result says so (FR-49).
func TestFR49RecordFromTheFuture(t *testing.T) {
	s := mustStart(t, vfs.NewMem(vfs.MemConfig{}), testConfig("boot-1"))
	written := time.Now()
	future := time.Date(2050, 1, 1, 0, 0, 0, 0, time.UTC)
	h := fillSegments(t, s, 6, func(i int64) int64 {
		if i == 1 {
			return future.UnixMilli()
		}
		return written.Add(-time.Hour).UnixMilli()
	})
	// The record begins a segment, since it is more than a segment's age later.
	policy := storage.RetainPolicy{Ceiling: 6, Now: written.Add(-time.Second), MaxAge: time.Minute, MaxBytes: -1}
	r, err := s.Retain(t.Context(), h, policy)
	if err != nil || r.LogStart != 1 || r.FutureStamps != 1 {
		t.Fatalf("before its segment is old: %+v, %v", r, err)
	}
	policy.Now = written.Add(2 * time.Minute)
	r, err = s.Retain(t.Context(), h, policy)
	if err != nil || r.LogStart != 6 || r.FutureStamps != 1 {
		t.Fatalf("after a minute: %+v, %v", r, err)
	}
}

// Retention after a trim into the midst of a segment removes all that is due in
// one pass; the same again removes nothing (FR-51).
func TestFR51RetentionAfterTrim(t *testing.T) {
	s := mustStart(t, vfs.NewMem(vfs.MemConfig{}), testConfig("boot-1"))
	now := time.Now()
	h := fillSegments(t, s, 12, func(i int64) int64 { return now.Add(time.Duration(i-12) * time.Minute).UnixMilli() })
	if start, err := s.Trim(t.Context(), h, 5); err != nil || start != 5 {
		t.Fatalf("trim: %d, %v", start, err)
	}
	// Segments begin at 0, 2, 4...; the records of the first four are older.
	policy := storage.RetainPolicy{Ceiling: 12, Now: now, MaxAge: 4*time.Minute + 30*time.Second, MaxBytes: -1}
	r, err := s.Retain(t.Context(), h, policy)
	if err != nil || r.LogStart != 8 || r.FreedBytes == 0 {
		t.Fatalf("first pass: %+v, %v", r, err)
	}
	again, err := s.Retain(t.Context(), h, policy)
	if err != nil || again.LogStart != 8 || again.FreedBytes != 0 || again.LogBytes != r.LogBytes {
		t.Fatalf("second pass: %+v, %v", again, err)
	}
}

// Records without a timestamp are judged by their time of writing, and are not
// told of as stamped in the future.
func TestRecordsWithoutTimestamp(t *testing.T) {
	s := mustStart(t, vfs.NewMem(vfs.MemConfig{}), testConfig("boot-1"))
	written := time.Now()
	h := fillSegments(t, s, 6, func(int64) int64 { return -1 })
	policy := storage.RetainPolicy{Ceiling: 6, Now: written.Add(time.Second), MaxAge: time.Minute, MaxBytes: -1}
	r, err := s.Retain(t.Context(), h, policy)
	if err != nil || r.LogStart != 0 || r.FutureStamps != 0 {
		t.Fatalf("before they are old: %+v, %v", r, err)
	}
	policy.Now = written.Add(2 * time.Minute)
	r, err = s.Retain(t.Context(), h, policy)
	if err != nil || r.LogStart != 6 || r.FutureStamps != 0 {
		t.Fatalf("after a minute: %+v, %v", r, err)
	}
}
