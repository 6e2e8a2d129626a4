package replica

import (
	"context"

	"github.com/brokerd/brokerd/core/partition"
)

// copies joins adjacent copies from a leader and sends them in order, on the lane of
// appends.
func (s *Shard) copies(r *replica, all []partition.CopyLog) {
	for len(all) > 0 {
		n, bytes := 1, all[0].Bytes
		for n < len(all) && follows(&all[n-1], &all[n]) && bytes+all[n].Bytes <= appendCallBytes {
			bytes += all[n].Bytes
			n++
		}
		s.copyCall(r, all[:n], bytes)
		all = all[n:]
	}
}

func follows(a, b *partition.CopyLog) bool {
	return a.Gen == b.Gen && a.Epoch == b.Epoch && a.Machine == b.Machine && b.Base == a.Last+1
}

// copyCall queues one call with batches as they are.
func (s *Shard) copyCall(r *replica, group []partition.CopyLog, bytes int) {
	first := &group[0]
	if first.Gen != r.gen {
		return // an opening since then has settled what becomes of these
	}
	c := s.newCall()
	c.replica, c.handle, c.bytes = r, r.handle, bytes
	c.gen, c.epoch, c.base, c.last, c.machine = first.Gen, first.Epoch, first.Base, group[len(group)-1].Last, first.Machine
	for i := range group {
		q := s.requests[group[i].ID]
		q.calls++
		c.requests = append(c.requests, q)
		c.batches = append(c.batches, q.infos...)
		c.parts = append(c.parts, q.data)
		c.frames = append(c.frames, q.frame)
	}
	s.exec.Ordered(Lane{s.index, r.dir.ID}, c.run)
}

// truncate queues the call behind the appends that were asked for before. The machine has
// the log opened after it, with which its tail begins anew.
func (s *Shard) truncate(r *replica, t *partition.TruncateLog) {
	if t.Gen != r.gen {
		return
	}
	s.exec.Ordered(Lane{s.index, r.dir.ID}, s.callTruncate(r, *t))
}

func (s *Shard) callTruncate(r *replica, t partition.TruncateLog) func(context.Context) {
	handle := r.handle
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
		defer cancel()
		leo, err := r.dir.Store.Truncate(ctx, handle, t.Epoch, t.To)
		s.tell(r, &partition.Truncated{Gen: t.Gen, LEO: leo, Fault: faultOf(err), Err: err})
	}
}
