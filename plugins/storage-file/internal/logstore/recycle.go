package logstore

import (
	"errors"
	"os"
	"path"
	"sync"
	"sync/atomic"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
)

// A segment that retention or a trim drops may become the next segment of its log:
// its blocks are allocated, and its pages are in memory. That is not so when anything
// of it was ever lent, or was there when the log was opened. First it is filled with
// zeros, and these are synced, in the background. Were its batches left, then a
// write that a crash cuts short could be taken for whole: nothing that the CRC of a
// batch covers says where the batch belongs, so that the head of a new one before
// the body of an old one would pass.

const (
	// spareName is that of a segment file until it is used again. Every program
	// removes such a file when it opens the log.
	spareName = "spare.tmp"
	// spareStep is how much is zeroed between two syncs, so that the syncs of others
	// do not wait for long.
	spareStep = 8 << 20
	// spareRoom: nothing is kept when less than this part of the device is free.
	spareRoom = 8
)

// spare is a file that is to be a segment again.
type spare struct {
	bytes int64
	ready bool // it holds zeros, durably
	// dropped: nobody wants it any more.
	dropped atomic.Bool
}

// spares bounds what the spare files of all logs occupy.
type spares struct {
	mu   sync.Mutex
	left int64
}

func (s *spares) take(bytes int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes > s.left {
		return false
	}
	s.left -= bytes
	return true
}

func (s *spares) give(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left += bytes
}

func (l *log) sparePath() string { return path.Join(l.dir, spareName) }

// dropSegment removes a segment that is no longer part of the log, or keeps its
// file for the next.
func (l *log) dropSegment(seg *segment.Segment) error {
	if seg.Lent() > 0 || !l.sparing(seg.Summary().Bytes) {
		if err := seg.Remove(); err != nil {
			return err
		}
		l.forget(seg)
		return nil
	}
	l.forget(seg)
	// Nobody can come to hold it any more: who does, or has ever leased it, keeps it.
	if !seg.Unused() || seg.Lent() > 0 || l.spareSegment(seg) != nil {
		l.store.spares.give(seg.Summary().Bytes)
		return seg.Remove()
	}
	return nil
}

// sparing says whether a segment of so many bytes is worth to be kept, and that
// there is room for it.
func (l *log) sparing(bytes int64) bool {
	if l.spare != nil || bytes < l.options.SegmentBytes/2 || !l.store.reserve.there() {
		return false
	}
	total, free, err := l.store.fs.Room(l.store.dir)
	return err == nil && free >= total/spareRoom && l.store.spares.take(bytes)
}

// spareSegment gives the file its temporary name, and has it filled with zeros.
func (l *log) spareSegment(seg *segment.Segment) error {
	if err := seg.RemoveIndex(); err != nil {
		return err
	}
	fs := l.store.fs
	if err := fs.Rename(path.Join(l.dir, segment.Name(seg.Base(), segment.LogSuffix)), l.sparePath()); err != nil {
		return err
	}
	sp := &spare{bytes: seg.Summary().Bytes}
	f, err := fs.Open(l.sparePath(), vfs.Existing)
	if err == nil && !l.store.recyclers.push(func() { l.cleanSpare(sp, f) }) {
		err = errors.Join(errShutdown(), f.Close())
	}
	if err != nil {
		return errors.Join(err, fs.Remove(l.sparePath()))
	}
	l.spare = sp
	return nil
}

// cleanSpare fills the file with zeros, in the background, and gives it to the log,
// if that still wants it.
func (l *log) cleanSpare(sp *spare, f vfs.File) {
	err := zeroFile(f, sp.bytes, &sp.dropped)
	if err := errors.Join(err, f.Close()); err != nil {
		l.store.logger.Debug("a segment is not used again", "path", l.dir, "err", err)
	}
	l.enqueue(op{run: func() {
		switch {
		case l.spare != sp:
		case err != nil:
			l.dropSpare()
		default:
			sp.ready = true
		}
	}})
}

// zeroFile makes the file's bytes zeros, durably, unless it is stopped.
func zeroFile(f vfs.File, bytes int64, stop *atomic.Bool) error {
	vec := make([][]byte, 0, aheadMost/zeroBytes)
	unsynced := int64(0)
	for at := int64(0); at < bytes && !stop.Load(); {
		n, err := f.WriteVecAt(appendZeros(vec[:0], min(aheadMost, bytes-at)), at)
		if err != nil {
			return err
		}
		at += int64(n)
		if unsynced += int64(n); unsynced >= spareStep || at == bytes {
			if err := f.Sync(); err != nil {
				return err
			}
			unsynced = 0
		}
	}
	return nil
}

// dropSpare removes the spare file, if there is one.
func (l *log) dropSpare() {
	if l.letGoSpare() {
		if err := l.store.fs.Remove(l.sparePath()); err != nil && !errors.Is(err, os.ErrNotExist) {
			l.store.logger.Debug("a spare file remains until the log is opened again", "path", l.dir, "err", err)
		}
	}
}

// letGoSpare forgets the spare file. It reports whether there was one.
func (l *log) letGoSpare() bool {
	if l.spare == nil {
		return false
	}
	l.store.spares.give(l.spare.bytes)
	l.spare.dropped.Store(true)
	l.spare = nil
	return true
}

// nextSegment makes the segment that begins at the LEO, from the spare file where
// there is one that is ready. It is acquired, and its name is not durable; its file
// has so many zeros.
func (l *log) nextSegment() (next *segment.Segment, ahead int64, err error) {
	if sp := l.spare; sp != nil && sp.ready && l.noteAhead(l.leo) == nil {
		next, err := segment.Recycle(l.store.fs, l.dir, l.leo, spareName)
		if err == nil {
			l.letGoSpare()
			return next, sp.bytes, nil
		}
		l.store.logger.Debug("a segment is not used again", "path", l.dir, "err", err)
		l.dropSpare()
	}
	next, err = segment.Create(l.store.fs, l.dir, l.leo)
	return next, 0, err
}

// dropSpares gives up the spare files of all logs, since there is no room.
func (s *Store) dropSpares() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, l := range s.logs {
		l.enqueue(op{run: l.dropSpare})
	}
}
