package group

import (
	"errors"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// Bounds of what may be under way of one machine before no more is written. A broker has
// one for each partition of the offsets topic that it leads: 50 of them where it is alone.
const (
	writesMax     = 16 << 10
	writeBytesMax = 16 << 20
)

// writes are those under way, in the order of asking.
type writes struct {
	last  WriteID
	queue []*write
	bytes int
	kept  int // bytes that are counted for them
}

// write is one. What it does to the state, and who is answered, is its outcome's.
type write struct {
	id      WriteID
	group   *group
	bytes   int
	kept    int // what it is counted as
	outcome outcome
	done    bool
	err     error
	alarm   alarm
}

// outcome is what follows from a write.
type outcome interface {
	// written applies the write: it is durable, or with err it has not happened.
	written(m *Machine, now time.Time, err error, out *Effects)
	// late tells those who wait that it takes too long, and reports whether others
	// may come to wait for it.
	late(m *Machine, now time.Time, err error, out *Effects) bool
	// abandon answers those that wait for nothing but this write.
	abandon(err error, out *Effects)
}

// write asks for records to be written.
func (m *Machine) write(now time.Time, g *group, records []Record, o outcome, out *Effects) *write {
	m.writes.last++
	var w *write
	if c, ok := o.(*commitment); ok {
		w = &c.own // commits come so often that they are used again, see settle
	} else {
		w = &write{}
	}
	w.id, w.group, w.outcome = m.writes.last, g, o
	w.alarm.owner = w
	for i := range records {
		w.bytes += len(records[i].Key) + len(records[i].Value)
	}
	m.hold(w, writeBytes+len(records)*recordBytes+2*w.bytes)
	m.writes.bytes += w.bytes
	m.writes.queue = append(m.writes.queue, w)
	g.writes++
	m.alarms.set(&w.alarm, now.Add(m.settings.CommitTimeout))
	out.Writes = append(out.Writes, Write{Gen: m.gen, ID: w.id, Epoch: m.epoch, Records: records})
	return w
}

// full refuses what clients ask to be written while too much is under way.
func (m *Machine) full() error {
	if !m.writesFit() {
		return fmt.Errorf("groups have as much under way to the log as `memory` allows: %w", model.ErrCoordinatorNotAvailable)
	}
	if len(m.writes.queue) < writesMax && m.writes.bytes < writeBytesMax {
		return nil
	}
	return fmt.Errorf("%d writes of %d bytes are under way: %w", len(m.writes.queue), m.writes.bytes, model.ErrCoordinatorNotAvailable)
}

// written takes a completion. Writes are applied in the order of asking.
func (m *Machine) written(now time.Time, in *Written, out *Effects) {
	if in.Gen != m.gen || len(m.writes.queue) == 0 || in.ID < m.writes.queue[0].id {
		return
	}
	at := in.ID - m.writes.queue[0].id
	if at >= WriteID(len(m.writes.queue)) {
		return
	}
	m.writes.queue[at].done, m.writes.queue[at].err = true, in.Err
	for len(m.writes.queue) > 0 && m.writes.queue[0].done {
		w := m.writes.queue[0]
		m.writes.queue[0] = nil
		if len(m.writes.queue) > 1 {
			m.writes.queue = m.writes.queue[1:]
		} else {
			m.writes.queue = m.writes.queue[:0] // its room is used again
		}
		m.settle(now, w, out)
	}
}

// settle applies one write.
func (m *Machine) settle(now time.Time, w *write, out *Effects) {
	m.alarms.cancel(&w.alarm)
	m.writes.bytes -= w.bytes
	m.keepWrite(-w.kept)
	w.group.writes--
	if w.err != nil {
		out.Notices = append(out.Notices, Notice{Kind: NoticeRefused, Group: w.group.id, Err: w.err, Text: "a write was refused"})
	}
	w.outcome.written(m, now, refusal(w.err), out)
	if m.groups[w.group.id] == w.group {
		m.vanish(w.group)
	}
	if c, ok := w.outcome.(*commitment); ok {
		m.putCommitment(c)
	}
}

// ring: the write takes long.
func (w *write) ring(m *Machine, now time.Time, out *Effects) {
	err := fmt.Errorf("a write has taken %s: %w", m.settings.CommitTimeout, model.ErrCoordinatorNotAvailable)
	if w.outcome.late(m, now, err, out) {
		m.alarms.set(&w.alarm, now.Add(max(m.settings.CommitTimeout, againMin)))
	}
}

// refusal is what clients are told of a write's error: that it is worth coming back
// here, or looking for another coordinator. The error itself is in the text alone, since
// clients know no other codes, but for what never fits, of which neither is true.
func refusal(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, model.ErrMessageTooLarge), errors.Is(err, model.ErrRecordListTooLarge):
		return fmt.Errorf("the group's record is too large to be written: %w", err)
	case errors.Is(err, model.ErrNotLeaderOrFollower), errors.Is(err, model.ErrStorage), errors.Is(err, model.ErrNotCoordinator):
		return fmt.Errorf("write to the offsets topic: %s: %w", err.Error(), model.ErrNotCoordinator)
	case errors.Is(err, model.ErrCoordinatorLoading):
		return fmt.Errorf("write to the offsets topic: %s: %w", err.Error(), model.ErrCoordinatorLoading)
	}
	return fmt.Errorf("write to the offsets topic: %s: %w", err.Error(), model.ErrCoordinatorNotAvailable)
}
