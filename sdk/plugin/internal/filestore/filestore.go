package filestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// Options are how much is lent, and the faults.
type Options struct {
	// GrantBytes is how much a grant has room for; zero means 1 MiB.
	GrantBytes int64
	// OverAfter, if it is not zero, ends each grant after that many appends under it.
	OverAfter int
	// EndMark is how many zeros end each write.
	EndMark int
	// Told, if it is not nil, is asked before an append under a grant takes effect; an
	// error is its answer. It may wait.
	Told func(storage.AppendRequest) error
	// Granted and Leased, if they are not nil, may change what is lent, or refuse it.
	// They may wait.
	Granted func(*storage.Grant) error
	Leased  func(*storage.Lease) error
}

// Provider makes stores. It keeps what is the memory's of each directory.
type Provider struct {
	opt Options

	mu    sync.Mutex
	disks map[string]*memstore.Disk
}

// NewProvider returns a provider whose stores have the options given.
func NewProvider(opt Options) *Provider {
	if opt.GrantBytes <= 0 {
		opt.GrantBytes = 1 << 20
	}
	return &Provider{opt: opt, disks: map[string]*memstore.Disk{}}
}

// Settings returns the settings of a store in a directory.
func Settings(dir string) []byte {
	data, err := json.Marshal(map[string]string{"dir": dir})
	if err != nil {
		panic(err) // a map of strings always marshals
	}
	return data
}

// Info implements storage.Provider.
func (p *Provider) Info() storage.Info {
	return storage.Info{Name: "filestore", Version: "1", About: "Lends its files, for tests.",
		Settings: []storage.Setting{{Name: "dir", About: "where the files are"}}}
}

// Disk returns what is the memory's of a directory.
func (p *Provider) Disk(settings []byte) (*memstore.Disk, string, error) {
	var section struct {
		Dir string `json:"dir"`
	}
	decoder := json.NewDecoder(bytes.NewReader(settings))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&section); err != nil {
		return nil, "", storage.Errorf(storage.ErrInvalid, "settings of filestore: %v", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.disks[section.Dir] == nil {
		p.disks[section.Dir] = &memstore.Disk{}
	}
	return p.disks[section.Dir], section.Dir, nil
}

// Open implements storage.Provider.
func (p *Provider) Open(_ context.Context, cfg storage.Config) (storage.Store, storage.DirectoryID, error) {
	disk, dir, err := p.Disk(cfg.Settings)
	if err != nil {
		return nil, storage.DirectoryID{}, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "LOCK"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, storage.DirectoryID{}, storage.Errorf(storage.ErrGone, "%v", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, storage.DirectoryID{}, storage.Errorf(storage.ErrFenced, "the store is open already: %v", err)
	}
	mem, id, err := memstore.Open(disk, cfg, memstore.Options{})
	if err != nil {
		_ = lock.Close()
		return nil, id, err
	}
	return &Store{
		Store: mem, opt: p.opt, dir: dir, lock: lock,
		logs: map[storage.LogID]*log{}, handles: map[storage.Handle]*log{},
	}, id, nil
}

// Store is one opening. Its methods may be called from many goroutines; those that
// change something wait for each other.
type Store struct {
	*memstore.Store // the memory
	opt             Options
	dir             string

	mu      sync.Mutex
	lock    *os.File
	logs    map[storage.LogID]*log
	handles map[storage.Handle]*log // nil for those that a later opening has superseded
	lastID  uint64
}

// log is one log's file.
type log struct {
	path   string
	fileID uint64
	file   *os.File
	handle storage.Handle
	epoch  int32 // the highest seen
	start  int64
	leo    int64
	size   int64 // of what memory holds
	places []place

	grant   storage.GrantID // zero: the end is not lent
	limit   int64           // of it
	appends int             // under it
	over    bool
}

// place is where a batch begins.
type place struct{ first, last, pos int64 }

// Capabilities implements storage.Store.
func (s *Store) Capabilities() storage.Capabilities {
	c := s.Store.Capabilities()
	c.Grants, c.Leases = true, true
	return c
}

// Files implements storage.Store.
func (s *Store) Files() storage.Files { return s }

// Open implements storage.Store.
func (s *Store) Open(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	results := make([]storage.OpenResult, len(specs))
	for i, spec := range specs {
		results[i] = s.open(ctx, spec)
	}
	return results
}

func (s *Store) open(ctx context.Context, spec storage.OpenSpec) storage.OpenResult {
	l := s.logs[spec.ID]
	path := filepath.Join(s.dir, fmt.Sprintf("%x-%d.log", spec.ID.Topic, spec.ID.Partition))
	if _, err := os.Stat(path); err == nil && l == nil {
		spec.Create = true // in a new process memory has nothing
	}
	r := s.Store.Open(ctx, []storage.OpenSpec{spec})[0]
	if r.Err != nil {
		return r
	}
	if l == nil {
		l = &log{path: path}
		var err error
		if l.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			return storage.OpenResult{Err: storage.Errorf(storage.ErrGone, "%v", err)}
		}
		s.lastID++
		l.fileID = s.lastID
		s.logs[spec.ID] = l
	}
	if err := s.recover(ctx, l, r, spec.LeaderEpoch); err != nil {
		return storage.OpenResult{Err: err}
	}
	r = s.Store.Open(ctx, []storage.OpenSpec{spec})[0]
	s.handles[l.handle] = nil // superseded
	l.handle, l.grant, l.start, l.leo, l.epoch = r.Handle, 0, r.LogStart, r.LEO, spec.LeaderEpoch
	s.handles[r.Handle] = l
	return r
}

// recover takes from the file what memory lacks, and cuts what is no batch.
func (s *Store) recover(ctx context.Context, l *log, r storage.OpenResult, epoch int32) error {
	data, err := os.ReadFile(l.path)
	if err != nil {
		return storage.Errorf(storage.ErrGone, "%v", err)
	}
	l.places, l.size = nil, 0
	leo := r.LEO
	for rest := data; len(rest) > 0; {
		info, batch, tail, err := recordbatch.Next(rest)
		if err != nil || len(l.places) > 0 && info.BaseOffset <= l.places[len(l.places)-1].last {
			break
		}
		if info.BaseOffset >= leo {
			var failed error
			s.Store.Append(ctx, storage.AppendRequest{
				Handle: r.Handle, LeaderEpoch: epoch, BaseOffset: leo, Batches: []storage.BatchInfo{info}, Data: [][]byte{batch},
			}, func(_ storage.AppendResult, err error) { failed = err })
			if failed != nil {
				return failed
			}
			leo = info.LastOffset + 1
		}
		l.places = append(l.places, place{info.BaseOffset, info.LastOffset, l.size})
		l.size += int64(info.Bytes)
		rest = tail
	}
	if err := l.file.Truncate(l.size); err != nil {
		return storage.Errorf(storage.ErrGone, "%v", err)
	}
	return nil
}

// Append implements storage.Store.
func (s *Store) Append(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
	s.mu.Lock()
	l := s.handles[req.Handle]
	if l == nil || req.Granted == 0 {
		if l != nil && l.grant != 0 { // what was written and not told is not the log's
			l.grant = 0
			_ = l.file.Truncate(l.size)
		}
		res, err := s.appendTo(ctx, l, req)
		s.mu.Unlock()
		done(res, err)
		return
	}
	res, err := s.told(ctx, l, req)
	s.mu.Unlock()
	done(res, err)
}

// appendTo appends in memory and, when that grew, in the file. The caller holds mu.
func (s *Store) appendTo(ctx context.Context, l *log, req storage.AppendRequest) (res storage.AppendResult, err error) {
	s.Store.Append(ctx, req, func(r storage.AppendResult, e error) { res, err = r, e })
	if err != nil || l == nil || res.LEO == l.leo {
		return res, err
	}
	for _, part := range req.Data {
		if req.Granted == 0 {
			if _, err := l.file.WriteAt(part, l.size); err != nil {
				return res, storage.Errorf(storage.ErrGone, "%v", err)
			}
		}
		l.size += int64(len(part))
	}
	pos := l.size - req.Bytes()
	for _, b := range req.Batches {
		l.places = append(l.places, place{b.BaseOffset, b.LastOffset, pos})
		pos += int64(b.Bytes)
	}
	l.leo, l.epoch = res.LEO, max(l.epoch, req.LeaderEpoch)
	return res, nil
}

// told takes an append under a grant. The caller holds mu, which is free while Told
// is asked.
func (s *Store) told(ctx context.Context, l *log, req storage.AppendRequest) (storage.AppendResult, error) {
	if s.opt.Told != nil {
		s.mu.Unlock()
		err := s.opt.Told(req)
		s.mu.Lock()
		if err != nil {
			return storage.AppendResult{}, err
		}
	}
	if req.Granted != l.grant || req.Pos != l.size {
		return storage.AppendResult{}, storage.Errorf(storage.ErrInvalid,
			"told of grant %d at %d; the log has %d at %d", req.Granted, req.Pos, l.grant, l.size)
	}
	if end := req.Pos + req.Bytes() + int64(s.opt.EndMark); end > l.limit {
		return storage.AppendResult{}, storage.Errorf(storage.ErrInvalid, "written up to %d, beyond the grant's %d", end, l.limit)
	}
	data := make([]byte, req.Bytes())
	if _, err := l.file.ReadAt(data, req.Pos); err != nil {
		return storage.AppendResult{}, storage.Errorf(storage.ErrGone, "read what was told: %v", err)
	}
	var res storage.AppendResult
	var err error
	for i, at := 0, req.BaseOffset; i < len(req.Batches) && err == nil; i++ { // as if they had come one by one
		one := req
		one.BaseOffset, one.Batches = at, req.Batches[i:i+1]
		one.Data = [][]byte{data[:req.Batches[i].Bytes]}
		data = data[req.Batches[i].Bytes:]
		at = req.Batches[i].LastOffset + 1
		res, err = s.appendTo(ctx, l, one)
	}
	l.appends++
	if l.over = l.over || s.opt.OverAfter > 0 && l.appends >= s.opt.OverAfter; err == nil {
		res.GrantOver = l.over
	}
	return res, err
}

// rewrite makes a new file of what memory holds: whoever has the old one goes on
// reading what was there. The caller holds mu.
func (s *Store) rewrite(ctx context.Context, h storage.Handle) error {
	l := s.handles[h]
	if l == nil {
		return nil
	}
	l.grant = 0
	infos, err := s.Scan(ctx, storage.ScanRequest{Handle: h, Offset: l.start, UpTo: l.leo})
	if err != nil {
		return err
	}
	file, err := os.OpenFile(l.path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return storage.Errorf(storage.ErrGone, "%v", err)
	}
	l.places, l.size = nil, 0
	for _, info := range infos {
		r, err := s.Read(ctx, storage.ReadRequest{Handle: h, Offset: max(info.BaseOffset, l.start), UpTo: info.LastOffset + 1, AtLeastOne: true})
		if err == nil {
			_, err = file.WriteAt(r.Data, l.size)
		}
		if err != nil {
			return errors.Join(err, file.Close())
		}
		l.places = append(l.places, place{info.BaseOffset, info.LastOffset, l.size})
		l.size += int64(len(r.Data))
	}
	if err := os.Rename(file.Name(), l.path); err != nil {
		return errors.Join(err, file.Close())
	}
	_ = l.file.Close()
	s.lastID++
	l.file, l.fileID = file, s.lastID
	return nil
}
