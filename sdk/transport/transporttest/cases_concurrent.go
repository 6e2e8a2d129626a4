package transporttest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/brokerd/brokerd/sdk/transport"
)

func concurrentCases() []Case {
	return []Case{
		{Name: "senders", About: "many goroutines send on one link, and every message arrives once, each one's in their order", run: manySenders},
		{Name: "links", About: "hundreds of links at once stay apart", run: manyLinks},
		{Name: "mesh", About: "nodes that dial each other at one time all reach each other", run: mesh},
		{Name: "close-beside", About: "links that are closed beside calls give ErrClosed, and nothing worse", run: closeBeside},
	}
}

func manySenders(e *env) {
	const senders, each = 32, 200
	p := e.pair()
	size := func(sender, i int) int { return wordBytes + (sender*7919+i*104729)%(1<<(4+i%13)) }
	tag := func(sender, i int) uint64 { return uint64(sender)<<32 | uint64(i) }
	for _, way := range p.ways() {
		sent := e.start("send from many goroutines", func() error {
			e.all(saidConcurrent, "sender", senders, func(sender int) error {
				for i := range each {
					data := message(tag(sender, i), size(sender, i))
					if err := e.trySend(way[0], data[:wordBytes/2], data[wordBytes/2:]); err != nil {
						return err
					}
				}
				return nil
			})
			return nil
		})
		next := make([]int, senders)
		for range senders * each {
			got := sent.receive(way[1])
			if len(got) < wordBytes {
				e.failf(saidSameTime, "%d bytes came, and no message of so few was sent", len(got))
			}
			sender := int(binary.LittleEndian.Uint64(got) >> 32)
			if sender >= senders || next[sender] == each {
				e.failf(saidSameTime, "something came that nobody has sent: %d bytes", len(got))
			}
			if wrong := differs(got, tag(sender, next[sender]), size(sender, next[sender])); wrong != "" {
				e.failf(saidSameTime, "of sender %d, message %d: %s", sender, next[sender], wrong)
			}
			next[sender]++
		}
		e.must(saidConcurrent, sent.end(saidConcurrent), "send")
	}
}

// manyLinks: each link's far end sends back what comes.
func manyLinks(e *env) {
	const links, rounds, dialling = 300, 10, 16
	a, b := e.node(1), e.node(2)
	turns := make(chan struct{}, dialling) // fewer than transports may refuse
	echoes := e.start("accept", func() error {
		e.all(saidConcurrent, "echo", links, func(int) error {
			accepted := b.accept()
			for range rounds {
				got, err := e.tryReceive(accepted)
				if err != nil {
					return err
				}
				if err := e.trySend(accepted, got); err != nil {
					return err
				}
			}
			return nil
		})
		return nil
	})
	e.all(saidConcurrent, "link", links, func(i int) error {
		turns <- struct{}{}
		dialled, err := a.tryDial(b.target(transport.Control + transport.Lane(i%2)))
		<-turns
		if err != nil {
			return err
		}
		for round := range rounds {
			tag, n := uint64(i)<<32|uint64(round), wordBytes+(i*31+round*997)%9000
			e.sendTag(dialled, tag, n)
			e.receiveTag(dialled, tag, n)
		}
		return nil
	})
	e.must(saidConcurrent, echoes.end(saidConcurrent), "accept links")
}

func mesh(e *env) {
	const nodes, rounds = 5, 4
	all := make([]*node, nodes)
	for i := range all {
		all[i] = e.node(int32(i))
	}
	type end struct{ from, to, lane, round int }
	var mu sync.Mutex
	accepted := map[end]int{}
	e.all(saidConcurrent, "node", 2*nodes, func(i int) error {
		self := all[i%nodes]
		if i < nodes { // accepts what all the others dial
			for range (nodes - 1) * 2 * rounds {
				link := self.accept()
				got := e.receive(link)
				if len(got) != 2*wordBytes {
					return fmt.Errorf("%d bytes came on a new link", len(got))
				}
				id := end{int(link.Peer().NodeID), int(self.id.NodeID), int(link.Lane()), int(binary.LittleEndian.Uint64(got))}
				mu.Lock()
				accepted[id]++
				mu.Unlock()
				e.send(link, got)
			}
			return nil
		}
		for round := range rounds {
			for _, other := range all {
				if other == self {
					continue
				}
				for _, lane := range []transport.Lane{transport.Control, transport.Data} {
					link := self.dial(other.target(lane))
					e.sendTag(link, uint64(round), 2*wordBytes)
					e.receiveTag(link, uint64(round), 2*wordBytes)
				}
			}
		}
		return nil
	})
	for id, count := range accepted {
		if count != 1 {
			e.failf(saidBeginning, "node %d dialled node %d once for lane %d in round %d, and %d links say so", id.from, id.to, id.lane, id.round, count)
		}
	}
	if want := nodes * (nodes - 1) * 2 * rounds; len(accepted) != want {
		e.failf(saidPeer, "%d links were dialled, and those that were accepted tell of %d", want, len(accepted))
	}
}

func closeBeside(e *env) {
	const rounds = 60
	a, b := e.node(1), e.node(2)
	other := join(a, b, transport.Data)
	for round := range rounds {
		p := join(a, b, transport.Data)
		var calls []*task
		for _, way := range p.ways() {
			for sender := range 3 {
				calls = append(calls, e.start("send beside Close", func() error {
					for i := uint64(0); ; i++ {
						if err := way[0].Send(e.ctx, message(uint64(sender)<<32|i, 10+sender*1000)); err != nil {
							return err
						}
					}
				}))
			}
			calls = append(calls, e.start("receive beside Close", func() error {
				for {
					if _, err := way[1].Receive(e.ctx, room); err != nil {
						return err
					}
				}
			}))
		}
		calls[0].waits(moment / 50)
		closers := [][]transport.Link{{p.dialled}, {p.accepted}, {p.dialled, p.accepted}, {p.dialled, p.dialled}}[round%4]
		e.all(saidLinkClose, "close", len(closers), func(i int) error { return closers[i].Close() })
		for _, call := range calls {
			if err := call.wait(saidLinkClose); !errors.Is(err, transport.ErrClosed) {
				e.failf(saidFinds, "a link is closed, and %s gives %v", call.act, err)
			}
		}
		e.ended(p.dialled, "a link that was closed")
		e.ended(p.accepted, "a link that was closed")
	}
	other.passes(1)
}
