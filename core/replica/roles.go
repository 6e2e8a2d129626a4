package replica

import (
	"log/slog"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
)

// assigned takes what metadata says: settings and the role.
func (s *Shard) assigned(now time.Time, r *replica, a *assignment) {
	if s.stopping || r.deleting {
		return
	}
	if old := s.replicas[r.id]; old != nil && old != r && old.deleting {
		old.successor, old.successorAssign = r, a
		return
	}
	if r.dir == nil {
		s.replicas[r.id] = r
		r.closed = true
		s.countOffline(r, true)
		return
	}
	var role partition.Input = &a.follow
	if a.leads {
		role = &a.lead
		s.follow(now, r, model.NoNode)
	}
	reopen := a.settings.Log != r.log
	r.log, r.throttled = a.settings.Log, a.throttled
	if r.machine == nil {
		s.makeMachine(now, r, a)
		s.step(now, r, role)
	} else {
		s.step(now, r, &partition.Configure{Settings: a.settings.Settings, Reopen: reopen, Role: role})
	}
	if !a.leads {
		s.follow(now, r, a.follow.Leader)
	}
	s.tellRefused(now, r)
}

// makeMachine makes the machine of a replica, which has no role yet.
func (s *Shard) makeMachine(now time.Time, r *replica, a *assignment) {
	r.machine = partition.New(partition.Config{
		Partition: r.id, Node: s.cfg.NodeID, Limits: s.cfg.Limits, Settings: a.settings.Settings, Session: max(s.session, a.session),
	})
	s.replicas[r.id] = r
	r.closed = true // until it is opened
	if r.dir.health.ails.Load() {
		s.step(now, r, &partition.Ailing{Ails: true})
	}
	if s.doubt {
		s.step(now, r, &partition.Doubted{Doubt: true})
	}
}

// remove ends a replica whose log metadata gave up, and deletes the log.
func (s *Shard) remove(now time.Time, r *replica) {
	if r.deleting {
		return
	}
	if r.machine != nil {
		s.step(now, r, &partition.Resign{Epoch: 1<<31 - 1})
	}
	s.follow(now, r, model.NoNode)
	if r.machine != nil {
		s.session = max(s.session, r.machine.LastSession())
	}
	for len(r.subscribers) > 0 {
		s.endStream(r.subscribers[0])
	}
	r.deleting, r.closed = true, true
	s.judge(r)
	s.tails.reset(&r.tail)
	s.replicas[r.id] = r
	s.countOffline(r, false)
	if r.opens == 0 && !r.renewing {
		s.deleteLog(r)
	}
}

// renewed goes on with a log that does not exist any more.
func (s *Shard) renewed(now time.Time, r *replica) {
	r.handle, r.closed = 0, true
	s.step(now, r, &partition.Deleted{Gen: r.gen})
	if r.opensAnew {
		s.open(r)
	}
}

func (s *Shard) deleteLog(r *replica) {
	if r.dir == nil {
		s.logDeleted(time.Time{}, r, nil)
		return
	}
	s.exec.Go(r.dir.ID, s.callDelete(r))
}

// deleteAgain is the wait before a delete that failed is repeated.
const deleteAgain = 5 * time.Second

func (s *Shard) logDeleted(now time.Time, r *replica, err error) {
	if err != nil {
		if !s.gathered(r, aboutDeletes, slog.Any("err", err)) {
			s.log.Warn("delete a log; trying again", "topic", r.topic, "partition", r.id.Index, "err", err)
		}
		if !s.stopping {
			s.timers.Set(timerKey{r, timerDelete}, now.Add(deleteAgain))
		}
		return
	}
	if r.renewing {
		r.renewing = false
		if !r.deleting {
			s.renewed(now, r)
			return
		}
		if r.opens > 0 {
			return // it may be there again when it was opened, and is deleted then
		}
	}
	if s.replicas[r.id] == r {
		delete(s.replicas, r.id)
	}
	s.cancelTimers(r)
	s.host.deleted(r)
	if r.successor != nil {
		s.assigned(now, r.successor, r.successorAssign)
	}
}

func (s *Shard) cancelTimers(r *replica) {
	for t := partition.TimerDeadline; t <= partition.TimerExpiry; t++ {
		s.timers.Cancel(timerKey{r, t})
	}
	s.timers.Cancel(timerKey{r, timerDelete})
}
