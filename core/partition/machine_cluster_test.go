package partition

import (
	"container/heap"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// cluster is a partition's replicas as machines, with everything around them as models:
// stores, a network, a controller, clients, and what goes wrong. One seed is one history.
type cluster struct {
	rng      *rand.Rand
	now      time.Time
	begun    time.Time
	events   events
	seq      int
	hosts    []*host
	links    map[[2]int]*link
	ctl      *controller
	settings Settings
	calm     bool // nothing goes wrong any more
	trace    func(format string, args ...any)
	err      error

	values    int64   // given to batches so far
	committed []int64 // by offset: what was seen below a high watermark
	acked     []int64 // by offset: what acks=all was answered for
	deleted   int64   // somebody asked that records below be deleted
	producers []*producing
	stats     clusterStats
}

// clusterStats tell that a history had what it is about.
type clusterStats struct{ acked, elections, truncations, resets, grown, shrunk, powerLosses, zombies, removed, fell, resigned, anew int }

func (s *clusterStats) add(o *clusterStats) {
	s.acked += o.acked
	s.elections += o.elections
	s.truncations += o.truncations
	s.resets += o.resets
	s.grown += o.grown
	s.shrunk += o.shrunk
	s.powerLosses += o.powerLosses
	s.zombies += o.zombies
	s.removed += o.removed
	s.fell += o.fell
	s.resigned += o.resigned
	s.anew += o.anew
}

// event is something that happens later.
type event struct {
	at  time.Time
	seq int
	run func()
}

type events []event

func (e events) Len() int      { return len(e) }
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e events) Less(i, j int) bool {
	if !e[i].at.Equal(e[j].at) {
		return e[i].at.Before(e[j].at)
	}
	return e[i].seq < e[j].seq
}
func (e *events) Push(x any) { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

// link is between two hosts. What is under way is lost with it; each way keeps its order.
type link struct {
	up   bool
	slow bool
	id   int
	last [2]time.Time // when what was sent last arrives, by the greater sender
}

func newCluster(seed uint64) *cluster {
	c := &cluster{
		rng: rand.New(rand.NewPCG(seed, 0)), now: time.Unix(1_700_000_000, 0),
		links: make(map[[2]int]*link), settings: DefaultSettings(),
	}
	c.begun = c.now
	n := 3
	if c.chance(0.25) {
		n = 4 + c.rng.IntN(2)
	}
	c.settings.MinISR = 1 + c.rng.IntN(3)
	c.settings.Flush = []FlushPolicy{FlushReplicated, FlushReplicated, FlushAlways}[c.rng.IntN(3)]
	c.ctl = newController(c, n)
	for i := range n {
		c.hosts = append(c.hosts, &host{c: c, index: i, id: model.NodeID(i + 1)})
		for j := range i {
			c.links[[2]int{j, i}] = &link{}
		}
	}
	for i := range 2 {
		c.producers = append(c.producers, &producing{c: c, id: int64(i + 1), offsets: map[int32]int64{}})
	}
	return c
}

func (c *cluster) chance(p float64) bool { return c.rng.Float64() < p }

// between is a random duration in milliseconds.
func (c *cluster) between(least, most int) time.Duration {
	return time.Duration(least)*time.Millisecond + time.Duration(c.rng.Int64N(int64(most-least+1)*int64(time.Millisecond)))
}

func (c *cluster) after(d time.Duration, run func()) { c.at(c.now.Add(d), run) }

func (c *cluster) at(at time.Time, run func()) {
	c.seq++
	heap.Push(&c.events, event{at, c.seq, run})
}

func (c *cluster) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("after %v: %w", c.now.Sub(c.begun), fmt.Errorf(format, args...))
	}
}

// clusterFaulty is how long things go wrong; clusterHeals how long it may take then
// until all replicas are the same.
const (
	clusterFaulty = 1200 * time.Millisecond
	clusterHeals  = 20 * time.Second
)

// run plays the history and returns what was wrong with it.
func (c *cluster) run() error {
	for _, h := range c.hosts {
		h.start(false)
	}
	c.clients()
	c.troubles()
	c.after(clusterFaulty, c.heal)
	end := c.now.Add(clusterFaulty + clusterHeals)
	look := c.now.Add(clusterFaulty)
	for c.err == nil {
		if len(c.events) == 0 && c.converged() == nil {
			return c.final()
		}
		if len(c.events) == 0 {
			return fmt.Errorf("nothing will happen any more after %v: %w", c.now.Sub(c.begun), c.converged())
		}
		e := heap.Pop(&c.events).(event)
		c.now = e.at
		if c.now.After(end) {
			return fmt.Errorf("not the same after %v: %w", clusterHeals, c.converged())
		}
		e.run()
		if c.calm && c.now.After(look) {
			if c.converged() == nil {
				return c.final()
			}
			look = c.now.Add(20 * time.Millisecond)
		}
	}
	return c.err
}

// send takes a message to another host, in order after what was sent before, unless the
// link is lost before it has arrived. Once in a while it comes again, late.
func (c *cluster) send(from, to *host, deliver func()) {
	l := c.link(from, to)
	if !l.up {
		return
	}
	way := 0
	if from.index > to.index {
		way = 1
	}
	at := c.now.Add(c.between(0, 4))
	if l.slow && !c.calm {
		at = c.now.Add(c.between(0, 60))
	}
	if at.Before(l.last[way]) {
		at = l.last[way]
	}
	l.last[way] = at
	id := l.id
	c.at(at, func() {
		if l.id == id && l.up {
			to.do(deliver)
		}
	})
	if c.chance(0.15) {
		c.after(c.between(0, 300), func() { to.do(deliver) })
	}
}

func (c *cluster) link(a, b *host) *link {
	return c.links[[2]int{min(a.index, b.index), max(a.index, b.index)}]
}

// setLink ends a link, or makes a new one.
func (c *cluster) setLink(a, b *host, up bool) {
	l := c.link(a, b)
	if l.up == up {
		return
	}
	l.up, l.slow = up, c.chance(0.2)
	l.id++
	l.last = [2]time.Time{}
	for _, p := range [][2]*host{{a, b}, {b, a}} {
		h, peer := p[0], p[1]
		id := l.id
		c.after(c.between(0, 5), func() {
			h.do(func() {
				if l.id == id {
					h.linked(peer, up)
				}
			})
		})
	}
}

// commit takes that a host shows a batch as committed: no offset ever has two values.
func (c *cluster) commit(h *host, b *recordbatch.Info) {
	for off := b.BaseOffset; off <= b.LastOffset; off++ {
		v := valueAt(b, off)
		for int64(len(c.committed)) <= off {
			c.committed = append(c.committed, 0)
		}
		if c.committed[off] == 0 {
			c.committed[off] = v
		}
		if c.committed[off] != v {
			c.fail("broker %d shows value %d at offset %d, where %d is committed", h.id, v, off, c.committed[off])
		}
	}
}

// valueAt is what a record is, in the whole history.
func valueAt(b *recordbatch.Info, offset int64) int64 {
	return b.MaxTimestamp*8 + offset - b.BaseOffset + 1
}

// answered takes that acks=all was answered for a batch.
func (c *cluster) answered(h *host, b recordbatch.Info, base int64) {
	b.LastOffset += base - b.BaseOffset
	b.BaseOffset = base
	c.stats.acked++
	for off := b.BaseOffset; off <= b.LastOffset; off++ {
		for int64(len(c.acked)) <= off {
			c.acked = append(c.acked, 0)
		}
		v := valueAt(&b, off)
		if off >= int64(len(c.committed)) || c.committed[off] != v {
			c.fail("broker %d acknowledged value %d at offset %d, which is not committed", h.id, v, off)
			return
		}
		c.acked[off] = v
	}
}

// holdsAcked checks that a log has all that was acknowledged.
func (c *cluster) holdsAcked(h *host, who string) {
	for off := c.deleted; off < int64(len(c.acked)); off++ {
		if c.acked[off] != 0 && h.valueAt(off) != c.acked[off] {
			c.fail("%s broker %d has value %d at offset %d, where %d was acknowledged", who, h.id, h.valueAt(off), off, c.acked[off])
			return
		}
	}
}

// converged says why not all replicas are the same and in sync.
func (c *cluster) converged() error {
	leader := c.hosts[max(0, int(c.ctl.leader)-1)]
	switch {
	case c.ctl.leader == model.NoNode:
		return errors.New("nobody leads")
	case len(c.ctl.isr) != len(c.hosts):
		return fmt.Errorf("in sync are %v of %d", c.ctl.isr, len(c.hosts))
	}
	for _, p := range c.producers {
		if !p.done() {
			return fmt.Errorf("producer %d waits for sequence %d", p.id, p.next)
		}
	}
	for _, h := range c.hosts {
		v := h.m.View()
		switch {
		case h == leader && v.Status != StatusServing || h != leader && v.Status != StatusFollowing || v.Epoch != c.ctl.epoch:
			return fmt.Errorf("broker %d has status %d under epoch %d", h.id, v.Status, v.Epoch)
		case h.logStart < leader.logStart || v.LogStart != h.logStart:
			return fmt.Errorf("the log of broker %d starts at %d, the leader's at %d", h.id, h.logStart, leader.logStart)
		case v.LEO != h.leo() || v.HighWater != v.LEO || v.LEO != leader.leo():
			return fmt.Errorf("broker %d has high watermark %d and log end %d of %d, the leader %d", h.id, v.HighWater, v.LEO, h.leo(), leader.leo())
		}
		if err := h.allReleased(); err != nil {
			return err
		}
	}
	return nil
}

// final checks the end of a history: all logs are the same, and hold what they have to.
func (c *cluster) final() error {
	for _, h := range c.hosts {
		c.holdsAcked(h, "in the end")
		if !slices.Equal(h.above(c.deleted), c.hosts[0].above(c.deleted)) {
			c.fail("the logs of brokers 1 and %d are not the same", h.id)
		}
	}
	for _, p := range c.producers {
		p.check(c.hosts[0])
	}
	return c.err
}

var (
	clusterSeed  = flag.Uint64("cluster.seed", 0, "play the history of one seed only, and show it")
	clusterSeeds = flag.Uint64("cluster.seeds", 2000, "how many histories of a cluster of machines to play")
)

// TestClusterOfMachines: whatever the order of events and faults, with clean elections
// what was acknowledged stays, no committed offset has two values, no high watermark
// falls, and in the end all replicas are the same and in sync.
func TestClusterOfMachines(t *testing.T) {
	if *clusterSeed > 0 {
		c := newCluster(*clusterSeed)
		c.trace = func(format string, args ...any) {
			t.Logf("%v "+format, append([]any{c.now.Sub(c.begun)}, args...)...)
		}
		if err := c.run(); err != nil {
			t.Fatal(err)
		}
		return
	}
	seeds := *clusterSeeds
	if testing.Short() || raceEnabled {
		seeds /= 20
	}
	var next atomic.Uint64
	var mu sync.Mutex
	var stats clusterStats
	failed := 0
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for seed := next.Add(1); seed <= seeds; seed = next.Add(1) {
				c := newCluster(seed)
				err := c.run()
				mu.Lock()
				stats.add(&c.stats)
				if err != nil {
					failed++
					t.Errorf("seed %d: %v", seed, err)
				}
				enough := failed >= 5
				mu.Unlock()
				if enough {
					return
				}
			}
		})
	}
	workers.Wait()
	t.Logf("%d histories: %+v", seeds, stats)
	s := stats
	for _, n := range []int{s.acked, s.elections, s.truncations, s.resets, s.grown, s.shrunk, s.powerLosses, s.zombies, s.removed, s.fell, s.resigned} {
		if n < int(seeds)/50 {
			t.Errorf("too little happened in %d histories: %+v", seeds, stats)
			break
		}
	}
}
