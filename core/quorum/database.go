package quorum

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/brokerd/brokerd/core/model"
)

// quorum.db, version 1. Each value begins with the CRC-32C of the rest.
//
//	bucket "meta"
//	  "identity"    JSON of storedIdentity, which carries the version
//	bucket "raft"
//	  "hard-state"  raftpb.HardState: term, vote, commit
//	  "pad-1" to 3  empty, see putSnapshot; may be missing
//	  "snapshot"    raftpb.Snapshot; its data is an entry (entry.go); missing in a
//	                member that joins, until its leader has sent one
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

// database is the Disk that is quorum.db.
type database struct {
	cfg Config
	log *slog.Logger
	db  *bbolt.DB // nil while it is not open
	// reserve is the room, in bytes, that is kept free; filled, that the filler is there.
	reserve int
	filled  bool
}

func newDatabase(cfg Config, log *slog.Logger) *database {
	return &database{cfg: cfg, log: log, reserve: cfg.Reserve}
}

func boltOptions(cfg Config) *bbolt.Options {
	return &bbolt.Options{Timeout: cfg.LockTimeout, FreelistType: bbolt.FreelistMapType, MaxSize: cfg.sizeMax}
}

// Create implements Disk. The database is written under another name and linked when it
// is whole, so that a quorum.db is never half made, nor made over another.
func (d *database) Create(first *Stored) error {
	cfg := d.cfg
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
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("another process has just created a cluster in %s: %w", cfg.Dir, ErrInUse)
	}
	if err != nil {
		return fmt.Errorf("create quorum.db: %w", err)
	}
	return syncDir(cfg.Dir)
}

func (f *Stored) write(tx *bbolt.Tx) error {
	for _, name := range [][]byte{bucketMeta, bucketRaft, bucketLog} {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	id, err := json.Marshal(storedIdentity{
		Version: storeVersion, ClusterID: string(f.Identity.ClusterID), NodeID: int32(f.Identity.NodeID), DirectoryID: f.Identity.DirectoryID[:],
	})
	if err != nil {
		return err
	}
	if err := tx.Bucket(bucketMeta).Put(keyIdentity, sealed(id)); err != nil {
		return err
	}
	if err := putMessage(tx.Bucket(bucketRaft), keyHardState, f.Hard); err != nil || f.Snapshot == nil {
		return err
	}
	return putSnapshot(tx.Bucket(bucketRaft), f.Snapshot)
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

// Load implements Disk. It reads all of the database, and refuses one that is not whole.
func (d *database) Load() (*Stored, error) {
	path := filepath.Join(d.cfg.Dir, databaseName)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open quorum.db: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() == 0 {
		return nil, fmt.Errorf("%s is empty or not a file: %s: %w", path, remedy, ErrDamaged)
	}
	var stored *Stored
	err = survive(func() error { stored, err = d.load(path); return err })
	switch {
	case err == nil:
		return stored, nil
	case errors.Is(err, ErrInUse):
		return nil, err
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("open %s: %w", path, err)
	case errors.Is(err, ErrForeign):
	default:
		err = fmt.Errorf("%s: %w: %s: %w", path, err, remedy, ErrDamaged)
	}
	if d.db != nil {
		// Closing a database that is not sound may fail too; the first reason
		// is the one to tell.
		_ = survive(d.db.Close)
		d.db = nil
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

func (d *database) load(path string) (stored *Stored, err error) {
	db, err := bbolt.Open(path, 0o600, boltOptions(d.cfg))
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, fmt.Errorf("another process uses %s: stop it first, or give this one another directory: %w", d.cfg.Dir, ErrInUse)
	}
	if err != nil {
		return nil, err
	}
	d.db = db
	err = db.View(func(tx *bbolt.Tx) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.Size() < tx.Size() {
			return fmt.Errorf("it has %d bytes of %d", info.Size(), tx.Size())
		}
		if stored, err = d.read(tx); err != nil {
			return err
		}
		return check(tx)
	})
	if err != nil {
		return nil, err
	}
	d.removeLeftovers()
	return stored, nil
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

func (d *database) read(tx *bbolt.Tx) (*Stored, error) {
	meta, state, log := tx.Bucket(bucketMeta), tx.Bucket(bucketRaft), tx.Bucket(bucketLog)
	if meta == nil || state == nil || log == nil {
		return nil, errors.New("it is not a quorum's database")
	}
	d.filled = tx.Bucket(bucketReserve) != nil
	stored := &Stored{Hard: &raftpb.HardState{}}
	var err error
	if stored.Identity, err = readIdentity(meta); err != nil {
		return nil, err
	}
	if err := getMessage(state, keyHardState, stored.Hard); err != nil {
		return nil, err
	}
	if state.Get(keySnapshot) != nil {
		stored.Snapshot = &raftpb.Snapshot{}
		if err := getMessage(state, keySnapshot, stored.Snapshot); err != nil {
			return nil, err
		}
	}
	if stored.Snapshot.GetMetadata().GetIndex() == 0 && (stored.Snapshot != nil || stored.Hard.GetCommit() > 0) {
		return nil, errors.New("it has no snapshot")
	}
	stored.Entries, err = readLog(log, stored.Snapshot.GetMetadata())
	if err != nil {
		return nil, err
	}
	return stored, stored.check()
}

// check says whether the parts fit each other.
func (f *Stored) check() error {
	first := f.Snapshot.GetMetadata().GetIndex()
	last := first
	if n := len(f.Entries); n > 0 {
		last = f.Entries[n-1].GetIndex()
	}
	if c := f.Hard.GetCommit(); c < first || c > last {
		return fmt.Errorf("entry %d was committed, and the log ends at %d", c, last)
	}
	return nil
}

func readIdentity(meta *bbolt.Bucket) (Identity, error) {
	b, err := unsealed(meta, keyIdentity)
	if err != nil {
		return Identity{}, err
	}
	var stored storedIdentity
	if err := json.Unmarshal(b, &stored); err != nil {
		return Identity{}, fmt.Errorf("read identity: %w", err)
	}
	if stored.Version != storeVersion {
		return Identity{}, fmt.Errorf("its format is version %d and this release knows version %d: %w", stored.Version, storeVersion, ErrForeign)
	}
	id := Identity{ClusterID: model.ClusterID(stored.ClusterID), NodeID: model.NodeID(stored.NodeID)}
	if len(stored.DirectoryID) != len(id.DirectoryID) || id.ClusterID == "" {
		return Identity{}, errors.New("read identity: it is not complete")
	}
	copy(id.DirectoryID[:], stored.DirectoryID)
	return id, nil
}

// readLog loads the entries after the snapshot; those before it are only kept
// on disk until the next one.
func readLog(log *bbolt.Bucket, snapshot *raftpb.SnapshotMetadata) ([]*raftpb.Entry, error) {
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
	return entries, err
}

// Save implements Disk.
func (d *database) Save(c Change) error {
	err := d.db.Update(func(tx *bbolt.Tx) error {
		if err := putMessage(tx.Bucket(bucketRaft), keyHardState, c.Hard); err != nil {
			return err
		}
		if c.Snapshot != nil {
			if err := putSnapshot(tx.Bucket(bucketRaft), c.Snapshot); err != nil {
				return err
			}
			gone := c.Snapshot.GetMetadata().GetIndex()
			if c.Reset {
				gone = math.MaxUint64
			}
			if err := deleteLog(tx.Bucket(bucketLog), 0, gone); err != nil {
				return err
			}
		}
		return putEntries(tx, c.Entries)
	})
	if isFull(err) && c.Snapshot == nil {
		return fmt.Errorf("the disk of %s is full, make room on it and start the broker again: %w", d.db.Path(), err)
	}
	return err
}

func putEntries(tx *bbolt.Tx, entries []*raftpb.Entry) error {
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

// Close implements Disk.
func (d *database) Close() error {
	if d.db == nil {
		return nil
	}
	if err := d.db.Close(); err != nil {
		return fmt.Errorf("close quorum.db: %w", err)
	}
	return nil
}

// removeLeftovers removes what a creation left behind that was cut short. Whoever
// has the database open is alone in the directory: one that is under way now fails.
// What cannot be removed does no harm.
func (d *database) removeLeftovers() {
	entries, err := os.ReadDir(d.cfg.Dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), databaseName+freshSuffix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(d.cfg.Dir, e.Name())))
		}
	}
	if err != nil {
		d.log.Warn("remove what was left of a creation that was cut short", "err", err)
	}
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
