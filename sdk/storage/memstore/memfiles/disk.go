package memfiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// Disk is what outlives a store: a memstore's disk, and the files. Its methods may
// be called from many goroutines.
type Disk struct {
	inner *memstore.Disk
	dir   string

	// mu is held over every call of the store, file access and all: one thing
	// happens at a time. Completions are told without it.
	mu       sync.Mutex
	holder   *Store
	logs     map[storage.LogID]*layout
	lastFile uint64
}

func newDisk(inner *memstore.Disk, dir string) *Disk {
	return &Disk{inner: inner, dir: dir, logs: make(map[storage.LogID]*layout)}
}

// open opens a store on the disk, which it locks by a file of its directory.
func (d *Disk) open(_ context.Context, cfg storage.Config, opt memstore.Options) (storage.Store, storage.DirectoryID, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	lock, err := d.takeLock()
	if err != nil {
		return nil, storage.DirectoryID{}, err
	}
	inner, dir, err := memstore.Open(d.inner, cfg, opt)
	if err != nil {
		lock.Close()
		return nil, storage.DirectoryID{}, err
	}
	d.holder = &Store{
		inner:  inner,
		disk:   d,
		opt:    opt,
		lock:   lock,
		logs:   make(map[storage.LogID]*openLog),
		owners: make(map[storage.Handle]*openLog),
	}
	return d.holder, dir, nil
}

func (d *Disk) takeLock() (*os.File, error) {
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, storage.Errorf(storage.ErrGone, "make the directory of a disk: %v", err)
	}
	lock, err := os.OpenFile(filepath.Join(d.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, storage.Errorf(storage.ErrGone, "open the lock of a disk: %v", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, storage.Errorf(storage.ErrFenced, "the store is locked (%v); shut down the broker that uses it", err)
	}
	return lock, nil
}

// Kill ends the store that holds the disk, if any, as kill -9 ends its process:
// what is in memory and in files stays, and so does the lock of a host.
func (d *Disk) Kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inner.Kill()
	d.letGo()
}

// LosePower is Kill, and takes what was not flushed, as seed decides. Granted
// writes that were not told are lost.
func (d *Disk) LosePower(seed uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inner.LosePower(seed)
	for _, l := range d.logs {
		l.disturbed = true
		l.suspect = l.suspect || l.loose
	}
	d.letGo()
}

// Overwrite is memstore's, of the stored copies of a batch. No store is open.
func (d *Disk) Overwrite(id storage.LogID, batch []byte, at int, with []byte) error {
	return d.damage(id, batch, func() error { return d.inner.Overwrite(id, batch, at, with) },
		func(f *os.File, pos int64) error {
			_, err := f.WriteAt(with, pos+int64(at))
			return err
		})
}

// Tear is memstore's. No store is open.
func (d *Disk) Tear(id storage.LogID, batch []byte, keep int) error {
	return d.damage(id, batch, func() error { return d.inner.Tear(id, batch, keep) },
		func(f *os.File, pos int64) error { return f.Truncate(pos + int64(keep)) })
}

// damage damages a batch, in the file if it is one that was not told, and otherwise
// in memory: what was not told behind it is lost with it.
func (d *Disk) damage(id storage.LogID, batch []byte, inMemory func() error, inFile func(f *os.File, pos int64) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.logs[id]
	if l == nil || l.last() == nil {
		return inMemory()
	}
	f := l.last()
	rest, err := f.behind()
	if err != nil {
		return err
	}
	if i := bytes.Index(rest, batch); i >= 0 && !l.disturbed {
		return inFile(f.f, f.size+int64(i))
	}
	l.disturbed = true
	return inMemory()
}

// SetFree is memstore's. Files are not counted.
func (d *Disk) SetFree(bytes int64) { d.inner.SetFree(bytes) }

func (d *Disk) letGo() {
	if s := d.holder; s != nil {
		s.lock.Close() // the kernel lets go of the lock with the last copy
		d.holder = nil
	}
}

// layout is where the batches of one log lie.
type layout struct {
	leo   int64
	files []*file // in the order of the log; the last is written to
	spare *file   // to be the log's next
	// disturbed: files and memory differ, and the files are to be written again.
	disturbed bool
	// lost: the log could not be kept in files, and is not lent.
	lost bool
	// loose: writes under a grant may have been acknowledged and not been told.
	// suspect: such writes may be lost.
	loose, suspect bool
}

// file is one file of a log.
type file struct {
	id      uint64
	f       *os.File
	size    int64 // where the last batch that is known ends
	dirty   int64 // above size: up to where other batches were once written
	gaps    bool  // what was written under its latest grant may leave gaps
	batches []placed
	lent    int64 // up to where leases reach, returned or not, or may have in an earlier life
}

// placed is a batch and where it lies.
type placed struct {
	storage.BatchInfo
	pos int64
}

// markBytes is how many zeros are behind the last batch of a file that held others:
// where a batch's length would be.
const markBytes = 16

// mark is how many zeros end a write that begins at size.
func (f *file) mark() int {
	if f.dirty > f.size {
		return markBytes
	}
	return 0
}

func (d *Disk) newFile() (*file, error) {
	d.lastFile++
	f, err := os.OpenFile(filepath.Join(d.dir, fmt.Sprintf("%08d.log", d.lastFile)), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a file for a log: %w", err)
	}
	return &file{id: d.lastFile, f: f}, nil
}

// roll begins the log's next file: the spare one, if there is.
func (d *Disk) roll(l *layout) error {
	next := l.spare
	l.spare = nil
	if next == nil {
		fresh, err := d.newFile()
		if err != nil {
			return err
		}
		next = fresh
	}
	if last := l.last(); last != nil {
		if err := last.cut(last.size); err != nil {
			return err
		}
	}
	l.files = append(l.files, next)
	return nil
}

// cut ends the file at size, which is not below where leases reach.
func (f *file) cut(size int64) error {
	if err := f.f.Truncate(size); err != nil {
		return fmt.Errorf("cut a file of a log: %w", err)
	}
	f.size, f.dirty = size, size
	return nil
}

func (l *layout) last() *file {
	if n := len(l.files); n > 0 {
		return l.files[n-1]
	}
	return nil
}

// drop removes a file from the directory. Those who hold it open keep its bytes.
func (f *file) drop() {
	os.Remove(f.f.Name())
	f.f.Close()
}

// forget drops all files.
func (l *layout) forget() {
	for _, f := range l.files {
		f.drop()
	}
	if l.spare != nil {
		l.spare.drop()
	}
	l.files, l.spare = nil, nil
}

// trim takes the files that are wholly below start from the log. One of which nothing
// was ever leased becomes the spare: all in it is below start for ever.
func (d *Disk) trim(l *layout, start int64) {
	for len(l.files) > 1 && l.files[0].end() <= start {
		f := l.files[0]
		l.files = l.files[1:]
		if f.lent > 0 || l.spare != nil {
			f.drop()
			continue
		}
		d.lastFile++ // to those who had grants of it, another one
		*f = file{id: d.lastFile, f: f.f, dirty: f.size}
		l.spare = f
	}
}

// lendAll takes note that the log was opened: an earlier life may have leased all that is
// in its files.
func (l *layout) lendAll() {
	for _, f := range l.files {
		f.lent = max(f.lent, f.size)
	}
	if l.spare != nil {
		l.spare.drop()
		l.spare = nil
	}
}

// end is the offset behind the file's last batch.
func (f *file) end() int64 {
	if n := len(f.batches); n > 0 {
		return f.batches[n-1].LastOffset + 1
	}
	return 0
}

// truncate takes the batches that hold an offset of to or above. What leases reach
// stays in its file, and the log goes on in another.
func (d *Disk) truncate(l *layout, to int64) error {
	for n := len(l.files); n > 0; n = len(l.files) {
		f := l.files[n-1]
		keep := len(f.batches)
		for keep > 0 && f.batches[keep-1].LastOffset >= to {
			keep--
		}
		if keep > 0 || n == 1 {
			return d.truncateFile(l, f, keep)
		}
		f.drop()
		l.files = l.files[:n-1]
	}
	return nil
}

// truncateFile keeps the first batches of the log's last file.
func (d *Disk) truncateFile(l *layout, f *file, keep int) error {
	if keep < len(f.batches) {
		f.size = f.batches[keep].pos
		f.batches = f.batches[:keep:keep]
	}
	if f.lent <= f.size { // nor was it left so by an earlier truncation
		return f.cut(f.size)
	}
	next, err := d.newFile()
	if err != nil {
		return err
	}
	l.files = append(l.files, next)
	return nil
}

// put writes batches, whose bytes are data, behind the log's last, in a new file
// where they would make the last one larger than limit.
func (d *Disk) put(l *layout, batches []storage.BatchInfo, data []byte, limit int64) error {
	if l.lost {
		return nil
	}
	if f := l.last(); f == nil || f.size > 0 && f.size+int64(len(data)) > limit {
		if err := d.roll(l); err != nil {
			return err
		}
	}
	f := l.last()
	data = append(data[:len(data):len(data)], make([]byte, f.mark())...)
	if _, err := f.f.WriteAt(data, f.size); err != nil {
		return fmt.Errorf("write to a file of a log: %w", err)
	}
	f.place(batches)
	return nil
}

// behind is all that lies in the file behind the last batch that is known.
func (f *file) behind() ([]byte, error) {
	rest, err := io.ReadAll(io.NewSectionReader(f.f, f.size, math.MaxInt64-f.size))
	if err != nil {
		return nil, storage.Errorf(storage.ErrGone, "read a file of the log: %v", err)
	}
	return rest, nil
}

// place notes batches that lie behind the last one that is known.
func (f *file) place(batches []storage.BatchInfo) {
	for _, b := range batches {
		f.batches = append(f.batches, placed{b, f.size})
		f.size += int64(b.Bytes)
	}
	f.dirty = max(f.dirty, f.size)
}

// keep passes on the outcome of a change of a log's files.
func (l *layout) keep(err error) error {
	if err != nil {
		l.forget()
		l.lost = true
		return errors.Join(storage.Errorf(storage.ErrGone, "keep a log in files"), err)
	}
	return nil
}
