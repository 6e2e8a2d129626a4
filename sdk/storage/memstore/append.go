package memstore

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// appendOp is an append in a log's queue. It takes two steps: its effect, and
// its completion.
type appendOp struct {
	op     Op
	req    storage.AppendRequest
	done   func(storage.AppendResult, error)
	handle *handle
	seq    uint64
	now    time.Time

	applied bool
	result  storage.AppendResult
	err     error
}

// Append implements storage.Store.
func (s *Store) Append(_ context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
	a := &appendOp{
		op:   s.op(OpAppend, req.Handle, req.BaseOffset, recordbatch.TotalBytes(req.Data)),
		req:  req,
		done: done,
		now:  s.opt.Now(),
	}
	a.err = s.before(a.op)

	s.disk.mu.Lock()
	h := s.handles[req.Handle]
	if h == nil {
		_, err := s.lookup(req.Handle)
		s.disk.mu.Unlock()
		s.later(func() { done(storage.AppendResult{}, err) })
		return
	}
	log := h.log
	log.lastSeq++
	a.handle, a.seq = h, log.lastSeq
	log.queue = append(log.queue, a)
	s.disk.mu.Unlock()

	if s.opt.Defer == nil {
		s.pump(log)
		return
	}
	s.opt.Defer(func() {
		s.step(log)
		s.opt.Defer(func() { s.step(log) })
	})
}

// later runs a step as Options say.
func (s *Store) later(run func()) {
	if s.opt.Defer == nil {
		run()
		return
	}
	s.opt.Defer(run)
}

// pump empties the queue, unless somebody is doing so: completions keep their
// order, and one that appends does not deepen the stack.
func (s *Store) pump(log *openLog) {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	if log.pumping {
		return
	}
	log.pumping = true
	defer func() { log.pumping = false }()
	for len(log.queue) > 0 {
		s.disk.mu.Unlock()
		s.step(log)
		s.disk.mu.Lock()
	}
}

// settle completes the appends that are in flight on the log of the handle, if
// it is current.
func (s *Store) settle(id storage.Handle) {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	h, err := s.lookup(id)
	if err != nil {
		return
	}
	log, last := h.log, h.log.lastSeq
	for len(log.queue) > 0 && log.queue[0].seq <= last {
		s.disk.mu.Unlock()
		s.step(log)
		s.disk.mu.Lock()
	}
}

// step does the next thing that is due for the log: the completion of the first
// append in the queue if it has had its effect, and otherwise that effect.
func (s *Store) step(log *openLog) {
	s.disk.mu.Lock()
	if len(log.queue) == 0 {
		s.disk.mu.Unlock()
		return
	}
	a := log.queue[0]
	if !a.applied {
		a.applied = true
		if a.err == nil {
			a.result, a.err = s.apply(a)
		}
		a.handle.fail(a.err)
		s.disk.mu.Unlock()
		return
	}
	log.queue = log.queue[1:]
	if s.dead {
		a.err = errDead()
	}
	a.flush()
	s.disk.mu.Unlock()
	s.complete(a)
}

// complete calls the append's done. An error of the After hook leaves the
// outcome unknown.
func (s *Store) complete(a *appendOp) {
	if a.err == nil {
		a.err = s.after(a.op)
	}
	s.disk.mu.Lock()
	if a.err == nil && a.handle.failed != nil {
		a.err = a.handle.failed
	}
	a.handle.fail(a.err)
	s.disk.mu.Unlock()
	if a.err != nil {
		a.result = storage.AppendResult{}
	}
	a.done(a.result, a.err)
}

// fail marks the handle when err leaves an append's outcome unknown.
func (h *handle) fail(err error) {
	if h.failed == nil && (errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrGone)) {
		h.failed = storage.Errorf(storage.ErrGone, "an earlier append has an unknown outcome (%v); open the log again", err)
	}
}

// apply is the effect of an append. The checks are in the contract's order. The
// caller holds the lock.
func (s *Store) apply(a *appendOp) (storage.AppendResult, error) {
	req := &a.req
	h, err := s.lookup(req.Handle)
	if err != nil {
		return storage.AppendResult{}, err
	}
	if h.failed != nil {
		return storage.AppendResult{}, h.failed
	}
	log, disk := h.log, h.log.disk
	if req.LeaderEpoch < log.seen {
		return storage.AppendResult{}, storage.Errorf(storage.ErrFenced,
			"leader epoch %d is lower than %d, which the log has seen", req.LeaderEpoch, log.seen)
	}
	batches, err := split(req.Batches, req.Data...)
	if err != nil {
		return storage.AppendResult{}, err
	}
	if err := s.checkAppend(req); err != nil {
		return storage.AppendResult{}, err
	}
	switch {
	case disk.holds(batches):
	case req.BaseOffset != disk.end:
		return storage.AppendResult{}, storage.Errorf(storage.ErrInvalid,
			"the base offset is %d but the log ends at %d", req.BaseOffset, disk.end)
	case batches[0].LeaderEpoch < disk.lastEpoch():
		return storage.AppendResult{}, storage.Errorf(storage.ErrInvalid,
			"leader epoch %d falls below %d, the last batch's", batches[0].LeaderEpoch, disk.lastEpoch())
	default:
		if err := s.disk.room(int64(recordbatch.TotalBytes(req.Data))); err != nil {
			return storage.AppendResult{}, err
		}
		s.write(log, batches, a.now)
	}
	log.seen = req.LeaderEpoch
	return storage.AppendResult{LEO: disk.end, Survives: storage.SurvivesProcess, Durable: disk.durable}, nil
}

// flush makes an append survive what it asks for. It comes with the completion,
// later than the effect, as an fsync does. The caller holds the lock.
func (a *appendOp) flush() {
	if a.err != nil || a.req.Require <= storage.SurvivesProcess {
		return
	}
	disk := a.handle.log.disk
	disk.durable = max(disk.durable, min(a.result.LEO, disk.end))
	a.result.Durable, a.result.Survives = disk.durable, a.req.Require
}

// checkAppend checks what a request asks for, apart from its place in the log.
func (s *Store) checkAppend(req *storage.AppendRequest) error {
	if req.Require < storage.SurvivesUnset || req.Require > s.opt.Survives {
		return storage.Errorf(storage.ErrInvalid, "the store cannot make an append survive level %d", req.Require)
	}
	if len(req.Batches) == 0 {
		return storage.Errorf(storage.ErrInvalid, "the append has no batch")
	}
	if first := req.Batches[0].BaseOffset; first < req.BaseOffset {
		return storage.Errorf(storage.ErrInvalid, "the first batch is at %d, below the base offset %d", first, req.BaseOffset)
	}
	if last := req.Batches[len(req.Batches)-1].LeaderEpoch; last > req.LeaderEpoch {
		return storage.Errorf(storage.ErrInvalid, "a batch of leader epoch %d comes from leader epoch %d", last, req.LeaderEpoch)
	}
	return nil
}

// write adds batches at the end of the log, in a new unit when the contract
// asks for one.
func (s *Store) write(log *openLog, batches []storedBatch, now time.Time) {
	disk := log.disk
	if s.full(log, batches) {
		disk.units++
	}
	disk.place(batches, now)
	disk.batches = append(disk.batches, batches...)
	disk.end = disk.lastEnd()
}

// full says whether the log's last unit must not take the batches.
func (s *Store) full(log *openLog, batches []storedBatch) bool {
	limit, age := log.options.SegmentBytes, log.options.SegmentAge.Milliseconds()
	if limit <= 0 {
		limit = s.opt.SegmentBytes
	}
	last := log.disk.lastOfUnit()
	if last == nil {
		return true
	}
	size, newest := last.unitBytes, int64(-1)
	for i := range batches {
		size, newest = size+int64(batches[i].Bytes), max(newest, batches[i].MaxTimestamp)
	}
	return size > limit || (age > 0 && last.unitFirst >= 0 && newest-last.unitFirst > age)
}

// lastOfUnit returns the last batch of the log if it is in the newest unit.
func (l *diskLog) lastOfUnit() *storedBatch {
	if n := len(l.batches); n > 0 && l.batches[n-1].unit == l.units {
		return &l.batches[n-1]
	}
	return nil
}

// place puts batches, which are to follow the last of the log, into the newest
// unit.
func (l *diskLog) place(batches []storedBatch, now time.Time) {
	last := l.lastOfUnit()
	for i := range batches {
		b := &batches[i]
		b.unit, b.written = l.units, now
		b.unitBytes, b.unitFirst = int64(b.Bytes), b.MaxTimestamp
		if last != nil {
			b.unitBytes, b.unitFirst = last.unitBytes+int64(b.Bytes), last.unitFirst
		}
		last = b
	}
}

// holds says whether the log has all these batches at their offsets.
func (l *diskLog) holds(batches []storedBatch) bool {
	i := l.search(batches[0].BaseOffset)
	if i+len(batches) > len(l.batches) {
		return false
	}
	for j := range batches {
		if !bytes.Equal(l.batches[i+j].data, batches[j].data) {
			return false
		}
	}
	return true
}

// split copies data into the batches that infos describe, and checks that they
// do, and that the batches are intact and in order.
func split(infos []storage.BatchInfo, data ...[]byte) ([]storedBatch, error) {
	batches := make([]storedBatch, 0, min(len(infos), recordbatch.TotalBytes(data)/recordbatch.MinBytes))
	rest := bytes.Join(data, nil)
	for i, want := range infos {
		info, batch, tail, err := recordbatch.Next(rest)
		if err != nil {
			return nil, storage.Errorf(storage.ErrInvalid, "batch %d: %v", i, err)
		}
		if info != want {
			return nil, storage.Errorf(storage.ErrInvalid, "batch %d is not the one that is described", i)
		}
		if i > 0 && info.BaseOffset <= infos[i-1].LastOffset {
			return nil, storage.Errorf(storage.ErrInvalid, "batch %d begins at %d, inside the one before", i, info.BaseOffset)
		}
		if i > 0 && info.LeaderEpoch < infos[i-1].LeaderEpoch {
			return nil, storage.Errorf(storage.ErrInvalid, "the leader epoch of batch %d falls", i)
		}
		batches = append(batches, storedBatch{BatchInfo: info, data: batch})
		rest = tail
	}
	if len(rest) > 0 {
		return nil, storage.Errorf(storage.ErrInvalid, "%d bytes follow the batches described", len(rest))
	}
	return batches, nil
}
