package quorum

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// quorum.db, version 1. Each value begins with the CRC-32C of the rest.
//
//	bucket "meta"
//	  "identity"    JSON of storedIdentity, which carries the version
//	bucket "raft"
//	  "hard-state"  raftpb.HardState: term, vote, commit
//	  "pad-1" to 3  empty, see putSnapshot; may be missing
//	  "snapshot"    raftpb.Snapshot; its data is an entry (entry.go)
//	bucket "log"
//	  index, 8 bytes big endian: raftpb.Entry; without gap from the snapshot on,
//	  or from before it
//	bucket "reserve", while room is made (reserve.go)
//	  "filler"      zeros without a checksum
const (
	storeVersion = 1
	databaseName = "quorum.db"
	// freshSuffix, with more, is that of directories in which one is made.
	freshSuffix = ".new-"
)

var (
	bucketMeta    = []byte("meta")
	bucketRaft    = []byte("raft")
	bucketLog     = []byte("log")
	bucketReserve = []byte("reserve")
	keyIdentity   = []byte("identity")
	keyHardState  = []byte("hard-state")
	keySnapshot   = []byte("snapshot")
	keyFiller     = []byte("filler")

	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

type storedIdentity struct {
	Version     int    `json:"version"`
	ClusterID   string `json:"cluster_id"`
	NodeID      int32  `json:"node_id"`
	DirectoryID []byte `json:"directory_id"`
}

// store is quorum.db and, since the log is short, all of it in memory too. One
// goroutine writes.
type store struct {
	db       *bbolt.DB
	identity storedIdentity
	hard     *raftpb.HardState
	// saved is the hard state on disk: a commit index alone is not worth a sync.
	saved *raftpb.HardState
	mem   *raft.MemoryStorage
	// reserve is the room, in bytes, that is kept free; filled, that the filler is there.
	reserve int
	filled  bool
}

// firstState is what a new database holds.
type firstState struct {
	identity storedIdentity
	hard     *raftpb.HardState
	snapshot *raftpb.Snapshot
}

func boltOptions(cfg Config) *bbolt.Options {
	return &bbolt.Options{Timeout: cfg.LockTimeout, FreelistType: bbolt.FreelistMapType, MaxSize: cfg.sizeMax}
}

// createStore makes a database that was not there. It is written under another
// name and linked when it is whole, so that a quorum.db is never half made, nor
// made over another.
func createStore(cfg Config, first firstState) error {
	path := filepath.Join(cfg.Dir, databaseName)
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("make the quorum's directory: %w", err)
	}
	if err := syncDir(filepath.Dir(cfg.Dir)); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(cfg.Dir, databaseName+freshSuffix)
	if err != nil {
		return fmt.Errorf("make a place for a new quorum.db: %w", err)
	}
	defer os.RemoveAll(dir)
	fresh := filepath.Join(dir, databaseName)
	db, err := bbolt.Open(fresh, 0o600, boltOptions(cfg))
	if err != nil {
		return fmt.Errorf("create quorum.db: %w", err)
	}
	if err := db.Update(first.write); err != nil {
		return errors.Join(fmt.Errorf("create quorum.db: %w", err), db.Close())
	}
	if err := db.Close(); err != nil {
		return fmt.Errorf("create quorum.db: %w", err)
	}
	err = os.Link(fresh, path)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrPermission) {
		err = os.Rename(fresh, path) // a file system without links
	}
	if err != nil {
		return fmt.Errorf("create quorum.db: %w", err)
	}
	return syncDir(cfg.Dir)
}

func (f firstState) write(tx *bbolt.Tx) error {
	for _, name := range [][]byte{bucketMeta, bucketRaft, bucketLog} {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	id, err := json.Marshal(f.identity)
	if err != nil {
		return err
	}
	if err := tx.Bucket(bucketMeta).Put(keyIdentity, sealed(id)); err != nil {
		return err
	}
	if err := putMessage(tx.Bucket(bucketRaft), keyHardState, f.hard); err != nil {
		return err
	}
	return putSnapshot(tx.Bucket(bucketRaft), f.snapshot)
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync directory %s: %w", path, err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", path, err)
	}
	return nil
}

// openStore reads an existing database, all of it, and refuses one that is not
// whole.
func openStore(cfg Config) (*store, error) {
	path := filepath.Join(cfg.Dir, databaseName)
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open quorum.db: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() == 0 {
		return nil, fmt.Errorf("%s is empty or not a file: %s: %w", path, remedy, ErrDamaged)
	}
	s := &store{mem: raft.NewMemoryStorage(), reserve: cfg.Reserve}
	err = survive(func() error { return s.load(cfg, path) })
	switch {
	case err == nil:
		return s, nil
	case errors.Is(err, ErrInUse):
		return nil, err
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("open %s: %w", path, err)
	case errors.Is(err, ErrForeign):
	default:
		err = fmt.Errorf("%s: %w: %s: %w", path, err, remedy, ErrDamaged)
	}
	if s.db != nil {
		// Closing a database that is not sound may fail too; the first reason
		// is the one to tell.
		_ = survive(s.db.Close)
	}
	return nil, err
}

// remedy is what can be done about a database that is damaged.
const remedy = "the topics can only come back from a copy of it; to start empty, move it and the stores' directories away"

// survive turns a panic over a damaged file, or a fault of reading beyond its
// end, into an error.
func survive(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil { // what it says is of the program, not of the file
			err = errors.New("it cannot be read, its pages are damaged")
		}
	}()
	return f()
}

func (s *store) load(cfg Config, path string) error {
	db, err := bbolt.Open(path, 0o600, boltOptions(cfg))
	if errors.Is(err, berrors.ErrTimeout) {
		return fmt.Errorf("another process uses %s: stop it first, or give this one another directory: %w", cfg.Dir, ErrInUse)
	}
	if err != nil {
		return err
	}
	s.db = db
	return db.View(func(tx *bbolt.Tx) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.Size() < tx.Size() {
			return fmt.Errorf("it has %d bytes of %d", info.Size(), tx.Size())
		}
		if err := s.read(tx); err != nil {
			return err
		}
		return check(tx)
	})
}

// check looks at the pages that hold no data of ours.
func check(tx *bbolt.Tx) error {
	var first error
	for err := range tx.Check() {
		if first == nil {
			first = err
		}
	}
	return first
}

func (s *store) read(tx *bbolt.Tx) error {
	meta, state, log := tx.Bucket(bucketMeta), tx.Bucket(bucketRaft), tx.Bucket(bucketLog)
	if meta == nil || state == nil || log == nil {
		return errors.New("it is not a quorum's database")
	}
	s.filled = tx.Bucket(bucketReserve) != nil
	if err := s.readIdentity(meta); err != nil {
		return err
	}
	s.hard, s.saved = &raftpb.HardState{}, &raftpb.HardState{}
	if err := getMessage(state, keyHardState, s.hard); err != nil {
		return err
	}
	proto.Merge(s.saved, s.hard)
	snapshot := &raftpb.Snapshot{}
	if err := getMessage(state, keySnapshot, snapshot); err != nil {
		return err
	}
	if snapshot.GetMetadata().GetIndex() == 0 {
		return errors.New("it has no snapshot")
	}
	if err := s.mem.ApplySnapshot(snapshot); err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}
	if err := s.readLog(log, snapshot.GetMetadata()); err != nil {
		return err
	}
	last, err := s.mem.LastIndex()
	if err != nil {
		return err
	}
	if c := s.hard.GetCommit(); c < snapshot.GetMetadata().GetIndex() || c > last {
		return fmt.Errorf("entry %d was committed, and the log ends at %d", c, last)
	}
	return s.mem.SetHardState(s.hard)
}

func (s *store) readIdentity(meta *bbolt.Bucket) error {
	b, err := unsealed(meta, keyIdentity)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &s.identity); err != nil {
		return fmt.Errorf("read identity: %w", err)
	}
	if s.identity.Version != storeVersion {
		return fmt.Errorf("its format is version %d and this release knows version %d: %w", s.identity.Version, storeVersion, ErrForeign)
	}
	if len(s.identity.DirectoryID) != 16 || s.identity.ClusterID == "" {
		return errors.New("read identity: it is not complete")
	}
	return nil
}

// readLog loads the entries after the snapshot; those before it are only kept
// on disk until the next one.
func (s *store) readLog(log *bbolt.Bucket, snapshot *raftpb.SnapshotMetadata) error {
	var entries []*raftpb.Entry
	next, term := uint64(0), snapshot.GetTerm()
	err := log.ForEach(func(k, _ []byte) error {
		if len(k) != 8 {
			return fmt.Errorf("log key of %d bytes", len(k))
		}
		e, index := &raftpb.Entry{}, binary.BigEndian.Uint64(k)
		if err := getMessage(log, k, e); err != nil {
			return err
		}
		if e.GetIndex() != index || next != 0 && index != next {
			return fmt.Errorf("log entry %d stands where %d should", e.GetIndex(), max(next, index))
		}
		next = index + 1
		if index <= snapshot.GetIndex() {
			return nil
		}
		if len(entries) == 0 && index != snapshot.GetIndex()+1 || e.GetTerm() < term {
			return fmt.Errorf("log entry %d of term %d does not follow snapshot %d", index, e.GetTerm(), snapshot.GetIndex())
		}
		term = e.GetTerm()
		entries = append(entries, e)
		return nil
	})
	if err != nil {
		return err
	}
	return s.mem.Append(entries)
}

// save makes the state and entries of a Ready durable before it returns.
func (s *store) save(rd raft.Ready) error {
	if !raft.IsEmptyHardState(rd.HardState) {
		s.hard = proto.Clone(rd.HardState).(*raftpb.HardState)
	}
	if rd.MustSync {
		if err := s.update(func(tx *bbolt.Tx) error { return s.putEntries(tx, rd.Entries) }); err != nil {
			return fmt.Errorf("save %d entries of the metadata log: %w", len(rd.Entries), s.errFull(err))
		}
	}
	if err := s.mem.SetHardState(s.hard); err != nil {
		return err
	}
	return s.mem.Append(rd.Entries)
}

// update commits one transaction, with the hard state as it is now.
func (s *store) update(f func(*bbolt.Tx) error) error {
	err := s.db.Update(func(tx *bbolt.Tx) error {
		if err := putMessage(tx.Bucket(bucketRaft), keyHardState, s.hard); err != nil {
			return err
		}
		return f(tx)
	})
	if err == nil {
		s.saved = s.hard
	}
	return err
}

func (s *store) putEntries(tx *bbolt.Tx, entries []*raftpb.Entry) error {
	log := tx.Bucket(bucketLog)
	log.FillPercent = 0.95 // keys only grow
	for _, e := range entries {
		if err := putMessage(log, indexKey(e.GetIndex()), e); err != nil {
			return err
		}
	}
	if len(entries) == 0 {
		return nil
	}
	// What a leader wrote over ends here.
	return deleteLog(log, entries[len(entries)-1].GetIndex()+1, math.MaxUint64)
}

// deleteLog deletes the entries from first to last, which need not be there.
func deleteLog(log *bbolt.Bucket, first, last uint64) error {
	var old [][]byte
	c := log.Cursor()
	for k, _ := c.Seek(indexKey(first)); k != nil && binary.BigEndian.Uint64(k) <= last; k, _ = c.Next() {
		old = append(old, bytes.Clone(k))
	}
	for _, k := range old {
		if err := log.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

// snapshot makes data the snapshot at index, and drops the log up to there.
func (s *store) snapshot(index uint64, conf *raftpb.ConfState, data []byte) error {
	snap, err := s.mem.CreateSnapshot(index, conf, data)
	if err != nil {
		return fmt.Errorf("snapshot at %d: %w", index, err)
	}
	err = s.update(func(tx *bbolt.Tx) error {
		if err := putSnapshot(tx.Bucket(bucketRaft), snap); err != nil {
			return err
		}
		return deleteLog(tx.Bucket(bucketLog), 0, index)
	})
	if err != nil {
		return fmt.Errorf("save snapshot at %d: %w", index, err)
	}
	if err := s.mem.Compact(index); err != nil {
		return fmt.Errorf("compact the metadata log to %d: %w", index, err)
	}
	return nil
}

// close saves the commit index, if it is newer than what is on disk.
func (s *store) close() error {
	var err error
	if !proto.Equal(s.hard, s.saved) {
		err = s.update(func(*bbolt.Tx) error { return nil })
	}
	if err := errors.Join(err, s.db.Close()); err != nil {
		return fmt.Errorf("close quorum.db: %w", err)
	}
	return nil
}

func indexKey(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

func sealed(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(b)), crc32.Checksum(b, castagnoli)), b...)
}

// unsealed is a value after its checksum was found right. It is valid in the
// transaction only.
func unsealed(b *bbolt.Bucket, key []byte) ([]byte, error) {
	v := b.Get(key)
	if len(v) < 4 || binary.BigEndian.Uint32(v) != crc32.Checksum(v[4:], castagnoli) {
		return nil, fmt.Errorf("%q is missing or has a wrong checksum", key)
	}
	return v[4:], nil
}

func putMessage(b *bbolt.Bucket, key []byte, m proto.Message) error {
	v, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	return b.Put(key, sealed(v))
}

// putSnapshot puts a snapshot on pages of its own, as bbolt does from five keys on:
// a change of the hard state would write it again otherwise, and need as much room.
func putSnapshot(b *bbolt.Bucket, snap *raftpb.Snapshot) error {
	for _, pad := range []string{"pad-1", "pad-2", "pad-3"} { // between hard-state and snapshot
		if err := b.Put([]byte(pad), nil); err != nil {
			return err
		}
	}
	return putMessage(b, keySnapshot, snap)
}

func getMessage(b *bbolt.Bucket, key []byte, m proto.Message) error {
	v, err := unsealed(b, key)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(v, m); err != nil {
		return fmt.Errorf("read %q: %w", key, err)
	}
	return nil
}
