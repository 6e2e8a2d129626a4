package replica

import (
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/partition"
)

// reopenAtOnce is how many logs of a store a shard opens side by side after the
// store was started again, so that those which clients ask for go between them.
const reopenAtOnce = 32

// revival opens the logs of a store again whose handles ended with its process.
// Those that are used find it out by themselves; idle ones would be found gone by
// the first who asks, or when the broker stops.
type revival struct {
	dir     *Directory
	life    int        // counts the restarts that were told of
	stale   []*replica // to be opened, if they have not been since
	opening []*replica
}

// Restarted tells that the process of a store, by its name, has been started
// again. It does not wait for the logs to be opened. Until they are, they may have gone back,
// which Deps.Doubts has kept when it returns.
func (m *Manager) Restarted(store string) {
	for i := range m.deps.Directories {
		d := &m.deps.Directories[i]
		if d.Name != store {
			continue
		}
		m.doubtful(d, int64(len(m.shards)))
		m.doubt()
		for _, s := range m.shards {
			s.loop.Complete(Input{kind: inputRestarted, rare: &rare{dir: d}})
		}
	}
}

// restarted lists the logs of a store.
func (s *Shard) restarted(d *Directory) {
	v := s.revivalOf(d)
	if v == nil {
		v = &revival{dir: d}
		s.revivals = append(s.revivals, v)
	}
	v.life++
	v.stale = v.stale[:0]
	for _, r := range s.replicas {
		if r.dir == d {
			v.stale = append(v.stale, r)
			if r.machine != nil {
				r.unsure = true
				s.judge(r)
			}
		}
	}
	sorted(v.stale)
}

// revivalOf is nil for a store that has only been started once.
func (s *Shard) revivalOf(d *Directory) *revival {
	for _, v := range s.revivals {
		if v.dir == d {
			return v
		}
	}
	return nil
}

// lifeOf counts the restarts of a store: what is opened from now on is so by that
// process or a later one.
func (s *Shard) lifeOf(d *Directory) int {
	if v := s.revivalOf(d); v != nil {
		return v.life
	}
	return 0
}

// revive has as many stale logs opened as may be.
func (s *Shard) revive(now time.Time) {
	if s.stopping {
		return // what is closed then is opened for it
	}
	for _, v := range s.revivals {
		v.opening = slices.DeleteFunc(v.opening, func(r *replica) bool { return !r.beingOpened() })
		for len(v.stale) > 0 && len(v.opening) < reopenAtOnce {
			r := v.stale[0]
			v.stale = v.stale[1:]
			if r.life == v.life || r.deleting || r.machine == nil || !r.machine.Active() {
				continue
			}
			s.step(now, r, &partition.Restarted{})
			v.opening = append(v.opening, r)
		}
	}
}

func (r *replica) beingOpened() bool {
	if r.deleting {
		return false
	}
	switch r.machine.View().Status {
	case partition.StatusOpening, partition.StatusReopened:
		return true
	case partition.StatusFollowing:
		return r.opens > 0
	}
	return false
}
