package replica

import (
	"sync"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// straysMax bounds the batches that are remembered. More than those are all forgotten: a
// client that sends as many knows nothing of this broker.
const straysMax = 4096

// strays remembers batches of idempotent producers that were refused because no replica of
// their partition is here. The metadata may be on its way, and what a producer has sent
// behind such a batch must not get in before it. Its methods may be called concurrently.
type strays struct {
	mu  sync.Mutex
	of  map[model.Partition][]recordbatch.Info
	all int
}

// remember keeps the headers of a batch, unless there is a replica by now.
func (s *strays) remember(p model.Partition, batch *recordbatch.Info, find func() *replica) *replica {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := find(); r != nil || batch.ProducerID < 0 {
		return r
	}
	if s.all >= straysMax || s.of == nil {
		s.of, s.all = make(map[model.Partition][]recordbatch.Info), 0
	}
	s.of[p] = append(s.of[p], *batch)
	s.all++
	return nil
}

// publish gives new replicas what was refused before there was one, and has them be found.
func (s *strays) publish(made []*replica, show func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range made {
		r.refused = s.of[r.id]
		s.all -= len(r.refused)
		delete(s.of, r.id)
	}
	show()
}

// refuse remembers a batch that no machine was there to refuse.
func (r *replica) refuse(batch *recordbatch.Info) {
	if batch.ProducerID >= 0 && len(r.refused) < straysMax {
		r.refused = append(r.refused, *batch)
	}
}

// tellRefused tells the machine what was refused before it was made.
func (s *Shard) tellRefused(now time.Time, r *replica) {
	for i := range r.refused {
		s.step(now, r, &partition.Refused{Batch: r.refused[i]})
	}
	r.refused = nil
}
