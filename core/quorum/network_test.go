package quorum

import (
	"bytes"
	"errors"
	"time"

	"github.com/brokerd/brokerd/core/loop"
	"github.com/brokerd/brokerd/core/model"
)

// worldClock is only read.
type worldClock struct{ w *world }

func (c worldClock) Now() time.Time { return c.w.now }
func (c worldClock) NewTimer(time.Duration) (<-chan time.Time, func() bool) {
	panic("a node that is turned by hand set a timer")
}
func (c worldClock) AfterFunc(time.Duration, func()) func() bool {
	panic("a node that is turned by hand set a timer")
}

var _ loop.Clock = worldClock{}

// worldPeers is the network as one life of a node has it.
type worldPeers struct {
	s    *site
	life int
}

func (w *world) at(endpoint string) *site {
	for _, s := range w.sites {
		if s.endpoint == endpoint {
			return s
		}
	}
	return nil
}

// carry brings something from one node to another, or not, or twice, or late.
func (w *world) carry(from, to *site, do func()) {
	if to == nil || w.cuts[[2]*site{from, to}] || w.chance(w.drop) {
		return
	}
	times := 1
	if w.chance(w.double) {
		times = 2
	}
	for range times {
		w.after(time.Duration(w.rand.Int64N(int64(w.delay)+1)), do)
	}
}

func (p *worldPeers) Post(to Address, message []byte, _ bool) {
	w, s := p.s.w, p.s
	if p.life != s.life {
		w.failf("node %d sends after its end", s.id)
	}
	w.rests(s, message)
	target := w.at(to.Endpoint)
	w.carry(s, target, func() {
		if target.node == nil {
			return
		}
		if err := target.node.Receive(message); err != nil {
			w.failf("node %d refuses what node %d sent: %v", target.id, s.id, err)
		}
		target.turn()
	})
}

func (p *worldPeers) Ask(to Address, question []byte, timeout time.Duration, done func([]byte, error)) {
	w, s := p.s.w, p.s
	over := false
	finish := func(b []byte, err error) {
		if !over && p.life == s.life {
			over = true
			done(b, err)
			s.turn()
		}
	}
	w.after(timeout, func() { finish(nil, errors.New("no answer")) })
	target := w.at(to.Endpoint)
	if target == nil || to.Node != model.NoNode && to.Node != target.id {
		return
	}
	w.carry(s, target, func() {
		reply := func(answer []byte) { w.carry(target, s, func() { finish(answer, nil) }) }
		switch {
		case target.node != nil:
			target.node.Question(bytes.Clone(question), reply)
		case target.finder != nil:
			target.finder.Question(bytes.Clone(question), reply)
		default:
			return
		}
		target.turn()
	})
}
