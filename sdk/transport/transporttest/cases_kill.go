package transporttest

import (
	"context"
	"errors"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

func killCases() []Case {
	return []Case{
		{Name: "kill-resets", About: "the death of a process ends its links at its peers within 50 ms", Needs: Needs{Kill: true, Resets: true}, run: killResets},
		{Name: "kill-full", About: "the death of a process ends links that are full, too", Needs: Needs{Kill: true, Resets: true}, run: killFull},
		{Name: "kill-refused", About: "to dial a node whose process is gone is refused within a second", Needs: Needs{Kill: true, Refuses: true}, run: killRefused},
		{Name: "kill-nobody", About: "a node that has died is not reached", Needs: Needs{Kill: true}, run: killNobody},
		{Name: "kill-busy", About: "a node that is busy is not refused", Needs: Needs{Refuses: true}, run: busyIsNotRefused},
		{Name: "kill-again", About: "a node that has died comes back and is dialled again", Needs: Needs{Kill: true}, run: killAgain},
	}
}

const (
	// resetWithin and refuseWithin are the contract's; the best of a few tries keeps them,
	// as far as the machine was free.
	resetWithin  = 50 * time.Millisecond
	refuseWithin = time.Second
	timedTries   = 6
)

func killResets(e *env) {
	a := e.node(1)
	best := time.Duration(1 << 62)
	for try := 0; try < timedTries && (try < 2 || best > resetWithin); try++ {
		b := e.node(2)
		pairs := []pair{
			join(a, b, transport.Data), join(b, a, transport.Data), join(a, b, transport.Control), join(b, a, transport.Control),
			join(a, b, transport.Data), join(a, b, transport.Data),
		}
		mine := func(p pair, i int) transport.Link { // a's end
			if i == 1 || i == 3 {
				return p.accepted
			}
			return p.dialled
		}
		ended := make([]time.Time, len(pairs))
		var calls []*task
		for i, p := range pairs {
			p.passes(uint64(i))
			if i == len(pairs)-1 {
				e.sendTag(p.accepted, 1, 100)
				e.sendTag(p.accepted, 2, 100)
				e.receiveTag(p.dialled, 1, 100)
			}
			calls = append(calls, e.start("Receive", func() error {
				for n := 0; ; n++ {
					got, err := mine(p, i).Receive(e.ctx, room)
					if err != nil {
						ended[i] = time.Now()
						return err
					}
					if n > 0 || differs(got, 2, 100) != "" {
						return errors.New("a message came that nobody has sent")
					}
				}
			}))
		}
		calls[0].waits(moment / 2)
		began := time.Now()
		b.kill()
		killed := time.Now()
		longest := time.Duration(0)
		for i, call := range calls {
			e.wantClass(saidResets, call.wait(saidResets), "receive when the peer's process has ended", transport.ErrClosed)
			if ended[i].Before(began) {
				e.failf(saidResets, "a link has ended before its peer's process")
			}
			longest = max(longest, ended[i].Sub(killed))
		}
		best = min(best, longest)
		for i, p := range pairs {
			e.ended(mine(p, i), "a link whose peer's process has ended")
		}
	}
	if best > resetWithin {
		e.failf(saidResets, "the links of a process that was killed have ended after %v, in the best of %d tries", best, timedTries)
	}
}

func killFull(e *env) {
	a, b := e.node(1), e.node(2)
	beside := e.node(3)
	other := join(a, beside, transport.Data)
	p, back := join(a, b, transport.Data), join(b, a, transport.Control)
	floods := []*flood{e.flood(p.dialled, 100_000, 1000), e.flood(back.accepted, 5<<20, 1000)}
	dead := []*flood{e.flood(p.accepted, 100_000, 1000), e.flood(back.dialled, 1<<20, 1000)}
	for _, f := range append(floods, dead...) {
		f.stalls()
	}
	b.kill()
	e.receivesBeginning(p.dialled, 0, 100_000, dead[0].count)
	e.receivesBeginning(back.accepted, 0, 1<<20, dead[1].count)
	for _, f := range floods {
		e.wantClass(saidResets, f.wait(saidResets), "a Send that waits when the peer's process has ended", transport.ErrClosed)
	}
	e.ended(p.dialled, "a link whose peer's process has ended")
	other.passes(1)
}

func killRefused(e *env) {
	a := e.node(1)
	best := time.Duration(1 << 62)
	for try := 0; try < timedTries && (try < 2 || best > refuseWithin); try++ {
		b := e.node(2)
		if try%2 == 0 { // as a stranger, or as one who knows it
			join(a, b, transport.Data).passes(1)
		}
		b.kill()
		for _, nodeID := range []int32{2, transport.AnyNode} {
			to := b.target(transport.Control)
			to.NodeID = nodeID
			began := time.Now()
			_, err := a.tryDial(to)
			e.wantClass(saidRefuses, err, "dial a node whose process was killed", transport.ErrRefused)
			best = min(best, time.Since(began))
		}
	}
	if best > refuseWithin {
		e.failf(saidRefuses, "the dial of a node whose process was killed is refused after %v, in the best of %d tries", best, timedTries)
	}
}

func killNobody(e *env) {
	a, b := e.node(1), e.node(2)
	join(a, b, transport.Data).passes(1)
	gone := b.target(transport.Data)
	b.kill()
	e.wantNobody(a, gone)
}

// busyIsNotRefused dials beyond what is kept of links that nobody accepts.
func busyIsNotRefused(e *env) {
	a, b := e.node(1), e.node(2)
	for range unacceptedMost {
		_, err := e.dialBriefly(a, b)
		if errors.Is(err, transport.ErrRefused) {
			e.failf(saidNotRefused, "nobody accepts links, and a dial gives %v", err)
		}
		if err != nil {
			return
		}
	}
}

func killAgain(e *env) {
	a, b := e.node(1), e.node(2)
	for round := range uint64(3) {
		to, from := join(a, b, transport.Data), join(b, a, transport.Control)
		to.passes(round)
		from.passes(round)
		b.kill()
		b = e.node(2)
		// What is left of the old one is no part of the new one's links.
		next := join(a, b, transport.Data)
		next.passes(round + 10)
		if e.has.Resets {
			e.ended(to.dialled, "a link to a process that was killed")
			e.ended(from.accepted, "a link of a process that was killed")
		}
		next.passes(round + 20)
		ctx, cancel := context.WithTimeout(e.ctx, moment)
		_, err := next.dialled.Receive(ctx, room)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			e.failf(saidStays, "nothing was sent on a new link, and Receive gives %v", err)
		}
	}
}
