package vfs

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
)

// both runs a test on each implementation, in an empty directory.
func both(t *testing.T, test func(t *testing.T, fs FS, dir string)) {
	t.Run("os", func(t *testing.T) { test(t, OS{}, t.TempDir()) })
	t.Run("mem", func(t *testing.T) {
		fs := NewMem(MemConfig{})
		if err := fs.Mkdir("/d"); err != nil {
			t.Fatal(err)
		}
		test(t, fs, "/d")
	})
}

func mustOpen(t *testing.T, fs FS, name string, mode Mode) File {
	t.Helper()
	f, err := fs.Open(name, mode)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestFilesBehaveAlike(t *testing.T) {
	both(t, func(t *testing.T, fs FS, dir string) {
		if _, err := fs.Open(dir+"/a", Existing); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("open what is missing: %v", err)
		}
		f := mustOpen(t, fs, dir+"/a", Empty)
		vec := make([][]byte, maxVec+10)
		for i := range vec {
			vec[i] = []byte{byte(i), byte(i >> 8)}
		}
		if n, err := f.WriteVecAt(vec, 3); err != nil || n != 2*len(vec) {
			t.Fatalf("write: %d, %v", n, err)
		}
		want := append(make([]byte, 3), bytes.Join(vec, nil)...)
		if got, err := ReadAll(fs, dir+"/a", 1<<20); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("read: %d bytes, %v", len(got), err)
		}
		if _, err := ReadAll(fs, dir+"/a", 10); !errors.Is(err, syscall.EFBIG) {
			t.Errorf("read of more than the limit: %v", err)
		}
		if err := errors.Join(f.Truncate(5), f.Sync(), f.Allocate(9)); err != nil {
			t.Fatal(err)
		}
		if n, _, err := f.Stat(); err != nil || n != 9 {
			t.Errorf("size %d, %v; want 9", n, err)
		}
		mustOpen(t, fs, dir+"/b", Empty)
		if err := fs.Rename(dir+"/a", dir+"/b"); err != nil {
			t.Fatal(err)
		}
		if err := fs.Mkdir(dir + "/sub"); err != nil {
			t.Fatal(err)
		}
		if err := fs.Mkdir(dir + "/sub"); !errors.Is(err, os.ErrExist) {
			t.Errorf("mkdir of what is there: %v", err)
		}
		mustOpen(t, fs, dir+"/sub/c", Empty)
		if err := fs.Remove(dir + "/sub"); !errors.Is(err, syscall.ENOTEMPTY) {
			t.Errorf("remove of a full directory: %v", err)
		}
		entries, err := fs.List(dir)
		if err != nil || len(entries) != 2 {
			t.Fatalf("list: %v, %v", entries, err)
		}
		if err := errors.Join(fs.SyncDir(dir), RemoveTree(fs, dir)); err != nil {
			t.Fatal(err)
		}
		if err := fs.Remove(dir + "/b"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("remove of what is missing: %v", err)
		}
	})
}

func TestReadOfRemovedFile(t *testing.T) {
	both(t, func(t *testing.T, fs FS, dir string) {
		f := mustOpen(t, fs, dir+"/a", Empty)
		if _, err := f.WriteVecAt([][]byte{[]byte("still")}, 0); err != nil {
			t.Fatal(err)
		}
		if err := fs.Remove(dir + "/a"); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 5)
		if n, err := f.ReadAt(b, 0); n != 5 || string(b) != "still" {
			t.Errorf("read %q, %v", b[:n], err)
		}
	})
}

func TestLockHeld(t *testing.T) {
	both(t, func(t *testing.T, fs FS, dir string) {
		first, err := fs.Lock(dir+"/lock", "process 42")
		if err != nil {
			t.Fatal(err)
		}
		var held *HeldError
		if _, err := fs.Lock(dir+"/lock", "process 43"); !errors.As(err, &held) || held.Note != "process 42" {
			t.Errorf("second lock: %v", err)
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := fs.Lock(dir+"/lock", "process 44")
		if err != nil {
			t.Fatal(err)
		}
		_ = again.Close()
	})
}

func TestRoom(t *testing.T) {
	both(t, func(t *testing.T, fs FS, dir string) {
		if total, free, err := fs.Room(dir); err != nil || total <= 0 || free < 0 || free > total {
			t.Errorf("room: %d of %d, %v", free, total, err)
		}
	})
}

// A loss of power keeps what was synced, and sometimes loses what was not.
func TestPowerLoss(t *testing.T) {
	lostBytes, lostName, torn := false, false, false
	for seed := range uint64(50) {
		m := NewMem(MemConfig{})
		f := mustOpen(t, m, "/a", Empty)
		old := bytes.Repeat([]byte{1}, 2000)
		if _, err := f.WriteVecAt([][]byte{old}, 0); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Sync(), m.SyncDir("/")); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteVecAt([][]byte{bytes.Repeat([]byte{2}, 2000)}, 2000); err != nil {
			t.Fatal(err)
		}
		mustOpen(t, m, "/b", Empty)
		after := m.AfterPowerLoss(MemConfig{}, rand.New(rand.NewPCG(seed, 0)))
		got, err := ReadAll(after, "/a", 1<<20)
		if err != nil || !bytes.HasPrefix(got, old) {
			t.Fatalf("seed %d: synced bytes are lost: %d, %v", seed, len(got), err)
		}
		lostBytes = lostBytes || len(got) == 2000
		torn = torn || len(got) > 2000 && len(got) < 4000
		if _, err := after.Open("/b", Existing); err != nil {
			lostName = true
		}
	}
	if !lostBytes || !lostName || !torn {
		t.Errorf("in 50 losses: bytes %v, name %v, torn %v", lostBytes, lostName, torn)
	}
}

// A refused sync makes a later one lie, as on Linux.
func TestRefusedSyncLies(t *testing.T) {
	refuse := true
	m := NewMem(MemConfig{Before: func(op Op) error {
		if op.Kind == "sync" && refuse {
			refuse = false
			return syscall.EIO
		}
		return nil
	}})
	f := mustOpen(t, m, "/a", Empty)
	if _, err := f.WriteVecAt([][]byte{[]byte("x")}, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), m.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	lost := false
	for seed := range uint64(20) {
		got, err := ReadAll(m.AfterPowerLoss(MemConfig{}, rand.New(rand.NewPCG(seed, 0))), "/a", 10)
		lost = lost || err == nil && len(got) == 0
	}
	if !lost {
		t.Error("the second sync brought the bytes to the disk")
	}
}

func TestFullMemWritesInPart(t *testing.T) {
	m := NewMem(MemConfig{Capacity: 10})
	f := mustOpen(t, m, "/a", Empty)
	if n, err := f.WriteVecAt([][]byte{make([]byte, 16)}, 0); n != 10 || !Full(err) {
		t.Errorf("wrote %d, %v", n, err)
	}
	if err := f.Truncate(0); err != nil || m.Used() != 0 {
		t.Errorf("used %d, %v", m.Used(), err)
	}
}
