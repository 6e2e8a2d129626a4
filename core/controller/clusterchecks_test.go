package controller

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

func (c *cluster) failf(format string, args ...any) {
	c.t.Helper()
	c.t.Fatalf("%s\n%s", strings.Join(c.trace[max(0, len(c.trace)-60):], "\n"), fmt.Sprintf(format, args...))
}

// check holds a change of the metadata against the rules.
func (c *cluster) check(was, is *image.Image) {
	for t := range is.Topics() {
		for i := range t.Partitions {
			at := model.Partition{Topic: t.ID, Index: int32(i)}
			p := &t.Partitions[i]
			old, _, ok := was.Partition(at)
			if !ok {
				old = &image.Partition{Leader: model.NoNode, LeaderEpoch: -1, PartitionEpoch: -1, ISR: p.ISR}
			}
			c.checkEpochs(at, old, p)
			c.checkISR(is, at, old, p)
			c.checkRaise(was, is, at, old, p)
			if p.Leader != old.Leader && p.Leader != model.NoNode && ok {
				c.checkLeader(was, is, at, old, p)
			}
		}
	}
	for b := range is.Brokers() {
		if old, ok := was.Broker(b.ID); ok && b.Fenced && !old.Fenced {
			c.counts.fenced++
		}
	}
}

func (c *cluster) checkEpochs(at model.Partition, old, p *image.Partition) {
	same := p.Leader == old.Leader && slices.Equal(p.ISR, old.ISR) && slices.Equal(p.Replicas, old.Replicas) && slices.Equal(p.ELR, old.ELR)
	switch {
	case p.PartitionEpoch < old.PartitionEpoch || !same && p.PartitionEpoch == old.PartitionEpoch:
		c.failf("%s: partition epoch %d after %d: %+v", at, p.PartitionEpoch, old.PartitionEpoch, p)
	case p.LeaderEpoch < old.LeaderEpoch || p.Leader != old.Leader && p.LeaderEpoch == old.LeaderEpoch:
		c.failf("%s: leader epoch %d after %d: %+v", at, p.LeaderEpoch, old.LeaderEpoch, p)
	}
	if c.leaders[at] == nil {
		c.leaders[at] = map[model.LeaderEpoch]model.NodeID{}
	}
	if n, ok := c.leaders[at][p.LeaderEpoch]; ok && n != p.Leader {
		c.failf("%s: leader epoch %d is of %d and of %d", at, p.LeaderEpoch, n, p.Leader)
	}
	c.leaders[at][p.LeaderEpoch] = p.Leader
	if len(old.Adding)+len(old.Removing) > 0 && len(p.Adding)+len(p.Removing) == 0 {
		c.counts.reassigned++
	}
}

func (c *cluster) checkISR(is *image.Image, at model.Partition, old, p *image.Partition) {
	for _, id := range p.ISR {
		b, ok := is.Broker(id)
		dir := model.DirectoryID{}
		if i := slices.Index(p.Replicas, id); i < 0 {
			c.failf("%s: %d is in sync, and no replica: %+v", at, id, p)
		} else {
			dir = p.Directories[i]
		}
		if fresh := !slices.Contains(old.ISR, id); fresh && (!ok || b.Fenced || b.ShuttingDown || !slices.Contains(b.Directories, dir)) {
			c.failf("%s: %d joins the ISR, and may not: %+v, %+v", at, id, b, p)
		}
		if slices.Contains(p.ELR, id) || slices.Contains(p.LastKnownELR, id) {
			c.failf("%s: %d is in the ISR and the ELR: %+v", at, id, p)
		}
	}
	if !slices.Equal(old.ISR, p.ISR) {
		c.counts.isr++
	}
	switch {
	case p.Leader != model.NoNode && !slices.Contains(p.ISR, p.Leader):
		c.failf("%s: the leader is not in sync: %+v", at, p)
	case len(p.ISR)+len(p.ELR)+len(p.LastKnownELR) == 0:
		c.failf("%s: nobody is known to have it: %+v", at, p)
	}
	if b, ok := is.Broker(p.Leader); p.Leader != model.NoNode && (!ok || b.Fenced) {
		c.failf("%s: its leader is fenced: %+v", at, p)
	}
}

// checkLeader: whoever is elected was in the ISR or the ELR, and has everything; or all of
// those may have lost something, and it has the longest log of them.
func (c *cluster) checkLeader(was, is *image.Image, at model.Partition, old, p *image.Partition) {
	c.counts.elections++
	log := c.brokers[p.Leader].logs[at]
	c.note("%s: %d leads in epoch %d: %+v after %+v", at, p.Leader, p.LeaderEpoch, p, old)
	if b, ok := is.Broker(p.Leader); !ok || b.Fenced || b.ShuttingDown {
		c.failf("%s: elected a leader that is not alive: %+v, %+v", at, p, b)
	}
	for _, id := range p.ISR {
		if b, ok := is.Broker(id); !ok || b.Fenced || b.ShuttingDown {
			c.failf("%s: a new leader has an ISR with %d, which is not alive: %+v", at, id, p)
		}
	}
	c.checkLoss(at, old, p)
	if c.unclean[at] {
		return
	}
	completed := len(old.Adding)+len(old.Removing) > 0 && len(p.Adding)+len(p.Removing) == 0 && old.Leader != model.NoNode
	switch {
	case slices.Contains(old.ISR, p.Leader) || slices.Contains(old.ELR, p.Leader) || completed:
		if slices.Contains(old.ELR, p.Leader) {
			c.counts.eligible++
		}
		// It is judged when it begins to lead: it may be dead by now.
		c.alone[at] = len(old.ISR) == 1 && len(old.ELR)+len(old.LastKnownELR) == 0
	case awaitsReports(old) && slices.Contains(old.LastKnownELR, p.Leader):
		c.counts.longest++
		kept := sharedPrefix(log, c.committed[at])
		// Unless it has died since it said so: it is judged in its next life.
		b, _ := is.Broker(p.Leader)
		same := c.brokers[p.Leader].up && c.brokers[p.Leader].life == b.Incarnation[0]
		for _, id := range old.LastKnownELR {
			other := c.brokers[id].logs[at]
			if same && (compareEnds(logEnd(at, other), logEnd(at, log)) > 0 || sharedPrefix(other, c.committed[at]) > kept) {
				c.failf("%s: leader %d has %v, and %d had %v", at, p.Leader, log, id, other)
			}
		}
		if below := min(len(c.committed[at]), int(p.Loss.From)); same && kept < below {
			c.failf("%s: records from %d on are lost, and %+v is told: %+v", at, kept, *p.Loss, p)
		}
		c.committed[at] = c.committed[at][:kept] // the loss was said aloud
	default:
		c.failf("%s: %d was neither in the ISR nor in the ELR: %+v, after %+v", at, p.Leader, p, old)
	}
}

// checkLoss: a leader that may lack what was committed is told of in the metadata, and no other.
func (c *cluster) checkLoss(at model.Partition, old, p *image.Partition) {
	completed := len(old.Adding)+len(old.Removing) > 0 && len(p.Adding)+len(p.Removing) == 0 && old.Leader != model.NoNode
	dir := func(p *image.Partition, n model.NodeID) model.DirectoryID {
		return p.Directories[slices.Index(p.Replicas, n)]
	}
	whole := (slices.Contains(old.ISR, p.Leader) || slices.Contains(old.ELR, p.Leader) || completed) &&
		dir(old, p.Leader) == dir(p, p.Leader) // else the operator has had it begin with nothing
	switch {
	case whole && (p.Loss == nil) != (old.Loss == nil), whole && p.Loss != nil && *p.Loss != *old.Loss:
		c.failf("%s: %d leads with all there is, and %+v is told: %+v", at, p.Leader, p.Loss, p)
	case !whole && (p.Loss == nil || p.Loss.Epoch != p.LeaderEpoch || p.Loss.Unclean == (p.Loss.From >= 0)):
		c.failf("%s: %d may lack something, and %+v is told: %+v", at, p.Leader, p.Loss, p)
	}
}

// recover ends the faults. Then everything is led and in sync within a bound.
func (c *cluster) recover() {
	whole := func() bool {
		for _, at := range c.partitions() {
			if p, t, _ := c.img.Partition(at); p.Leader == model.NoNode || len(p.ISR) < len(p.Replicas) || t.BelowTarget(p) {
				return false
			}
		}
		return true
	}
	for len(c.late) > 0 {
		c.arrive()
	}
	c.calm = true
	for round := range 100 {
		for id := range model.NodeID(4) {
			n := c.brokers[id+1]
			if n.up && n.leaves {
				c.kill(n)
			}
			if !n.up {
				c.start(n)
			}
			n.view = len(c.images) - 1
			c.beat(n)
			c.report(n)
			c.settle()
			n.view = len(c.images) - 1
			for _, at := range c.partitions() {
				c.write(n, at)
			}
			c.askISR(n)
			c.settle()
		}
		if whole() {
			return
		}
		if round == 50 {
			c.uncleanly()
		}
		c.elapse(200*time.Millisecond, false)
		c.settle()
	}
	for _, at := range c.partitions() {
		p, _, _ := c.img.Partition(at)
		c.note("%s: %+v", at, p)
	}
	c.failf("faults are over, and not everything is served")
}

// uncleanly is the operator's way out, where everybody who had everything is wiped.
func (c *cluster) uncleanly() {
	var stuck []model.Partition
	for _, at := range c.partitions() {
		p, _, _ := c.img.Partition(at)
		if p.Leader != model.NoNode {
			continue
		}
		stuck = append(stuck, at)
		for i, id := range p.Replicas {
			had := slices.Contains(p.ISR, id) || slices.Contains(p.ELR, id) || slices.Contains(p.LastKnownELR, id)
			if had && p.Directories[i] == (model.DirectoryID{c.brokers[id].dir}) {
				c.failf("%s: nobody leads, though %d could: %+v", at, id, p)
			}
		}
		c.note("%s: the operator has anybody lead", at)
		c.unclean[at], c.committed[at] = true, nil
	}
	c.ask(ElectLeaders{Partitions: stuck, Unclean: true}, nil)
	c.settle()
	clear(c.unclean)
}

// Whatever brokers and controllers do, and lose: epochs rise, an epoch has one leader, the
// ISR holds only whom it may, nobody is elected who lacks what clients were told of, what
// is replayed is what was decided, and in the end everything is served
// by as many as there are to be. One seed decides
// the same, byte for byte.
func TestClusterKeepsWhatWasCommitted(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 60
	}
	var sum [9]int
	run := func(t *testing.T, seed uint64) *cluster {
		c := newCluster(t, seed)
		for range 600 {
			c.turn()
		}
		c.recover()
		return c
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := run(t, seed)
			if seed%30 == 0 {
				if again := run(t, seed); !bytes.Equal(again.decided.Bytes(), c.decided.Bytes()) {
					t.Errorf("decided otherwise: %s", hex.EncodeToString(again.decided.Bytes()[:32]))
				}
			}
			for i, n := range []int{c.counts.commits, c.counts.elections, c.counts.eligible, c.counts.longest, c.counts.fenced, c.counts.isr, c.counts.reassigned, c.counts.shutdowns, c.counts.raised} {
				sum[i] += n
			}
		})
	}
	t.Logf("%d seeds: commits, elections, of the ELR, of the longest log, fenced, ISR changes, reassignments, shutdowns, raises: %v", seeds, sum)
	for i, n := range sum {
		if n < int(seeds)/4 {
			t.Errorf("count %d is %d of %d seeds: too little happened", i, n, seeds)
		}
	}
}
