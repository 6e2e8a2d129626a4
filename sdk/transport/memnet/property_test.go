package memnet

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/brokerd/brokerd/sdk/transport"
)

// twins are two worlds in which the same is done.
type twins struct {
	t       *rapid.T
	w       [2]*world
	sent    [2]map[Link][]string // what was taken of each link, large messages by their size
	large   []byte
	sloppy  bool // ways may be
	checked [2]map[Link]int
}

func newTwins(t *rapid.T, nodes int) *twins {
	tw := &twins{t: t, large: make([]byte, 2*transport.LinkBytesMax)}
	seed := rapid.Uint64().Draw(t, "seed")
	for i := range tw.w {
		tw.w[i] = newWorld(t, seed, nodes)
		tw.sent[i] = make(map[Link][]string)
		tw.checked[i] = make(map[Link]int)
	}
	return tw
}

// both does something in both worlds.
func (tw *twins) both(do func(w *world)) {
	for _, w := range tw.w {
		do(w)
	}
}

func (tw *twins) node() Node {
	return Node(rapid.IntRange(0, len(tw.w[0].m.nodes)-1).Draw(tw.t, "node"))
}

// link draws a link that a node knows of, one of the newest mostly.
func (tw *twins) link() (Link, bool) {
	links := tw.w[0].links
	if len(links) == 0 {
		return 0, false
	}
	back := rapid.IntRange(0, min(len(links), 20)-1).Draw(tw.t, "link")
	return links[len(links)-1-back], true
}

func (tw *twins) dial() {
	from, to := tw.node(), tw.node()
	if tw.w[0].m.Up(from) && !tw.w[0].m.nodes[from].paused {
		lane := rapid.SampledFrom([]transport.Lane{transport.Control, transport.Data}).Draw(tw.t, "lane")
		count := rapid.SampledFrom([]int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, AcceptMax}).Draw(tw.t, "count")
		tw.both(func(w *world) {
			for range count {
				w.dialLane(from, to, lane)
			}
		})
	}
}

func (tw *twins) send() {
	l, ok := tw.link()
	if !ok {
		return
	}
	size := rapid.SampledFrom([]int{0, 1, 10, 100, 1000, 1 << 20, 6 << 20, transport.LinkBytesMax, transport.LinkBytesMax + 1}).Draw(tw.t, "size")
	for i, w := range tw.w {
		data := tw.large[:size]
		if size < 1<<20 {
			data = fmt.Appendf(make([]byte, 0, size+32), "%d on %x ", len(tw.sent[i][l]), uint64(l))
			data = append(data, tw.large[:size]...)
		}
		err := w.give(l, data)
		if err != nil && !errors.Is(err, ErrFull) && !errors.Is(err, transport.ErrClosed) {
			tw.t.Fatalf("send %d bytes: %v", size, err)
		}
		if err == nil {
			tw.sent[i][l] = append(tw.sent[i][l], name(data))
		}
		w.heard = append(w.heard, fmt.Sprintf("send %d bytes: %v", size, err))
	}
}

// name is a message, or the size of one that is large.
func name(data []byte) string {
	if len(data) >= 1<<20 {
		return fmt.Sprintf("%d bytes", len(data))
	}
	return string(data)
}

func (tw *twins) close() {
	if l, ok := tw.link(); ok {
		tw.both(func(w *world) { w.m.Close(w.now, l) })
	}
}

func (tw *twins) stop() {
	id, how := tw.node(), rapid.SampledFrom([]Death{Reset, Silent}).Draw(tw.t, "death")
	tw.both(func(w *world) { w.m.Stop(w.now, id, how) })
}

func (tw *twins) start() {
	id := tw.node()
	if !tw.w[0].m.Up(id) {
		tw.both(func(w *world) { w.start(id) })
	}
}

func (tw *twins) pause() {
	id := tw.node()
	if rapid.Bool().Draw(tw.t, "resume") {
		tw.both(func(w *world) { w.m.Resume(w.now, id) })
	} else if tw.w[0].m.Up(id) {
		tw.both(func(w *world) { w.m.Pause(id) })
	}
}

func (tw *twins) faults() {
	from, to, f := tw.node(), tw.node(), faults(tw.t)
	if tw.sloppy {
		chance := rapid.SampledFrom([]float64{0, 0.2, 1})
		f.Sloppy = Sloppy{
			DropChance:  chance.Draw(tw.t, "drop") / 2,
			TwiceChance: chance.Draw(tw.t, "twice"),
			SwapChance:  chance.Draw(tw.t, "swap"),
		}
	}
	tw.both(func(w *world) { w.m.SetFaults(w.now, from, to, f) })
}

// faults draws what may be wrong with a way without being sloppy.
func faults(t *rapid.T) Faults {
	times := func(about string) Range {
		return Range{
			Min: time.Duration(rapid.IntRange(0, 20).Draw(t, about+" min")) * ms,
			Max: time.Duration(rapid.IntRange(0, 200).Draw(t, about+" max")) * ms,
		}
	}
	chance := func(about string) float64 { return rapid.SampledFrom([]float64{0, 0, 0, 0.1, 1}).Draw(t, about) }
	return Faults{
		Cut:            rapid.IntRange(0, 4).Draw(t, "cut") == 0,
		Hold:           rapid.IntRange(0, 4).Draw(t, "hold") == 0,
		Delay:          times("delay"),
		Late:           Range{Max: time.Second},
		LateChance:     chance("late"),
		BytesPerSecond: rapid.SampledFrom([]int64{0, 0, 1000, 10 << 20}).Draw(t, "bytes per second"),
		LoseChance:     chance("lose") / 2,
		EndChance:      chance("end"),
		EndAfter:       times("end after"),
	}
}

func (tw *twins) pass() {
	d := time.Duration(rapid.IntRange(0, 300).Draw(tw.t, "time")) * ms
	tw.both(func(w *world) { w.run(d) })
}

func (tw *twins) lazy() {
	lazy := rapid.Bool().Draw(tw.t, "lazy")
	tw.both(func(w *world) {
		if w.lazy = lazy; !lazy {
			w.catchUp()
		}
	})
}

// check holds both worlds to what is always so.
func (tw *twins) check() {
	for i, w := range tw.w {
		w.check()
		for l, got := range w.got {
			sent := tw.sent[i][l^1] // handles of both ends differ in the lowest bit
			for at := tw.checked[i][l]; at < len(got); at++ {
				if tw.sloppy && slices.Contains(sent, name(got[at])) {
					continue
				}
				if at >= len(sent) || name(got[at]) != sent[at] {
					tw.t.Fatalf("message %d of a link is %.40q, and %d were sent", at, name(got[at]), len(sent))
				}
			}
			tw.checked[i][l] = len(got)
		}
	}
	if a, b := tw.w[0].heard, tw.w[1].heard; !slices.Equal(a, b) {
		tw.t.Fatalf("one seed has two histories:\n%q\n%q", a, b)
	}
	tw.both(func(w *world) { w.heard = w.heard[:0] })
}

// settle ends the faults. Then everything that is sent on new links arrives, and when every
// node has stopped, nothing is left.
func (tw *twins) settle() {
	tw.both(func(w *world) {
		w.lazy = false
		w.m.Heal(w.now)
		w.catchUp()
		for id := range w.m.nodes {
			if !w.m.Up(Node(id)) {
				w.start(Node(id))
			}
		}
		w.run(time.Hour)
		for from := range w.m.nodes {
			for to := range w.m.nodes {
				ab, ba := w.join(Node(from), Node(to))
				var there, back []string
				for i := range 5 {
					there, back = append(there, fmt.Sprint("there ", i)), append(back, fmt.Sprint("back ", i))
					w.send(ab, there[i])
					w.send(ba, back[i])
				}
				w.run(0)
				w.has(ba, there...)
				w.has(ab, back...)
			}
		}
		w.check()
		for id := range w.m.nodes {
			w.m.Stop(w.now, Node(id), Silent)
		}
		w.check()
		if len(w.m.unused) != len(w.m.pairs) || len(w.m.alarms) > 0 || w.m.Held() > 0 {
			w.t.Fatalf("every node has stopped, and %d of %d links, %d alarms and %d bytes are left",
				len(w.m.pairs)-len(w.m.unused), len(w.m.pairs), len(w.m.alarms), w.m.Held())
		}
	})
}

// Whatever happens, what arrives on a link is a beginning of what was sent on it (or some of
// it, in whatever order and number, where a network is sloppy), one seed is one history, nothing is held beyond the bounds, and everything ends well.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tw := newTwins(t, rapid.IntRange(2, 4).Draw(t, "nodes"))
		tw.sloppy = rapid.IntRange(0, 3).Draw(t, "sloppy") == 0
		actions := []func(){
			tw.dial, tw.dial, tw.send, tw.send, tw.send, tw.send, tw.pass, tw.pass, tw.pass,
			tw.close, tw.stop, tw.start, tw.start, tw.pause, tw.faults, tw.lazy,
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			actions[rapid.IntRange(0, len(actions)-1).Draw(t, "action")]()
			tw.check()
		}
		tw.settle()
	})
}

// A cut of one way is of no other, whatever else is slow.
func TestCutsAreOneWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, rapid.Uint64().Draw(t, "seed"), 3)
		ab, ba := w.join(0, 1)
		ac, ca := w.join(0, 2)
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			f := Faults{Delay: Range{Max: time.Duration(rapid.IntRange(0, 50).Draw(t, "delay")) * ms}}
			w.faults(0, 1, f)
			w.faults(0, 2, f)
			f.Cut = true
			w.m.SetFaults(w.now, 0, 1, f)
			for _, l := range []Link{ab, ba, ac, ca} {
				w.send(l, fmt.Sprint(len(w.got[l^1])))
			}
			w.run(time.Second)
		}
		if n := len(w.got[ab]); len(w.got[ba]) != 0 || n == 0 || len(w.got[ac]) != n || len(w.got[ca]) != n {
			t.Fatalf("the way from 0 to 1 is cut; arrived: %d there, %d back, and %d and %d elsewhere",
				len(w.got[ba]), n, len(w.got[ca]), len(w.got[ac]))
		}
	})
}

// The parts of a message are one message, whatever they are, and its bytes the network's own.
func TestParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 1, 2)
		ab, ba := w.join(0, 1)
		parts := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 20), 0, 5).Draw(t, "parts")
		want := slices.Concat(parts...)
		if err := w.m.Send(w.now, ab, parts...); err != nil {
			t.Fatalf("send: %v", err)
		}
		for _, part := range parts {
			clear(part)
		}
		w.run(0)
		if got := w.got[ba]; len(got) != 1 || !bytes.Equal(got[0], want) {
			t.Fatalf("received %q, want %q", got, want)
		}
	})
}
