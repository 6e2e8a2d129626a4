package controller

import (
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// A lease is measured in time for which this controller was awake: a step that comes
// later than it was asked for counts as a part of a lease alone. So a controller that was
// paused, or had no processor, gives everybody the time to be heard.
const (
	pulses   = 4 // steps that are asked for within a lease
	gapsLate = 2 // a step that is late counts as a lease divided by this
)

// life is what the active controller knows of a broker beside the metadata. All of it is
// forgotten with the leadership.
type life struct {
	epoch model.BrokerEpoch
	// until is when the lease is over, on the controller's own clock.
	until time.Duration
	// heard: the broker was heard by this controller, and not only given its lease.
	heard bool
	// offset is that of the metadata that the broker has, as it said last.
	offset int64
	// leaves is the offset of the metadata by which a broker that shuts down leads no
	// more, 0 where that is not known yet; and leavesBy when that is waited for no longer.
	leaves   int64
	leavesBy time.Duration
	// can: it can take replicas, or cannot, since then; settled is when it last could for as long
	// as is asked of one that is given some, in this life or one before, or was first heard of.
	can            bool
	since, settled time.Duration
}

// soft is what the active controller knows by itself.
type soft struct {
	awake time.Duration // for which it has led
	last  time.Time
	due   time.Time // when Due is to come
	lives map[model.NodeID]*life
	// nextRebalance is when preferred leaders are elected again, or 0: never.
	nextRebalance time.Duration
	raised        raisesSeen
	committed     *image.Image
	// reports are of partitions that wait for the longest log, for as long as they do.
	reports map[model.Partition][]logReport
}

func (m *Machine) advance(now time.Time) {
	if gap := now.Sub(m.soft.last); gap > 0 {
		m.soft.awake += min(gap, m.cfg.BrokerLease/gapsLate)
		m.soft.last = now
	}
}

// beginLeases gives every broker a whole lease, from now on.
func (m *Machine) beginLeases(now time.Time, img *image.Image) {
	m.soft = soft{last: now, due: now.Add(m.cfg.BrokerLease / pulses), lives: map[model.NodeID]*life{}, committed: img}
	for b := range img.Brokers() {
		m.soft.lives[b.ID] = &life{epoch: b.Epoch, until: m.cfg.BrokerLease}
	}
	if m.cfg.RebalanceEvery > 0 {
		m.soft.nextRebalance = m.cfg.RebalanceEvery
	}
}

// hear renews a broker's lease.
func (m *Machine) hear(id model.NodeID, epoch model.BrokerEpoch, offset int64) {
	l := m.soft.lives[id]
	if l == nil || l.epoch != epoch {
		next := &life{epoch: epoch, since: m.soft.awake, settled: m.soft.awake}
		if l != nil {
			next.settled = l.settled
		}
		l = next
		m.soft.lives[id] = l
	}
	l.heard, l.until, l.offset = true, m.soft.awake+m.cfg.BrokerLease, max(l.offset, offset)
}

// Deadline is when Due is to be stepped, if at all. Any Step may change it.
func (m *Machine) Deadline() (time.Time, bool) {
	return m.soft.due, m.leading
}

// due ends the leases that are over, all in one proposal, elects preferred leaders when it is
// time, and gives partitions below their target what brokers can take.
func (m *Machine) due(now time.Time, out *Effects) {
	if !m.leading || now.Before(m.soft.due) {
		return
	}
	m.soft.due = now.Add(m.cfg.BrokerLease / pulses)
	if m.barrier != 0 {
		return // the epoch of a registration is not known yet
	}
	d := m.decision()
	d.endLeases()
	if at := m.soft.nextRebalance; at != 0 && m.soft.awake >= at {
		if more := d.rebalance(); !more {
			m.soft.nextRebalance = m.soft.awake + m.cfg.RebalanceEvery
		}
	}
	d.raise()
	if !m.propose(d, out) {
		out.Notices = append(out.Notices, d.notices...) // such as that raises have come to their end
	}
}

func (d *decision) endLeases() {
	var over []model.NodeID
	for b := range d.img.Brokers() {
		if l := d.soft.lives[b.ID]; !b.Fenced && (l == nil || l.epoch != b.Epoch || l.until <= d.soft.awake) {
			over = append(over, b.ID)
		}
	}
	for _, id := range over {
		d.tell(Notice{Warn: true, Broker: id, Text: fmt.Sprintf("a broker is fenced: it was not heard for %v", d.cfg.BrokerLease)})
	}
	d.fence(over)
}

// fence fences brokers, and takes from them what they lead and where they are in sync.
func (d *decision) fence(ids []model.NodeID) {
	for _, id := range ids {
		if b, ok := d.img.Broker(id); ok {
			d.emit(&image.BrokerFenceRecord{ID: id, Epoch: b.Epoch, Fenced: true, ShuttingDown: b.ShuttingDown, Offline: b.Offline})
		}
	}
	if len(ids) > 0 {
		d.withoutBrokers(ids, asConfigured)
	}
}
