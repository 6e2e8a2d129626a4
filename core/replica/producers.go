package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/loop"
	"github.com/brokerd/brokerd/core/model"
)

// producersQuery asks a replica's machine, which only its shard may do.
type producersQuery struct {
	reply chan<- model.ProducersAnswer // has room for the answer
}

// answer is the shard's.
func (q *producersQuery) answer(r *replica) {
	if r.machine == nil || r.deleting {
		q.reply <- model.ProducersAnswer{Err: unavailable(r)}
		return
	}
	if v := r.machine.View(); v.Serving() != nil {
		q.reply <- model.ProducersAnswer{Err: v.Serving()}
		return
	}
	q.reply <- model.ProducersAnswer{Producers: r.machine.Producers()}
}

// Producers implements model.Partitions. It waits for logs that are being opened
// as Offsets does. Where ctx ends first, the error is ErrRequestTimedOut.
func (m *Manager) Producers(ctx context.Context, ps []model.Partition) []model.ProducersAnswer {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.OpenWait+m.cfg.StoreTimeout)
	defer cancel()
	until := m.deps.Clock.Now().Add(m.cfg.OpenWait)
	out := make([]model.ProducersAnswer, len(ps))
	for i, p := range ps {
		out[i] = m.producers(ctx, p, until)
	}
	return out
}

func (m *Manager) producers(ctx context.Context, p model.Partition, until time.Time) model.ProducersAnswer {
	r, _, err := m.served(ctx, p, until)
	if err != nil {
		return model.ProducersAnswer{Err: err}
	}
	reply := make(chan model.ProducersAnswer, 1)
	err = r.shard.loop.Post(ctx, Input{kind: inputProducers, replica: r, rare: &rare{ask: &producersQuery{reply: reply}}})
	switch {
	case errors.Is(err, loop.ErrClosed):
		return model.ProducersAnswer{Err: fmt.Errorf("the broker is stopping: %w", model.ErrNotLeaderOrFollower)}
	case err != nil:
		return model.ProducersAnswer{Err: fmt.Errorf("partition %s is busy: %w: %w", p, err, model.ErrRequestTimedOut)}
	}
	select {
	case a := <-reply:
		return a
	case <-ctx.Done():
		return model.ProducersAnswer{Err: fmt.Errorf("partition %s is busy: %w: %w", p, ctx.Err(), model.ErrRequestTimedOut)}
	}
}
