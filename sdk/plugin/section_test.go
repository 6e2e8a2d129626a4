package plugin_test

import (
	"bytes"
	"os"
	"sync/atomic"
	"testing"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/plugin/internal/filestore"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// sectionsOf reads a log by sections, and by reads where there are none. It checks all
// that comes, and returns how many bytes came as sections.
func sectionsOf(t *testing.T, s *plugin.Store, h storage.Handle, upTo int64, most int) (sent int) {
	t.Helper()
	for at := int64(0); at < upTo; {
		req := storage.ReadRequest{Handle: h, Offset: at, UpTo: upTo, MaxBytes: most, AtLeastOne: true}
		section, ok := s.ReadSection(req)
		data, next := make([]byte, section.Bytes), section.Next
		if ok {
			if section.Bytes > most {
				t.Fatalf("%d bytes where %d were asked for", section.Bytes, most)
			}
			if _, err := section.File.ReadAt(data, section.Pos); err != nil {
				t.Fatal(err)
			}
			section.Owner.Release(false)
			sent += len(data)
		} else {
			res, err := s.Read(t.Context(), req)
			if err != nil || len(res.Data) == 0 {
				t.Fatalf("read at %d: %d bytes, %v", at, len(res.Data), err)
			}
			data, next = res.Data, res.Next
		}
		for len(data) > 0 {
			info, _, rest, err := recordbatch.Next(data)
			if err != nil || info.BaseOffset != at {
				t.Fatalf("at %d (section: %v) is a batch of offset %d: %v", at, ok, info.BaseOffset, err)
			}
			data, at = rest, at+1
		}
		if next != at {
			t.Fatalf("the next offset is %d behind a batch of offset %d", next, at-1)
		}
	}
	return sent
}

// What was read and checked once is had from its file then, whoever reads it and from
// wherever he begins; what the log's changes have touched is read again.
func TestSections(t *testing.T) {
	s := lend(t, filestore.Options{Granted: func(g *storage.Grant) error { g.FileID = 0; return nil }})
	h := openLog(t, s, 0).Handle
	fill(t, s, h, 0, 4000)
	if sent := sectionsOf(t, s, h, 4000, 200<<10); sent > 0 {
		t.Errorf("%d bytes were not checked", sent)
	}
	if sent := sectionsOf(t, s, h, 4000, 200<<10); sent < 600<<10 {
		t.Errorf("only %d bytes are had from the file after they were read", sent)
	}
	if _, err := s.Truncate(t.Context(), h, 1, 3000); err != nil {
		t.Fatal(err)
	}
	if sent := sectionsOf(t, s, h, 3000, 200<<10); sent > 0 {
		t.Errorf("%d bytes were not checked since the log was truncated", sent)
	}
	fill(t, s, h, 3000, 5000)
	sectionsOf(t, s, h, 5000, 100<<10)
	if sent := sectionsOf(t, s, h, 5000, 100<<10); sent < 600<<10 {
		t.Errorf("only %d bytes are had from the file", sent)
	}
}

// What the host wrote itself it need not check again.
func TestSectionsOfGrantedWrites(t *testing.T) {
	var leases atomic.Int64
	s := lend(t, filestore.Options{Leased: func(*storage.Lease) error { leases.Add(1); return nil }})
	h := openLog(t, s, 0).Handle
	fill(t, s, h, 0, 4000)
	if sent := sectionsOf(t, s, h, 4000, 200<<10); sent < 400<<10 {
		t.Errorf("only %d bytes are had from the file, by %d leases", sent, leases.Load())
	}
}

// A section stays as it was while its log is truncated, trimmed, and its plugin gone.
func TestSectionOutlivesItsLog(t *testing.T) {
	s := lend(t, filestore.Options{})
	h := openLog(t, s, 0).Handle
	fill(t, s, h, 0, 2000)
	sectionsOf(t, s, h, 2000, 200<<10)
	req := storage.ReadRequest{Handle: h, UpTo: 2000, MaxBytes: 200 << 10}
	want, err := s.Read(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	section, ok := s.ReadSection(req)
	if !ok {
		t.Fatal("no section of what was read")
	}
	same := func(when string) {
		t.Helper()
		got := make([]byte, section.Bytes)
		if _, err := section.File.ReadAt(got, section.Pos); err != nil || !bytes.Equal(got, want.Data[:len(got)]) {
			t.Errorf("other bytes %s: %v", when, err)
		}
	}
	if _, err := s.Truncate(t.Context(), h, 1, 10); err != nil {
		t.Fatal(err)
	}
	fill(t, s, h, 10, 1000)
	same("after a truncation")
	if _, err := s.Trim(t.Context(), h, 900); err != nil {
		t.Fatal(err)
	}
	same("after a trim")
	s.Abandon()
	same("after the plugin's end")
	section.Owner.Release(false)
	if _, err := section.File.Stat(); err == nil {
		t.Error("the file is still open")
	}
}

// A section whose file could not be sent is read by checking from then on.
func TestDamagedSection(t *testing.T) {
	s := lend(t, filestore.Options{})
	h := openLog(t, s, 0).Handle
	fill(t, s, h, 0, 2000)
	sectionsOf(t, s, h, 2000, 200<<10)
	req := storage.ReadRequest{Handle: h, UpTo: 2000, MaxBytes: 200 << 10}
	section, ok := s.ReadSection(req)
	if !ok {
		t.Fatal("no section of what was read")
	}
	section.Owner.Release(true)
	if again, ok := s.ReadSection(req); ok {
		t.Errorf("%d bytes without a check", again.Bytes)
	}
	if err := readAll(t.Context(), s, h, 0, 2000); err != nil {
		t.Error(err)
	}
}

// Another file under the ID of one that was checked is not taken for it.
func TestSectionsOfAnotherFile(t *testing.T) {
	other := t.TempDir() + "/other"
	if err := os.WriteFile(other, bytes.Repeat(appendOf(1, 3, 200).Data[0], 4000), 0o600); err != nil {
		t.Fatal(err)
	}
	var wrong atomic.Bool
	s := lend(t, filestore.Options{Leased: func(l *storage.Lease) (err error) {
		if wrong.Load() {
			_ = l.File.Close()
			l.File, err = os.Open(other)
		}
		return err
	}})
	h := openLog(t, s, 0).Handle
	fill(t, s, h, 0, 2000)
	wrong.Store(true)
	sectionsOf(t, s, h, 2000, 100<<10)
	sectionsOf(t, s, h, 2000, 100<<10)
}

func TestReadSectionDoesNotAllocate(t *testing.T) {
	s := lend(t, filestore.Options{})
	h := openLog(t, s, 0).Handle
	fill(t, s, h, 0, 2000)
	sectionsOf(t, s, h, 2000, 200<<10)
	req := storage.ReadRequest{Handle: h, UpTo: 2000, MaxBytes: 200 << 10}
	if n := testing.AllocsPerRun(100, func() {
		section, ok := s.ReadSection(req)
		if !ok {
			t.Fatal("no section")
		}
		section.Owner.Release(false)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
