package controller

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// watch notes since when each broker can take replicas, or cannot, and when it last had settled.
func (d *decision) watch() {
	for b := range d.img.Brokers() {
		l := d.soft.lives[b.ID]
		if l == nil {
			continue
		}
		if can := l.epoch == b.Epoch && d.alive(b.ID) && stores(b); can != l.can {
			l.can, l.since = can, d.soft.awake
		}
		if d.settled(b.ID) {
			l.settled = d.soft.awake
		}
	}
}

// settled says whether a broker has been there for long enough to be given replicas: one that
// comes and goes is not to be filled again and again.
func (d *decision) settled(n model.NodeID) bool {
	l := d.soft.lives[n]
	return l != nil && l.can && d.soft.awake-l.since >= d.cfg.RaiseAfter
}

// away says whether a broker has been gone for so long, or has come and gone without settling, that
// another one is to take its place in a raise; known, that it is registered.
func (d *decision) away(n model.NodeID) (away, known bool) {
	if _, known = d.img.Broker(n); !known {
		return true, false
	}
	l := d.soft.lives[n]
	return l != nil && !d.settled(n) && d.soft.awake-l.settled >= d.cfg.RaiseAway, true
}

// raise gives partitions that are below their target one more replica each, as brokers allow
// it: by reassignments that add one and remove none (KIP-455), so that any controller goes on
// with them. What an operator reassigns is left alone. At most RaisesMax are under way at
// once, of the internal topics first: these are few, and all of them would be slow together.
func (d *decision) raise() {
	d.watch()
	r := d.raises()
	if r.looksLikeLast() {
		return
	}
	began := 0
	if len(r.below) > 0 && len(r.seats) > 0 || len(r.away) > 0 {
		r.weigh()
		r.giveUp()
		began = r.begin()
	}
	r.remember(began)
}

// raisesSeen is what was there when it was looked last.
type raisesSeen struct {
	img         *image.Image
	seats, away int
	active      bool // raises were under way
}

// raises is what there is to raise, and with whom.
type raises struct {
	d        *decision
	below    []*image.Topic // with partitions that can be raised, the internal ones first
	count    int            // partitions that are below their target
	underWay int
	away     []model.Partition // under way, with a broker that has gone
	seats    []seat            // brokers that may be given replicas, by ID
	load     map[model.NodeID]int
	firsts   map[model.NodeID]int
	all      int // partitions
}

// raises looks at all partitions.
func (d *decision) raises() *raises {
	r := &raises{d: d}
	emptied := map[model.NodeID]bool{} // an operator takes replicas from them
	for t := range d.img.Topics() {
		wants := false
		for i := range t.Partitions {
			p := &t.Partitions[i]
			for _, n := range p.Removing {
				emptied[n] = true
			}
			if !t.BelowTarget(p) {
				continue
			}
			r.count++
			switch {
			case p.Raised:
				r.underWay++
				if away, _ := d.away(p.Adding[0]); away {
					r.away = append(r.away, model.Partition{Topic: t.ID, Index: int32(i)})
				}
			case raisable(p):
				wants = true
			}
		}
		if wants {
			r.below = append(r.below, t)
		}
	}
	slices.SortStableFunc(r.below, func(a, b *image.Topic) int { return cmp.Compare(raiseRank(a), raiseRank(b)) })
	for b := range d.img.Brokers() {
		if d.settled(b.ID) && !emptied[b.ID] {
			r.seats = append(r.seats, seat{b.ID, b.Rack})
		}
	}
	return r
}

// raisable says whether a partition can be given a replica now, where it is below its target.
func raisable(p *image.Partition) bool {
	return len(p.Adding) == 0 && len(p.Removing) == 0 && p.Leader != model.NoNode
}

// raiseRank is what comes first: without offsets no group goes on.
func raiseRank(t *image.Topic) int {
	switch {
	case t.Name == model.OffsetsTopic:
		return 0
	case t.Internal:
		return 1
	}
	return 2
}

// looksLikeLast says whether nothing has changed since it was last looked, and nothing was to
// be done.
func (r *raises) looksLikeLast() bool {
	last := r.d.soft.raised
	return last.img == r.d.img && last.seats == len(r.seats) && last.away == len(r.away)
}

// remember keeps what was seen, and says aloud when raising begins and ends.
func (r *raises) remember(began int) {
	s := &r.d.soft.raised
	switch now := r.underWay+began > 0; {
	case now && !s.active:
		s.active = true
		r.d.tell(Notice{Broker: model.NoNode, Text: fmt.Sprintf("%d partitions have fewer replicas than they should: they are given more", r.count)})
	case !now && s.active && r.count == 0:
		s.active = false
		r.d.tell(Notice{Broker: model.NoNode, Text: "all partitions have as many replicas as they should"})
	case !now && s.active:
		s.active = false
		r.d.tell(Notice{Broker: model.NoNode, Text: fmt.Sprintf("%d partitions still have fewer replicas than they should, and there is no other broker for them", r.count)})
	}
	s.img, s.seats, s.away = r.d.img, len(r.seats), len(r.away)
}

// weigh counts what brokers have.
func (r *raises) weigh() {
	r.load, r.firsts = map[model.NodeID]int{}, map[model.NodeID]int{}
	for t := range r.d.img.Topics() {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			for _, n := range p.Replicas {
				r.load[n]++
			}
			r.firsts[p.Replicas[0]]++
			r.all++
		}
	}
}

// giveUp ends raises with brokers that have gone, where another one is there, or the
// broker is not registered any more. What counts on the replica that was being added keeps it.
func (r *raises) giveUp() {
	var records []image.Record
	for _, at := range r.away {
		p, t, _ := r.d.img.Partition(at)
		_, known := r.d.away(p.Adding[0])
		if _, other := r.choose(p); known && !other || counts(p, p.Adding[0]) {
			continue
		}
		r.d.tellGone(p.Adding[0], t.Name, at.Index)
		e := r.d.edit(t, at.Index)
		e.assign(without(p.Replicas, func(n model.NodeID) bool { return slices.Contains(p.Adding, n) }))
		e.next.Adding = nil
		records = append(records, e.finish())
		r.underWay--
	}
	r.d.emit(records...)
}

// tellGone says aloud that a raise goes on with another broker.
func (d *decision) tellGone(broker model.NodeID, topic string, index int32) {
	const text = "a broker has gone to which replicas were being copied: another one is to have them"
	for i := range d.notices {
		if n := &d.notices[i]; n.Broker == broker && n.Topic == topic && n.Text == text {
			n.Partitions = append(n.Partitions, index)
			return
		}
	}
	d.tell(Notice{Warn: true, Broker: broker, Topic: topic, Partitions: []int32{index}, Text: text})
}

// counts says whether a replica is one of those of which one has to stay, or leads.
func counts(p *image.Partition, n model.NodeID) bool {
	return p.Leader == n || slices.Contains(p.ISR, n) || slices.Contains(p.ELR, n) || slices.Contains(p.LastKnownELR, n)
}

// begin begins as many raises as may be under way, and says how many.
func (r *raises) begin() int {
	var records []image.Record
	room := r.d.cfg.RaisesMax - r.underWay
	began := 0
	for _, t := range r.below {
		var firsts map[model.NodeID]int // of the topic
		for i := range t.Partitions {
			if began >= room {
				break
			}
			p := &t.Partitions[i]
			if !t.BelowTarget(p) || !raisable(p) {
				continue
			}
			to, ok := r.choose(p)
			if !ok {
				continue
			}
			if firsts == nil {
				firsts = firstsOf(t)
			}
			e := r.d.edit(t, int32(i))
			e.assign(r.order(p, to, firsts, len(t.Partitions)))
			e.next.Adding, e.next.Raised = []model.NodeID{to}, true
			records = append(records, e.finish(), &image.PartitionTargetRecord{Partition: e.at, Chosen: p.Chosen, Raised: true})
			r.load[to]++
			began++
		}
	}
	r.d.emit(records...)
	return began
}

func firstsOf(t *image.Topic) map[model.NodeID]int {
	firsts := map[model.NodeID]int{}
	for i := range t.Partitions {
		firsts[t.Partitions[i].Replicas[0]]++
	}
	return firsts
}

// choose is the broker that a partition is to have beside those that it has: in the rack that
// has the fewest of them, and of those the one that has the least.
func (r *raises) choose(p *image.Partition) (model.NodeID, bool) {
	if !slices.ContainsFunc(r.seats, func(s seat) bool { return !slices.Contains(p.Replicas, s.id) }) {
		return model.NoNode, false
	}
	inRack := map[string]int{}
	for _, n := range p.Replicas {
		if b, ok := r.d.img.Broker(n); ok {
			inRack[b.Rack]++
		}
	}
	free := slices.DeleteFunc(slices.Clone(r.seats), func(s seat) bool { return slices.Contains(p.Replicas, s.id) })
	return best(free, 0, func(s seat) (int, bool) { return inRack[s.rack]*(1<<32) + r.load[s.id], false }).id, true
}

// order is the assignment with another broker. It is the first, so that it leads, where of the
// topic, and else of all, the one that is the first leads more than its share.
func (r *raises) order(p *image.Partition, to model.NodeID, firsts map[model.NodeID]int, partitions int) []model.NodeID {
	first := p.Replicas[0]
	share := func(of int) int { return (of + len(r.seats) - 1) / len(r.seats) }
	over := func(firsts map[model.NodeID]int, of int) bool {
		return firsts[first] > share(of) && firsts[to] < share(of)
	}
	leads := over(firsts, partitions) || firsts[first] > firsts[to] && over(r.firsts, r.all)
	if !leads {
		return append(slices.Clone(p.Replicas), to)
	}
	firsts[first]--
	firsts[to]++
	r.firsts[first]--
	r.firsts[to]++
	return append([]model.NodeID{to}, p.Replicas...)
}

// raised says whether a raise has come to its end: who was added is in sync, and there are as
// many in sync as are asked for of so many replicas. Others may be away meanwhile.
func (e *edit) raised() bool {
	p := &e.next
	for _, n := range p.Adding {
		if !slices.Contains(p.ISR, n) {
			return false
		}
	}
	return len(p.ISR) >= e.d.minISR(e.t, len(p.Replicas))
}

// chosen is how many replicas a partition is to have by an operator's word: fewer than its
// topic's target, where it is given fewer than it has, or is not to get the one that the
// controller is adding. It ends when it is given more. (KIP-455)
func chosen(t *image.Topic, was *image.Partition, asked []model.NodeID) int16 {
	n := len(asked)
	if asked == nil {
		n = was.Counted()
	}
	switch {
	case n >= int(t.ReplicationFactorTarget):
		return 0
	case n < was.Counted() || was.Raised && asked == nil:
		return int16(n)
	case n > int(was.Chosen):
		return 0
	}
	return was.Chosen
}
