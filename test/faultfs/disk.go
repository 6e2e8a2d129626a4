package faultfs

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Disk is one file system. Its methods may be called concurrently, but for those that mount
// it, unmount it, cut its power and wipe it.
type Disk struct {
	dir string

	power sync.RWMutex // read-held by each operation while it changes or tells something
	now   *session     // nil while it is not mounted

	mu    sync.Mutex
	nodes map[uint64]*node
	last  uint64
	root  *node

	used   atomic.Int64
	room   atomic.Int64 // the bound of used, and one; 0: none
	faults atomic.Pointer[faults]
	hits   atomic.Int64
}

// session is one time that the disk is mounted.
type session struct {
	fuse.RawFileSystem // what is not here is not supported
	*Disk
	at  string
	off chan struct{} // closed when nothing is done any more
}

// New makes an empty disk that keeps its files' bytes in a directory, which nobody else uses;
// it is made.
func New(dir string) (*Disk, error) {
	d := &Disk{dir: dir}
	return d, d.Wipe()
}

// Mount makes the disk the file system of a directory, in the mount namespace of the
// calling thread. This process must not use it.
func (d *Disk) Mount(at string) error {
	s := &session{RawFileSystem: fuse.NewDefaultRawFileSystem(), Disk: d, at: at, off: make(chan struct{})}
	server, err := fuse.NewServer(s, at, &fuse.MountOptions{
		FsName: "faultfs", Name: "faultfs", DirectMountStrict: true, AllowOther: true,
		DisableXAttrs: true, DisableReadDirPlus: true, ExplicitDataCacheControl: true, MaxWrite: 1 << 20, MaxBackground: 64,
	})
	if err != nil {
		return fmt.Errorf("mount a disk of faults, which needs root and /dev/fuse: %w", err)
	}
	d.power.Lock()
	d.now = s
	d.power.Unlock()
	go server.Serve() // until it is unmounted
	return server.WaitMount()
}

// Off ends all: from now on each operation fails, and nothing changes, until the disk is
// mounted again. A disk that is not mounted is off.
func (d *Disk) Off() {
	d.power.Lock()
	defer d.power.Unlock()
	if d.now != nil && d.now.isOn() {
		close(d.now.off)
	}
}

func (s *session) isOn() bool {
	select {
	case <-s.off:
		return false
	default:
		return true
	}
}

// Unmount turns the disk off, and takes it from its directory. It is for the thread that
// mounted it. Processes that use it still have files that fail.
func (d *Disk) Unmount() error {
	d.Off()
	if d.now == nil {
		return nil
	}
	err := syscall.Unmount(d.now.at, 0)
	if errors.Is(err, syscall.EBUSY) {
		err = syscall.Unmount(d.now.at, syscall.MNT_DETACH)
	}
	d.now = nil
	return err
}

// Wipe makes the disk an empty one. It is for one that is not mounted.
func (d *Disk) Wipe() error {
	d.power.Lock()
	defer d.power.Unlock()
	for _, n := range d.nodes {
		if n.content != nil {
			n.content.file.Close()
		}
	}
	if err := os.RemoveAll(d.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return err
	}
	d.nodes, d.last = map[uint64]*node{}, 0
	d.used.Store(0)
	var err error
	d.root, err = d.newNode(syscall.S_IFDIR | 0o755) // its ID is FUSE's for a root
	return err
}

// Names are those in a directory, sorted; none where there is no such directory.
func (d *Disk) Names(dir string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.find(dir); n != nil {
		return slices.Sorted(maps.Keys(n.names))
	}
	return nil
}

func (d *Disk) find(path string) *node {
	n := d.root
	for name := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' }) {
		if n = n.names[name]; n == nil {
			return nil
		}
	}
	return n
}

// Read returns what is in a file.
func (d *Disk) Read(path string) ([]byte, error) {
	d.mu.Lock()
	n := d.find(path)
	d.mu.Unlock()
	if n == nil || n.content == nil {
		return nil, &os.PathError{Op: "read", Path: path, Err: os.ErrNotExist}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	b := make([]byte, n.content.bytes)
	_, err := n.content.file.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b, err
}

// Export gives the files their names in a directory of the file system of the bytes, for
// people to look at. It is for a disk that is Off.
func (d *Disk) Export(dir string) error {
	var visit func(n *node, at string) error
	visit = func(n *node, at string) error {
		if !n.dir() {
			return os.Link(d.object(n), at)
		}
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		for name, child := range n.names {
			if err := visit(child, filepath.Join(at, name)); err != nil {
				return err
			}
		}
		return nil
	}
	return visit(d.root, dir)
}
