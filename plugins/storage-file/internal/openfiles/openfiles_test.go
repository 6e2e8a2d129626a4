package openfiles

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
)

// withFiles makes files /0, /1... that hold their number.
func withFiles(t *testing.T, n int, descriptors int) *vfs.Mem {
	t.Helper()
	fs := vfs.NewMem(vfs.MemConfig{})
	for i := range n {
		f, err := fs.Open(fmt.Sprint("/", i), vfs.Empty)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteVecAt([][]byte{fmt.Appendf(nil, "%4d", i)}, 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	fs.SetDescriptors(descriptors)
	return fs
}

func content(t *testing.T, f *File) string {
	t.Helper()
	b := make([]byte, 4)
	if _, err := f.Get().ReadAt(b, 0); err != nil {
		t.Errorf("read a pinned file: %v", err)
	}
	return string(b)
}

// The files that were used last stay open, no more of them than was said; those
// that are pinned stay in any case.
func TestIdleFilesAreBounded(t *testing.T) {
	fs := withFiles(t, 10, 100)
	c := New(fs, 3)
	var files []*File
	for i := range 10 {
		files = append(files, c.Lazy(fmt.Sprint("/", i)))
	}
	for _, f := range files {
		if err := f.Pin(); err != nil {
			t.Fatal(err)
		}
		f.Unpin()
	}
	if n := fs.OpenFiles(); n != 3 {
		t.Errorf("%d files are open; want 3", n)
	}
	for i, f := range files {
		if open := f.file != nil; open != (i >= 7) {
			t.Errorf("file %d is open: %v", i, open)
		}
	}
	for i, f := range files {
		if err := f.Pin(); err != nil {
			t.Fatal(err)
		}
		if got, want := content(t, f), fmt.Sprintf("%4d", i); got != want {
			t.Errorf("file %d holds %q", i, got)
		}
	}
	if n := fs.OpenFiles(); n != 10 || !c.Tight() {
		t.Errorf("%d files are open of 10 that are pinned", n)
	}
	for _, f := range files {
		f.Unpin()
	}
	if n := fs.OpenFiles(); n != 3 || c.Tight() {
		t.Errorf("%d files are open at the end; want 3", n)
	}
}

// A file that is pinned outlives its retirement and the loss of its name; one
// that was retired is not opened again when its name is another's.
func TestRetiredFileIsNotOpenedAgain(t *testing.T) {
	fs := withFiles(t, 2, 100)
	c := New(fs, 10)
	f := c.Lazy("/0")
	if err := f.Pin(); err != nil {
		t.Fatal(err)
	}
	f.Retire()
	if err := fs.Rename("/1", "/0"); err != nil {
		t.Fatal(err)
	}
	if got := content(t, f); got != "   0" {
		t.Errorf("the pinned file holds %q", got)
	}
	if err := f.Pin(); !errors.Is(err, ErrRetired) {
		t.Errorf("pin a retired file: %v", err)
	}
	f.Unpin()
	if n := fs.OpenFiles(); n != 0 {
		t.Errorf("%d files are open", n)
	}
	if err := f.Pin(); !errors.Is(err, ErrRetired) {
		t.Errorf("pin a retired file that was closed: %v", err)
	}
}

// When there is no descriptor left, idle files make room, for any file; when
// there are none, the error says so, and is gone when one is free.
func TestNoDescriptors(t *testing.T) {
	fs := withFiles(t, 4, 2)
	c := New(fs, 10)
	files := []*File{c.Lazy("/0"), c.Lazy("/1"), c.Lazy("/2")}
	for _, f := range files {
		if err := f.Pin(); err != nil {
			t.Fatal(err)
		}
		f.Unpin()
	}
	if _, err := vfs.ReadAll(c, "/3", 100); err != nil {
		t.Errorf("read another file beside idle ones: %v", err)
	}
	for _, f := range files[:2] {
		if err := f.Pin(); err != nil {
			t.Fatal(err)
		}
	}
	if err := files[2].Pin(); !vfs.NoDescriptors(err) {
		t.Errorf("pin a third of 2: %v", err)
	}
	if _, err := c.Make("/5", vfs.Empty); !vfs.NoDescriptors(err) {
		t.Errorf("make a third of 2: %v", err)
	}
	files[0].Unpin()
	if err := files[2].Pin(); err != nil {
		t.Errorf("pin it when another was let go: %v", err)
	}
}

// Many at once pin, read and retire files; each reads its own, and no
// descriptor is lost.
func TestPinnedTogether(t *testing.T) {
	const n = 20
	fs := withFiles(t, n, 1000)
	c := New(fs, 4)
	var files [n]*File
	for i := range files {
		files[i] = c.Lazy(fmt.Sprint("/", i))
	}
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 500 {
				k := (i*7 + g*3) % n
				err := files[k].Pin()
				if errors.Is(err, ErrRetired) && k%5 == 0 {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if got, want := content(t, files[k]), fmt.Sprintf("%4d", k); got != want {
					t.Errorf("file %d holds %q", k, got)
				}
				files[k].Unpin()
				if k%5 == 0 && i > 250 {
					files[k].Retire()
				}
			}
		})
	}
	all.Wait()
	if open := fs.OpenFiles(); open > 4 {
		t.Errorf("%d files are open at the end", open)
	}
	for _, f := range files {
		f.Retire()
	}
	if open := fs.OpenFiles(); open != 0 {
		t.Errorf("%d files are open after all were retired", open)
	}
}
