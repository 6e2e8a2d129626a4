package logstore

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

// slowFS reads segments in two halves, with something happening in between,
// once.
type slowFS struct {
	vfs.FS
	between atomic.Pointer[func()]
}

func (s *slowFS) Open(name string, mode vfs.Mode) (vfs.File, error) {
	f, err := s.FS.Open(name, mode)
	if err != nil || !strings.HasSuffix(name, ".log") {
		return f, err
	}
	return slowFile{f, s}, nil
}

type slowFile struct {
	vfs.File
	fs *slowFS
}

func (f slowFile) ReadAt(p []byte, off int64) (int, error) {
	between := f.fs.between.Swap(nil)
	if between == nil {
		return f.File.ReadAt(p, off)
	}
	half := len(p) / 2
	n, err := f.File.ReadAt(p[:half], off)
	if err != nil {
		return n, err
	}
	(*between)()
	m, err := f.File.ReadAt(p[half:], off+int64(half))
	return n + m, err
}

// A read in whose midst the log was cut and grew again returns what the log
// held before or after, never some of both; one in whose midst the segment was
// removed goes on.
func TestChangeInTheMidstOfARead(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name   string
		change func(t *testing.T, s *running, h storage.Handle)
		want   func(old, cut [][]byte) [][]byte
	}{
		{"truncate", func(t *testing.T, s *running, h storage.Handle) {
			if leo, err := s.Truncate(ctx, h, 1, 2); err != nil || leo != 2 {
				t.Errorf("truncate: %d, %v", leo, err)
			}
			if _, err := s.append(request(h, 2, 0, batch(2, 2, 2, 200, 1))); err != nil {
				t.Error(err)
			}
		}, func(_, cut [][]byte) [][]byte { return cut }},
		{"trim", func(t *testing.T, s *running, h storage.Handle) {
			if _, err := s.Trim(ctx, h, 6); err != nil {
				t.Error(err)
			}
		}, func(old, _ [][]byte) [][]byte { return old }},
	} {
		fs := &slowFS{FS: vfs.NewMem(vfs.MemConfig{})}
		s := mustStart(t, fs, testConfig("boot-1"))
		res := s.mustOpen(t, 1)
		var old [][]byte
		for at := int64(0); at < 6; at += 2 {
			b := batch(at, 2, 1, 200, 1)
			old = append(old, b)
			if _, err := s.append(request(res.Handle, at, 0, b)); err != nil {
				t.Fatal(err)
			}
		}
		cut := [][]byte{old[0], batch(2, 2, 2, 200, 1)}
		change := func() { c.change(t, s, res.Handle) }
		fs.between.Store(&change)
		r, err := s.Read(ctx, storage.ReadRequest{Handle: res.Handle, Offset: 0, UpTo: 6, MaxBytes: 1000})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var want []byte
		for _, b := range c.want(old, cut) {
			want = append(want, b...)
		}
		if string(r.Data) != string(want) {
			t.Errorf("%s: %d bytes, want %d", c.name, len(r.Data), len(want))
		}
	}
}
