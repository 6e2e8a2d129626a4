package storagefile

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/storagetest"
)

var errKilled = errors.New("the process was killed")

// killable is the operating system's file system as one process sees it, which can
// be killed: nothing changes by it any more, and its locks are let go, but for what
// it has lent.
type killable struct {
	vfs.OS
	mu    sync.RWMutex // held over each change
	dead  bool
	locks []io.Closer
}

var _ vfs.Lender = (*killable)(nil)

func (k *killable) change(do func() error) error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.dead {
		return errKilled
	}
	return do()
}

func (k *killable) kill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dead = true
	for _, lock := range k.locks {
		_ = lock.Close() // closed already if the store was shut down
	}
}

func (k *killable) Open(name string, mode vfs.Mode) (f vfs.File, err error) {
	err = k.change(func() error {
		f, err = k.OS.Open(name, mode)
		return err
	})
	if err != nil {
		return nil, err
	}
	return killableFile{f, k}, nil
}

func (k *killable) Mkdir(name string) error {
	return k.change(func() error { return k.OS.Mkdir(name) })
}

func (k *killable) Remove(name string) error {
	return k.change(func() error { return k.OS.Remove(name) })
}

func (k *killable) Rename(from, to string) error {
	return k.change(func() error { return k.OS.Rename(from, to) })
}

func (k *killable) Lock(name, note string) (lock io.Closer, err error) {
	err = k.change(func() error {
		lock, err = k.OS.Lock(name, note)
		return err
	})
	if err == nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.locks = append(k.locks, lock)
	}
	return lock, err
}

func (k *killable) LendEnd(f vfs.File) (*os.File, error) {
	return k.OS.LendEnd(f.(killableFile).File)
}

func (k *killable) LendBytes(f vfs.File, name string) (*os.File, error) {
	return k.OS.LendBytes(f.(killableFile).File, name)
}

// killableFile is a file of a killable.
type killableFile struct {
	vfs.File
	k *killable
}

func (f killableFile) WriteVecAt(bufs [][]byte, off int64) (n int, err error) {
	err = f.k.change(func() error {
		n, err = f.File.WriteVecAt(bufs, off)
		return err
	})
	return n, err
}

func (f killableFile) Truncate(bytes int64) error {
	return f.k.change(func() error { return f.File.Truncate(bytes) })
}

func (f killableFile) Allocate(bytes int64) error {
	return f.k.change(func() error { return f.File.Allocate(bytes) })
}

// killables is a provider of stores on real files, each as if in a process of its
// own.
type killables struct {
	mu   sync.Mutex
	open map[string][]*killable // by path
}

func (ks *killables) Info() storage.Info { return Provider().Info() }

func (ks *killables) Open(ctx context.Context, cfg storage.Config) (storage.Store, storage.DirectoryID, error) {
	k := &killable{}
	p := &provider{fs: k, now: time.Now}
	store, id, err := p.Open(ctx, cfg)
	if err == nil {
		ks.mu.Lock()
		defer ks.mu.Unlock()
		ks.open[pathOf(cfg)] = append(ks.open[pathOf(cfg)], k)
	}
	return store, id, err
}

// hooks are fileHooks, and the kill.
func (ks *killables) hooks() storagetest.Hooks {
	hooks := fileHooks()
	hooks.Kill = func(ctx context.Context, cfg storage.Config, stores []storage.Store) error {
		ks.mu.Lock()
		open := ks.open[pathOf(cfg)]
		ks.open[pathOf(cfg)] = nil
		ks.mu.Unlock()
		for _, k := range open {
			k.kill()
		}
		for _, s := range stores {
			_ = s.Shutdown(ctx) // it changes nothing any more, and its goroutines end
		}
		return nil
	}
	return hooks
}
