package faultfs

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// node is a file or a directory. What is said of its names is guarded by the disk's lock.
type node struct {
	id       uint64
	mode     uint32       // with the kind
	modified atomic.Int64 // in nanoseconds since 1970

	names  map[string]*node // of a directory
	kept   map[string]*node // the names that the disk has
	named  []naming         // since the last sync of the directory
	parent *node            // of a node that has a name
	name   string

	holders int // names, now or on the disk, changes of names, openings
	live    int // names and openings: it takes room
	opened  int

	mu      sync.Mutex
	content *content // of a file
}

// naming is a change of a directory: from goes, and to names n, unless n is nil.
type naming struct {
	from, to string
	n        *node
	move     *move // of a rename from one directory to another, in both of them
}

// move is such a rename, which happens in both directories or in none.
type move struct {
	n    *node
	to   *node // the directory
	kept bool  // the disk has it
}

func (c naming) apply(names map[string]*node) {
	if c.from != "" {
		delete(names, c.from)
	}
	if c.n != nil {
		names[c.to] = c.n
	}
}

func (n *node) touch() { n.modified.Store(time.Now().UnixNano()) }

func (n *node) dir() bool { return n.names != nil }

// path is where a node is, below the disk's root; "" where it has no name.
func (n *node) path() string {
	if n.parent == nil {
		return ""
	}
	return n.parent.path() + "/" + n.name
}

// newNode makes a node that has no name.
func (d *Disk) newNode(mode uint32) (*node, error) {
	d.last++
	n := &node{id: d.last, mode: mode}
	n.touch()
	if mode&syscall.S_IFMT == syscall.S_IFDIR {
		n.names, n.kept = map[string]*node{}, map[string]*node{}
	} else {
		f, err := os.OpenFile(d.object(n), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		n.content = newContent(f)
	}
	d.nodes[n.id] = n
	return n, nil
}

// object is the file that has a node's bytes.
func (d *Disk) object(n *node) string {
	return filepath.Join(d.dir, strconv.FormatUint(n.id, 10))
}

// rename makes a change of a directory's names. What had the name goes.
func (d *Disk) rename(dir *node, c naming) {
	if c.n != nil {
		c.n.holders += 2 // by the name, and by the change
		c.n.live++
	}
	if c.from != "" {
		gone := dir.names[c.from]
		delete(dir.names, c.from)
		d.unname(gone)
	}
	if c.n != nil {
		if was := dir.names[c.to]; was != nil {
			d.unname(was)
		}
		dir.names[c.to] = c.n
		c.n.parent, c.n.name = dir, c.to
	}
	dir.named = append(dir.named, c)
	dir.touch()
}

func (d *Disk) unname(n *node) {
	n.parent, n.name = nil, ""
	d.die(n)
	d.release(n)
}

// die counts that a name or an opening is gone: a file without any takes no room.
func (d *Disk) die(n *node) {
	if n.live--; n.live == 0 && n.content != nil {
		d.used.Add(-n.size())
	}
}

func (n *node) size() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.content.bytes
}

// release counts that one holder is gone. What nobody can come to hold is removed.
func (d *Disk) release(n *node) {
	if n.holders--; n.holders > 0 {
		return
	}
	if n.content != nil {
		n.content.file.Close()
		_ = os.Remove(d.object(n)) // it takes room, no more
		return
	}
	for _, child := range n.kept {
		d.release(child)
	}
	for _, c := range n.named {
		if c.n != nil {
			d.release(c.n)
		}
	}
	n.kept, n.named = map[string]*node{}, nil
}

// syncNames makes the names of a directory durable.
func (d *Disk) syncNames(dir *node) {
	kept := map[string]*node{}
	for name, n := range dir.names {
		kept[name] = n
		n.holders++
	}
	was, named := dir.kept, dir.named
	dir.kept, dir.named = kept, nil
	for _, n := range was {
		d.release(n)
	}
	for _, c := range named {
		if c.move != nil && !c.move.kept {
			if c.move.kept = true; c.move.to != dir {
				d.syncNames(c.move.to)
			}
		}
		if c.n != nil {
			d.release(c.n)
		}
	}
}
