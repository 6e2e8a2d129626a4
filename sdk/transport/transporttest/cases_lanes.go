package transporttest

import (
	"fmt"

	"github.com/brokerd/brokerd/sdk/transport"
)

func laneCases() []Case {
	return []Case{
		{Name: "lanes", About: "a lane that nobody receives from holds up no other", run: lanes},
		{Name: "lane-links", About: "a link that nobody receives from holds up no other link of its lane", run: laneLinks},
		{Name: "lane-unaccepted", About: "a link that nobody accepts holds up no other", run: laneUnaccepted},
	}
}

// full makes links of a lane between the nodes that are full both ways.
func (e *env) full(a, b *node, lane transport.Lane, links int) {
	var floods []*flood
	for range links {
		for _, way := range join(a, b, lane).ways() {
			floods = append(floods, e.flood(way[0], 256<<10, 1000))
		}
	}
	for _, f := range floods {
		f.stalls()
	}
}

// goesOn carries messages of many sizes over a link, and makes new ones beside it.
func (e *env) goesOn(p pair, a, b *node, while string) {
	for tag, n := range []int{10, 1000, 70_000, 5 << 20, 20 << 20, 10} {
		for _, way := range p.ways() {
			sent := e.start("send", func() error { return e.trySend(way[0], message(uint64(tag), n)) })
			got, err := e.tryReceive(way[1])
			e.must(saidLanes, err, fmt.Sprintf("receive %d bytes on lane %v while %s", n, p.dialled.Lane(), while))
			if wrong := differs(got, uint64(tag), n); wrong != "" {
				e.failf(saidBeginning, "%s", wrong)
			}
			e.must(saidLanes, sent.wait(saidLanes), "send while "+while)
		}
	}
	for _, lane := range []transport.Lane{transport.Control, transport.Data} {
		for _, ends := range [][2]*node{{a, b}, {b, a}} {
			link, err := ends[0].tryDial(ends[1].target(lane))
			e.must(saidLanes, err, fmt.Sprintf("dial for lane %v while %s", lane, while))
			pair{e: e, dialled: link, accepted: ends[1].accept()}.passes(5)
		}
	}
}

func lanes(e *env) {
	for _, lane := range [][2]transport.Lane{{transport.Data, transport.Control}, {transport.Control, transport.Data}} {
		a, b := e.node(1), e.node(2)
		p := join(a, b, lane[1])
		e.full(a, b, lane[0], 1)
		e.goesOn(p, a, b, fmt.Sprintf("lane %v is full", lane[0]))
		e.closeAll()
	}
}

func laneLinks(e *env) {
	for _, lane := range []transport.Lane{transport.Data, transport.Control} {
		a, b := e.node(1), e.node(2)
		p := join(a, b, lane)
		e.full(a, b, lane, 3)
		e.goesOn(p, a, b, "three other links of the lane are full")
		e.closeAll()
	}
}

func laneUnaccepted(e *env) {
	a, b := e.node(1), e.node(2)
	p, back := join(a, b, transport.Data), join(b, a, transport.Control)
	var floods []*flood
	for _, lane := range []transport.Lane{transport.Data, transport.Control} {
		f := e.flood(a.dial(b.target(lane)), 256<<10, 1000)
		floods = append(floods, f)
	}
	for _, f := range floods {
		f.stalls()
	}
	for tag := range uint64(10) {
		for _, l := range []pair{p, back} {
			for _, way := range l.ways() {
				sent := e.start("send", func() error { return e.trySend(way[0], message(tag, 300_000)) })
				got, err := e.tryReceive(way[1])
				e.must(saidLanes, err, "receive while links that nobody accepts are full")
				if wrong := differs(got, tag, 300_000); wrong != "" {
					e.failf(saidBeginning, "%s", wrong)
				}
				e.must(saidLanes, sent.wait(saidLanes), "send while links that nobody accepts are full")
			}
		}
	}
}
