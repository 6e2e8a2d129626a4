package controller

import (
	"fmt"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// turn does one thing of many.
func (c *cluster) turn() {
	if c.rand.IntN(4) == 0 {
		c.arrive()
	}
	ids := []model.NodeID{1, 2, 3, 4}
	n := c.brokers[ids[c.rand.IntN(4)]]
	switch r := c.rand.IntN(100); {
	case r < 20 && len(c.proposals) > 0:
		c.commitOne()
	case r < 45:
		for _, at := range c.partitions() {
			c.write(n, at)
		}
	case r < 57:
		if n.up {
			c.askISR(n)
		}
	case r < 75:
		c.everybodyBeats()
	case r < 83:
		if n.up {
			n.view = max(n.view, c.rand.IntN(len(c.images)))
			c.report(n)
		}
	case r < 85:
		c.changeController()
	case r < 89:
		c.live(n)
	case r < 92:
		c.administer()
	case r < 93 && n.up:
		n.leaves = true
	case r < 94:
		c.elapse(time.Minute, true)
	default:
		c.elapse(time.Duration(c.rand.IntN(400))*time.Millisecond, false)
	}
}

func (c *cluster) everybodyBeats() {
	for id := range model.NodeID(4) {
		if n := c.brokers[id+1]; n.up && c.rand.IntN(8) > 0 {
			c.beat(n)
		}
	}
}

// elapse lets time go by for the controller, which is awake or paused.
func (c *cluster) elapse(d time.Duration, paused bool) {
	for end := c.now.Add(d); !paused; {
		at, ok := c.machine.Deadline()
		if !ok || at.After(end) {
			c.now = end
			return
		}
		c.now = at
		c.do(Due{})
	}
	c.now = c.now.Add(d)
	c.do(Due{})
}

// live ends a broker's life, or begins its next.
func (c *cluster) live(n *node) {
	switch {
	case !n.up:
		c.note("%d starts", n.id)
		c.start(n)
	case c.rand.IntN(12) == 0:
		c.note("all lose power")
		for id := range model.NodeID(4) {
			c.powerCut(c.brokers[id+1])
		}
	case c.rand.IntN(5) == 0:
		c.note("%d loses power", n.id)
		epoch := n.epoch
		c.powerCut(n)
		c.back(n, epoch)
	case c.rand.IntN(4) == 0 && c.spare(n):
		c.wipe(n)
	default:
		c.note("%d is killed", n.id)
		c.kill(n)
	}
}

func (c *cluster) powerCut(n *node) {
	if !n.up {
		return
	}
	c.kill(n)
	n.lost = true
	for _, at := range c.partitions() {
		if left := n.flushed[at] + c.rand.IntN(len(n.logs[at])-n.flushed[at]+1); left < len(n.logs[at]) {
			n.logs[at], n.damaged[at] = n.logs[at][:left], true
		}
		n.flushed[at] = len(n.logs[at])
	}
}

// wipe ends a broker's life and its logs.
func (c *cluster) wipe(n *node) {
	c.note("%d is wiped", n.id)
	epoch := n.epoch
	c.kill(n)
	n.dir += 10
	n.logs, n.flushed, n.damaged = map[model.Partition][]entry{}, map[model.Partition]int{}, map[model.Partition]bool{}
	c.back(n, epoch)
}

// back begins the next life of a broker, perhaps, before anybody has heard of its death.
func (c *cluster) back(n *node, epoch model.BrokerEpoch) {
	if c.rand.IntN(3) == 0 {
		return
	}
	c.ask(FenceBroker{ID: n.id, Epoch: epoch}, nil)
	c.start(n)
	for range 3 {
		c.settle()
		n.view = len(c.images) - 1
		c.beat(n)
	}
}

// spare says whether others have all that n has, so that a wiped disk costs nothing that
// could have been kept.
func (c *cluster) spare(n *node) bool {
	for _, at := range c.partitions() {
		p, _, _ := c.img.Partition(at)
		others := 0
		for _, id := range append(slices.Clone(p.ISR), p.ELR...) {
			if i := slices.Index(p.Replicas, id); id != n.id && p.Directories[i] == (model.DirectoryID{c.brokers[id].dir}) {
				others++
			}
		}
		if others == 0 && slices.Contains(p.Replicas, n.id) {
			return false
		}
	}
	return true
}

func (c *cluster) administer() {
	at := c.partitions()[c.rand.IntN(len(c.partitions()))]
	switch c.rand.IntN(4) {
	case 0:
		one := fmt.Sprint(1 + c.rand.IntN(3))
		c.ask(AlterConfigs{Changes: []model.ConfigChange{{
			Resource: model.Resource{Type: model.ResourceTopic, Name: []string{"t", "u"}[c.rand.IntN(2)]},
			Ops:      []model.ConfigOp{{Key: image.MinISRKey, Kind: model.ConfigOpKind(c.rand.IntN(2)), Value: &one}},
		}}}, nil)
	case 1:
		c.ask(ElectLeaders{Partitions: c.partitions()}, nil)
	default:
		target := []model.NodeID{1, 2, 3, 4}
		c.rand.Shuffle(4, func(i, j int) { target[i], target[j] = target[j], target[i] })
		target = target[:1+c.rand.IntN(4)]
		if c.rand.IntN(3) == 0 {
			target = nil
		}
		c.note("reassign %s to %v", at, target)
		c.ask(AlterReassignments{Changes: []model.Reassignment{{Partition: at, Replicas: target}}}, nil)
	}
}
