package partition

import (
	"errors"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// metadata is what the controller says of the partition.
type metadata struct {
	leader         model.NodeID
	epoch          model.LeaderEpoch
	partitionEpoch model.PartitionEpoch
	isr            []model.NodeID
	replicas       []model.NodeID
}

// controller changes the ISR by compare and set, elects only from it, and fences brokers
// that it has not heard from.
type controller struct {
	c *cluster
	metadata
	version int
	epochs  []model.BrokerEpoch
	fenced  []bool
	drawn   model.BrokerEpoch
	// alone: its leader has asked to be the only one in sync, and is.
	alone bool
}

// clusterLease is for how long a broker may be silent.
const clusterLease = 100 * time.Millisecond

func newController(c *cluster, n int) *controller {
	all := assignment(n)
	return &controller{c: c, version: 1, epochs: make([]model.BrokerEpoch, n), fenced: make([]bool, n),
		metadata: metadata{leader: 1, epoch: 1, partitionEpoch: 1, isr: slices.Clone(all), replicas: all}}
}

// register begins a life of a broker. What it had acknowledged in the one before may be
// gone: it leaves the ISR, unless it is the last of it.
func (k *controller) register(h *host, again bool) model.BrokerEpoch {
	k.drawn++
	if again {
		// It has heard of those that died before, or will have before anybody leads: that
		// more than one is away is not what this controller is about. (KIP-966)
		for _, o := range k.c.hosts {
			if !o.alive && o.diedAt.Before(h.diedAt) {
				k.fence(o)
			}
		}
		k.fence(h)
		h.in(k.c.between(5, 30), func() { k.unfence(h) })
	}
	k.epochs[h.index] = k.drawn
	k.tell(h)
	return k.drawn
}

func (k *controller) fence(h *host) {
	if k.fenced[h.index] {
		return
	}
	k.fenced[h.index] = true
	if at := slices.Index(k.isr, h.id); at >= 0 && len(k.isr) > 1 {
		k.isr = slices.Delete(slices.Clone(k.isr), at, at+1)
	}
	k.elect()
	k.commit()
}

func (k *controller) unfence(h *host) {
	if !k.fenced[h.index] || h.cutUntil.After(k.c.now) {
		return
	}
	k.fenced[h.index] = false
	if k.leader == model.NoNode && slices.Contains(k.isr, h.id) {
		k.elect()
		k.commit()
	}
}

// elect keeps a leader that is in sync and there, or takes another one.
func (k *controller) elect() {
	var able []model.NodeID
	for _, id := range k.isr {
		if !k.fenced[id-1] {
			able = append(able, id)
		}
	}
	if slices.Contains(able, k.leader) {
		return
	}
	old := k.leader
	k.leader = model.NoNode
	if len(able) > 0 {
		k.leader = able[k.c.rng.IntN(len(able))]
	}
	if old != k.leader {
		k.epoch++
		if old != model.NoNode && k.c.hosts[old-1].registered {
			k.c.stats.zombies++
		}
	}
}

// take has a follower removed from the assignment, and given back a little later.
func (k *controller) take(h *host) {
	at := slices.Index(k.replicas, h.id)
	// What a leader that has lost its power may have had in no other memory is not deleted.
	if at < 0 || !k.c.spares(h) || h.id == k.leader || len(k.replicas) < 3 || k.leader == model.NoNode || !k.c.hosts[k.leader-1].registered {
		return
	}
	k.replicas = slices.Delete(slices.Clone(k.replicas), at, at+1)
	if at := slices.Index(k.isr, h.id); at >= 0 {
		if len(k.isr) == 1 {
			k.replicas = append(k.replicas, h.id)
			return
		}
		k.isr = slices.Delete(slices.Clone(k.isr), at, at+1)
	}
	k.commit()
	k.c.after(k.c.between(0, 60), func() { k.give(h) })
}

func (k *controller) give(h *host) {
	if !slices.Contains(k.replicas, h.id) {
		k.replicas = append(slices.Clone(k.replicas), h.id)
		k.commit()
	}
}

// move makes another one of the ISR the leader.
func (k *controller) move() {
	to := k.isr[k.c.rng.IntN(len(k.isr))]
	if to != k.leader && !k.fenced[to-1] {
		k.leader = to
		k.epoch++
		k.commit()
	}
}

func (k *controller) commit() {
	k.alone = k.alone && len(k.isr) == 1
	k.partitionEpoch++
	k.version++
	if k.c.trace != nil {
		k.c.trace("controller: leader %d, epoch %d, partition epoch %d, in sync %v; fenced %v", k.leader, k.epoch, k.partitionEpoch, k.isr, k.fenced)
	}
	for _, h := range k.c.hosts {
		h.lacks = h.lacks && (h.fell || slices.Contains(k.isr, h.id))
		if h.registered {
			k.tell(h)
		}
	}
}

// tell brings the metadata to a broker, after a while.
func (k *controller) tell(h *host) {
	meta, version := k.metadata, k.version
	d := k.c.between(0, 10)
	if k.c.chance(0.1) {
		d = k.c.between(10, 100)
	}
	h.in(d, func() { k.arrive(h, version, &meta) })
}

func (k *controller) arrive(h *host, version int, meta *metadata) {
	if h.cutUntil.After(k.c.now) {
		h.when(h.cutUntil, func() { k.arrive(h, version, meta) })
		return
	}
	h.apply(version, meta)
}

// ask takes a leader's question, which may be lost, or answered late, or both.
func (k *controller) ask(h *host, q AlterISR) {
	answered := false
	answer := func(in Altered) {
		if !answered {
			answered = true
			in.Epoch, in.PartitionEpoch, in.Lost = q.Epoch, q.PartitionEpoch, q.Lost
			h.step(&in)
		}
	}
	if len(q.ISR) == 1 && h.faulty(0.7) {
		// Its question is on its way, or has been granted.
		k.c.after(k.c.between(0, 10), func() { k.c.kill(h, true) })
	}
	h.in(80*time.Millisecond, func() { answer(Altered{Outcome: OutcomeUnknown, Err: errors.New("no answer")}) })
	if h.cutUntil.After(k.c.now) || h.faulty(0.05) {
		return
	}
	d := k.c.between(0, 8)
	if h.faulty(0.15) {
		d = k.c.between(50, 400)
	}
	epoch := h.brokerEpoch
	k.c.after(d, func() {
		in := k.alter(h, epoch, &q)
		if !h.faulty(0.05) && !h.cutUntil.After(k.c.now) {
			h.later(func() { answer(in) })
		}
	})
}

// alter commits another ISR, or says why not. (D5 to D9)
func (k *controller) alter(h *host, epoch model.BrokerEpoch, q *AlterISR) Altered {
	switch {
	case q.Epoch > k.epoch || q.PartitionEpoch > k.partitionEpoch:
		k.c.fail("broker %d knows epochs %d and %d, the controller %d and %d", h.id, q.Epoch, q.PartitionEpoch, k.epoch, k.partitionEpoch)
	case q.Epoch < k.epoch || q.PartitionEpoch < k.partitionEpoch || h.id != k.leader || epoch != k.epochs[h.index]:
		return Altered{Outcome: OutcomeStale, Err: errors.New("behind")}
	}
	isr := make([]model.NodeID, 0, len(q.ISR))
	for _, member := range q.ISR {
		at := member.Node - 1
		known := member.Epoch == k.epochs[at] || member.Epoch == model.NoBrokerEpoch && slices.Contains(k.isr, member.Node)
		if !slices.Contains(k.replicas, member.Node) {
			k.c.fail("broker %d asks for broker %d, which is not one of the replicas %v", h.id, member.Node, k.replicas)
		}
		if k.fenced[at] || !known {
			return Altered{Outcome: OutcomeIneligible, Err: errors.New("not now")}
		}
		isr = append(isr, member.Node)
	}
	for _, id := range q.Lost {
		if !k.c.hosts[id-1].lacks {
			k.c.fail("broker %d says that broker %d has lost something", h.id, id)
		}
	}
	if slices.Contains(q.Lost, h.id) {
		k.c.stats.resigned++
		k.leader = model.NoNode
		if len(isr) == 0 {
			isr = []model.NodeID{h.id} // nobody else has more
		}
		k.isr = isr
		k.elect()
		k.commit()
		return Altered{Outcome: OutcomeStale, Err: errors.New("another leader")}
	}
	if isr[0] != h.id {
		k.c.fail("broker %d asks for an ISR without itself", h.id)
	}
	for _, id := range isr {
		if !slices.Contains(k.isr, id) {
			h.has(k.c.hosts[id-1], k.c.deleted, h.hw)
		}
	}
	switch {
	case len(isr) > len(k.isr):
		k.c.stats.grown++
	case len(isr) < len(k.isr):
		k.c.stats.shrunk++
	}
	k.alone = k.alone || len(isr) == 1 && len(k.isr) > 1
	k.isr = isr
	k.commit()
	return Altered{Outcome: OutcomeDone, NewPartitionEpoch: k.partitionEpoch, ISR: isr}
}

// producing is an idempotent producer that sends one batch after the other, again and
// again until it is acknowledged.
type producing struct {
	c       *cluster
	id      int64
	next    int32
	waits   bool
	offsets map[int32]int64
	batch   recordbatch.Info
}

func (p *producing) done() bool { return p.c.calm && !p.waits }

func (p *producing) send() {
	if p.c.calm && !p.waits {
		return
	}
	if !p.waits {
		p.waits = true
		p.batch = p.c.batch()
		p.batch.ProducerID, p.batch.BaseSequence = p.id, p.next
		p.batch.LastOffset, p.batch.Records = 0, 1
	}
	h := p.c.target()
	if h == nil {
		p.c.after(p.c.between(5, 20), p.send)
		return
	}
	h.append1(p.batch, model.AcksAll, func(r Response) {
		switch {
		case errors.Is(r.Err, model.ErrOutOfOrderSequence) && r.Epoch == p.c.ctl.epoch && p.offsets[p.next-1] >= p.c.deleted:
			// A leader of before knows no better, nor does one that has refused a batch of
			// which the records were deleted.
			p.c.fail("producer %d, sequence %d: %w", p.id, p.next, r.Err)
		case r.Err == nil:
			p.offsets[p.next] = r.BaseOffset
			p.next++
			p.waits = false
		}
		p.c.after(p.c.between(5, 25), p.send)
	})
}

// check wants every batch in the log once, in order, where it was acknowledged.
func (p *producing) check(h *host) {
	want := int32(0)
	for i := range h.log {
		b := &h.log[i]
		if b.ProducerID != p.id {
			continue
		}
		for want < b.BaseSequence && p.offsets[want] < p.c.deleted {
			want++
		}
		if b.BaseSequence != want || p.offsets[want] != b.BaseOffset {
			p.c.fail("producer %d: offset %d has sequence %d; %d is next, acknowledged at %d", p.id, b.BaseOffset, b.BaseSequence, want, p.offsets[want])
			return
		}
		want++
	}
}

// batch is one that nobody has sent before.
func (c *cluster) batch() recordbatch.Info {
	c.values++
	n := int32(1 + c.rng.IntN(3))
	return recordbatch.Info{LastOffset: int64(n - 1), Records: n, Bytes: 100 * n, ProducerID: -1, BaseSequence: -1, MaxTimestamp: c.values}
}

// target is the broker that a client takes for the leader, if it answers.
func (c *cluster) target() *host {
	id := c.ctl.leader
	if id == model.NoNode || c.chance(0.15) {
		id = model.NodeID(1 + c.rng.IntN(len(c.hosts)))
	}
	if h := c.hosts[id-1]; h.alive && !h.absent && !h.pausedUntil.After(c.now) {
		return h
	}
	return nil
}

// append1 sends one batch to this broker.
func (h *host) append1(b recordbatch.Info, acks model.Acks, done func(Response)) {
	id := h.payloadOf(&payload{batches: []recordbatch.Info{b}, acks: acks, done: done})
	h.step(&Append{ID: id, Batch: b, Acks: acks, Deadline: h.c.now.Add(150 * time.Millisecond), LogAppendTime: -1})
}

// clients send until things are calm.
func (c *cluster) clients() {
	for _, p := range c.producers {
		c.after(c.between(1, 20), p.send)
	}
	var plain func()
	plain = func() {
		if c.calm {
			return
		}
		if h := c.target(); h != nil {
			h.append1(c.batch(), []model.Acks{model.AcksAll, model.AcksAll, model.AcksLeader}[c.rng.IntN(3)], nil)
		}
		d := c.between(1, 15)
		if c.chance(0.03) {
			d = c.between(50, 200) // elections without records
		}
		c.after(d, plain)
	}
	c.after(c.between(1, 20), plain)
}
