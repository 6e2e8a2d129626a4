package openfiles

import (
	"container/list"
	"errors"
	"io"
	"sync"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
)

// ErrRetired says that the file is no longer what its name stands for.
var ErrRetired = errors.New("file was retired")

// Cache opens files when they are needed and closes those that were not needed
// for longest. It is a vfs.FS as well: what that opens is not counted, but when
// the system has no descriptor left for it, idle files are closed and it is
// tried once more. Methods may be called from many goroutines.
type Cache struct {
	vfs.FS
	max int

	mu   sync.Mutex
	last uint64    // File.ID
	open int       // files that are open or being opened
	idle list.List // *File that are open and not pinned; the longest unused first
}

// New makes a cache that keeps at most so many files open, unless more are
// pinned at once.
func New(fs vfs.FS, filesMax int) *Cache { return &Cache{FS: fs, max: max(1, filesMax)} }

// File is a file that is open while it is pinned, and maybe longer.
type File struct {
	c  *Cache
	id uint64
	// What follows is guarded by the cache's mu. file does not change while the
	// file is pinned.
	name    string
	file    vfs.File
	pins    int
	retired bool
	at      *list.Element // in idle
}

// Lazy returns a file that is opened when it is pinned. It must exist then.
func (c *Cache) Lazy(name string) *File { return &File{c: c, id: c.newID(), name: name} }

func (c *Cache) newID() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	return c.last
}

// ID is a number that no other File of the cache has.
func (f *File) ID() uint64 { return f.id }

// Name is the file's name.
func (f *File) Name() string {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	return f.name
}

// Make opens a file now; it is pinned.
func (c *Cache) Make(name string, mode vfs.Mode) (*File, error) {
	closeAll(c.reserve())
	f, err := c.Open(name, mode)
	if err != nil {
		c.mu.Lock()
		c.open--
		c.mu.Unlock()
		return nil, err
	}
	return &File{c: c, id: c.newID(), name: name, file: f, pins: 1}, nil
}

// Tight reports whether as many files are pinned as may be open.
func (c *Cache) Tight() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open-c.idle.Len() >= c.max
}

// Get returns the open file, which the caller has pinned.
func (f *File) Get() vfs.File { return f.file }

// Pin keeps the file open until Unpin. ErrRetired after Retire; otherwise the
// error is that of opening.
func (f *File) Pin() error {
	c := f.c
	c.mu.Lock()
	done, err := f.pinOpen()
	name := f.name
	c.mu.Unlock()
	if done || err != nil {
		return err
	}
	closeAll(c.reserve())
	opened, err := c.Open(name, vfs.Existing)

	c.mu.Lock()
	done, pinErr := f.pinOpen() // another may have been faster
	if err == nil && !done && pinErr == nil {
		f.file, f.pins = opened, 1
		c.mu.Unlock()
		return nil
	}
	c.open--
	c.mu.Unlock()
	if opened != nil {
		_ = opened.Close() // nothing was written
	}
	if done || pinErr != nil {
		return pinErr
	}
	return err
}

// pinOpen pins a file that is open.
func (f *File) pinOpen() (done bool, err error) {
	if f.retired {
		return false, ErrRetired
	}
	if f.file == nil {
		return false, nil
	}
	if f.at != nil {
		f.c.idle.Remove(f.at)
		f.at = nil
	}
	f.pins++
	return true, nil
}

// Unpin gives up one Pin.
func (f *File) Unpin() {
	c := f.c
	c.mu.Lock()
	f.pins--
	var excess []vfs.File
	switch {
	case f.pins > 0:
	case f.retired:
		excess = append(excess, c.drop(f))
	default:
		f.at = c.idle.PushBack(f)
		excess = c.trim(c.max)
	}
	c.mu.Unlock()
	closeAll(excess)
}

// Retire closes the file as soon as nobody has it pinned. It is not opened any
// more.
func (f *File) Retire() {
	c := f.c
	c.mu.Lock()
	f.retired = true
	var excess []vfs.File
	if f.at != nil {
		c.idle.Remove(f.at)
		f.at = nil
		excess = append(excess, c.drop(f))
	}
	c.mu.Unlock()
	closeAll(excess)
}

// Unused reports whether the file was retired and nobody has it pinned, so that
// nobody will.
func (f *File) Unused() bool {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	return f.retired && f.pins == 0
}

// Renamed takes note of the file's new name. The caller has it pinned, so that
// nobody opens it by either.
func (f *File) Renamed(name string) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	f.name = name
}

// reserve counts a file that is to be opened, and returns those that must be
// closed for it.
func (c *Cache) reserve() []vfs.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
	return c.trim(c.max)
}

// trim takes idle files out until no more than filesMax are open, if it can.
func (c *Cache) trim(filesMax int) []vfs.File {
	var excess []vfs.File
	for c.open > filesMax && c.idle.Len() > 0 {
		f, _ := c.idle.Remove(c.idle.Front()).(*File)
		f.at = nil
		excess = append(excess, c.drop(f))
	}
	return excess
}

// drop takes the open file out of f.
func (c *Cache) drop(f *File) vfs.File {
	file := f.file
	f.file = nil
	c.open--
	return file
}

func closeAll(files []vfs.File) {
	for _, f := range files {
		_ = f.Close() // what had to last was synced
	}
}

// Retry does what takes a descriptor, as Open does.
func (c *Cache) Retry(act func() error) error { return c.retry(act) }

// retry does what takes a descriptor, and closes idle files if there is none.
func (c *Cache) retry(act func() error) error {
	err := act()
	if !vfs.NoDescriptors(err) {
		return err
	}
	c.mu.Lock()
	excess := c.trim(0)
	c.mu.Unlock()
	if len(excess) == 0 {
		return err
	}
	closeAll(excess)
	return act()
}

// Open implements vfs.FS.
func (c *Cache) Open(name string, mode vfs.Mode) (f vfs.File, err error) {
	err = c.retry(func() error {
		f, err = c.FS.Open(name, mode)
		return err
	})
	return f, err
}

// List implements vfs.FS.
func (c *Cache) List(dir string) (entries []vfs.Entry, err error) {
	err = c.retry(func() error {
		entries, err = c.FS.List(dir)
		return err
	})
	return entries, err
}

// SyncDir implements vfs.FS.
func (c *Cache) SyncDir(dir string) error {
	return c.retry(func() error { return c.FS.SyncDir(dir) })
}

// Lock implements vfs.FS.
func (c *Cache) Lock(name, note string) (l io.Closer, err error) {
	err = c.retry(func() error {
		l, err = c.FS.Lock(name, note)
		return err
	})
	return l, err
}
