package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/brokerd/brokerd/sdk/storage"
)

const (
	// lockTimeout is how long another process's lock of the file is waited for: a
	// plugin that was killed lets go at once.
	lockTimeout = time.Second
	// defaultReserve is the room that appends leave on the device, so that what
	// frees room can still be written: bbolt writes pages anew to delete from them.
	defaultReserve = 16 << 20
)

// settings is the plugin's section of the configuration.
type settings struct {
	Path    string `json:"path"`
	Reserve int64  `json:"reserve_bytes"`
}

// provider makes stores. It may be used from many goroutines.
type provider struct {
	// room asks for the bytes of the device below a directory.
	room func(dir string) (storage.Usage, error)
	// lastHandle is shared by all stores of the process, since a handle is never
	// used twice in one life of it.
	lastHandle atomic.Uint64
}

func newProvider(room func(dir string) (storage.Usage, error)) *provider {
	return &provider{room: room}
}

// Info implements storage.Provider.
func (p *provider) Info() storage.Info {
	return storage.Info{
		Name:    "storage-bolt",
		Version: "0.1.0",
		About:   "Keeps logs in one bbolt file. An example: correct, and not fast.",
		Settings: []storage.Setting{
			{Name: "path", About: "the file; its directory is made if it is missing"},
			{Name: "reserve_bytes", About: "what appends leave free on the device", Default: fmt.Sprint(defaultReserve)},
		},
	}
}

// Open implements storage.Provider.
func (p *provider) Open(_ context.Context, cfg storage.Config) (storage.Store, storage.DirectoryID, error) {
	set, err := readSettings(cfg.Settings)
	if err != nil {
		return nil, storage.DirectoryID{}, err
	}
	if err := os.MkdirAll(filepath.Dir(set.Path), 0o700); err != nil {
		return nil, storage.DirectoryID{}, storage.Errorf(storage.ErrGone, "make the directory: %v", err)
	}
	db, err := bolt.Open(set.Path, 0o600, &bolt.Options{Timeout: lockTimeout})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, storage.DirectoryID{}, storage.Errorf(storage.ErrFenced,
			"another process holds %s; stop the broker that uses it", set.Path)
	}
	if err != nil {
		return nil, storage.DirectoryID{}, storage.Errorf(storage.ErrGone, "open %s: %v", set.Path, err)
	}
	directory, err := claim(db, cfg)
	if err != nil {
		return nil, storage.DirectoryID{}, errors.Join(err, db.Close())
	}
	s := newStore(db, set.Reserve, func() (storage.Usage, error) { return p.room(filepath.Dir(set.Path)) }, &p.lastHandle)
	go s.write() // until Shutdown, which waits for it
	return s, directory, nil
}

// readSettings is strict: an unknown key is an error that names it.
func readSettings(section []byte) (settings, error) {
	set := settings{Reserve: defaultReserve}
	d := json.NewDecoder(bytes.NewReader(section))
	d.DisallowUnknownFields()
	if err := d.Decode(&set); err != nil {
		return settings{}, storage.Errorf(storage.ErrInvalid, "settings of storage-bolt: %v", err)
	}
	switch {
	case set.Path == "":
		return settings{}, storage.Errorf(storage.ErrInvalid, "settings of storage-bolt: path is missing; name a file")
	case set.Reserve < 0:
		return settings{}, storage.Errorf(storage.ErrInvalid, "settings of storage-bolt: reserve_bytes is %d; give 0 or more", set.Reserve)
	}
	return set, nil
}

// claim makes an empty file ours, and refuses one that is somebody else's.
func claim(db *bolt.DB, cfg storage.Config) (directory storage.DirectoryID, err error) {
	want, err := json.Marshal(cfg.Identity)
	if err != nil {
		return directory, fmt.Errorf("encode the identity: %w", err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		own := tx.Bucket(storeBucket)
		if own == nil {
			if own, err = tx.CreateBucket(storeBucket); err != nil {
				return err
			}
			if _, err := tx.CreateBucket(logsBucket); err != nil {
				return err
			}
			if err := own.Put(directoryKey, cfg.ProposedDirectoryID[:]); err != nil {
				return err
			}
			if err := own.Put(identityKey, want); err != nil {
				return err
			}
		}
		if is := own.Get(identityKey); !bytes.Equal(is, want) {
			return storage.Errorf(storage.ErrFenced, "the store belongs to %s, not to %s; "+
				"configure another path, or delete this file if its records are not needed", is, want)
		}
		copy(directory[:], own.Get(directoryKey))
		return nil
	})
	return directory, err
}

// deviceRoom asks the operating system.
func deviceRoom(dir string) (storage.Usage, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return storage.Usage{}, storage.Errorf(storage.ErrGone, "ask for the room below %s: %v", dir, err)
	}
	block := int64(s.Bsize) //nolint:unconvert // it is a uint32 on macOS
	return storage.Usage{Total: int64(s.Blocks) * block, Free: int64(s.Bavail) * block}, nil
}
