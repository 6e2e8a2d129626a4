package replica

import (
	"context"
	"errors"
	"slices"
	"unsafe"

	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/storage"
)

// caughtUp is what a read for a follower has brought.
type caughtUp struct {
	subscriber *subscriber
	from       int64
	data       []byte
	next       int64
	buffer     []byte // of Buffers, that data is in; nil: it is in something else
	gen        partition.Generation
	err        error
}

// readFor reads from the store what a follower is to get next, or has it wait for the
// reads of others.
func (s *Shard) readFor(sub *subscriber, v *view) {
	f := sub.feed
	if sub.reading || sub.held {
		return
	}
	if f.reads >= readsMax {
		sub.held = true
		f.held = append(f.held, sub)
		return
	}
	f.reads++
	sub.reading = true
	r := sub.replica
	got := caughtUp{subscriber: sub, from: sub.next, gen: v.Gen}
	buf := s.tails.buffers.Get(f.link.credit.share(readBytes))
	req := storage.ReadRequest{Handle: v.handle, Offset: max(sub.next, v.LogStart), UpTo: v.LEO, MaxBytes: len(buf), AtLeastOne: true, Buf: buf}
	s.exec.Go(r.dir.ID, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
		defer cancel()
		r.dir.health.begin(s.host.clockNow())
		res, err := r.dir.Store.Read(ctx, req)
		r.dir.health.end(s.host.clockNow())
		got.data, got.next, got.err = res.Data, res.Next, err
		switch {
		case err != nil: // the store may not have heard of the end, and have the buffer yet
			got.data = nil
		case len(res.Data) > 0 && unsafe.SliceData(res.Data) == unsafe.SliceData(buf):
			got.buffer = buf
		default:
			s.tails.buffers.Put(buf)
		}
		s.loop.Complete(Input{kind: inputRead, replica: r, rare: &rare{read: &got}})
	})
}

// wasRead takes what was read for a follower.
func (s *Shard) wasRead(got *caughtUp) {
	sub := got.subscriber
	f, r := sub.feed, sub.replica
	sub.reading = false
	switch v := r.view.Load(); {
	case got.err == nil && len(got.data) > 0 && sub.accepted && sub.next == got.from && v.Gen == got.gen:
		sub.read, sub.nextRead, sub.buffer = got.data, got.next, got.buffer
		s.offer(sub, v)
		return
	case got.buffer != nil:
		s.tails.buffers.Put(got.buffer)
	}
	f.reads--
	s.resume(f)
	switch v := r.view.Load(); {
	case !sub.accepted:
	case v.Gen != got.gen || sub.next != got.from:
		s.offer(sub, v)
	default:
		s.readFailed(sub, got)
	}
}

// readFailed has a read repeated after a while, and tells the machine where the log is at
// fault.
func (s *Shard) readFailed(sub *subscriber, got *caughtUp) {
	r := sub.replica
	switch {
	case got.err == nil: // nothing was there
	case errors.Is(got.err, storage.ErrCorrupt):
		s.events.Damaged(r.topic, r.id.Index, got.from, got.err)
		s.step(s.now, r, &partition.Corrupt{Gen: got.gen, Offset: got.from})
	case errors.Is(got.err, storage.ErrInvalid), errors.Is(got.err, storage.ErrRetry):
	default:
		s.step(s.now, r, &partition.ReadFailed{Gen: got.gen, Fault: faultOf(got.err), Err: got.err})
	}
	sub.held = true
	s.retries = append(s.retries, sub)
	if len(s.retries) == 1 {
		s.timers.Set(timerKey{timer: timerReads}, s.now.Add(readAgain))
	}
}

// readOn repeats the reads that failed.
func (s *Shard) readOn() {
	for _, sub := range s.retries {
		sub.held = false
		s.offer(sub, sub.replica.view.Load())
	}
	clear(s.retries)
	s.retries = s.retries[:0]
}

// resume lets those have their turn that waited for others' reads.
func (s *Shard) resume(f *feed) {
	n := 0
	for free := readsMax - f.reads; n < len(f.held) && free > 0; n++ {
		sub := f.held[n]
		sub.held = false
		if sub.accepted {
			free--
			s.offer(sub, sub.replica.view.Load())
		}
	}
	if f.held = slices.Delete(f.held, 0, n); len(f.held) > 0 {
		s.busyFeed(f) // of those who have their turn, some may have nothing to read any more
	}
}
