package segment

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/openfiles"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

func build(base int64, records, epoch int32, payload int, ts int64) []byte {
	return recordbatch.Build(nil, recordbatch.Header{
		Info: recordbatch.Info{
			BaseOffset: base, LastOffset: base + int64(records) - 1, LeaderEpoch: epoch,
			BaseTimestamp: ts, MaxTimestamp: ts, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Records: records,
		},
		Payload: make([]byte, payload),
	})
}

func newFS() *openfiles.Cache { return openfiles.New(vfs.NewMem(vfs.MemConfig{}), 10) }

// fill writes batches into a new segment, and returns what an index of it must
// agree with.
func fill(t testing.TB, fs *openfiles.Cache, base int64, batches [][]byte, interval int64) (*Segment, Index) {
	t.Helper()
	s, err := Create(fs, "/", base)
	if err != nil {
		t.Fatal(err)
	}
	x := NewIndex(base)
	for _, b := range batches {
		if _, err := s.File().WriteVecAt([][]byte{b}, x.Bytes); err != nil {
			t.Fatal(err)
		}
		info, err := recordbatch.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		x.Add(info, interval, 77)
	}
	return s, x
}

// An index finds the same batches as a walk through all of the segment.
func TestIndexAgreesWithWalk(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		base := rapid.Int64Range(0, 1000).Draw(rt, "base")
		var batches [][]byte
		var infos []recordbatch.Info
		next := base
		for range rapid.IntRange(0, 40).Draw(rt, "batches") {
			next += rapid.Int64Range(0, 3).Draw(rt, "gap")
			b := build(next, rapid.Int32Range(1, 5).Draw(rt, "records"), 1, rapid.IntRange(0, 100).Draw(rt, "payload"),
				rapid.Int64Range(-1, 50).Draw(rt, "timestamp"))
			info, _ := recordbatch.Parse(b)
			batches, infos, next = append(batches, b), append(infos, info), info.LastOffset+1
		}
		seg, x := fill(t, newFS(), base, batches, rapid.Int64Range(1, 500).Draw(rt, "interval"))
		offsets, times := x.Encode()
		decoded, err := Decode(offsets, times)
		if err != nil || decoded.Summary != x.Summary {
			rt.Fatalf("decode: %+v, %v", decoded.Summary, err)
		}
		if built, err := seg.Build(x.Bytes, 100, Chain{Next: base, Gaps: true, Epoch: 0}); err != nil || built.Next != x.Next || built.MaxTimestamp != x.MaxTimestamp {
			rt.Fatalf("build: %+v, %v", built.Summary, err)
		}
		for offset := base; offset <= next; offset++ {
			pos, at := decoded.At(offset)
			w := NewWalk(seg.File(), pos, x.Bytes, Chain{Next: at, Gaps: true, Epoch: 0})
			info, _, err := w.Next()
			for err == nil && info.LastOffset < offset {
				info, _, err = w.Next()
			}
			want := recordbatch.Info{}
			for _, i := range infos {
				if i.LastOffset >= offset {
					want = i
					break
				}
			}
			if want.Bytes == 0 && !errors.Is(err, io.EOF) || want.Bytes > 0 && (err != nil || info != want) {
				rt.Fatalf("offset %d: found %+v, %v; want %+v", offset, info, err, want)
			}
		}
		for ts := int64(-1); ts <= 51; ts++ {
			from := decoded.Before(ts)
			for _, i := range infos {
				if i.BaseOffset < from && i.MaxTimestamp >= ts {
					rt.Fatalf("timestamp %d: the index starts at %d, but %d has %d", ts, from, i.BaseOffset, i.MaxTimestamp)
				}
			}
		}
		for upTo := base; upTo <= next; upTo++ {
			ts, at, ok := decoded.MaxUpTo(upTo)
			greatest := int64(-2)
			for _, i := range infos {
				if i.BaseOffset <= at {
					greatest = max(greatest, i.MaxTimestamp)
				}
				if ok && i.BaseOffset <= at && i.LastOffset >= upTo {
					rt.Fatalf("up to %d: the batch at %d ends at %d", upTo, i.BaseOffset, i.LastOffset)
				}
			}
			if ok && ts != greatest {
				rt.Fatalf("up to %d: greatest %d at %d, want %d", upTo, ts, at, greatest)
			}
		}
	})
}

func TestIndexFiles(t *testing.T) {
	fs := newFS()
	batches := [][]byte{build(5, 2, 1, 100, 9), build(7, 1, 1, 100, 3), build(8, 4, 2, 100, 12)}
	seg, x := fill(t, fs, 5, batches, 50)
	if _, err := seg.ReadIndex(x.Bytes); err == nil {
		t.Error("read an index that was never written")
	}
	if err := seg.WriteIndex(&x); err != nil {
		t.Fatal(err)
	}
	if sum, err := seg.ReadSummary(x.Bytes); err != nil || sum != x.Summary {
		t.Errorf("summary %+v, %v", sum, err)
	}
	if _, err := seg.ReadIndex(x.Bytes + 1); !errors.Is(err, ErrIndex) {
		t.Errorf("index of a segment of another size: %v", err)
	}
	seg.Seal(x.Summary, nil)
	for _, damage := range []string{"", Name(5, IndexSuffix), Name(5, TimeSuffix)} {
		if damage != "" {
			if err := fs.Remove("/" + damage); err != nil {
				t.Fatal(err)
			}
		}
		seg.DropIndex()
		got, fresh, err := seg.Index(50)
		if err != nil {
			t.Fatal(err)
		}
		if pos, at := got.At(8); !fresh || at != 8 || pos != int64(len(batches[0])+len(batches[1])) {
			t.Errorf("without %q: offset 8 at %d, %d", damage, at, pos)
		}
		if _, fresh, _ := seg.Index(50); fresh {
			t.Error("the index is not kept")
		}
	}
	// Readers outlive the files.
	if err := seg.Acquire(); err != nil {
		t.Fatal(err)
	}
	if err := seg.Remove(); err != nil {
		t.Fatal(err)
	}
	seg.Release() // the maker's
	seg.Retire()
	b := make([]byte, len(batches[0]))
	if _, err := seg.File().ReadAt(b, 0); err != nil || !bytes.Equal(b, batches[0]) {
		t.Errorf("read of a removed segment: %v", err)
	}
	seg.Release()
	if err := seg.Acquire(); !errors.Is(err, openfiles.ErrRetired) {
		t.Errorf("acquire a retired segment: %v", err)
	}
}

func TestTrust(t *testing.T) {
	s, err := Create(newFS(), "/", 0)
	if err != nil {
		t.Fatal(err)
	}
	s.Trust(100)
	steps := []struct {
		from, to int64
		check    bool
		trusted  bool
	}{
		{0, 10, false, false}, {100, 120, false, true}, {10, 20, true, false}, {0, 10, true, true},
		{5, 15, false, false}, {5, 60, true, true}, {60, 100, true, true}, {0, 120, false, true},
	}
	for i, step := range steps {
		if step.check {
			s.Checked(step.from, step.to)
		}
		if got := s.Trusted(step.from, step.to); got != step.trusted {
			t.Errorf("step %d: [%d,%d) trusted %v", i, step.from, step.to, got)
		}
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		name string
		base int64
		ok   bool
	}{
		{"00000000000000000042.log", 42, true}, {"42.log", 0, false}, {"00000000000000000042.log.cleaned", 0, false},
		{"0000000000000000004x.log", 0, false}, {"-0000000000000000042.log", 0, false}, {"99999999999999999999.log", 0, false},
	} {
		if base, ok := ParseName(c.name, LogSuffix); ok != c.ok || ok && base != c.base {
			t.Errorf("%s: %d, %v", c.name, base, ok)
		}
	}
}

// A walk over any bytes ends, without a panic, at damage or at the end.
func FuzzSegment(f *testing.F) {
	f.Add(append(build(0, 2, 1, 30, 5), build(2, 1, 1, 3, 6)...))
	f.Add(build(0, 2, 1, 30, 5)[:61])
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for _, headers := range []bool{false, true} {
			w := NewWalk(r, 0, int64(len(b)), Chain{Gaps: true, Epoch: -1 << 31})
			next := int64(0)
			for {
				pos := w.Pos()
				var info recordbatch.Info
				var err error
				if headers {
					info, err = w.NextHeader()
				} else {
					var got []byte
					if info, got, err = w.Next(); err == nil && !bytes.Equal(got, b[pos:w.Pos()]) {
						t.Fatal("the walk returns other bytes than the file's")
					}
				}
				var damage *Damage
				if errors.Is(err, io.EOF) || errors.As(err, &damage) && damage.Pos == pos {
					break
				}
				if err != nil || w.Pos() <= pos || info.BaseOffset < next {
					t.Fatalf("at %d: %+v, %v", pos, info, err)
				}
				next = info.LastOffset + 1
			}
		}
	})
}

// Whatever the index files hold, they are refused or lead to places inside the
// segment.
func FuzzIndex(f *testing.F) {
	_, x := fill(f, newFS(), 5, [][]byte{build(5, 2, 1, 100, 9), build(7, 1, 1, 100, 10)}, 50)
	offsets, times := x.Encode()
	f.Add(offsets, times, int64(7))
	f.Fuzz(func(t *testing.T, offsets, times []byte, at int64) {
		x, err := Decode(offsets, times)
		if err != nil {
			return
		}
		if pos, first := x.At(at); pos < 0 || pos > x.Bytes || first < x.Base || pos > 0 && first > at {
			t.Errorf("offset %d: position %d, offset %d", at, pos, first)
		}
		x.Before(at)
		x.MaxUpTo(at)
	})
}

// The index of what a cut leaves is the same whether it is begun at the start or
// near the cut.
func TestCutBefore(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const base, interval = 100, 250
		var infos []recordbatch.Info
		next := int64(base)
		for range rapid.IntRange(1, 60).Draw(rt, "batches") {
			info, err := recordbatch.Parse(build(next, rapid.Int32Range(1, 3).Draw(rt, "records"), 1,
				rapid.IntRange(0, 200).Draw(rt, "payload"), rapid.Int64Range(-1, 50).Draw(rt, "timestamp")))
			if err != nil {
				rt.Fatal(err)
			}
			infos, next = append(infos, info), info.LastOffset+1
		}
		whole := NewIndex(base)
		for _, info := range infos {
			whole.Add(info, interval, 77)
		}
		to := rapid.Int64Range(base, next).Draw(rt, "to")
		cut, ok := whole.CutBefore(to)
		if !ok && len(whole.offsets) > 2 && to > whole.Base+int64(whole.offsets[2].rel) {
			rt.Fatalf("the walk to %d begins at the start", to)
		}
		want, walked := NewIndex(base), 0
		for _, info := range infos {
			if info.LastOffset >= to {
				break
			}
			want.Add(info, interval, 77)
			if want.Bytes > cut.Bytes {
				cut.Add(info, interval, 77)
				walked++
			}
		}
		if walked == 0 && want.Bytes > 0 {
			rt.Fatalf("the walk to %d meets nothing that stays", to)
		}
		cut.WrittenMillis, want.WrittenMillis = 0, 0
		if cut.Bytes > 0 && (cut.Summary != want.Summary || !slices.Equal(cut.offsets, want.offsets) || !slices.Equal(cut.times, want.times)) {
			rt.Fatalf("cut at %d:\n%+v\nfrom the start:\n%+v", to, cut, want)
		}
	})
}

// What somebody else has written behind checked bytes is checked when it is read;
// what was checked before stays so.
func TestDistrust(t *testing.T) {
	batches := [][]byte{build(0, 1, 1, 50, 1), build(1, 1, 1, 50, 1), build(2, 1, 1, 50, 1)}
	n := int64(len(batches[0]))
	for name, c := range map[string]struct {
		trust func(s *Segment)
		first bool // the first is trusted
	}{
		"made":             {func(*Segment) {}, true},
		"opened":           {func(s *Segment) { s.Trust(n) }, false},
		"opened and read":  {func(s *Segment) { s.Trust(n); s.Checked(0, n) }, true},
		"opened unchecked": {func(s *Segment) { s.Trust(BytesMax + 1) }, false},
	} {
		s, _ := fill(t, newFS(), 0, batches, 100)
		c.trust(s)
		s.Distrust(n)
		if s.Trusted(0, n) != c.first || s.Trusted(n, 2*n) || s.Trusted(2*n, 3*n) {
			t.Errorf("%s: trusted %v, %v, %v", name, s.Trusted(0, n), s.Trusted(n, 2*n), s.Trusted(2*n, 3*n))
		}
		if _, err := s.File().WriteVecAt([][]byte{{1, 2, 3}}, 2*n-3); err != nil {
			t.Fatal(err)
		}
		var damage *Damage
		if err := s.Verify(n, 2*n, 1); !errors.As(err, &damage) {
			t.Errorf("%s: a damaged batch passed: %v", name, err)
		}
		s.Regrow(0)
		if !s.Trusted(0, n) {
			t.Errorf("%s: what an owner writes is not trusted", name)
		}
		s.Distrust(0)
		if s.Trusted(0, n) {
			t.Errorf("%s: what was read before a cut counts for what was written after it", name)
		}
	}
}
