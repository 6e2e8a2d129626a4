package peer

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
)

// TestProperties lets owners send whatever they like over a network with every fault, while
// nodes die, pause and come back. The world checks what each is told.
func TestProperties(t *testing.T) {
	var sum world
	for seed := range uint64(60) {
		w := history(t, seed, false)
		sum.answered += w.answered
		sum.failed += w.failed
		sum.posts += w.posts
		sum.messages += w.messages
		sum.ups += w.ups
		sum.refusals += w.refusals
		sum.lost += w.lost
	}
	t.Logf("%d answers, %d questions without one, %d posts, %d messages on %d streams, %d refusals, %d lost links",
		sum.answered, sum.failed, sum.posts, sum.messages, sum.ups, sum.refusals, sum.lost)
	for what, n := range map[string]int{
		"answers": sum.answered, "failures": sum.failed, "posts": sum.posts, "messages": sum.messages,
		"streams": sum.ups, "refusals": sum.refusals, "lost links": sum.lost,
	} {
		if n < 500 {
			t.Errorf("only %d %s: little has happened", n, what)
		}
	}
}

// TestOneSeedIsOneHistory runs some histories twice.
func TestOneSeedIsOneHistory(t *testing.T) {
	for seed := range uint64(5) {
		one, two := history(t, seed, true), history(t, seed, false)
		if one.trace == two.trace {
			continue
		}
		for i := range one.lines {
			if i >= len(two.lines) || one.lines[i] != two.lines[i] {
				t.Fatalf("seed %d: two histories, at %s", seed, one.lines[i])
			}
		}
		t.Fatalf("seed %d: two histories", seed)
	}
}

// history is one world, its faults, and its end, after which everything works.
func history(t *testing.T, seed uint64, keep bool) *world {
	r := rand.New(rand.NewPCG(seed, 7))
	w := newWorld(t, seed, 2+r.IntN(4), func(c *Config) {
		c.QueueBytesMax, c.StreamBytesMax = 64<<10, 256<<10
	})
	w.keep = keep
	for _, n := range w.nodes {
		for i := range w.nodes {
			n.want[model.NodeID(i)] = model.NodeID(i) != n.id && r.IntN(3) > 0
			n.step(&Want{Node: model.NodeID(i), Wanted: n.want[model.NodeID(i)]})
		}
	}
	for range 400 {
		w.something(r, seed)
		w.run(time.Duration(r.Int64N(int64(100 * time.Millisecond))))
	}
	w.heal(seed)
	w.run(25 * time.Second) // what is late comes within 20 s of its sending
	if err := w.linked(); err != nil {
		t.Fatalf("seed %d: long after the last fault, %v", seed, err)
	}
	// A link that nobody used may have lost something in its time, which shows when it is used.
	w.askAll()
	w.run(5 * time.Second)
	failed := w.failed
	w.askAll()
	w.run(4 * time.Second)
	if w.failed != failed {
		t.Fatalf("seed %d: %d questions have no answer, long after the last fault", seed, w.failed-failed)
	}
	w.run(2 * time.Minute)
	w.quiet(t, seed)
	return w
}

// askAll asks every node in the name of every other, so that it is answered at once.
func (w *world) askAll() {
	for _, n := range w.nodes {
		n.answerLate()
		for i := range w.nodes {
			if to := model.NodeID(i); to != n.id {
				w.nextAsked += 6 - w.nextAsked%5
				n.ask(address(to), 10, 3*time.Second)
			}
		}
	}
}

// quiet sees that nothing is left of what was under way.
func (w *world) quiet(t *testing.T, seed uint64) {
	for _, n := range w.nodes {
		if len(n.asks) > 0 {
			t.Fatalf("seed %d: %d questions of node %d were never ended", seed, len(n.asks), n.id)
		}
		if len(n.settled) > 0 {
			t.Fatalf("seed %d: %d messages of node %d were never settled", seed, len(n.settled), n.id)
		}
		for _, l := range n.m.links {
			if l.use != useStream && l.route != nil {
				t.Fatalf("seed %d: node %d keeps a link that nobody uses", seed, n.id)
			}
		}
	}
}

// something is one thing that an owner or a fault does.
func (w *world) something(r *rand.Rand, seed uint64) {
	n := w.nodes[r.IntN(len(w.nodes))]
	other := w.nodes[r.IntN(len(w.nodes))]
	if r.IntN(5) == 0 {
		w.fault(r, n, other, seed)
		return
	}
	if !n.up || n.paused || n == other {
		return
	}
	switch r.IntN(6) {
	case 0:
		for range 1 + r.IntN(5) {
			n.ask(address(other.id), r.IntN(2000), time.Duration(r.Int64N(int64(5*time.Second))))
		}
	case 1:
		for range 1 + r.IntN(20) {
			l := letter{from: n.id, to: other.id, life: n.life}
			n.step(&Post{To: address(other.id), Message: l.bytes(r.IntN(20_000)), Bulk: r.IntN(3) == 0})
		}
	case 2, 3:
		n.send(r.IntN(50_000))
	case 4:
		n.answerLate()
	case 5:
		switch r.IntN(4) {
		case 0:
			n.want[other.id] = !n.want[other.id]
			n.step(&Want{Node: other.id, Wanted: n.want[other.id]})
		case 1:
			n.step(&End{Stream: model.StreamID(1 + r.IntN(int(n.m.lastStream)+1))})
		}
	}
	n.check()
}

func (w *world) fault(r *rand.Rand, n, other *node, seed uint64) {
	switch r.IntN(6) {
	case 0:
		if n.up {
			n.kill(memnet.Death(r.IntN(2)))
		} else {
			n.start(seed)
		}
	case 1:
		if !n.up {
			n.start(seed)
			return
		}
		w.pause(n, !n.paused)
	case 2:
		w.net.Heal(w.now)
		for _, n := range w.nodes {
			if n.paused {
				w.net.Pause(n.at)
			}
		}
	default:
		f := memnet.Faults{
			Cut:        r.IntN(3) == 0,
			Hold:       r.IntN(6) == 0,
			Delay:      memnet.Range{Max: time.Duration(r.Int64N(int64(50 * time.Millisecond)))},
			Late:       memnet.Range{Max: time.Duration(r.Int64N(int64(20 * time.Second)))},
			LateChance: []float64{0, 0.02}[r.IntN(2)],
			LoseChance: []float64{0, 0, 0.02}[r.IntN(3)],
			EndChance:  0.5,
			EndAfter:   memnet.Range{Max: 3 * time.Second},
		}
		if r.IntN(3) == 0 {
			f.BytesPerSecond = 100_000 + r.Int64N(1_000_000)
		}
		w.net.SetFaults(w.now, n.at, other.at, f)
		if r.IntN(2) == 0 {
			w.net.SetFaults(w.now, other.at, n.at, f)
		}
	}
}

func (w *world) pause(n *node, paused bool) {
	n.paused = paused
	if paused {
		w.net.Pause(n.at)
	} else {
		w.net.Resume(w.now, n.at)
	}
}

func (w *world) heal(seed uint64) {
	w.net.Heal(w.now)
	for _, n := range w.nodes {
		n.paused = false
		if !n.up {
			n.start(seed)
		}
	}
}
