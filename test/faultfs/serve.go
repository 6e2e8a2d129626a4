package faultfs

import (
	"errors"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// cached is how long the kernel may believe what it was told of names and attributes: it
// is the only one to change them.
const cached = time.Hour

// node finds one by its ID; the caller holds power.
func (s *session) node(id uint64) *node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[id]
}

// begin lets an operation on a node have its faults, and holds off the loss of power. The
// caller calls end, unless begin fails.
func (s *session) begin(op Ops, id uint64, name string) (*node, fuse.Status) {
	if !s.isOn() {
		return nil, fuse.EIO
	}
	n := s.node(id)
	if n == nil {
		return nil, fuse.Status(syscall.ESTALE)
	}
	if op != 0 {
		if errno := s.meet(op, n, name); errno != 0 {
			if op == Syncs && n.content != nil {
				s.refuseSync(n)
			}
			return nil, fuse.Status(errno)
		}
	}
	s.power.RLock()
	if !s.isOn() {
		s.power.RUnlock()
		return nil, fuse.EIO
	}
	return n, fuse.OK
}

func (s *session) end() { s.power.RUnlock() }

// refuseSync has a file know that a sync of it was refused, unless the power is gone.
func (s *session) refuseSync(n *node) {
	s.power.RLock()
	defer s.power.RUnlock()
	if !s.isOn() {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.content.refuseSync()
}

func status(err error) fuse.Status {
	var errno syscall.Errno
	switch {
	case err == nil:
		return fuse.OK
	case errors.As(err, &errno):
		return fuse.Status(errno)
	}
	return fuse.EIO
}

func (s *session) attr(n *node, out *fuse.Attr) {
	out.Ino, out.Mode, out.Nlink, out.Blksize = n.id, n.mode, 1, pageBytes
	if n.content != nil {
		size := n.size()
		out.Size, out.Blocks = uint64(size), uint64(size+sectorBytes-1)/sectorBytes
	}
	modified := time.Unix(0, n.modified.Load())
	out.SetTimes(nil, &modified, &modified)
}

func (s *session) entry(n *node, out *fuse.EntryOut) {
	out.NodeId = n.id
	s.attr(n, &out.Attr)
	out.SetEntryTimeout(cached)
	out.SetAttrTimeout(cached)
}

// Lookup implements fuse.RawFileSystem, as all that follow.
func (s *session) Lookup(_ <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	dir, st := s.begin(0, in.NodeId, name)
	if !st.Ok() {
		return st
	}
	defer s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := dir.names[name]
	if n == nil {
		return fuse.ENOENT
	}
	s.entry(n, out)
	return fuse.OK
}

func (s *session) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	n, st := s.begin(0, in.NodeId, "")
	if !st.Ok() {
		return st
	}
	defer s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attr(n, &out.Attr)
	out.SetTimeout(cached)
	return fuse.OK
}

func (s *session) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	bytes, sized := in.GetSize()
	op := Ops(0)
	if sized {
		op = Writes
	}
	n, st := s.begin(op, in.NodeId, "")
	if !st.Ok() {
		return st
	}
	defer s.end()
	if sized {
		if n.content == nil {
			return fuse.Status(syscall.EISDIR)
		}
		if err := s.resize(n, int64(bytes)); err != nil {
			return status(err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if mode, ok := in.GetMode(); ok {
		n.mode = n.mode&syscall.S_IFMT | mode&0o7777
	}
	if at, ok := in.GetMTime(); ok {
		n.modified.Store(at.UnixNano())
	}
	s.attr(n, &out.Attr)
	out.SetTimeout(cached)
	return fuse.OK
}

func (s *session) resize(n *node, bytes int64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.content.bytes
	if free, _ := s.free(); bytes-was > free {
		s.hits.Add(1)
		return syscall.ENOSPC
	}
	err := n.content.truncate(bytes)
	s.used.Add(n.content.bytes - was)
	return err
}

// create makes a node and gives it a name. A disk without room for a page has none for a name.
func (s *session) create(dirID uint64, name string, mode uint32, after func(n *node)) fuse.Status {
	dir, st := s.begin(Names, dirID, name)
	if !st.Ok() {
		return st
	}
	defer s.end()
	if free, _ := s.free(); free < pageBytes {
		s.hits.Add(1)
		return fuse.Status(syscall.ENOSPC)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if dir.names[name] != nil {
		return fuse.Status(syscall.EEXIST)
	}
	n, err := s.newNode(mode)
	if err != nil {
		return status(err)
	}
	s.rename(dir, naming{to: name, n: n})
	after(n)
	return fuse.OK
}

func (s *session) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return s.create(in.NodeId, name, syscall.S_IFDIR|in.Mode&0o7777, func(n *node) { s.entry(n, out) })
}

func (s *session) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	return s.create(in.NodeId, name, syscall.S_IFREG|in.Mode&0o7777, func(n *node) {
		s.entry(n, &out.EntryOut)
		s.opens(n, &out.OpenOut)
	})
}

// opens counts an opening; the caller holds mu.
func (s *session) opens(n *node, out *fuse.OpenOut) {
	n.holders++
	n.live++
	n.opened++
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE
}

func (s *session) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	n, st := s.begin(Opens, in.NodeId, "")
	if !st.Ok() {
		return st
	}
	defer s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opens(n, out)
	return fuse.OK
}

func (s *session) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	n, st := s.begin(0, in.NodeId, "")
	if !st.Ok() {
		return
	}
	defer s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	n.opened--
	s.die(n)
	s.release(n)
}

func (s *session) Unlink(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return s.remove(in.NodeId, name, false)
}

func (s *session) Rmdir(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return s.remove(in.NodeId, name, true)
}

func (s *session) remove(dirID uint64, name string, isDir bool) fuse.Status {
	dir, st := s.begin(Names, dirID, name)
	if !st.Ok() {
		return st
	}
	defer s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := dir.names[name]
	switch {
	case n == nil:
		return fuse.ENOENT
	case n.dir() && !isDir:
		return fuse.Status(syscall.EISDIR)
	case !n.dir() && isDir:
		return fuse.ENOTDIR
	case len(n.names) > 0:
		return fuse.Status(syscall.ENOTEMPTY)
	}
	s.rename(dir, naming{from: name})
	return fuse.OK
}

func (s *session) Rename(_ <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	dir, st := s.begin(Names, in.NodeId, from)
	if !st.Ok() {
		return st
	}
	defer s.end()
	if in.Flags != 0 {
		return fuse.EINVAL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, other := dir.names[from], s.nodes[in.Newdir]
	if n == nil || other == nil {
		return fuse.ENOENT
	}
	if was := other.names[to]; was != nil && len(was.names) > 0 {
		return fuse.Status(syscall.ENOTEMPTY)
	}
	if dir == other {
		s.rename(dir, naming{from: from, to: to, n: n})
		return fuse.OK
	}
	m := &move{n: n, to: other}
	s.rename(other, naming{to: to, n: n, move: m})
	s.rename(dir, naming{from: from, move: m})
	n.parent, n.name = other, to
	return fuse.OK
}

func (s *session) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	n, st := s.begin(Reads, in.NodeId, "")
	if !st.Ok() {
		return nil, st
	}
	defer s.end()
	n.mu.Lock()
	defer n.mu.Unlock()
	got := min(int64(len(buf)), max(0, n.content.bytes-int64(in.Offset)))
	if _, err := n.content.file.ReadAt(buf[:got], int64(in.Offset)); err != nil {
		return nil, status(err)
	}
	return fuse.ReadResultData(buf[:got]), fuse.OK
}

func (s *session) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	n, st := s.begin(Writes, in.NodeId, "")
	if !st.Ok() {
		return 0, st
	}
	defer s.end()
	n.mu.Lock()
	defer n.mu.Unlock()
	was, off := n.content.bytes, int64(in.Offset)
	if free, _ := s.free(); off+int64(len(data))-was > free {
		s.hits.Add(1)
		fits := was + free - off
		if fits <= 0 {
			return 0, fuse.Status(syscall.ENOSPC)
		}
		data = data[:fits]
	}
	written, err := n.content.write(data, off)
	s.used.Add(n.content.bytes - was)
	n.touch()
	return uint32(written), status(err)
}

func (s *session) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	n, st := s.begin(Writes, in.NodeId, "")
	if !st.Ok() {
		return st
	}
	defer s.end()
	if in.Mode != 0 {
		return fuse.Status(syscall.EOPNOTSUPP)
	}
	if end := int64(in.Offset + in.Length); end > n.size() {
		return status(s.resize(n, end))
	}
	return fuse.OK
}

// Flush is asked for when a descriptor is closed: that makes nothing durable.
func (s *session) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

func (s *session) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	n, st := s.begin(Syncs, in.NodeId, "")
	if !st.Ok() {
		return st
	}
	defer s.end()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.content.sync()
	return fuse.OK
}

func (s *session) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	dir, st := s.begin(Syncs, in.NodeId, "")
	if !st.Ok() {
		return st
	}
	defer s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.syncNames(dir)
	return fuse.OK
}

func (s *session) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	_, st := s.begin(Opens, in.NodeId, "")
	if st.Ok() {
		s.end()
	}
	return st
}

func (s *session) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	dir, st := s.begin(0, in.NodeId, "")
	if !st.Ok() {
		return st
	}
	defer s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	// A directory that changes meanwhile may be told of in part: so it is with others.
	names := slices.Sorted(maps.Keys(dir.names))
	for i := int(in.Offset); i < len(names); i++ {
		n := dir.names[names[i]]
		if !out.AddDirEntry(fuse.DirEntry{Name: names[i], Mode: n.mode, Ino: n.id, Off: uint64(i + 1)}) {
			break
		}
	}
	return fuse.OK
}

func (s *session) ReleaseDir(*fuse.ReleaseIn) {}

func (s *session) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status { return fuse.OK }

func (s *session) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	free, total := s.free()
	out.Bsize, out.Frsize, out.NameLen = pageBytes, pageBytes, 255
	out.Blocks, out.Bfree, out.Bavail = uint64(total)/pageBytes, uint64(free)/pageBytes, uint64(free)/pageBytes
	out.Files, out.Ffree = 1<<20, 1<<20
	return fuse.OK
}
