package transporttest

import (
	"context"
	"errors"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

func idleCases() []Case {
	return []Case{
		// FR-75: idle replication used a processor, and sent messages all the time.
		{Name: "idle", About: "links that are idle cost next to no processor time, and are as good as new afterwards", run: idle},
	}
}

const (
	idleFor   = 2 * time.Second
	idleTries = 3
	// idleShare of the time is what transports may use of one processor while nothing is
	// sent over idleLinks links.
	idleShare = 0.05
	idleLinks = 50
)

func idle(e *env) {
	a, b := e.node(1), e.node(2)
	var pairs []pair
	for i := range idleLinks {
		p := join(a, b, transport.Control+transport.Lane(i%2))
		p.passes(1)
		pairs = append(pairs, p)
	}
	var waiting []*task // every second link has its receiver
	for i := 0; i < idleLinks; i += 2 {
		for _, way := range pairs[i].ways() {
			waiting = append(waiting, e.start("Receive", func() error {
				got, err := way[1].Receive(e.ctx, room) // however long it takes
				if err != nil {
					return err
				}
				if wrong := differs(got, 7, 1000); wrong != "" {
					e.failf(saidBeginning, "%s", wrong)
				}
				return nil
			}))
		}
	}
	least := idleFor
	for try := 0; try < idleTries && float64(least) > idleShare*float64(idleFor); try++ {
		before := e.processor()
		ctx, cancel := context.WithTimeout(e.ctx, idleFor)
		_, err := pairs[1].accepted.Receive(ctx, room)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			e.failf(saidIdle, "nothing was sent, and Receive gives %v", err)
		}
		least = min(least, e.processor()-before)
	}
	if float64(least) > idleShare*float64(idleFor) {
		e.failf(saidIdle, "%d links on which nothing is sent use %v of processor time in %v", idleLinks, least, idleFor)
	}
	for i, p := range pairs {
		for _, way := range p.ways() {
			err := e.trySend(way[0], message(7, 1000))
			e.must(saidIdle, err, "send on a link that was idle")
			if i%2 == 1 {
				e.receiveTag(way[1], 7, 1000)
			}
		}
	}
	for _, call := range waiting {
		e.must(saidIdle, call.wait(saidIdle), "receive on a link that was idle")
	}
	join(a, b, transport.Data).passes(1)
}
