package logstore

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/openfiles"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/sealed"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

// Config says where a store is and how it works.
type Config struct {
	// Dir is the store's directory. It is made if its parent is there.
	Dir      string
	Identity storage.Identity
	Proposed storage.DirectoryID
	// BootID names this start of the machine: bytes written under the same one
	// are in the page cache.
	BootID string
	// Note is written into the lock file for the message of a second opener.
	Note string
	// ReserveBytes is the room kept for a full disk; at most a 64th of it.
	ReserveBytes int64
	// SpareBytes is how much dropped segments may occupy that are kept to be used
	// again; at most a 64th of the device.
	SpareBytes int64
	// Runners and Syncers are how many logs are written, and synced, at once.
	Runners, Syncers int
	// Descriptors is how many files the process may have open. Zero: a number
	// that every system allows.
	Descriptors int
	// Options are the defaults of logs.
	Options storage.LogOptions
}

const (
	// descriptorsLeast is what is assumed where nothing is known.
	descriptorsLeast = 256
	// openFilesMax bounds the files that are kept open, whatever the system
	// allows: beyond it, opening one again costs less than keeping it.
	openFilesMax = 64 << 10
	// spareShare: this part of the descriptors is left for connections, and for
	// small files, directories and indexes, which are open for moments.
	spareShare = 4
)

// FormatVersion is the version of the store's layout.
const FormatVersion = 1

// retiredHandlesMax bounds how many handles that ended are remembered, for the
// sake of a better error.
const retiredHandlesMax = 4096

// Store keeps logs in a directory. It implements storage.Store.
type Store struct {
	fs      *openfiles.Cache
	dir     string
	bootID  string
	now     func() time.Time
	logger  *slog.Logger
	options storage.LogOptions
	lock    io.Closer
	lender  vfs.Lender    // nil where files cannot be lent
	leases  atomic.Uint64 // the last that was given
	pending sync.Pool     // of *pendingAppend
	buffers sync.Pool     // of *[]byte, for walks
	reserve *reserve
	indexes *indexCache
	runners *pool
	syncers *pool
	// recyclers fills segments with zeros, one at a time.
	recyclers *pool
	spares    spares
	names     *sharedSync // of the logs' directories
	openings  *openings
	ended     chan struct{} // closed when run has returned
	// descriptors is for messages.
	descriptors int
	tight       atomic.Bool // and it was said

	mu       sync.RWMutex
	closing  bool
	logs     map[storage.LogID]*log
	dirs     map[storage.LogID][]string // of the logs on disk: one each, unless somebody copied
	labels   map[storage.LogID]string
	seen     map[storage.LogID]int32 // of logs that are not open
	suspects map[storage.LogID]bool
	unnamed  map[storage.LogID]bool // made, and the directory's name is not known to be durable
	handles  map[storage.Handle]*log
	lost     map[storage.Handle]error
	retired  []storage.Handle
	last     storage.Handle
	deleted  int
	grants   storage.GrantID
}

var _ storage.Store = (*Store)(nil)

// Open takes hold of the directory and checks whose it is. The store works
// when Run runs.
func Open(below vfs.FS, cfg Config, now func() time.Time, logger *slog.Logger) (*Store, storage.DirectoryID, error) {
	var none storage.DirectoryID
	if cfg.Descriptors <= 0 {
		cfg.Descriptors = descriptorsLeast
	}
	fs := openfiles.New(below, min(cfg.Descriptors-cfg.Descriptors/spareShare, openFilesMax))
	if err := fs.Mkdir(cfg.Dir); err == nil {
		if err := fs.SyncDir(path.Dir(cfg.Dir)); err != nil {
			return nil, none, fmt.Errorf("sync parent of %s: %w", cfg.Dir, err)
		}
	} else if !errors.Is(err, os.ErrExist) {
		return nil, none, storage.Errorf(storage.ErrGone, "make the store's directory: %v", err)
	}
	lock, err := fs.Lock(path.Join(cfg.Dir, lockName), cfg.Note)
	var held *vfs.HeldError
	if errors.As(err, &held) {
		return nil, none, storage.Errorf(storage.ErrFenced,
			"the store %s is in use by %s; stop that broker or plugin first", cfg.Dir, held.Note)
	}
	if err != nil {
		return nil, none, storage.Errorf(storage.ErrGone, "lock the store: %v", err)
	}
	s := &Store{
		fs: fs, dir: cfg.Dir, bootID: cfg.BootID, now: now, logger: logger, options: cfg.Options, lock: lock,
		indexes: newIndexCache(), runners: newPool(cfg.Runners), syncers: newPool(cfg.Syncers), recyclers: newPool(1),
		spares: spares{left: cfg.SpareBytes}, openings: newOpenings(),
		ended: make(chan struct{}), descriptors: cfg.Descriptors,
		logs: map[storage.LogID]*log{}, dirs: map[storage.LogID][]string{}, labels: map[storage.LogID]string{},
		seen: map[storage.LogID]int32{}, suspects: map[storage.LogID]bool{}, unnamed: map[storage.LogID]bool{},
		handles: map[storage.Handle]*log{}, lost: map[storage.Handle]error{},
	}
	s.lender, _ = below.(vfs.Lender)
	s.names = newSharedSync(func() error { return fs.SyncDir(cfg.Dir) })
	id, err := s.identify(cfg)
	if err == nil {
		err = s.scanDir()
	}
	if err != nil {
		return nil, none, errors.Join(err, lock.Close())
	}
	s.reserve = newReserve(fs, cfg.Dir, cfg.ReserveBytes, logger)
	s.reserve.released = s.dropSpares
	if total, _, err := fs.Room(cfg.Dir); err == nil && total > 0 {
		s.spares.left = min(s.spares.left, total/reserveShare)
	}
	return s, id, nil
}

// identify checks the identity file, or makes it in a directory that is empty.
func (s *Store) identify(cfg Config) (storage.DirectoryID, error) {
	var dir storage.DirectoryID
	name := path.Join(s.dir, identityName)
	have, err := readValue[identity](s.fs, name, identityKind, smallFileMax)
	switch {
	case vfs.NoDescriptors(err):
		return dir, s.class(err)
	case errors.Is(err, os.ErrNotExist):
		if err := s.refuseForeign(); err != nil {
			return dir, err
		}
		have = identity{FormatVersion, cfg.Identity.ClusterID, cfg.Identity.NodeID, hex.EncodeToString(cfg.Proposed[:])}
		if err := writeValue(s.fs, name, identityKind, have); err != nil {
			return dir, fmt.Errorf("write the store's identity: %w", s.class(err))
		}
	case err != nil:
		return dir, storage.Errorf(storage.ErrCorrupt, "%v; restore the file from the other members' configuration, or remove the store", err)
	case have.FormatVersion > FormatVersion:
		return dir, storage.Errorf(storage.ErrFenced,
			"the store %s has format %d and this program knows %d; run the newer version", s.dir, have.FormatVersion, FormatVersion)
	case have.ClusterID != cfg.Identity.ClusterID || have.NodeID != cfg.Identity.NodeID:
		return dir, storage.Errorf(storage.ErrFenced,
			"the store %s belongs to node %d of cluster %q, not to node %d of cluster %q; set another path, or remove the directory if its records are not needed",
			s.dir, have.NodeID, have.ClusterID, cfg.Identity.NodeID, cfg.Identity.ClusterID)
	}
	b, err := hex.DecodeString(have.DirectoryID)
	if err != nil || len(b) != len(dir) {
		return dir, storage.Errorf(storage.ErrCorrupt, "%s holds no directory id", name)
	}
	copy(dir[:], b)
	return dir, nil
}

// refuseForeign refuses to make a store where other files are: that is a wrong
// path, or a store whose identity was lost.
func (s *Store) refuseForeign() error {
	entries, err := s.fs.List(s.dir)
	if err != nil {
		return fmt.Errorf("list the store: %w", s.class(err))
	}
	for _, e := range entries {
		switch e.Name {
		case lockName, reserveName, "lost+found", identityName + sealed.TempSuffix:
		default:
			return storage.Errorf(storage.ErrFenced,
				"%s holds %q but no identity file; set an empty directory as path", s.dir, e.Name)
		}
	}
	return nil
}

// scanDir learns which logs there are, and removes what a crash left over.
func (s *Store) scanDir() error {
	entries, err := s.fs.List(s.dir)
	if err != nil {
		return fmt.Errorf("list the store: %w", s.class(err))
	}
	for _, e := range entries {
		name := path.Join(s.dir, e.Name)
		switch id, label, ok := parseDirName(e.Name); {
		case e.Dir && strings.HasSuffix(e.Name, deletedSuffix):
			if err := vfs.RemoveTree(s.fs, name); err != nil {
				s.logger.Warn("a deleted log's files remain", "path", name, "err", err)
			}
		case !e.Dir && strings.HasSuffix(e.Name, sealed.TempSuffix):
			if err := s.fs.Remove(name); err != nil {
				s.logger.Warn("a temporary file remains", "path", name, "err", err)
			}
		case e.Dir && ok:
			s.dirs[id] = append(s.dirs[id], name)
			s.labels[id] = s.labelOf(name, label)
		}
	}
	// Whoever made one may have been killed before its name was durable.
	if err := s.names.do(); err != nil {
		return fmt.Errorf("sync the store's directory: %w", s.class(err))
	}
	return nil
}

// nameDurably makes the names of logs that were made durable, with one sync for
// all of them, and says for each whether it failed.
func (s *Store) nameDurably(specs []storage.OpenSpec) (failed map[storage.LogID]bool, err error) {
	fresh := map[storage.LogID]bool{}
	s.mu.RLock()
	for _, spec := range specs {
		if s.unnamed[spec.ID] {
			fresh[spec.ID] = true
		}
	}
	s.mu.RUnlock()
	if len(fresh) == 0 {
		return nil, nil
	}
	if err := s.names.do(); err != nil {
		return fresh, s.class(fmt.Errorf("make log: sync the store's directory: %w", err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range fresh {
		delete(s.unnamed, id)
	}
	return nil, nil
}

// labelOf reads a log's label, which the directory's name has only cleaned.
func (s *Store) labelOf(dir, fallback string) string {
	m, err := readValue[meta](s.fs, path.Join(dir, metaName), metaKind, smallFileMax)
	if err != nil {
		return fallback
	}
	return m.Label
}

func encodeMeta(id storage.LogID, label string) ([]byte, error) {
	return json.Marshal(meta{Topic: hex.EncodeToString(id.Topic[:]), Partition: id.Partition, Label: label})
}

// Run does the store's work until the store is shut down or ctx ends. It must
// run for any other method to be answered.
func (s *Store) Run(ctx context.Context) error {
	defer close(s.ended)
	noting, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 3)
	go func() { s.openings.run(noting); done <- nil }()
	go func() { done <- s.syncers.run(ctx) }()
	go func() { done <- s.recyclers.run(ctx) }()
	err := s.runners.run(ctx)
	s.syncers.close()
	s.recyclers.close()
	stop()
	return errors.Join(err, <-done, <-done, <-done, s.lock.Close())
}

// Capabilities implements storage.Store.
func (s *Store) Capabilities() storage.Capabilities {
	lends := s.lender != nil
	return storage.Capabilities{Survives: storage.SurvivesMachine, Grants: lends, Leases: lends}
}

// lookup returns the log of a handle that is current.
func (s *Store) lookup(h storage.Handle) (*log, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if l := s.handles[h]; l != nil {
		return l, nil
	}
	switch err := s.lost[h]; {
	case s.closing:
		return nil, errShutdown()
	case err != nil:
		return nil, err
	}
	return nil, storage.Errorf(storage.ErrGone, "there is no handle %d", h)
}

func errShutdown() error { return storage.Errorf(storage.ErrGone, "the store is shut down") }

// newHandle makes a handle of the log.
func (s *Store) newHandle(l *log) storage.Handle {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	s.handles[s.last] = l
	return s.last
}

// retire ends a handle, with the error that it gives from now on.
func (s *Store) retire(h storage.Handle, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handles[h] == nil {
		return
	}
	delete(s.handles, h)
	s.lost[h] = why
	s.retired = append(s.retired, h)
	if len(s.retired) > retiredHandlesMax {
		delete(s.lost, s.retired[0])
		s.retired = s.retired[1:]
	}
}

func (s *Store) noteSuspect(id storage.LogID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspects[id] = true
}

func (s *Store) clearSuspect(id storage.LogID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.suspects, id)
}

func (s *Store) isSuspect(id storage.LogID) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.suspects[id]
}

// class gives an error of the file system its class.
func (s *Store) class(err error) error {
	switch {
	case err == nil, isClassed(err):
		return err
	case vfs.Full(err):
		return storage.Errorf(storage.ErrFull, "%v", err)
	case vfs.NoDescriptors(err):
		return storage.Errorf(storage.ErrRetry, "%v: all of the %d file descriptors that the plugin may have are in use, or all of the system's; "+
			"raise LimitNOFILE of the broker's unit, or ulimit -n", err, s.descriptors)
	}
	return storage.Errorf(storage.ErrGone, "%v", err)
}

// tellTight says once that appends now wait for syncs that nobody asked for.
func (s *Store) tellTight() {
	if !s.tight.Swap(true) {
		s.logger.Warn("file descriptors are scarce: every log with records that are not synced takes one, so that appends are synced at once; "+
			"raise LimitNOFILE of the broker's unit, or ulimit -n", "limit", s.descriptors)
	}
}

func isClassed(err error) bool {
	var e *storage.Error
	return errors.As(err, &e)
}

// List implements storage.Store.
func (s *Store) List(context.Context) ([]storage.LogInfo, error) {
	s.mu.RLock()
	closing := s.closing
	infos := make([]storage.LogInfo, 0, len(s.dirs))
	dirs := make([]string, 0, len(s.dirs))
	for id, names := range s.dirs {
		infos = append(infos, storage.LogInfo{ID: id, Label: s.labels[id]})
		dirs = append(dirs, names[0])
	}
	s.mu.RUnlock()
	if closing {
		return nil, errShutdown()
	}
	kept := infos[:0]
	for i, info := range infos {
		entries, err := s.fs.List(dirs[i])
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, s.class(fmt.Errorf("list log: %w", err))
		}
		for _, e := range entries {
			info.Bytes += e.Bytes
		}
		kept = append(kept, info)
	}
	return kept, nil
}

// Usage implements storage.Store.
func (s *Store) Usage(context.Context) (storage.Usage, error) {
	s.mu.RLock()
	closing := s.closing
	s.mu.RUnlock()
	if closing {
		return storage.Usage{}, errShutdown()
	}
	total, free, err := s.fs.Room(s.dir)
	if err != nil {
		return storage.Usage{}, s.class(fmt.Errorf("ask for room: %w", err))
	}
	return storage.Usage{Total: total, Free: free}, nil
}
