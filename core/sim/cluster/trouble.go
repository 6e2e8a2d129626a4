package cluster

import (
	"time"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
)

// misfortunes brings one of the things that happen to nodes, stores and networks, again
// and again while faults are on.
func (c *cluster) misfortunes(round int) {
	c.w.After(c.w.Between(20*time.Millisecond, c.opts.Calm), func() {
		if !c.faulty || c.round != round {
			return
		}
		c.happen()
		c.misfortunes(round)
	})
}

func (c *cluster) happen() {
	n := c.nodes[c.w.Rand.IntN(len(c.nodes))]
	if !n.up() {
		return
	}
	if c.opts.Departures && c.w.Chance(6) {
		c.depart(n)
		return
	}
	switch c.w.Rand.IntN(30) {
	case 0, 1:
		n.faults.Arm(func() { c.kill(n) })
	case 2:
		c.kill(n)
	case 3, 4:
		n.faults.Arm(func() { c.killStore(n) })
	case 5, 6:
		n.faults.Arm(func() { c.losePower(n) })
	case 7, 8:
		c.pause(n)
	case 9, 10, 11:
		c.cut(n)
	case 12:
		c.slow(n)
	case 13:
		c.stall(n)
	case 14:
		c.fillDisk(n)
	case 16:
		c.leave(n)
	case 17:
		c.wipe(n)
	case 18:
		c.killAll()
	case 19:
		c.join()
	case 20, 21:
		c.fence(n)
	case 22:
		c.elect()
	case 23, 24, 25:
		c.isolate()
	case 26, 27, 28:
		c.reassign()
	case 29:
		c.retire(n)
	case 15:
		n.wall = c.w.Between(-time.Hour, time.Hour)
	}
}

func (c *cluster) kill(n *node) {
	if !n.up() {
		return
	}
	c.report.Kills++
	c.w.Note("node %d is killed", n.id)
	n.kill(memnet.Reset)
	c.restart(n)
}

// restart starts a node a little later.
func (c *cluster) restart(n *node) {
	starts := n.starts
	most := 400 * time.Millisecond
	if c.w.Chance(3) {
		most = 5 * time.Second
	}
	c.w.After(c.w.Between(time.Millisecond, most), func() {
		if starts == n.starts && !n.retired {
			c.startAgain(n)
		}
	})
}

func (c *cluster) startAgain(n *node) {
	if err := n.start(); err != nil {
		c.check.Violate("node %d does not start: %v", n.id, err)
	}
}

func (c *cluster) killStore(n *node) {
	if !n.up() || !n.store.alive {
		return
	}
	c.report.Deaths++
	c.w.Note("the store of node %d dies", n.id)
	n.store.die()
	l, s := n.life, n.store
	c.w.After(c.w.Between(time.Millisecond, 200*time.Millisecond), func() {
		l.do(func() { // its host starts it again
			s.start()
			n.manager.Restarted("main")
		})
	})
}

// losePower takes the machine: broker, store, and what was not flushed. Under the policy
// replicated, records live in page caches while two replicas are in sync: there, power is
// lost where some other has all, or the disk.
func (c *cluster) losePower(n *node) {
	if !n.up() || c.opts.Flush != partition.FlushAlways && !c.spared(n, n.flushed) {
		return
	}
	c.report.PowerLosses++
	n.kill(memnet.Silent)
	lost, torn := n.disk.LosePower(c.w.Rand.Uint64())
	n.unheard = n.unheard || c.opts.Flush != partition.FlushAlways // as a broker knows it
	n.mayHaveLost = n.mayHaveLost || n.unheard
	c.report.LostBatches += lost
	c.w.Note("node %d loses power: %d batches are lost, %d torn", n.id, lost, torn)
	c.restart(n)
}

// killAll kills all processes at once, or takes the power of all hosts, where nothing that
// was acknowledged may be lost with it.
func (c *cluster) killAll() {
	if c.opts.Blackouts && c.w.Chance(2) {
		if n := c.retiring; n == nil || n.lost == nil { // or all that it had could be missed for ever
			c.blackout()
		}
		return
	}
	power := c.opts.Flush == partition.FlushAlways && c.w.Chance(2)
	c.report.AllAtOnce++
	c.w.Note("all nodes go at once")
	for _, n := range c.nodes {
		if power {
			c.losePower(n)
		} else {
			c.kill(n)
		}
	}
}

// leave ends a broker as SIGTERM does: it gives up what it leads first.
func (c *cluster) leave(n *node) {
	c.report.Leaves++
	c.w.Note("node %d is told to end", n.id)
	l := n.life
	l.do(func() {
		if !n.member.StartLeave() {
			n.left()
		}
	})
	c.w.After(leaveMax, func() {
		if n.life == l && !l.over {
			c.kill(n) // nobody waits for ever
		}
	})
}

const leaveMax = 10 * time.Second

// left: a broker may end.
func (n *node) left() {
	n.c.w.Note("node %d has left", n.id)
	n.manager.Stop()
	l := n.life
	n.c.w.After(20*time.Millisecond, func() {
		if n.life == l && !l.over {
			n.kill(memnet.Reset)
			n.c.restart(n)
		}
	})
}

// wipe takes a node's disks, where some other has all that was there.
func (c *cluster) wipe(n *node) {
	if len(c.nodes) < 3 || c.making > 0 || c.unvoted() != "" || !c.spared(n, func(model.Partition) bool { return false }) {
		return
	}
	c.report.Wipes++
	c.w.Note("node %d loses its disks", n.id)
	n.kill([]memnet.Death{memnet.Reset, memnet.Silent}[c.w.Rand.IntN(2)])
	n.disk, n.directory, n.mayHaveLost, n.wiped = &memstore.Disk{}, c.newDirectory(), false, true
	n.unheard, n.fallen, n.fell = false, false, nil
	n.quorumDisk, n.quorum = &quorumDisk{n: n}, nil // so that its vote is missed
	c.restart(n)
}

// join adds a node.
func (c *cluster) join() {
	if len(c.nodes) < c.opts.NodesMax {
		c.joinNew()
	}
}

// joinNew adds one, also where there are as many as there are to be.
func (c *cluster) joinNew() {
	n, err := c.addNode()
	if err != nil {
		c.check.Violate("a node cannot be added: %v", err)
		return
	}
	n.faults.On = c.faulty
	c.report.Joins++
	for _, o := range c.nodes {
		if o != n {
			c.usual(o, n)
			c.usual(n, o)
			if o.up() {
				o.locate(n)
			}
		}
	}
	c.startAgain(n)
}

func (c *cluster) pause(n *node) {
	if n.paused {
		return
	}
	most := 600 * time.Millisecond
	if c.w.Chance(2) {
		most = 6 * time.Second
	}
	c.pauseFor(n, c.w.Between(10*time.Millisecond, most))
}

func (c *cluster) pauseFor(n *node, d time.Duration) {
	c.report.Pauses++
	c.w.Note("node %d pauses", n.id)
	n.pause()
	l := n.life
	c.w.After(d, func() {
		if n.life == l && !l.over {
			c.w.Note("node %d goes on", n.id)
			n.resume()
		}
	})
}

// cut cuts ways to and from a node for a while: to one other or to all, one way or both.
func (c *cluster) cut(n *node) {
	c.report.Cuts++
	out, in := true, true
	if c.w.Chance(2) {
		out = c.w.Chance(2)
		in = !out
	}
	others := c.others(n)
	c.w.Note("node %d is cut: out %v, in %v, others %d", n.id, out, in, len(others))
	for _, o := range others {
		if out {
			c.wrong(n, o, memnet.Faults{Cut: true})
		}
		if in {
			c.wrong(o, n, memnet.Faults{Cut: true})
		}
	}
	c.mend(n, others, 8*time.Second)
}

// fence has a broker that is alive fenced, which it is until its next heartbeat.
func (c *cluster) fence(n *node) {
	asked := c.someNode()
	epoch, ok := n.member.Epoch()
	if asked == nil || !ok {
		return
	}
	c.report.Fences++
	c.w.Note("node %d is to be fenced", n.id)
	asked.command(controller.FenceBroker{ID: n.id, Epoch: epoch}, func(controller.Answer) {})
}

// elect has the preferred replicas lead again.
func (c *cluster) elect() {
	asked := c.someNode()
	if asked == nil {
		return
	}
	op := controller.ElectLeaders{}
	for i := range c.opts.Partitions {
		op.Partitions = append(op.Partitions, model.Partition{Topic: c.topic, Index: int32(i)})
	}
	c.w.Note("preferred replicas are to lead")
	asked.command(op, func(controller.Answer) {})
}

// isolate takes a leader away from most of the cluster for longer than its lease: it is
// paused, or cut off from all but one node, which may follow it still.
func (c *cluster) isolate() {
	p := model.Partition{Topic: c.topic, Index: int32(c.w.Rand.IntN(c.opts.Partitions))}
	at, _, ok := c.check.Newest().Partition(p)
	if !ok {
		return
	}
	n := c.node(at.Leader)
	if n == nil || !n.up() || n.paused || len(c.nodes) < 3 {
		return
	}
	c.report.Isolations++
	if c.w.Chance(3) {
		c.pauseFor(n, c.w.Between(time.Second, 3*time.Second))
		return
	}
	near, deaf := c.nodes[c.w.Rand.IntN(len(c.nodes))], c.w.Chance(2)
	var far []*node
	for _, o := range c.nodes {
		if o != n && o != near {
			far = append(far, o)
			if !deaf {
				c.wrong(n, o, memnet.Faults{Cut: true})
			}
			c.wrong(o, n, memnet.Faults{Cut: true})
		}
	}
	c.w.Note("leader %d is cut off from all but node %d, and still heard %v", n.id, near.id, deaf)
	c.mend(n, far, 4*time.Second)
	if l := n.life; c.w.Chance(2) {
		c.w.After(c.w.Between(100*time.Millisecond, 4*time.Second), func() {
			if n.life == l && c.faulty {
				c.kill(n)
			}
		})
	}
}

// together kills another node, at times, when one has cut its log: before it has again what
// it has cut, if that was too much.
func (c *cluster) together(cut *node) {
	n := c.nodes[c.w.Rand.IntN(len(c.nodes))]
	if n == cut || !c.w.Chance(2) {
		return
	}
	c.w.After(c.w.Between(0, 20*time.Millisecond), func() {
		if c.faulty {
			c.kill(n)
		}
	})
}

// slow makes ways of a node slow, held or lossy for a while.
func (c *cluster) slow(n *node) {
	c.report.Slow++
	f := memnet.Faults{
		Delay: memnet.Range{Max: c.w.Between(0, 300*time.Millisecond)},
		Late:  memnet.Range{Min: 100 * time.Millisecond, Max: 3 * time.Second}, LateChance: 0.01,
	}
	switch c.w.Rand.IntN(3) {
	case 0:
		f.Hold = true
	case 1:
		f.LoseChance, f.EndChance, f.EndAfter = 0.05, 0.7, memnet.Range{Max: 3 * time.Second}
	}
	others := c.others(n)
	c.w.Note("ways of node %d are slow (%v, held %v, lossy %v), others %d", n.id, f.Delay.Max, f.Hold, f.LoseChance > 0, len(others))
	for _, o := range others {
		c.wrong(n, o, f)
		if c.w.Chance(2) {
			c.wrong(o, n, f)
		}
	}
	c.mend(n, others, 5*time.Second)
}

// others are one or all of the other nodes.
func (c *cluster) others(n *node) []*node {
	var out []*node
	for _, o := range c.nodes {
		if o != n {
			out = append(out, o)
		}
	}
	if len(out) > 1 && c.w.Chance(2) {
		out = []*node{out[c.w.Rand.IntN(len(out))]}
	}
	return out
}

// wrong says what is wrong with a way.
func (c *cluster) wrong(from, to *node, f memnet.Faults) {
	c.net.SetFaults(c.w.Now(), from.place, to.place, f)
}

// mend makes ways as they should be a little later.
func (c *cluster) mend(n *node, others []*node, most time.Duration) {
	c.w.After(c.w.Between(50*time.Millisecond, most), func() {
		c.w.Note("ways of node %d are mended", n.id)
		for _, o := range others {
			c.usual(n, o)
			c.usual(o, n)
		}
	})
}

// usual makes a way as it is without faults.
func (c *cluster) usual(from, to *node) {
	c.wrong(from, to, memnet.Faults{Delay: memnet.Range{Min: 50 * time.Microsecond, Max: c.opts.Usual}})
}

func (c *cluster) stall(n *node) {
	c.report.Stalls++
	n.faults.Stall = true
	c.w.Note("the store of node %d stalls", n.id)
	c.w.After(c.w.Between(100*time.Millisecond, 3*time.Second), func() { n.faults.Stall = false })
}

func (c *cluster) fillDisk(n *node) {
	c.report.Full++
	free := c.w.Rand.Int64N(600)
	c.w.Note("the disk of node %d has %d bytes left", n.id, free)
	n.disk.SetFree(free)
	c.w.After(c.w.Between(100*time.Millisecond, 2*time.Second), func() { n.disk.SetFree(-1) })
}

// lastBatches are what a producer sends at most after the last fault.
const lastBatches = 20

// heal ends the faults: what is down comes up.
func (c *cluster) heal() {
	c.faulty = false
	if c.last {
		for _, p := range c.producers {
			p.left = min(p.left, lastBatches)
		}
	}
	c.w.Note("faults end")
	for _, n := range c.nodes {
		n.faults.On, n.faults.Stall = false, false
		n.disk.SetFree(-1)
		n.resume()
		for _, o := range c.nodes {
			if o != n {
				c.usual(n, o)
			}
		}
	}
	c.liftThrottles(c.round)
}
