package vfs

import (
	"io"
	"os"
	"syscall"
	"time"
)

// pageBytes is the unit in which a system overwrites what it has in memory.
const pageBytes = 4 << 10

// memFile is one opening of a file of a Mem.
type memFile struct {
	m    *Mem
	n    *node
	name string
	// closed is guarded by the file system's lock.
	closed bool
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return 0, &os.PathError{Op: "read", Path: f.name, Err: os.ErrClosed}
	}
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteVecAt(bufs [][]byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return 0, &os.PathError{Op: "write", Path: f.name, Err: os.ErrClosed}
	}
	var all []byte
	for _, b := range bufs {
		all = append(all, b...)
	}
	if err := f.m.before("write", f.name, len(all)); err != nil {
		half := len(all) / 2
		if at := off + int64(half); at < int64(len(f.n.data)) {
			// A system stops in the midst of what was there between two pages.
			half = int(max(0, at/pageBytes*pageBytes-off))
		}
		f.put(all[:half], off)
		return half, err
	}
	if limit := f.m.cfg.Capacity; limit > 0 {
		grow := off + int64(len(all)) - int64(len(f.n.data))
		if room := limit - f.m.used; grow > 0 && grow > room {
			fits := max(0, int64(len(all))-(grow-max(0, room)))
			f.put(all[:fits], off)
			return int(fits), &os.PathError{Op: "write", Path: f.name, Err: syscall.ENOSPC}
		}
	}
	f.put(all, off)
	return len(all), nil
}

func (f *memFile) put(b []byte, off int64) {
	if len(b) == 0 {
		return
	}
	before := len(f.n.data)
	c := change{off: off, data: b}
	f.n.data = c.apply(f.n.data)
	f.n.pending = append(f.n.pending, c)
	f.n.modified = f.m.cfg.Now()
	f.m.used += int64(len(f.n.data) - before)
}

func (f *memFile) Truncate(bytes int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.m.before("truncate", f.name, 0); err != nil {
		return err
	}
	f.m.resize(f.n, bytes)
	return nil
}

// Sync makes the bytes durable. A refused sync forgets that they were not, as
// Linux does: a later sync that succeeds does not bring them to the disk.
func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return &os.PathError{Op: "sync", Path: f.name, Err: os.ErrClosed}
	}
	if err := f.m.before("sync", f.name, 0); err != nil {
		f.n.pending = nil
		return err
	}
	for _, c := range f.n.pending {
		f.n.durable = c.apply(f.n.durable)
	}
	f.n.pending = nil
	return nil
}

func (f *memFile) Allocate(bytes int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.m.before("allocate", f.name, 0); err != nil {
		return err
	}
	grow := bytes - int64(len(f.n.data))
	if grow <= 0 {
		return nil
	}
	if limit := f.m.cfg.Capacity; limit > 0 && grow > limit-f.m.used {
		return &os.PathError{Op: "allocate", Path: f.name, Err: syscall.ENOSPC}
	}
	f.m.resize(f.n, bytes)
	return nil
}

func (f *memFile) Stat() (int64, time.Time, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return int64(len(f.n.data)), f.n.modified, nil
}

func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return &os.PathError{Op: "close", Path: f.name, Err: os.ErrClosed}
	}
	f.closed = true
	f.m.open--
	return nil
}
