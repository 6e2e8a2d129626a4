package partition

import (
	"fmt"
	"math"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// producerBatches is how many batches of a producer are remembered, so that a
// repeat of one is known. It is as many as a client has under way. (KIP-98)
const producerBatches = 5

// producerBatch is one remembered batch.
type producerBatch struct {
	firstSeq  int32
	lastSeq   int32
	base      int64
	last      int64
	timestamp int64 // the log append time, or -1
}

// producerState is what is known of one producer. It is a value: a copy is an
// undo record.
type producerState struct {
	epoch   int16
	n       uint8 // batches in use, oldest first
	batches [producerBatches]producerBatch
	// refusedSeq, where there is no batch, is the first sequence of this epoch
	// that was refused for a passing reason. Its producer will send it again;
	// what it had sent behind it must not get in before, though the log knows
	// nothing of the producer.
	refusedSeq int32
	// lastAppend is by this process's clock and is never taken from a batch: the
	// timestamps of clients may be anything.
	lastAppend time.Time
	// maxTimestamp is the newest batch's, in milliseconds, or -1 where it is not
	// known. It is shown, and decides nothing.
	maxTimestamp int64
}

func (s *producerState) newest() *producerBatch { return &s.batches[s.n-1] }

// repeatOf returns the remembered batch that this one repeats exactly.
func (s *producerState) repeatOf(b *recordbatch.Info, lastSeq int32) *producerBatch {
	if b.ProducerEpoch != s.epoch {
		return nil
	}
	for i := range s.n {
		if old := &s.batches[i]; old.firstSeq == b.BaseSequence && old.lastSeq == lastSeq {
			return old
		}
	}
	return nil
}

// add remembers a batch and forgets the oldest above the bound.
func (s *producerState) add(epoch int16, b producerBatch) {
	if epoch != s.epoch {
		s.epoch, s.n = epoch, 0
	}
	if s.n == producerBatches {
		copy(s.batches[:], s.batches[1:])
		s.n--
	}
	s.batches[s.n] = b
	s.n++
}

// producer is an entry of the table, in a list by last append, idlest first.
type producer struct {
	id         int64
	state      producerState
	prev, next *producer
}

// producers is the table of idempotent producers of a partition. Its size is
// bounded: the idlest goes first.
type producers struct {
	limit int
	byID  map[int64]*producer
	ends  producer // the ring's fixed point: ends.next is the idlest
}

func newProducers(limit int) *producers {
	p := &producers{limit: limit}
	p.reset()
	return p
}

// reset forgets everything.
func (p *producers) reset() {
	p.byID = make(map[int64]*producer)
	p.ends.prev, p.ends.next = &p.ends, &p.ends
}

func (p *producers) len() int { return len(p.byID) }

// active are the producers that have a batch in the log or on its way there, the
// idlest first.
func (p *producers) active() []model.ProducerState {
	out := make([]model.ProducerState, 0, len(p.byID))
	for e := p.ends.next; e != &p.ends; e = e.next {
		if e.state.n == 0 {
			continue
		}
		out = append(out, model.ProducerState{
			ID: e.id, Epoch: e.state.epoch, LastSequence: e.state.newest().lastSeq, LastTimestamp: e.state.maxTimestamp,
		})
	}
	return out
}

// lastSequence is the sequence of a batch's last record; sequences wrap from
// the greatest int32 to 0.
func lastSequence(b *recordbatch.Info) int32 {
	last := int64(b.BaseSequence) + (b.LastOffset - b.BaseOffset)
	if last > math.MaxInt32 {
		last -= math.MaxInt32 + 1
	}
	return int32(last)
}

func nextSequence(seq int32) int32 {
	if seq == math.MaxInt32 {
		return 0
	}
	return seq + 1
}

// check says whether b may be appended, or which remembered batch it repeats.
// It changes nothing, so that a refused batch does not advance the sequence.
func (p *producers) check(b *recordbatch.Info) (*producerBatch, error) {
	known, ok := p.byID[b.ProducerID]
	if !ok {
		return nil, nil // any first sequence is accepted (KIP-360)
	}
	s := &known.state
	if s.n == 0 {
		if b.ProducerEpoch == s.epoch && follows(b.BaseSequence, s.refusedSeq) {
			return nil, fmt.Errorf("producer %d: sequence %d, and %d was refused and not sent again: %w",
				b.ProducerID, b.BaseSequence, s.refusedSeq, model.ErrOutOfOrderSequence)
		}
		return nil, nil
	}
	switch {
	case b.ProducerEpoch < s.epoch:
		return nil, fmt.Errorf("producer %d: epoch %d is below %d: %w",
			b.ProducerID, b.ProducerEpoch, s.epoch, model.ErrInvalidProducerEpoch)
	case b.ProducerEpoch > s.epoch:
		if b.BaseSequence != 0 {
			return nil, fmt.Errorf("producer %d: new epoch %d begins at sequence %d: %w",
				b.ProducerID, b.ProducerEpoch, b.BaseSequence, model.ErrOutOfOrderSequence)
		}
		return nil, nil
	}
	if old := s.repeatOf(b, lastSequence(b)); old != nil {
		return old, nil
	}
	if want := nextSequence(s.newest().lastSeq); b.BaseSequence != want {
		return nil, fmt.Errorf("producer %d: sequence %d where %d is next: %w",
			b.ProducerID, b.BaseSequence, want, model.ErrOutOfOrderSequence)
	}
	return nil, nil
}

// undo is a producer's state before a batch, to go back to.
type undo struct {
	known bool
	state producerState
}

// advance remembers b, which has its offsets, and fills in how to undo that.
func (p *producers) advance(now time.Time, b *recordbatch.Info, logAppendTime int64, before *undo) {
	e, ok := p.byID[b.ProducerID]
	if !ok {
		e = p.insert(b.ProducerID)
	}
	if before != nil {
		before.known, before.state = ok, e.state
	}
	e.state.add(b.ProducerEpoch, producerBatch{
		firstSeq:  b.BaseSequence,
		lastSeq:   lastSequence(b),
		base:      b.BaseOffset,
		last:      b.LastOffset,
		timestamp: logAppendTime,
	})
	e.state.lastAppend, e.state.maxTimestamp = now, b.MaxTimestamp
	p.touch(e)
}

// revert goes back to the state before b, which was refused after it had been
// given offsets. Reverts go from the newest batch to the oldest.
func (p *producers) revert(b *recordbatch.Info, before *undo) {
	e, ok := p.byID[b.ProducerID]
	if !ok {
		e = p.insert(b.ProducerID)
	}
	lastAppend := e.state.lastAppend
	if before.known {
		e.state = before.state
		return
	}
	e.state = producerState{epoch: b.ProducerEpoch, refusedSeq: b.BaseSequence, lastAppend: lastAppend}
}

// refused remembers the first batch that was refused for a passing reason, when nothing
// else is known of its producer.
func (p *producers) refused(now time.Time, b *recordbatch.Info) {
	e, ok := p.byID[b.ProducerID]
	switch {
	case !ok:
		e = p.insert(b.ProducerID)
	case e.state.n > 0 || e.state.epoch != b.ProducerEpoch || !follows(e.state.refusedSeq, b.BaseSequence):
		return
	}
	e.state = producerState{epoch: b.ProducerEpoch, refusedSeq: b.BaseSequence, lastAppend: now}
}

// follows reports whether a sequence comes after another, at a distance that can be told
// from one before it: they wrap.
func follows(seq, before int32) bool {
	d := (seq - before) & math.MaxInt32
	return d != 0 && d < 1<<30
}

// adopt takes the refusals of a table that stood in while this one was not read;
// nil has none.
func (p *producers) adopt(early *producers) {
	if early == nil {
		return
	}
	for e := early.ends.next; e != &early.ends; e = e.next {
		if _, ok := p.byID[e.id]; !ok {
			p.insert(e.id).state = e.state
		}
	}
}

// replay remembers a batch that is in the log, without checks.
func (p *producers) replay(now time.Time, b *recordbatch.Info) {
	if b.ProducerID < 0 || b.BaseSequence < 0 || b.Attributes&recordbatch.AttrControl != 0 {
		return
	}
	timestamp := int64(-1)
	if b.Attributes&recordbatch.AttrLogAppendTime != 0 {
		timestamp = b.MaxTimestamp
	}
	p.advance(now, b, timestamp, nil)
}

// expire forgets producers that have been idle for longer than idle, and
// returns how many.
func (p *producers) expire(now time.Time, idle time.Duration) int {
	n := 0
	for e := p.ends.next; e != &p.ends && now.Sub(e.state.lastAppend) > idle; e = p.ends.next {
		p.remove(e)
		n++
	}
	return n
}

func (p *producers) insert(id int64) *producer {
	if len(p.byID) >= p.limit {
		p.remove(p.ends.next)
	}
	e := &producer{id: id}
	p.byID[id] = e
	p.link(e)
	return e
}

func (p *producers) remove(e *producer) {
	delete(p.byID, e.id)
	e.prev.next, e.next.prev = e.next, e.prev
}

// touch makes e the least idle.
func (p *producers) touch(e *producer) {
	e.prev.next, e.next.prev = e.next, e.prev
	p.link(e)
}

func (p *producers) link(e *producer) {
	e.prev, e.next = p.ends.prev, &p.ends
	e.prev.next, p.ends.prev = e, e
}
