package logstore

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

// Indexes that are missing, cut at any byte, garbage, or of another segment are
// built again; the
// log opens with all that it holds, and lookups are right (FR-45).
func TestFR45DamagedIndexes(t *testing.T) {
	for _, how := range []int{leftKilled, leftFlushed, leftClosed} {
		d := leave(t, how)
		entries, err := d.fs.List(logDir())
		if err != nil {
			t.Fatal(err)
		}
		spoiled := 0
		for _, e := range entries {
			if !strings.HasSuffix(e.Name, segment.IndexSuffix) && !strings.HasSuffix(e.Name, segment.TimeSuffix) {
				continue
			}
			d.file = path.Join(logDir(), e.Name)
			for cut := range e.Bytes {
				spoiled++
				checkWhole(t, d, fmt.Sprintf("left %d, %s cut at %d", how, e.Name, cut), func(f vfs.File) error { return f.Truncate(cut) })
				if cut%8 != 0 {
					continue
				}
				checkWhole(t, d, fmt.Sprintf("left %d, %s garbage from %d on", how, e.Name, cut), func(f vfs.File) error {
					garbage := make([]byte, e.Bytes-cut)
					for i := range garbage {
						garbage[i] = byte(0x5a + 7*i)
					}
					_, err := f.WriteVecAt([][]byte{garbage}, cut)
					return err
				})
			}
			for _, other := range entries {
				if other.Name == e.Name || path.Ext(other.Name) != path.Ext(e.Name) {
					continue
				}
				content, err := vfs.ReadAll(d.fs, path.Join(logDir(), other.Name), 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				checkWhole(t, d, fmt.Sprintf("left %d, %s in place of %s", how, other.Name, e.Name), func(f vfs.File) error {
					_, err := f.WriteVecAt([][]byte{content}, 0)
					return errors.Join(err, f.Truncate(int64(len(content))))
				})
			}
			fs := d.fs.AfterKill(vfs.MemConfig{})
			if err := fs.Remove(d.file); err != nil {
				t.Fatal(err)
			}
			visit(t, fs, func(_ storage.OpenResult, got [][]byte, err error) error {
				return errors.Join(err, same(got, d.batches))
			})
		}
		if spoiled == 0 {
			t.Fatalf("left %d: no index was spoiled", how)
		}
	}
}

// checkWhole opens the disk, changed, and looks for every batch by offset and by
// time.
func checkWhole(t *testing.T, d *disk, what string, change func(f vfs.File) error) {
	t.Helper()
	s, err := start(d.with(t, change), testConfig("boot-1"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	res := s.mustOpen(t, 4)
	if res.Verdict != storage.VerdictIntact || res.LEO != end(d.batches[len(d.batches)-1]) {
		t.Fatalf("%s: LEO %d, verdict %d", what, res.LEO, res.Verdict)
	}
	for i, b := range d.batches {
		info := parse(b)
		r, err := s.Read(t.Context(), storage.ReadRequest{Handle: res.Handle, Offset: info.LastOffset, UpTo: info.LastOffset + 1, MaxBytes: 1, AtLeastOne: true})
		if err != nil || same([][]byte{r.Data}, d.batches[i:i+1]) != nil {
			t.Fatalf("%s: read batch %d: %d bytes, %v", what, i, len(r.Data), err)
		}
		found, ok, err := s.FindTimestamp(t.Context(), storage.TimestampQuery{Handle: res.Handle, Timestamp: info.MaxTimestamp, UpTo: res.LEO})
		if err != nil || !ok || found != info {
			t.Fatalf("%s: time of batch %d: %+v, %v, %v", what, i, found, ok, err)
		}
	}
}
