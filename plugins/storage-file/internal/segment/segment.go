package segment

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/openfiles"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// The extensions of a segment's files.
const (
	LogSuffix   = ".log"
	IndexSuffix = ".index"
	TimeSuffix  = ".timeindex"
	// CleanedSuffix follows LogSuffix while the segment is to replace others.
	CleanedSuffix = ".cleaned"
)

const nameDigits = 20

// Name returns the file name of the segment with the base offset.
func Name(base int64, suffix string) string { return fmt.Sprintf("%0*d%s", nameDigits, base, suffix) }

// ParseName returns the base offset in a segment's file name.
func ParseName(name, suffix string) (base int64, ok bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != nameDigits {
		return 0, false
	}
	base, err := strconv.ParseInt(digits, 10, 64)
	return base, err == nil && base >= 0
}

// Segment is one segment file, which is open while it is acquired. Its owner
// changes it; readers hold it with Acquire and may then read it from any
// goroutine, even after it was removed.
type Segment struct {
	fs   *openfiles.Cache
	dir  string
	base int64
	file *openfiles.File

	// index is loaded when it is needed and may be dropped; nil when the
	// segment is the one that grows.
	index atomic.Pointer[Index]

	// Bytes before verified, and from trusted on, were checked in this life of
	// the process.
	verified atomic.Int64
	trusted  atomic.Int64

	// lent is where the bytes end that others may read, at any time from now on.
	lent atomic.Int64

	// sum is set before readers see the segment as one that no longer grows. A
	// truncation may let it grow again, and it is then sealed anew.
	sum atomic.Pointer[Summary]
}

// Create makes an empty segment file, which is acquired. Its name is not durable
// yet.
func Create(fs *openfiles.Cache, dir string, base int64) (*Segment, error) {
	return create(fs, dir, base, Name(base, LogSuffix))
}

// Recycle makes a segment of a file that is there and holds zeros, and gives it the
// segment's name, which is not durable yet. It is acquired.
func Recycle(fs *openfiles.Cache, dir string, base int64, file string) (*Segment, error) {
	f, err := fs.Make(path.Join(dir, file), vfs.Existing)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", file, err)
	}
	s := &Segment{fs: fs, dir: dir, base: base, file: f}
	if err := fs.Rename(path.Join(dir, file), s.path(LogSuffix)); err != nil {
		s.Release()
		s.Retire()
		return nil, fmt.Errorf("rename %s: %w", file, err)
	}
	s.Renamed()
	return s, nil
}

// CreateCleaned makes an empty segment under its temporary name, acquired. It
// must stay so until Renamed.
func CreateCleaned(fs *openfiles.Cache, dir string, base int64) (*Segment, error) {
	return create(fs, dir, base, Name(base, LogSuffix+CleanedSuffix))
}

func create(fs *openfiles.Cache, dir string, base int64, name string) (*Segment, error) {
	f, err := fs.Make(path.Join(dir, name), vfs.Empty)
	if err != nil {
		return nil, fmt.Errorf("create segment %d: %w", base, err)
	}
	return &Segment{fs: fs, dir: dir, base: base, file: f}, nil
}

// Existing is a segment that is there; none of its bytes are trusted.
func Existing(fs *openfiles.Cache, dir string, base int64) *Segment {
	s := &Segment{fs: fs, dir: dir, base: base, file: fs.Lazy(path.Join(dir, Name(base, LogSuffix)))}
	s.trusted.Store(BytesMax + 1)
	return s
}

// Base is the segment's base offset.
func (s *Segment) Base() int64 { return s.base }

// ID is a number that no other segment of the process has.
func (s *Segment) ID() uint64 { return s.file.ID() }

// FileName is the name that the file has now.
func (s *Segment) FileName() string { return s.file.Name() }

// File is the segment's file, while it is acquired.
func (s *Segment) File() vfs.File { return s.file.Get() }

// Acquire opens the file, if it is not open, and keeps it so until Release. The
// error matches openfiles.ErrRetired after Retire.
func (s *Segment) Acquire() error {
	if err := s.file.Pin(); err != nil {
		return fmt.Errorf("open segment %d: %w", s.base, err)
	}
	return nil
}

// Release gives up what Acquire, or the making of the segment, took.
func (s *Segment) Release() { s.file.Unpin() }

// Retire says that the segment is no longer part of the log: it is not opened
// any more, and another may get its name.
func (s *Segment) Retire() { s.file.Retire() }

// Unused reports whether the segment was retired and nobody has it acquired.
func (s *Segment) Unused() bool { return s.file.Unused() }

// Renamed says that the segment lost its temporary name.
func (s *Segment) Renamed() { s.file.Renamed(s.path(LogSuffix)) }

// Lend says that others may read the bytes before pos, through a descriptor or from
// the file's memory, at any time from now on: they are never to be changed.
func (s *Segment) Lend(pos int64) {
	for {
		lent := s.lent.Load()
		if pos <= lent || s.lent.CompareAndSwap(lent, pos) {
			return
		}
	}
}

// Lent is where the bytes end that were lent; zero: nothing was.
func (s *Segment) Lent() int64 { return s.lent.Load() }

// Trust says that the bytes from pos on were checked.
func (s *Segment) Trust(pos int64) { s.trusted.Store(pos) }

// Regrow says that the bytes from pos on, whatever they were, will be written
// anew by an owner that checks them.
func (s *Segment) Regrow(pos int64) {
	if s.trusted.Load() > pos {
		s.trusted.Store(pos)
	}
	if v := s.verified.Load(); v > pos {
		s.verified.CompareAndSwap(v, pos)
	}
}

// Distrust says that the bytes from pos on, which follow the last, were written by
// somebody else, and are checked when they are read.
func (s *Segment) Distrust(pos int64) {
	trusted, verified := s.trusted.Load(), s.verified.Load()
	if trusted > BytesMax {
		return
	}
	if trusted <= verified {
		s.verified.Store(max(verified, pos)) // so was all before them
	}
	s.trusted.Store(BytesMax + 1)
}

// Trusted reports whether the bytes in [from, to) were checked.
func (s *Segment) Trusted(from, to int64) bool {
	return from >= s.trusted.Load() || to <= s.verified.Load()
}

// Checked takes note that [from, to) was checked.
func (s *Segment) Checked(from, to int64) {
	for {
		v := s.verified.Load()
		if from > v || to <= v {
			return
		}
		if s.verified.CompareAndSwap(v, to) {
			if t := s.trusted.Load(); to >= t {
				s.trusted.CompareAndSwap(t, 0) // unless it was distrusted meanwhile
			}
			return
		}
	}
}

// Verify checks the CRC of the batch that lies in [from, to), whose base offset
// is given, unless it was checked in this life of the process. The segment is
// acquired. A *Damage when it is wrong.
func (s *Segment) Verify(from, to, offset int64) error {
	if s.Trusted(from, to) {
		return nil
	}
	b := make([]byte, to-from)
	n, err := s.File().ReadAt(b, from)
	if n < len(b) {
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read segment %d at %d: %w", s.base, from, err)
		}
		return &Damage{Pos: from, Offset: offset, Torn: true, Reason: recordbatch.ErrIncomplete}
	}
	if err := recordbatch.CheckCRC(b); err != nil {
		return &Damage{Pos: from, Offset: offset, Reason: err}
	}
	s.Checked(from, to)
	return nil
}

// Seal fixes the summary of a segment that grows no more. Its index is kept in
// memory if it is given.
func (s *Segment) Seal(sum Summary, x *Index) {
	s.sum.Store(&sum)
	s.index.Store(x)
}

// Summary is what Seal fixed.
func (s *Segment) Summary() Summary {
	if sum := s.sum.Load(); sum != nil {
		return *sum
	}
	return NewIndex(s.base).Summary
}

// DropIndex forgets the index in memory; Index loads it again.
func (s *Segment) DropIndex() { s.index.Store(nil) }

// WriteIndex writes the index files. Nothing is synced: what a crash leaves of
// them is refused by its CRC, and built again.
func (s *Segment) WriteIndex(x *Index) error {
	offsets, times := x.Encode()
	if err := s.writeFile(IndexSuffix, offsets); err != nil {
		return err
	}
	return s.writeFile(TimeSuffix, times)
}

func (s *Segment) writeFile(suffix string, b []byte) error {
	f, err := s.fs.Open(s.path(suffix), vfs.Empty)
	if err != nil {
		return err
	}
	_, err = f.WriteVecAt([][]byte{b}, 0)
	return errors.Join(err, f.Close())
}

// ReadSummary reads the summary from the time index's header, and refuses one
// that is not of a segment of so many bytes.
func (s *Segment) ReadSummary(bytes int64) (Summary, error) {
	f, err := s.fs.Open(s.path(TimeSuffix), vfs.Existing)
	if err != nil {
		return Summary{}, err
	}
	defer func() { _ = f.Close() }() // only read
	b := make([]byte, headerBytes)
	if _, err := f.ReadAt(b, 0); err != nil {
		return Summary{}, fmt.Errorf("%w: %w", ErrIndex, err)
	}
	sum, _, err := DecodeSummary(b, timeMagic)
	if err != nil {
		return Summary{}, err
	}
	if sum.Base != s.base || sum.Bytes != bytes {
		return Summary{}, fmt.Errorf("%w: of another segment", ErrIndex)
	}
	return sum, nil
}

// ReadIndex reads the index files and refuses those that are not of this
// segment at this size.
func (s *Segment) ReadIndex(bytes int64) (Index, error) {
	offsets, err := vfs.ReadAll(s.fs, s.path(IndexSuffix), IndexBytesMax)
	if err != nil {
		return Index{}, err
	}
	times, err := vfs.ReadAll(s.fs, s.path(TimeSuffix), IndexBytesMax)
	if err != nil {
		return Index{}, err
	}
	x, err := Decode(offsets, times)
	if err != nil {
		return Index{}, err
	}
	if x.Base != s.base || x.Bytes != bytes {
		return Index{}, fmt.Errorf("%w: of another segment", ErrIndex)
	}
	return x, nil
}

// Index returns the index of a sealed segment: from memory, from its files, or
// built again. fresh is true when it was not in memory. It fails only where a
// file cannot be opened at the moment.
func (s *Segment) Index(interval int64) (x *Index, fresh bool, err error) {
	if x := s.index.Load(); x != nil {
		return x, false, nil
	}
	sum := s.Summary()
	built, err := s.ReadIndex(sum.Bytes)
	if vfs.NoDescriptors(err) {
		return nil, false, fmt.Errorf("read the index of segment %d: %w", s.base, err)
	}
	if err != nil || built.Summary != sum {
		// Where the headers don't follow each other the index ends, and the
		// reader that walks on from there meets the damage.
		built, err = s.Build(sum.Bytes, interval, Chain{Next: s.base, Gaps: true, Epoch: -1})
		if vfs.NoDescriptors(err) || errors.Is(err, openfiles.ErrRetired) {
			return nil, false, err
		}
	}
	s.index.CompareAndSwap(nil, &built) // unless it was sealed anew meanwhile
	return &built, true, nil
}

// Rebuild makes the index again from the segment, and keeps it.
func (s *Segment) Rebuild(interval int64) *Index {
	built, _ := s.Build(s.Summary().Bytes, interval, Chain{Next: s.base, Gaps: true, Epoch: -1})
	s.index.Store(&built)
	return &built
}

// Build makes the index of the first limit bytes from the headers alone. With
// an error it covers what precedes the damage.
func (s *Segment) Build(limit, interval int64, chain Chain) (Index, error) {
	if err := s.Acquire(); err != nil {
		return NewIndex(s.base), err
	}
	defer s.Release()
	_, modified, err := s.File().Stat()
	if err != nil {
		return NewIndex(s.base), fmt.Errorf("stat segment %d: %w", s.base, err)
	}
	x := NewIndex(s.base)
	w := NewWalk(s.File(), 0, limit, chain)
	for {
		info, err := w.NextHeader()
		if errors.Is(err, io.EOF) {
			return x, nil
		}
		if err != nil {
			return x, err
		}
		x.Add(info, interval, modified.UnixMilli())
	}
}

// Remove removes the segment's files; those that are not there are no error.
// The file stays open for readers that hold it, and is to be retired.
func (s *Segment) Remove() error {
	if err := s.RemoveIndex(); err != nil {
		return err
	}
	return removeIfThere(s.fs, s.path(LogSuffix))
}

// RemoveIndex removes the index files.
func (s *Segment) RemoveIndex() error {
	for _, suffix := range []string{IndexSuffix, TimeSuffix} {
		if err := removeIfThere(s.fs, s.path(suffix)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Segment) path(suffix string) string { return path.Join(s.dir, Name(s.base, suffix)) }

func removeIfThere(fs vfs.FS, name string) error {
	if err := fs.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path.Base(name), err)
	}
	return nil
}
