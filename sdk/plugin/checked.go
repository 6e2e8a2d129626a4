package plugin

import (
	"math"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

const (
	// markBytes is how far apart two marks of a file are at least. What a section has
	// less than it could is at most that much, and a batch.
	markBytes = 64 << 10
	// marksPerFile and marksMax bound the marks of a file and of a store; 16 bytes each.
	marksPerFile = 1 << 15
	marksMax     = 1 << 17
	// checkedFilesMax bounds the files of a log that anything is known of.
	checkedFilesMax = 64
	// stretchesMax bounds the stretches of one file.
	stretchesMax = 8
	// checkedFor is how long a check counts: what a disk loses is found by the next
	// read after it, and not only by the clients.
	checkedFor = 10 * time.Minute
)

// mark is a place between two batches: where the next one begins, and the least offset
// that it may have.
type mark struct{ offset, pos int64 }

// stretch is a part of a file whose batches were checked: each against its CRC, and
// all against the order of offsets. marks are some of the places in it, rising; the first
// is its beginning. end is where it ends.
type stretch struct {
	marks []mark
	end   mark
}

// checked is what has been checked of one file, for checkedFor. What is written there
// never changes, see storage.Files; so once is enough, but for what a disk does. Its methods
// may be called concurrently.
type checked struct {
	store *marks
	file  os.FileInfo // what was opened; another one is another file, whatever its ID
	since int64       // milliseconds since 1970
	over  atomic.Bool // it was forgotten

	mu        sync.Mutex
	stretches []stretch // by position; no two touch
	count     int       // marks
	full      bool      // no more are taken
	used      uint64    // by the cache's clock; guarded by its mu
}

// marks counts those of a store.
type marks struct {
	mu   sync.Mutex
	left int
}

func (m *marks) take() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left == 0 {
		return false
	}
	m.left--
	return true
}

func (m *marks) give(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left += n
}

// short says whether there is too little room for another file's.
func (m *marks) short() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.left < marksMax/8
}

// run adds batches to what was checked, in their order: first where they begin, then
// add with where each ends.
type run struct {
	of   *checked
	at   int // of the stretch that it extends; -1: none
	next mark
}

// expired says that nothing is to be added or looked up any more, at a time in milliseconds
// since 1970.
func (c *checked) expired(now int64) bool {
	return c.over.Load() || now-c.since > checkedFor.Milliseconds()
}

// begin begins a run of batches at a place, and keeps others out until end.
func (c *checked) begin(at mark) run {
	c.mu.Lock()
	return run{of: c, at: c.ending(at.pos), next: at}
}

// ending is the stretch that a place lies in or at the end of, or -1.
func (c *checked) ending(pos int64) int {
	i := sort.Search(len(c.stretches), func(i int) bool { return c.stretches[i].end.pos >= pos })
	if i < len(c.stretches) && c.stretches[i].marks[0].pos <= pos {
		return i
	}
	return -1
}

// add says that the next batch was checked, and where it ends.
func (r *run) add(end mark) {
	begin := r.next
	r.next = end
	c := r.of
	if c.full {
		return
	}
	if r.at < 0 && !r.open(begin) {
		return
	}
	s := &c.stretches[r.at]
	if end.pos <= s.end.pos {
		return // known
	}
	if begin.pos != s.end.pos {
		c.full = true // the places of two batches contradict each other
		return
	}
	if begin.pos-s.marks[len(s.marks)-1].pos >= markBytes {
		if !c.room() {
			return
		}
		s.marks = append(s.marks, begin)
		c.count++
	}
	s.end = end
	if next := r.at + 1; next < len(c.stretches) && c.stretches[next].marks[0].pos <= end.pos {
		r.join(next)
	}
}

// room takes room for a mark.
func (c *checked) room() bool {
	if c.count >= marksPerFile || !c.store.take() {
		c.full = true
		return false
	}
	return true
}

// open begins a stretch.
func (r *run) open(begin mark) bool {
	c := r.of
	if len(c.stretches) >= stretchesMax || !c.room() {
		return false
	}
	i := sort.Search(len(c.stretches), func(i int) bool { return c.stretches[i].marks[0].pos > begin.pos })
	c.stretches = append(c.stretches, stretch{})
	copy(c.stretches[i+1:], c.stretches[i:])
	c.stretches[i] = stretch{marks: []mark{begin}, end: begin}
	c.count++
	r.at = i
	return true
}

// join makes one of a stretch and the next, which begins where it ends.
func (r *run) join(next int) {
	c := r.of
	s, n := &c.stretches[r.at], c.stretches[next]
	if n.marks[0].pos != s.end.pos {
		c.full = true
		return
	}
	s.marks = append(s.marks, n.marks...)
	s.end = n.end
	c.stretches = append(c.stretches[:next], c.stretches[next+1:]...)
}

// end ends a run.
func (r *run) end() { r.of.mu.Unlock() }

// has says whether all bytes of a stretch of the file were checked.
func (c *checked) has(pos, end int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.ending(pos)
	return i >= 0 && end <= c.stretches[i].end.pos
}

// place finds the place before the batch with an offset, if there is a mark.
func (c *checked) place(offset int64) (pos int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.stretches {
		s := &c.stretches[i]
		if offset < s.marks[0].offset || offset >= s.end.offset {
			continue
		}
		j := sort.Search(len(s.marks), func(j int) bool { return s.marks[j].offset >= offset })
		if j < len(s.marks) && s.marks[j].offset == offset {
			return s.marks[j].pos, true
		}
	}
	return 0, false
}

// last finds the furthest place behind pos that a section may end at: at most bytes
// on, not behind limit, and with no batch before it that reaches upTo.
func (c *checked) last(pos, bytes, limit, upTo int64) (end mark, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.ending(pos)
	if i < 0 {
		return mark{}, false
	}
	s := &c.stretches[i]
	limit = min(limit, pos+bytes)
	if s.end.pos <= limit && s.end.offset <= upTo {
		return s.end, s.end.pos > pos
	}
	j := sort.Search(len(s.marks), func(j int) bool { return s.marks[j].pos > limit || s.marks[j].offset > upTo })
	if j == 0 {
		return mark{}, false
	}
	return s.marks[j-1], s.marks[j-1].pos > pos
}

// wrote adds batches that the host itself has checked and written.
func (c *checked) wrote(pos, base int64, batches []storage.BatchInfo) {
	r := c.begin(mark{offset: base, pos: pos})
	defer r.end()
	for i := range batches {
		pos += int64(batches[i].Bytes)
		r.add(mark{offset: batches[i].LastOffset + 1, pos: pos})
	}
}

// read adds batches that were read and checked, whose first has an offset, or the first
// behind it.
func (c *checked) read(pos, offset int64, data []byte) {
	if len(data) == 0 || c.has(pos, pos+int64(len(data))) {
		return
	}
	r := c.begin(mark{offset: min(offset, recordbatch.BaseOffset(data)), pos: pos})
	defer r.end()
	for len(data) > 0 {
		info, err := recordbatch.Parse(data)
		if err != nil {
			return // it was checked, so that this does not happen
		}
		pos += int64(info.Bytes)
		r.add(mark{offset: info.LastOffset + 1, pos: pos})
		data = data[info.Bytes:]
	}
}

// forget gives the marks' room back, and takes no more.
func (c *checked) forget() {
	c.over.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store.give(c.count)
	c.stretches, c.count, c.full = nil, 0, true
}

// checkedOf returns what is known of a file of a log, which was opened as info says, and
// to which more can be added; nil: the handle or the file is not known.
func (c *leaseCache) checkedOf(h storage.Handle, file uint64, info os.FileInfo) *checked {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.logs[h]
	if l == nil || file == 0 {
		return nil
	}
	now := time.Now().UnixMilli()
	k := l.checked[file]
	if k != nil && (k.expired(now) || !os.SameFile(k.file, info)) {
		l.forget(file)
		k = nil
	}
	if k == nil {
		c.makeRoom(l)
		k = &checked{store: &c.marks, file: info, since: now}
		if l.checked == nil {
			l.checked = map[uint64]*checked{}
		}
		l.checked[file] = k
	}
	c.clock++
	k.used = c.clock
	return k
}

// makeRoom makes room for another file of a log, and for its marks. The caller holds mu.
func (c *leaseCache) makeRoom(l *leasedLog) {
	if len(l.checked) >= checkedFilesMax {
		file, _ := l.leastUsed()
		l.forget(file)
	}
	for c.marks.short() {
		var of *leasedLog
		var least uint64 = math.MaxUint64
		var file uint64
		for _, l := range c.logs {
			if f, used := l.leastUsed(); used < least {
				of, file, least = l, f, used
			}
		}
		if of == nil {
			return
		}
		of.forget(file)
	}
}

// leastUsed finds the file that was not used for longest, and when it was.
func (l *leasedLog) leastUsed() (file, used uint64) {
	used = math.MaxUint64
	for f, k := range l.checked {
		if k.used < used {
			file, used = f, k.used
		}
	}
	return file, used
}

// forget forgets what was checked of a file.
func (l *leasedLog) forget(file uint64) {
	l.checked[file].forget()
	delete(l.checked, file)
}

// forgetChecked forgets what was checked of a log, whose places may be other batches'
// from now on.
func (c *leaseCache) forgetChecked(h storage.Handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.logs[h]; l != nil {
		l.forgetAll()
	}
}

// forgetAll forgets what was checked of all files. The cache's mu is held.
func (l *leasedLog) forgetAll() {
	for file := range l.checked {
		l.forget(file)
	}
}
