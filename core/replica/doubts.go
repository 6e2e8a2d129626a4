package replica

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/core/partition"
)

// Doubts keeps, beyond this life of the broker, that a log of its may lack what others count
// on: should it end before the controller has committed otherwise, the next life must not be
// registered as one that has everything. Its methods are called by one goroutine at a time.
type Doubts interface {
	// Doubt keeps it, durably, before it returns.
	Doubt() error
	// Settle forgets it: nobody counts any more on what logs lack, or they have it again.
	Settle() error
}

// doubts says when there is doubt.
type doubts struct {
	keeper Doubts
	log    *slog.Logger
	// count is of replicas in doubt, and of restarts of which shards have not heard yet.
	count atomic.Int64

	mu   sync.Mutex // over the keeper's calls
	kept bool
}

// keep has the doubt kept. What it is about is counted already.
func (d *doubts) keep() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kept {
		return
	}
	if err := d.keeper.Doubt(); err != nil {
		d.log.Error("should this broker end now, its next start may not know that a log has lost its end", "err", err)
		return
	}
	d.kept = true
}

// settle forgets it, if there is none any more.
func (d *doubts) settle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.kept || d.count.Load() > 0 {
		return
	}
	d.kept = false
	if err := d.keeper.Settle(); err != nil {
		d.log.Warn("the next start takes this broker's logs once more for such as may have lost their ends", "err", err)
	}
}

// noDoubts is used where nobody keeps them.
type noDoubts struct{}

func (noDoubts) Doubt() error  { return nil }
func (noDoubts) Settle() error { return nil }

// doubt implements host.
func (m *Manager) doubt() { m.doubts.keep() }

// doubtful implements host.
func (m *Manager) doubtful(d *Directory, more int64) {
	if m.doubts.count.Add(more) == 0 {
		m.exec.Go(d.ID, func(context.Context) { m.doubts.settle() })
	}
}

// judge counts whether a replica may lack what others count on: its log lacks it, or is to be
// taken for one that does, or has not been opened since its store was started again.
func (s *Shard) judge(r *replica) {
	doubtful := !r.deleting && (r.held > 0 || r.machine.Lacks() || r.unsure && r.machine.Active())
	if doubtful == r.doubtful || !doubtful && s.stopping {
		return
	}
	r.doubtful = doubtful
	if doubtful {
		s.host.doubtful(r.dir, 1)
	} else {
		s.host.doubtful(r.dir, -1)
	}
}

// openSure has a log opened again that was being opened when its store was started again: nobody
// knows by which process.
func (s *Shard) openSure(r *replica) {
	if !r.unsure || s.stopping || r.deleting || r.opens > 0 {
		return
	}
	if v := r.machine.View(); v.Open() && r.life != s.lifeOf(r.dir) {
		r.machine.Step(s.now, &partition.Restarted{}, &r.effects)
	}
}

// holdOpened keeps from a machine that its log was opened, and went back, until that is kept: what
// others do once they have heard of it may be the last that anybody knows of it.
func (s *Shard) holdOpened(r *replica, o *openedLog) bool {
	if o.kept || !r.machine.FallsBack(&o.in) {
		return false
	}
	o.kept = true
	r.held++
	s.judge(r)
	s.host.doubtful(r.dir, 1) // until it goes on, whatever becomes of the replica
	s.exec.Go(r.dir.ID, func(context.Context) {
		s.host.doubt()
		s.loop.Complete(Input{kind: inputKept, replica: r, rare: &rare{opened: o}})
	})
	return true
}

// kept goes on with what was held back.
func (s *Shard) kept(now time.Time, r *replica, o *openedLog) {
	r.held--
	s.logOpened(now, r, o)
	s.touch(r)
	s.host.doubtful(r.dir, -1)
}
