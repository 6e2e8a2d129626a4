package faultfs

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mounted is a disk on a directory that only do sees.
type mounted struct {
	*Disk
	t  *testing.T
	ns *Namespace
	at string
}

func mount(t *testing.T) *mounted {
	t.Helper()
	if Missing(t.Logf) {
		t.Skip("it needs a disk of faults")
	}
	ns, err := NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ns.Close)
	d, err := New(filepath.Join(t.TempDir(), "bytes"))
	if err != nil {
		t.Fatal(err)
	}
	m := &mounted{Disk: d, t: t, ns: ns, at: t.TempDir()}
	m.do(func() error { return d.Mount(m.at) })
	t.Cleanup(func() { m.do(d.Unmount) })
	return m
}

func (m *mounted) do(f func() error) {
	m.t.Helper()
	if err := m.ns.Do(f); err != nil {
		m.t.Fatal(err)
	}
}

// losePower cuts it, and mounts what is left.
func (m *mounted) losePower(seed uint64) {
	m.t.Helper()
	m.do(func() error {
		if err := m.Unmount(); err != nil {
			return err
		}
		if _, err := m.LosePower(rand.New(rand.NewPCG(seed, 0))); err != nil {
			return err
		}
		return m.Mount(m.at)
	})
}

func (m *mounted) path(name string) string { return filepath.Join(m.at, name) }

// want fails unless f's error is the one.
func (m *mounted) want(want error, f func() error) {
	m.t.Helper()
	if err := m.ns.Do(f); !errors.Is(err, want) {
		m.t.Fatalf("error %v, want %v", err, want)
	}
}

// put writes at an offset of a file that is there.
func put(name string, p []byte, at int64, synced bool) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteAt(p, at); err != nil {
		return err
	}
	if synced {
		return f.Sync()
	}
	return nil
}

func syncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// fill makes a file with a directory above it, synced.
func (m *mounted) fill(name string, p []byte) {
	m.t.Helper()
	m.do(func() error {
		path := m.path(name)
		return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644),
			put(path, p, 0, true), syncDir(filepath.Dir(path)), syncDir(m.at))
	})
}

func (m *mounted) read(name string) (got []byte) {
	m.t.Helper()
	m.do(func() (err error) {
		got, err = os.ReadFile(m.path(name))
		return err
	})
	return got
}

func TestFiles(t *testing.T) {
	m := mount(t)
	want := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	m.fill("logs/a", want)
	if got := m.read("logs/a"); !bytes.Equal(got, want) {
		t.Fatalf("%d bytes are read, not those %d", len(got), len(want))
	}
	if got, err := m.Read("/logs/a"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes are read from outside: %v", len(got), err)
	}
	if names := m.Names("/logs"); len(names) != 1 || names[0] != "a" || m.Names("/other/x") != nil {
		t.Errorf("the names are %q", names)
	}
	m.do(func() error {
		f, err := os.OpenFile(m.path("logs/a"), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		again, err := os.Open(m.path("logs/a"))
		if err != nil {
			return err
		}
		defer again.Close()
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			return err
		}
		if err := unix.Flock(int(again.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			t.Errorf("a lock that is held was given again: %v", err)
		}
		if err := unix.Fallocate(int(f.Fd()), 0, 0, 2<<20); err != nil {
			return err
		}
		if info, err := f.Stat(); err != nil || info.Size() != 2<<20 {
			t.Errorf("the file has %d bytes: %v", info.Size(), err)
		}
		if err := f.Truncate(16); err != nil {
			return err
		}
		if err := os.Rename(m.path("logs/a"), m.path("logs/b")); err != nil {
			return err
		}
		// One that is open has its bytes without a name.
		if err := os.RemoveAll(m.path("logs")); err != nil {
			return err
		}
		if _, err := f.WriteAt([]byte("x"), 0); err != nil {
			return err
		}
		var got [16]byte
		if _, err := again.ReadAt(got[:], 0); err != nil || string(got[:]) != "x123456789abcdef" {
			t.Errorf("%q is read: %v", got, err)
		}
		return nil
	})
	if names, err := os.ReadDir(m.dir); err != nil || len(names) != 1 {
		t.Errorf("%d files are kept, one of which the disk still has: %v", len(names), err)
	}
	m.do(func() error { return syncDir(m.at) })
	if names, err := os.ReadDir(m.dir); err != nil || len(names) != 0 {
		t.Errorf("%d files are kept of those that are gone for good: %v", len(names), err)
	}
	if used := m.used.Load(); used != 0 {
		t.Errorf("%d bytes are in use by nothing", used)
	}
}

// TestLossOfPower: what was synced is there, what was not is there in every way.
func TestLossOfPower(t *testing.T) {
	m := mount(t)
	old, fresh := bytes.Repeat([]byte("o"), 3*pageBytes), bytes.Repeat([]byte("n"), 2*pageBytes)
	var none, all, torn, gone, there int
	for seed := range uint64(60) {
		m.fill("logs/log", old)
		m.do(func() error {
			return errors.Join(put(m.path("logs/log"), fresh, int64(len(old))-100, false), os.WriteFile(m.path("logs/new"), old, 0o644))
		})
		m.losePower(seed)
		got := m.read("logs/log")
		if len(got) < len(old) || !bytes.Equal(got[:len(old)-sectorBytes], old[:len(old)-sectorBytes]) {
			t.Fatalf("seed %d: what was synced is gone", seed)
		}
		switch written := append(bytes.Clone(old[:len(old)-100]), fresh...); {
		case bytes.Equal(got, old):
			none++
		case bytes.Equal(got, written):
			all++
		default:
			torn++
		}
		m.do(func() error {
			if _, err := os.Stat(m.path("logs/new")); err == nil {
				there++
			} else {
				gone++
			}
			return errors.Join(os.RemoveAll(m.path("logs")), syncDir(m.at))
		})
	}
	if none == 0 || all == 0 || torn == 0 || gone == 0 || there == 0 {
		t.Errorf("nothing kept %d times, all %d, a part %d; a name kept %d times, and lost %d", none, all, torn, there, gone)
	}
}

// TestRemovedAndRenamed: until the directory is synced, a loss of power may bring back what was removed.
func TestRemovedAndRenamed(t *testing.T) {
	m := mount(t)
	back, renamed := 0, 0
	for seed := range uint64(40) {
		m.fill("logs/a", []byte("a"))
		m.fill("logs/b", []byte("b"))
		m.do(func() error {
			return errors.Join(os.Rename(m.path("logs/a"), m.path("logs/b")), os.Remove(m.path("logs/b")))
		})
		m.losePower(seed)
		m.do(func() error {
			a, errA := os.ReadFile(m.path("logs/a"))
			b, errB := os.ReadFile(m.path("logs/b"))
			switch {
			case errA == nil && errB == nil && string(a) == "a" && string(b) == "b":
				back++
			case errA != nil && errB == nil && string(b) == "a":
				renamed++
			case errA != nil && errB != nil:
			default:
				t.Errorf("seed %d: %q %v, %q %v", seed, a, errA, b, errB)
			}
			return errors.Join(os.RemoveAll(m.path("logs")), syncDir(m.at))
		})
	}
	if back == 0 || renamed == 0 || back+renamed == 40 {
		t.Errorf("of 40, all was undone %d times, and a part %d", back, renamed)
	}
}

// TestMoved: a file that goes to another directory is in one of them after a loss of power.
func TestMoved(t *testing.T) {
	m := mount(t)
	var here, there int
	for seed := range uint64(40) {
		m.fill("logs/a", []byte("a"))
		m.do(func() error {
			if err := os.Rename(m.path("logs/a"), m.path("a")); err != nil || seed%4 > 0 {
				return err
			}
			return syncDir(m.path(map[bool]string{true: "", false: "logs"}[seed%8 == 0]))
		})
		m.losePower(seed)
		m.do(func() error {
			_, errOld := os.Stat(m.path("logs/a"))
			_, errNew := os.Stat(m.path("a"))
			switch {
			case errOld == nil && errNew != nil && seed%4 > 0:
				here++
			case errOld != nil && errNew == nil:
				there++
			default:
				t.Errorf("seed %d: %v, %v", seed, errOld, errNew)
			}
			return errors.Join(os.RemoveAll(m.path("logs")), os.RemoveAll(m.path("a")), syncDir(m.at))
		})
	}
	if here == 0 || there <= 10 {
		t.Errorf("of 40, the file was moved %d times, and not %d", there, here)
	}
}

// TestRefusedSync: what a sync was refused for is not made durable by the next one.
func TestRefusedSync(t *testing.T) {
	m := mount(t)
	m.fill("logs/log", []byte("old"))
	m.Set(Fault{Path: "/logs", Ops: Syncs, Err: syscall.EIO})
	m.want(syscall.EIO, func() error { return put(m.path("logs/log"), []byte("new"), 0, true) })
	m.Set()
	m.do(func() error { return put(m.path("logs/log"), []byte("more"), pageBytes, true) })
	if got := string(m.read("logs/log")[:3]); got != "new" {
		t.Errorf("%q is read before the loss of power", got)
	}
	m.losePower(1)
	if got := m.read("logs/log"); string(got[:3]) != "old" || string(got[pageBytes:]) != "more" {
		t.Errorf("%q and %q are read after it", got[:3], got[pageBytes:])
	}
	if m.Hits() != 1 {
		t.Errorf("%d operations had a fault", m.Hits())
	}
}

// TestRefusedAsPowerGoes: a sync that is refused since the power goes has no part in what is
// lost with it.
func TestRefusedAsPowerGoes(t *testing.T) {
	m := mount(t)
	m.fill("log", []byte("old"))
	m.Set(Fault{Ops: Syncs, Least: time.Hour, Most: time.Hour, Err: syscall.EIO})
	var f *os.File
	m.do(func() (err error) {
		f, err = os.OpenFile(m.path("log"), os.O_RDWR, 0)
		return err
	})
	defer f.Close()
	if _, err := f.WriteAt([]byte("new"), 0); err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 1)
	go func() { refused <- f.Sync() }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for m.Hits() == 0 {
		<-tick.C
	}
	m.losePower(1)
	if err := <-refused; !errors.Is(err, syscall.EIO) {
		t.Errorf("the sync that was under way: error %v, want %v", err, syscall.EIO)
	}
	m.Set()
	m.do(func() error { return put(m.path("log"), []byte("sync"), 0, true) })
	m.losePower(1)
	if got := string(m.read("log")); got != "sync" {
		t.Errorf("%q is read, which was synced since", got)
	}
}

func TestFaults(t *testing.T) {
	m := mount(t)
	m.fill("logs/log", []byte("old"))
	m.fill("quorum", []byte("old"))
	m.Set(Fault{Path: "/logs", Ops: Writes | Opens | Names, Err: syscall.EIO})
	m.want(syscall.EIO, func() error { return put(m.path("logs/log"), []byte("new"), 0, false) })
	m.want(syscall.EIO, func() error { return os.WriteFile(m.path("logs/new"), nil, 0o644) })
	m.want(syscall.EIO, func() error { return os.Remove(m.path("logs/log")) })
	m.want(nil, func() error { return put(m.path("quorum"), []byte("new"), 0, true) })
	const delay = 50 * time.Millisecond
	m.Set(Fault{Path: "/quorum", Ops: Syncs, Least: delay, Most: delay})
	began := time.Now()
	m.want(nil, func() error { return put(m.path("quorum"), []byte("new"), 0, true) })
	if took := time.Since(began); took < delay {
		t.Errorf("a slow sync took %s", took)
	}
	// Who waits goes on when the faults end.
	m.Set(Fault{Ops: Syncs, Least: time.Hour, Most: time.Hour})
	time.AfterFunc(delay, func() { m.Set() })
	m.want(nil, func() error { return put(m.path("quorum"), []byte("new"), 0, true) })
	m.Off()
	m.want(syscall.EIO, func() error { return put(m.path("quorum"), []byte("new"), 0, true) })
}

func TestFull(t *testing.T) {
	m := mount(t)
	m.fill("log", make([]byte, pageBytes))
	m.Fill(100)
	m.want(syscall.ENOSPC, func() error { return put(m.path("log"), make([]byte, 200), pageBytes, false) })
	if got := m.read("log"); len(got) != pageBytes+100 {
		t.Errorf("%d bytes were written in a room of 100", len(got)-pageBytes)
	}
	m.want(nil, func() error { return put(m.path("log"), make([]byte, pageBytes), 0, true) })
	m.want(syscall.ENOSPC, func() error { return os.Mkdir(m.path("logs"), 0o755) })
	m.want(nil, func() error {
		var s unix.Statfs_t
		if err := unix.Statfs(m.at, &s); err != nil || s.Bavail != 0 {
			t.Errorf("%d blocks of a full disk are free: %v", s.Bavail, err)
		}
		return nil
	})
	m.Fill(-1)
	m.want(nil, func() error { return put(m.path("log"), make([]byte, 200), pageBytes, false) })
}

func TestBoot(t *testing.T) {
	m := mount(t)
	dir := t.TempDir()
	for _, id := range []string{"first", "second"} {
		if err := m.ns.Boot(dir, id); err != nil {
			t.Fatal(err)
		}
		m.do(func() error {
			out, err := exec.Command("cat", bootIDFile).Output()
			if got := strings.TrimSpace(string(out)); got != id {
				t.Errorf("the boot ID is %q, want %q", got, id)
			}
			return err
		})
	}
	if own, err := os.ReadFile(bootIDFile); err != nil || strings.TrimSpace(string(own)) == "second" {
		t.Errorf("this process sees boot ID %q: %v", own, err)
	}
}
