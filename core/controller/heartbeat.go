package controller

import (
	"fmt"
	"slices"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// heartbeat answers a heartbeat that changes nothing, at once: also while changes of the
// metadata wait to be committed, since a broker that waits for them is not heard of
// meanwhile. Its answer is what is committed.
func (m *Machine) heartbeat(c Command, beat Heartbeat, out *Effects) bool {
	b, ok := m.next.Broker(beat.Broker)
	if !ok || b.Epoch != beat.Epoch {
		return false
	}
	m.hear(beat.Broker, beat.Epoch, beat.Offset)
	known, ok := m.soft.committed.Broker(beat.Broker)
	if !ok || known.Epoch != beat.Epoch || m.decision().wants(b, beat) || !slices.Equal(offline(known, beat), known.Offline) {
		return false
	}
	answer := answerTo(known, beat)
	answer.Offset = m.soft.committed.Offset
	out.Respond = append(out.Respond, Response{c.ID, Answer{Heartbeat: answer}})
	return true
}

func answerTo(b *image.Broker, beat Heartbeat) HeartbeatAnswer {
	return HeartbeatAnswer{
		Fenced:       b.Fenced,
		CaughtUp:     beat.Offset >= int64(b.Epoch),
		MayShutDown:  beat.WantShutdown && b.Fenced,
		ShuttingDown: b.ShuttingDown,
	}
}

// wants says whether a heartbeat is to change the metadata.
func (d *decision) wants(b *image.Broker, beat Heartbeat) bool {
	switch {
	case !slices.Equal(offline(b, beat), b.Offline):
		return true
	case b.Fenced:
		return mayServe(b, beat)
	}
	return beat.WantFence || beat.WantShutdown || b.ShuttingDown
}

// mayServe says whether a fenced broker is to be unfenced. One that has begun to shut down
// comes back with another registration: what it said before may arrive late.
func mayServe(b *image.Broker, beat Heartbeat) bool {
	return !b.ShuttingDown && !beat.WantFence && !beat.WantShutdown && beat.Offset >= int64(b.Epoch)
}

// offline are the directories that a heartbeat says do not serve, in the order of the
// registration.
func offline(b *image.Broker, beat Heartbeat) []model.DirectoryID {
	var out []model.DirectoryID
	for _, dir := range b.Directories {
		if slices.Contains(beat.Offline, dir) {
			out = append(out, dir)
		}
	}
	return out
}

// beat does what a heartbeat asks for. (KIP-631)
func (d *decision) beat(op Heartbeat) Answer {
	b, err := d.broker(op.Broker, op.Epoch)
	if err != nil {
		return Answer{Err: err}
	}
	d.directories(b, op)
	b, _ = d.img.Broker(op.Broker)
	switch {
	case b.Fenced && mayServe(b, op):
		d.emit(&image.BrokerFenceRecord{ID: b.ID, Epoch: b.Epoch, Offline: b.Offline})
		d.electLeaderless()
	case b.Fenced:
	case op.WantFence:
		d.fence([]model.NodeID{b.ID})
	case op.WantShutdown || b.ShuttingDown:
		d.shutDown(b)
	}
	b, _ = d.img.Broker(op.Broker)
	return Answer{Heartbeat: answerTo(b, op)}
}

// directories notes which directories of a broker serve, and takes away what is in those
// that do not. (KIP-858)
func (d *decision) directories(b *image.Broker, op Heartbeat) {
	now := offline(b, op)
	if slices.Equal(now, b.Offline) {
		return
	}
	d.emit(&image.BrokerFenceRecord{ID: b.ID, Epoch: b.Epoch, Fenced: b.Fenced, ShuttingDown: b.ShuttingDown, Offline: now})
	for _, dir := range now {
		if !slices.Contains(b.Offline, dir) {
			d.tell(Notice{Warn: true, Broker: b.ID, Text: fmt.Sprintf("a directory does not serve: what it holds is led by others (%s)", dir)})
		}
	}
	d.eachPartition(func(t *image.Topic, n int32, p *image.Partition) *edit {
		if !slices.Contains(p.Replicas, b.ID) || d.online(p, b.ID) || !slices.Contains(p.ISR, b.ID) && p.Leader != b.ID {
			return nil
		}
		e := d.edit(t, n)
		e.mode = asConfigured
		e.leave(func(id model.NodeID) bool { return id == b.ID })
		return e
	})
	d.electLeaderless()
}

// shutDown takes from a broker that wants to stop what others can lead, and lets it go
// when they all have heard of it. (KIP-631, KIP-841)
func (d *decision) shutDown(b *image.Broker) {
	if !b.ShuttingDown {
		d.emit(&image.BrokerFenceRecord{ID: b.ID, Epoch: b.Epoch, ShuttingDown: true, Offline: b.Offline})
		d.tell(Notice{Broker: b.ID, Text: "a broker shuts down: others lead what they can"})
	}
	before := len(d.records)
	d.withoutBrokers([]model.NodeID{b.ID}, cleanOnly)
	l := d.soft.lives[b.ID]
	switch {
	case l == nil:
	case !b.ShuttingDown || len(d.records) > before:
		l.leaves = 0
	case l.leaves == 0:
		if d.img == d.soft.committed {
			l.leaves, l.leavesBy = d.img.Offset, d.soft.awake+d.cfg.ShutdownMax
		}
	}
	if l != nil && l.leaves != 0 && (d.soft.awake >= l.leavesBy || d.allKnow(b.ID, l.leaves)) {
		d.fence([]model.NodeID{b.ID})
	}
}

// allKnow says whether all brokers that serve, but one, have the metadata up to an offset.
func (d *decision) allKnow(but model.NodeID, offset int64) bool {
	for b := range d.img.Brokers() {
		l := d.soft.lives[b.ID]
		if b.ID != but && d.alive(b.ID) && (l == nil || l.epoch != b.Epoch || l.offset < offset) {
			return false
		}
	}
	return true
}
