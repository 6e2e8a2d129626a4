package vfs

import (
	"io"
	"math/rand/v2"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Op is one change that is about to be made to a Mem.
type Op struct {
	N    int    // counts from 1
	Kind string // write, truncate, sync, allocate, create, mkdir, remove, rename, syncdir
	Path string
	// Bytes of a write.
	Bytes int
}

// MemConfig makes a Mem.
type MemConfig struct {
	// Capacity bounds the bytes of all files; zero means no bound.
	Capacity int64
	// Descriptors bounds the files that are open at once, a directory that is
	// listed or synced among them; zero means no bound.
	Descriptors int
	// Before, if set, is asked before each change. An error refuses the change,
	// except that half of a write is made first, in whole pages where it overwrites. It is called with the file
	// system's lock held and must not call back.
	Before func(Op) error
	Now    func() time.Time
}

// Mem is a file system in memory. It remembers which bytes and names were
// synced, so that AfterPowerLoss can forget others.
type Mem struct {
	cfg MemConfig

	mu    sync.Mutex
	root  *node
	ops   int
	used  int64
	open  int // files
	locks map[string]string
}

// node is a file or a directory, as the running system sees it and as the disk
// has it.
type node struct {
	dir bool

	data     []byte
	durable  []byte
	pending  []change // since the last sync
	modified time.Time

	names   map[string]*node
	kept    map[string]*node // the names that the disk has
	renames []naming         // since the last sync of the directory
}

// change is a write at off, or, with nil data, a truncation to off.
type change struct {
	off  int64
	data []byte
}

// naming is a change of a directory: to names n (unless nil), from goes.
type naming struct {
	from, to string
	n        *node
}

// NewMem returns an empty file system with one directory, "/".
func NewMem(cfg MemConfig) *Mem {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Mem{cfg: cfg, root: newDir(), locks: map[string]string{}}
}

func newDir() *node {
	return &node{dir: true, names: map[string]*node{}, kept: map[string]*node{}}
}

// Ops returns how many changes were asked for.
func (m *Mem) Ops() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ops
}

// Used returns the bytes that all files hold.
func (m *Mem) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// SetCapacity changes the bound; zero means none.
func (m *Mem) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cfg.Capacity = bytes
}

// OpenFiles returns how many files are open.
func (m *Mem) OpenFiles() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open
}

// SetDescriptors changes the bound of files that are open; zero means none.
func (m *Mem) SetDescriptors(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cfg.Descriptors = n
}

// descriptor says whether one is free.
func (m *Mem) descriptor(op, name string) error {
	if m.cfg.Descriptors > 0 && m.open >= m.cfg.Descriptors {
		return &os.PathError{Op: op, Path: name, Err: syscall.EMFILE}
	}
	return nil
}

// AfterKill returns what another process finds when this one was killed: every
// change that was made.
func (m *Mem) AfterKill(cfg MemConfig) *Mem {
	return m.after(cfg, func(n *node) []byte { return n.data }, func(n *node) map[string]*node { return n.names })
}

// AfterPowerLoss returns what the machine finds when its power was lost: what
// was synced, and of the rest what chance kept. Changes of a directory's names
// are kept as a prefix; writes to a file not at all, wholly, as a prefix with a
// torn end, sector by sector, or here and there with zeros between.
func (m *Mem) AfterPowerLoss(cfg MemConfig, r *rand.Rand) *Mem {
	data := func(n *node) []byte { return survivingBytes(n, r) }
	names := func(n *node) map[string]*node {
		kept := map[string]*node{}
		for name, c := range n.kept {
			kept[name] = c
		}
		for _, c := range n.renames[:r.IntN(len(n.renames)+1)] {
			c.apply(kept)
		}
		return kept
	}
	return m.after(cfg, data, names)
}

func (m *Mem) after(cfg MemConfig, data func(*node) []byte, names func(*node) map[string]*node) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := NewMem(cfg)
	var visit func(n *node) *node
	visit = func(n *node) *node {
		if n.dir {
			d := newDir()
			for name, c := range names(n) {
				child := visit(c)
				d.names[name], d.kept[name] = child, child
			}
			return d
		}
		b := append([]byte(nil), data(n)...)
		next.used += int64(len(b))
		return &node{data: b, durable: append([]byte(nil), b...), modified: n.modified}
	}
	next.root = visit(m.root)
	return next
}

// sectorBytes is what a disk writes whole or not at all.
const sectorBytes = 512

func survivingBytes(n *node, r *rand.Rand) []byte {
	b := append([]byte(nil), n.durable...)
	switch r.IntN(5) {
	case 0: // nothing
	case 1:
		return n.data
	case 2:
		k := r.IntN(len(n.pending) + 1)
		for _, c := range n.pending[:k] {
			b = c.apply(b)
		}
		if k < len(n.pending) && n.pending[k].data != nil {
			torn := n.pending[k]
			sectors := (len(torn.data) + sectorBytes - 1) / sectorBytes
			torn.data = torn.data[:min(len(torn.data), r.IntN(sectors+1)*sectorBytes)]
			b = torn.apply(b)
		}
	case 3: // sectors of what is in memory, in any order
		if grow := len(n.data) - len(b); grow > 0 {
			b = append(b, make([]byte, grow)...)
		}
		for at := 0; at < len(n.data); at += sectorBytes {
			if r.IntN(2) == 0 {
				copy(b[at:], n.data[at:min(at+sectorBytes, len(n.data))])
			}
		}
	default:
		for _, c := range n.pending {
			if c.data == nil || r.IntN(2) == 0 {
				b = c.apply(b)
			}
		}
		if len(b) < len(n.data) && r.IntN(2) == 0 {
			b = append(b, make([]byte, len(n.data)-len(b))...)
		}
	}
	return b
}

func (c change) apply(b []byte) []byte {
	if c.data == nil {
		if c.off <= int64(len(b)) {
			return b[:c.off]
		}
		return append(b, make([]byte, c.off-int64(len(b)))...)
	}
	if grow := c.off + int64(len(c.data)) - int64(len(b)); grow > 0 {
		b = append(b, make([]byte, grow)...)
	}
	copy(b[c.off:], c.data)
	return b
}

func (c naming) apply(names map[string]*node) {
	if c.from != "" {
		delete(names, c.from)
	}
	if c.n != nil {
		names[c.to] = c.n
	}
}

// before counts a change and asks whether it may be made.
func (m *Mem) before(kind, name string, bytes int) error {
	m.ops++
	if m.cfg.Before == nil {
		return nil
	}
	if err := m.cfg.Before(Op{N: m.ops, Kind: kind, Path: name, Bytes: bytes}); err != nil {
		return &os.PathError{Op: kind, Path: name, Err: err}
	}
	return nil
}

func (m *Mem) find(name string) *node {
	n := m.root
	for part := range strings.SplitSeq(strings.Trim(path.Clean(name), "/"), "/") {
		if part == "" || part == "." {
			continue
		}
		if n == nil || !n.dir {
			return nil
		}
		n = n.names[part]
	}
	return n
}

func (m *Mem) parent(op, name string) (*node, error) {
	d := m.find(path.Dir(name))
	if d == nil || !d.dir {
		return nil, notThere(op, name)
	}
	return d, nil
}

func notThere(op, name string) error {
	return &os.PathError{Op: op, Path: name, Err: syscall.ENOENT}
}

// record makes a change of a directory's names.
func (d *node) record(c naming) {
	c.apply(d.names)
	d.renames = append(d.renames, c)
}

// Open opens or makes a file.
func (m *Mem) Open(name string, mode Mode) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.descriptor("open", name); err != nil {
		return nil, err
	}
	n := m.find(name)
	if n != nil && n.dir {
		return nil, &os.PathError{Op: "open", Path: name, Err: syscall.EISDIR}
	}
	if mode == Existing && n == nil {
		return nil, notThere("open", name)
	}
	if mode == Empty {
		if err := m.before("create", name, 0); err != nil {
			return nil, err
		}
		if n == nil {
			d, err := m.parent("create", name)
			if err != nil {
				return nil, err
			}
			n = &node{modified: m.cfg.Now()}
			d.record(naming{to: path.Base(name), n: n})
		} else {
			m.resize(n, 0)
		}
	}
	m.open++
	return &memFile{m: m, n: n, name: name}, nil
}

func (m *Mem) resize(n *node, bytes int64) {
	m.used += bytes - int64(len(n.data))
	c := change{off: bytes}
	n.data, n.pending = c.apply(n.data), append(n.pending, c)
	n.modified = m.cfg.Now()
}

// Mkdir makes a directory.
func (m *Mem) Mkdir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.before("mkdir", name, 0); err != nil {
		return err
	}
	if m.find(name) != nil {
		return &os.PathError{Op: "mkdir", Path: name, Err: syscall.EEXIST}
	}
	d, err := m.parent("mkdir", name)
	if err != nil {
		return err
	}
	d.record(naming{to: path.Base(name), n: newDir()})
	return nil
}

// Remove removes a file or an empty directory.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.before("remove", name, 0); err != nil {
		return err
	}
	n := m.find(name)
	if n == nil {
		return notThere("remove", name)
	}
	if n.dir && len(n.names) > 0 {
		return &os.PathError{Op: "remove", Path: name, Err: syscall.ENOTEMPTY}
	}
	d, err := m.parent("remove", name)
	if err != nil {
		return err
	}
	m.used -= int64(len(n.data))
	d.record(naming{from: path.Base(name)})
	return nil
}

// Rename renames inside one directory.
func (m *Mem) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.before("rename", from, 0); err != nil {
		return err
	}
	n := m.find(from)
	if n == nil {
		return notThere("rename", from)
	}
	if path.Dir(from) != path.Dir(to) {
		return &os.PathError{Op: "rename", Path: from, Err: syscall.EXDEV}
	}
	d, err := m.parent("rename", from)
	if err != nil {
		return err
	}
	if old := m.find(to); old != nil {
		m.used -= int64(len(old.data))
	}
	d.record(naming{from: path.Base(from), to: path.Base(to), n: n})
	return nil
}

// List returns what is in a directory.
func (m *Mem) List(dir string) ([]Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.descriptor("list", dir); err != nil {
		return nil, err
	}
	d := m.find(dir)
	if d == nil || !d.dir {
		return nil, notThere("list", dir)
	}
	entries := make([]Entry, 0, len(d.names))
	for name, n := range d.names {
		entries = append(entries, Entry{Name: name, Dir: n.dir, Bytes: int64(len(n.data))})
	}
	return entries, nil
}

// SyncDir makes a directory's names durable.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.descriptor("syncdir", dir); err != nil {
		return err
	}
	if err := m.before("syncdir", dir, 0); err != nil {
		return err
	}
	d := m.find(dir)
	if d == nil || !d.dir {
		return notThere("syncdir", dir)
	}
	for _, c := range d.renames {
		c.apply(d.kept)
	}
	d.renames = nil
	return nil
}

// Lock takes a lock that is not kept over AfterKill.
func (m *Mem) Lock(name, note string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if holder, held := m.locks[name]; held {
		return nil, &HeldError{Note: holder}
	}
	m.locks[name] = note
	return unlock(func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.locks, name)
		return nil
	}), nil
}

type unlock func() error

func (u unlock) Close() error { return u() }

// memRoom is the size that an unbounded Mem tells of.
const memRoom = 1 << 40

// Room returns the capacity and what of it is free.
func (m *Mem) Room(string) (total, free int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cfg.Capacity == 0 {
		return memRoom, memRoom - m.used, nil
	}
	return m.cfg.Capacity, max(0, m.cfg.Capacity-m.used), nil
}
