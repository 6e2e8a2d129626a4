package group

import (
	"fmt"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// load asks for the log.
func (m *Machine) load(out *Effects) {
	m.forget()
	m.gen++
	m.phase, m.newest = phaseLoading, 0
	out.Load = &Load{Gen: m.gen}
}

// replay takes records of the log. One that cannot be read changes nothing: an offset
// that an earlier record has is better than none.
func (m *Machine) replay(in *Replay, out *Effects) {
	if in.Gen != m.gen || m.phase != phaseLoading {
		return
	}
	var first error
	bad := 0
	for i := range in.Records {
		r := &in.Records[i]
		m.newest = max(m.newest, r.Timestamp)
		if err := m.replayOne(r); err != nil {
			if bad++; first == nil {
				first = err
			}
		}
	}
	if bad > 0 {
		out.Notices = append(out.Notices, Notice{Kind: NoticePassedOver, Count: bad, Err: first, Text: "records of the log cannot be read"})
	}
}

// replayOne applies one record.
func (m *Machine) replayOne(r *Record) error {
	version, err := versionOf(r.Key, keyGroup)
	if err != nil {
		return fmt.Errorf("key: %w", err)
	}
	if version == keyGroup {
		var k kmsg.GroupMetadataKey
		if err := k.ReadFrom(r.Key); err != nil {
			return fmt.Errorf("read the key of a group: %w", err)
		}
		return m.replayGroup(k.Group, r.Value)
	}
	var k kmsg.OffsetCommitKey
	if err := k.ReadFrom(r.Key); err != nil {
		return fmt.Errorf("read the key of an offset: %w", err)
	}
	return m.replayOffset(k.Group, model.TopicPartition{Topic: k.Topic, Partition: k.Partition}, r.Value)
}

func (m *Machine) replayOffset(id string, key model.TopicPartition, value []byte) error {
	g, ok := m.groups[id]
	if value == nil {
		if ok {
			m.dropOffset(g, key)
			delete(g.offsets, key)
			g.offsets = trim(g.offsets, &g.widest.offsets)
			m.vanish(g)
		}
		return nil
	}
	c, err := decodeOffset(value)
	if err != nil {
		return fmt.Errorf("%s-%d of group %q: %w", key.Topic, key.Partition, id, err)
	}
	if !ok {
		g = m.addGroup(id, time.UnixMilli(c.at))
	}
	m.setOffset(g, key, c)
	return nil
}

func (m *Machine) replayGroup(id string, value []byte) error {
	old, ok := m.groups[id]
	if value == nil {
		if ok {
			m.install(newGroup(id), old)
			m.vanish(m.groups[id])
		}
		return nil
	}
	g, err := decodeGroup(id, value)
	if err != nil {
		return err
	}
	if !ok {
		old = m.addGroup(id, time.UnixMilli(g.since))
	}
	m.install(g, old)
	return nil
}

// install puts a group in the place of another, whose offsets it takes.
func (m *Machine) install(g, old *group) {
	g.offsets, g.widest.offsets, g.index = old.offsets, old.widest.offsets, old.index
	m.order[g.index] = g
	m.groups[g.id] = g
	// What is the old one's is given back, but for the offsets.
	for _, mem := range old.members {
		m.keep(old, -mem.kept)
	}
	m.keep(old, -old.topicsKept)
	g.kept, old.kept, old.dropped = old.kept, 0, true
	for _, mem := range g.members {
		m.measure(mem)
	}
	m.measureTopics(g)
}

// loaded begins to serve, or tries again after a while.
func (m *Machine) loaded(now time.Time, in *Loaded, out *Effects) {
	if in.Gen != m.gen || m.phase != phaseLoading {
		return
	}
	if in.Err != nil {
		pause := min(reloadAfter<<min(m.failures, 10), reloadMax)
		m.failures++
		m.forget()
		m.phase = phaseBroken
		m.alarms.set(&m.alarm, now.Add(pause))
		out.Notices = append(out.Notices, Notice{Kind: NoticeRefused, Err: in.Err, Text: "the log could not be loaded"})
		return
	}
	m.phase, m.failures = phaseServing, 0
	m.calendar.start(now, m.newest)
	m.setExpiry(now)
	out.Notices = append(out.Notices, Notice{Kind: NoticeLoaded, Count: len(m.order)})
	for _, g := range slices.Clone(m.order) {
		for _, mem := range g.members {
			m.alarms.set(&mem.alarm, now.Add(mem.session))
		}
		if len(g.members) > m.settings.SizeMax {
			m.prepare(now, g, "it has more members than it may", out)
		}
	}
	m.removeTopics(now, m.gone, out)
	m.gone = nil
}
