package logstore

import (
	"fmt"
	"log/slog"
	"path"
	"sync"
	"syscall"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

// reserveShare: the reserve takes no more than this part of the device.
const reserveShare = 64

// reserve is a file that only keeps room: it is given up when the disk is full,
// so that what frees room, and opening, can still write their few bytes.
// Appends wait (are refused, ErrFull) until it is there again.
type reserve struct {
	fs   vfs.FS
	dir  string
	want int64
	log  *slog.Logger
	// released is called when the reserve was given up; nil: nobody wants to know.
	released func()

	mu   sync.Mutex
	held bool
	busy bool // somebody changes the file, without the lock
}

func newReserve(fs vfs.FS, dir string, want int64, log *slog.Logger) *reserve {
	if total, _, err := fs.Room(dir); err == nil && total > 0 {
		want = min(want, total/reserveShare)
	}
	r := &reserve{fs: fs, dir: dir, want: want, log: log}
	r.held = r.make()
	return r
}

func (r *reserve) path() string { return path.Join(r.dir, reserveName) }

// make makes the file if the room is there.
func (r *reserve) make() bool {
	if r.want == 0 {
		return true
	}
	f, err := r.fs.Open(r.path(), vfs.Existing)
	if err == nil {
		n, _, err := f.Stat()
		_ = f.Close() // only looked at
		if err == nil && n >= r.want {
			return true
		}
	}
	// Twice, so that the next append does not take it away again at once.
	if _, free, err := r.fs.Room(r.dir); err != nil || free < 2*r.want {
		return false
	}
	if f, err = r.fs.Open(r.path(), vfs.Empty); err != nil {
		return false
	}
	err = f.Allocate(r.want)
	_ = f.Close() // it holds nothing
	if err != nil {
		_ = r.fs.Remove(r.path()) // tried again later
		return false
	}
	return true
}

// there reports whether the reserve is there, so that appends may take room.
func (r *reserve) there() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}

// admit says whether an append may take room.
func (r *reserve) admit() error {
	r.mu.Lock()
	if r.held {
		r.mu.Unlock()
		return nil
	}
	r.mu.Unlock()
	if r.restore() {
		return nil
	}
	return storage.Errorf(storage.ErrFull, "%s has no room left; free some by deleting topics, shorter retention or a larger disk", r.dir)
}

// restore makes the reserve again when there is room for it.
func (r *reserve) restore() bool {
	r.mu.Lock()
	if r.held || r.busy {
		defer r.mu.Unlock()
		return r.held
	}
	r.busy = true
	r.mu.Unlock()
	made := r.make()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy, r.held = false, made
	if made {
		r.log.Info("room returned, appends go on", "path", r.dir)
	}
	return made
}

// release gives the reserve up. It reports whether there was one.
func (r *reserve) release() bool {
	r.mu.Lock()
	if !r.held || r.busy {
		r.mu.Unlock()
		return false
	}
	r.held, r.busy = false, true
	r.mu.Unlock()
	err := r.fs.Remove(r.path())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = false
	if err != nil {
		r.log.Error("disk is full, and the reserve cannot be released", "path", r.dir, "err", err)
		return false
	}
	r.log.Error("disk is full: the reserve is released, appends are refused until room returns", "path", r.dir)
	return true
}

// control does a write that must work on a full disk.
func (r *reserve) control(write func() error) error {
	err := write()
	if vfs.Full(err) && r.release() {
		if r.released != nil {
			r.released()
		}
		err = write()
	}
	return err
}

// large is control for a write of so many bytes. Where they would not fit with the room
// of the reserve either, it is not begun, and the reserve stays.
func (r *reserve) large(bytes int64, write func() error) error {
	if _, free, err := r.fs.Room(r.dir); err == nil {
		if r.there() {
			free += r.want
		}
		if bytes > free {
			return fmt.Errorf("%d bytes more, with %d free: %w", bytes, free, syscall.ENOSPC)
		}
	}
	return r.control(write)
}
