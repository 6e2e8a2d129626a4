package partition

import (
	"encoding/hex"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var epochZero = time.Unix(5000, 0)

func idempotent(pid int64, epoch int16, seq int32, base int64, records int32) *recordbatch.Info {
	return &recordbatch.Info{ProducerID: pid, ProducerEpoch: epoch, BaseSequence: seq, BaseOffset: base,
		LastOffset: base + int64(records) - 1, Records: records}
}

func TestSequenceRules(t *testing.T) {
	known := func() *producers {
		p := newProducers(10)
		for i := range int32(7) { // sequences 0..13 in batches of two, epoch 3
			p.advance(epochZero, idempotent(1, 3, 2*i, int64(100+2*i), 2), -1, nil)
		}
		return p
	}
	for _, c := range []struct {
		name  string
		batch *recordbatch.Info
		base  int64 // of the batch that it repeats; -1: none
		want  error
	}{
		{"next", idempotent(1, 3, 14, 0, 1), -1, nil},
		{"gap", idempotent(1, 3, 15, 0, 1), -1, model.ErrOutOfOrderSequence},
		{"repeat of the last", idempotent(1, 3, 12, 0, 2), 112, nil},
		{"repeat of the fifth last", idempotent(1, 3, 4, 0, 2), 104, nil},
		{"repeat of the sixth last", idempotent(1, 3, 2, 0, 2), -1, model.ErrOutOfOrderSequence},
		{"same first, other last sequence", idempotent(1, 3, 12, 0, 3), -1, model.ErrOutOfOrderSequence},
		{"lower epoch", idempotent(1, 2, 14, 0, 1), -1, model.ErrInvalidProducerEpoch},
		{"repeat under a lower epoch", idempotent(1, 2, 12, 0, 2), -1, model.ErrInvalidProducerEpoch},
		{"higher epoch at 0", idempotent(1, 4, 0, 0, 1), -1, nil},
		{"higher epoch elsewhere", idempotent(1, 4, 14, 0, 1), -1, model.ErrOutOfOrderSequence},
		{"unknown producer, any sequence (FR-59)", idempotent(2, 0, 7, 0, 1), -1, nil},
	} {
		old, err := known().check(c.batch)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.want)
		}
		if base := baseOf(old); base != c.base {
			t.Errorf("%s: repeats the batch at %d, want %d", c.name, base, c.base)
		}
	}
}

func baseOf(b *producerBatch) int64 {
	if b == nil {
		return -1
	}
	return b.base
}

func TestSequencesWrap(t *testing.T) {
	for _, c := range []struct {
		first   int32
		records int32
		last    int32
		next    int32
	}{
		{math.MaxInt32, 1, math.MaxInt32, 0},
		{math.MaxInt32 - 1, 2, math.MaxInt32, 0},
		{math.MaxInt32, 2, 0, 1},
		{math.MaxInt32 - 2, 5, 1, 2},
		{0, 1, 0, 1},
	} {
		p := newProducers(1)
		b := idempotent(1, 0, c.first, 0, c.records)
		if got := lastSequence(b); got != c.last {
			t.Errorf("last sequence of %d from %d: %d, want %d", c.records, c.first, got, c.last)
		}
		p.advance(epochZero, b, -1, nil)
		if _, err := p.check(idempotent(1, 0, c.next, 0, 1)); err != nil {
			t.Errorf("after %d from %d: %v", c.records, c.first, err)
		}
	}
}

func TestProducersExpireByTimeSinceLastAppend(t *testing.T) {
	p := newProducers(10)
	for i := range int64(4) {
		p.advance(epochZero.Add(time.Duration(i)*time.Hour), idempotent(i, 0, 0, i, 1), -1, nil)
	}
	p.advance(epochZero.Add(5*time.Hour), idempotent(0, 0, 1, 9, 1), -1, nil) // 0 is the freshest now
	if n := p.expire(epochZero.Add(26*time.Hour), 24*time.Hour); n != 1 {
		t.Fatalf("%d expired, want producer 1 alone", n)
	}
	if _, ok := p.byID[1]; ok || p.len() != 3 {
		t.Fatalf("producer 1 is there: %v, %d left", ok, p.len())
	}
	if n := p.expire(epochZero.Add(-100*time.Hour), 24*time.Hour); n != 0 {
		t.Fatalf("%d expired after the clock went back", n)
	}
}

func TestProducersAreBounded(t *testing.T) {
	p := newProducers(3)
	for i := range int64(100) {
		p.advance(epochZero.Add(time.Duration(i)), idempotent(i, 0, 0, i, 1), -1, nil)
		if i > 0 {
			p.advance(epochZero.Add(time.Duration(i)), idempotent(0, 0, int32(i), i, 1), -1, nil)
		}
	}
	if _, ok := p.byID[0]; !ok || p.len() != 3 {
		t.Fatalf("%d producers, the busiest is known: %v", p.len(), ok)
	}
}

func TestSnapshotRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newProducers(20)
		for range rapid.IntRange(0, 60).Draw(t, "batches") {
			id := rapid.Int64Range(0, 15).Draw(t, "id")
			seq := rapid.Int32Range(0, math.MaxInt32).Draw(t, "seq")
			b := idempotent(id, int16(rapid.IntRange(0, 3).Draw(t, "epoch")), seq, rapid.Int64Range(0, 1e12).Draw(t, "base"), 1)
			b.MaxTimestamp = rapid.Int64().Draw(t, "stamp")
			p.advance(epochZero.Add(-time.Duration(rapid.Int64Range(0, 1e6).Draw(t, "idle"))*time.Millisecond), b, rapid.Int64().Draw(t, "time"), nil)
		}
		q := newProducers(20)
		if err := decodeProducers(q, epochZero, encodeProducers(p, epochZero, nil)); err != nil {
			t.Fatal(err)
		}
		if p.len() != q.len() {
			t.Fatalf("%d producers became %d", p.len(), q.len())
		}
		a, b := p.ends.next, q.ends.next
		for ; a != &p.ends; a, b = a.next, b.next {
			as, bs := a.state, b.state
			for i := as.n; i < producerBatches; i++ {
				as.batches[i], bs.batches[i] = producerBatch{}, producerBatch{}
			}
			if a.id != b.id || as != bs {
				t.Fatalf("producer %d:\n%s", a.id, cmp.Diff(as, bs, cmp.AllowUnexported(producerState{}, producerBatch{})))
			}
		}
	})
}

// A snapshot of the first version is read; it tells no producer's last timestamp.
func TestSnapshotOfVersion1(t *testing.T) {
	old, err := hex.DecodeString("0001000000010000000000000001000200000000000005dc01000000030000000700000000000000040000000000000008000000000000000690422c21")
	if err != nil {
		t.Fatal(err)
	}
	p := newProducers(10)
	if err := decodeProducers(p, epochZero, old); err != nil {
		t.Fatal(err)
	}
	want := producerState{epoch: 2, n: 1, lastAppend: epochZero.Add(-1500 * time.Millisecond), maxTimestamp: -1}
	want.batches[0] = producerBatch{firstSeq: 3, lastSeq: 7, base: 4, last: 8, timestamp: 6}
	if got := p.byID[1]; p.len() != 1 || got.state != want {
		t.Fatalf("read %+v", got)
	}
}

// What a client is told of a producer is its newest batch's, and nothing where no
// batch of it got into the log.
func TestActiveProducers(t *testing.T) {
	p := newProducers(10)
	for i, stamp := range []int64{50, 40} {
		b := idempotent(7, 3, int32(2*i), int64(2*i), 2)
		b.MaxTimestamp = stamp
		p.advance(epochZero, b, -1, nil)
	}
	p.advance(epochZero, idempotent(5, 0, 9, 4, 1), -1, nil)
	p.refused(epochZero, idempotent(6, 0, 0, 5, 1))
	want := []model.ProducerState{{ID: 7, Epoch: 3, LastSequence: 3, LastTimestamp: 40}, {ID: 5, LastSequence: 9}}
	if diff := cmp.Diff(want, p.active()); diff != "" {
		t.Error(diff)
	}
}

func FuzzSnapshot(f *testing.F) {
	p := newProducers(10)
	p.advance(epochZero, idempotent(1, 2, 3, 4, 5), 6, nil)
	p.advance(epochZero, idempotent(7, 0, 0, 9, 1), -1, nil)
	good := encodeProducers(p, epochZero, nil)
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		q := newProducers(10)
		if err := decodeProducers(q, epochZero, b); err != nil {
			if !errors.Is(err, errSnapshot) || q.len() != 0 {
				t.Fatalf("%v, %d producers", err, q.len())
			}
			return
		}
		r := newProducers(10)
		if err := decodeProducers(r, epochZero, encodeProducers(q, epochZero, nil)); err != nil || r.len() != q.len() {
			t.Fatalf("encoded again: %v, %d of %d", err, r.len(), q.len())
		}
	})
}

func TestSnapshotDetectsEveryFlippedBit(t *testing.T) {
	p := newProducers(10)
	p.advance(epochZero, idempotent(1, 2, 3, 4, 5), 6, nil)
	good := encodeProducers(p, epochZero, nil)
	for i := range len(good) * 8 {
		bad := append([]byte(nil), good...)
		bad[i/8] ^= 1 << (i % 8)
		if err := decodeProducers(newProducers(10), epochZero, bad); !errors.Is(err, errSnapshot) {
			t.Fatalf("bit %d flipped: %v", i, err)
		}
	}
}

func TestEpochEnds(t *testing.T) { // KIP-101, KIP-279
	c := (&epochCache{}).assigned(2, 10).assigned(5, 20).assigned(7, 30)
	for _, q := range []struct {
		ask, epoch model.LeaderEpoch
		end        int64
	}{
		{7, 7, 42}, {8, -1, -1}, {6, 5, 30}, {5, 5, 30}, {4, 2, 20}, {2, 2, 20}, {1, 1, 10}, {0, 0, 10}, {-1, -1, -1},
	} {
		if got := c.end(q.ask, 42); got.Epoch != q.epoch || got.EndOffset != q.end {
			t.Errorf("end of epoch %d: %+v, want %d, %d", q.ask, got, q.epoch, q.end)
		}
	}
	trimmed := c.trimmed(25)
	if got := trimmed.end(2, 42); got.Epoch != 2 || got.EndOffset != 25 {
		t.Errorf("an epoch below the log start: %+v", got)
	}
	if got := trimmed.at(25); got != 5 {
		t.Errorf("epoch at the log start: %d", got)
	}
	if c.end(2, 42).EndOffset != 20 {
		t.Error("trimming changed the value that readers may hold")
	}
	// Elections without writes leave no conflict. (FR-21)
	idle := c.assigned(8, 42).assigned(9, 42)
	if got := idle.end(7, 42); got.EndOffset != 42 {
		t.Errorf("end of epoch 7 after idle elections: %+v", got)
	}
	if got := idle.end(8, 42); got.Epoch != 7 {
		t.Errorf("an epoch that wrote nothing: %+v", got)
	}
}

func TestDivergence(t *testing.T) { // KIP-595
	v := View{Status: StatusServing, Epoch: 7, HighWater: 42, LastStable: 42, LEO: 42, epochs: (&epochCache{}).assigned(2, 0).assigned(7, 30)}
	for _, c := range []struct {
		name      string
		offset    int64
		last      model.LeaderEpoch
		diverging bool
		want      error
	}{
		{"same history", 35, 7, false, nil},
		{"old epoch, inside", 30, 2, false, nil},
		{"old epoch, past its end", 31, 2, true, nil},
		{"an epoch that was never here", 20, 5, true, nil},
		{"an epoch above", 20, 8, false, model.ErrOffsetOutOfRange},
		{"not checked", 31, model.NoEpoch, false, nil},
	} {
		end, err := v.CheckFetch(c.offset, model.NoEpoch, c.last)
		if !errors.Is(err, c.want) || (end != nil) != c.diverging {
			t.Errorf("%s: %+v, %v", c.name, end, err)
		}
	}
}

// appender appends batches of one idempotent producer, each from Append to its answer.
type appender struct {
	m    *Machine
	out  Effects
	in   Append
	done AppendDone
	seq  int32
}

func newAppender() *appender {
	m := New(Config{Node: 1, Limits: DefaultLimits(), Settings: DefaultSettings()})
	m.limits.SnapshotAfter = math.MaxInt
	a := &appender{m: m, in: Append{Acks: model.AcksAll, LogAppendTime: -1}}
	m.Step(epochZero, &Lead{ISR: []model.NodeID{1}, Replicas: []model.NodeID{1}, Target: 1}, &a.out)
	m.Step(epochZero, &Opened{Gen: m.gen}, &a.out)
	a.done = AppendDone{Gen: m.gen, Machine: true}
	return a
}

// append reports whether the batch was answered as it should be.
func (a *appender) append() bool {
	a.out.Reset()
	a.in.Batch = *idempotent(1, 0, a.seq, 0, 1)
	a.in.Deadline = epochZero.Add(time.Minute)
	a.m.Step(epochZero, &a.in, &a.out)
	a.done.Base, a.done.Last, a.done.LEO = a.out.Appends[0].Base, a.out.Appends[0].Last, a.out.Appends[0].Last+1
	a.m.Step(epochZero, &a.done, &a.out)
	a.seq = nextSequence(a.seq)
	return len(a.out.Responses) == 1 && a.out.Responses[0].Err == nil
}

func TestAppendAllocatesNothing(t *testing.T) {
	a := newAppender()
	if n := testing.AllocsPerRun(1000, func() {
		if !a.append() {
			t.Fatal(a.out.Responses)
		}
	}); n > 0 {
		t.Fatalf("%v allocations for an append", n)
	}
}

// BenchmarkAppend is one batch of an idempotent producer from Append to its
// answer.
func BenchmarkAppend(b *testing.B) {
	a := newAppender()
	b.ReportAllocs()
	for b.Loop() {
		if !a.append() {
			b.Fatal(a.out.Responses)
		}
	}
}
