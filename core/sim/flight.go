package sim

import (
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/sim/world"
)

// flight is one request to the group coordinator and its answer. A client that has
// waited long enough, or whose broker has gone, takes it for lost: whether it arrives
// is decided then, and not later, as on a connection that is closed.
type flight struct {
	s        *simulation
	what     string
	life     int // of the broker that the connection leads to
	arrived  bool
	over     bool          // the client has its answer, or waits no more
	most     time.Duration // that the broker may take
	answered bool          // by the broker
	post     func()
	lost     func()
}

// ask sends a request. post hands it to the coordinator when it arrives, told is what
// the broker answered as it leaves, heard is the client when it comes in, and lost the
// client that waits no more.
func ask[A any](s *simulation, what string, delay, patience time.Duration, post func(*groups, func(A)), told, heard func(A), lost func()) *flight {
	f := &flight{s: s, what: what, life: s.broker.life, most: s.opts.Coordination.CommitTimeout + time.Second, lost: lost}
	f.post = func() {
		life := s.broker.life
		post(s.broker.groups, func(a A) {
			if life != s.broker.life {
				return // the broker died with the answer
			}
			if f.answered {
				s.check.violate("%s was answered twice", what)
			}
			f.answered = true
			delete(s.open, f)
			told(a)
			f.back(func() { heard(a) })
		})
	}
	s.w.After(delay, f.arrive)
	s.w.After(patience, f.giveUp)
	return f
}

// arrive is the broker's side.
func (f *flight) arrive() {
	if f.over || f.arrived {
		return
	}
	if !f.s.broker.up || f.life != f.s.broker.life {
		f.s.w.After(f.s.w.Between(time.Millisecond, 20*time.Millisecond), f.drop)
		return
	}
	f.arrived = true
	f.s.open[f] = f.s.w.Now()
	f.post()
}

// back brings the answer, if nothing happens to it.
func (f *flight) back(heard func()) {
	if f.s.f.On && f.s.w.Chance(60) {
		f.s.report.LostAnswers++
		return
	}
	f.s.w.After(f.s.w.Between(0, 2*time.Millisecond), func() {
		if !f.over {
			f.over = true
			heard()
		}
	})
}

// giveUp is the end of the client's patience. What has not arrived by now arrives at
// once or never.
func (f *flight) giveUp() {
	if !f.over && !f.arrived && f.s.w.Chance(2) {
		f.arrive()
	}
	f.drop()
}

func (f *flight) drop() {
	if !f.over {
		f.over = true
		f.lost()
	}
}

// unanswered looks for requests that the broker has had for too long.
func (s *simulation) unanswered() {
	for f, since := range s.open {
		switch {
		case f.life != s.broker.life:
			delete(s.open, f)
		case s.w.Now().Sub(since) > f.most:
			s.check.violate("%s, which arrived at %s, is not answered", f.what, since.Sub(world.Epoch))
			return
		}
	}
}

// ordersOf are partitions of the topic that members read.
func ordersOf(partitions []int32) []model.TopicPartition {
	keys := make([]model.TopicPartition, len(partitions))
	for i, p := range partitions {
		keys[i] = model.TopicPartition{Topic: "orders", Partition: p}
	}
	return keys
}
