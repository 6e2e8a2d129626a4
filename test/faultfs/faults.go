package faultfs

import (
	"math/rand/v2"
	"strings"
	"syscall"
	"time"
)

// Ops are kinds of operations.
type Ops int

const (
	// Writes are writes, truncations and the reservation of room.
	Writes Ops = 1 << iota
	// Syncs are those of files and of directories.
	Syncs
	// Opens are the openings of files that are there.
	Opens
	// Names are changes of directories: new files and directories, removals, renames.
	Names
	// Reads are those that the kernel has no pages for.
	Reads
)

// Fault is what becomes of operations below a path.
type Fault struct {
	// Path is that of a directory or a file from the disk's root on, as "/logs"; what is
	// below it is meant too, and "" means all.
	Path string
	Ops  Ops
	// An operation takes so long, at least and at most, or until the faults change.
	Least, Most time.Duration
	// Err is what it fails with then, without having changed anything; 0 means that it
	// doesn't.
	Err syscall.Errno
}

// faults are those that there are.
type faults struct {
	all  []Fault
	over chan struct{} // closed when others are there
}

// Set replaces all faults. Operations that one delays go on, and fail where it has them fail.
func (d *Disk) Set(all ...Fault) {
	next := &faults{all: all, over: make(chan struct{})}
	if was := d.faults.Swap(next); was != nil {
		close(was.over)
	}
}

// Hits is how many operations had a fault, since the disk was made. To be told that there is no
// room is one.
func (d *Disk) Hits() int64 { return d.hits.Load() }

// Fill leaves so many bytes of room, and Fill(-1) as many as any file needs. What is over the
// bound stays.
func (d *Disk) Fill(free int64) {
	if free < 0 {
		d.room.Store(0)
		return
	}
	d.room.Store(d.used.Load() + free + 1)
}

// free is how many bytes of room there are, and how large the disk is.
func (d *Disk) free() (free, total int64) {
	used := d.used.Load()
	if room := d.room.Load(); room > 0 {
		return max(0, room-1-used), max(used, room-1)
	}
	return roomBytes - used, roomBytes
}

// roomBytes is the size of a disk that was not filled.
const roomBytes = 1 << 40

// meet lets an operation have its faults.
func (s *session) meet(op Ops, n *node, name string) syscall.Errno {
	d := s.Disk
	f := d.faults.Load()
	if f == nil || len(f.all) == 0 {
		return 0
	}
	d.mu.Lock()
	path := n.path()
	d.mu.Unlock()
	if name != "" {
		path += "/" + name
	}
	for _, one := range f.all {
		if one.Ops&op == 0 || !below(path, one.Path) {
			continue
		}
		d.hits.Add(1)
		if one.Most > 0 {
			t := time.NewTimer(one.Least + rand.N(one.Most-one.Least+1))
			select {
			case <-t.C:
			case <-f.over:
			case <-s.off:
			}
			t.Stop()
		}
		if one.Err != 0 {
			return one.Err
		}
	}
	return 0
}

func below(path, dir string) bool {
	return dir == "" || path == dir || strings.HasPrefix(path, dir+"/")
}
