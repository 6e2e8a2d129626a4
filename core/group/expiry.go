package group

import (
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// setExpiry sets when it is next looked what has expired.
func (m *Machine) setExpiry(now time.Time) {
	m.alarms.set(&m.alarm, now.Add(max(m.settings.ExpiryEvery, againMin)))
}

// expire removes offsets that nobody has needed for their retention, and groups that
// have neither members nor offsets.
func (m *Machine) expire(now time.Time, out *Effects) {
	m.calendar.look(now, m.settings.Retention)
	for _, g := range slices.Clone(m.order) {
		if !g.deleting && m.full() == nil {
			m.expireGroup(now, g, out)
		}
	}
}

func (m *Machine) expireGroup(now time.Time, g *group, out *Effects) {
	if g.behind && g.state == model.GroupEmpty && g.writes == 0 {
		m.write(now, g, []Record{g.record(now, nil)}, &emptied{group: g, generation: g.generation}, out)
	}
	keys := g.keys(func(key model.TopicPartition) bool { return m.expired(g, key) })
	last := g.empty() && len(g.underWay) == 0 && len(keys) == len(g.offsets)
	switch {
	case last && len(keys) == 0 && !g.recorded:
		m.vanish(g)
		return
	case len(keys) == 0 && !last:
		return
	}
	out.Notices = append(out.Notices, Notice{Kind: NoticeExpired, Group: g.id, Generation: g.generation, Count: len(keys)})
	m.remove(now, g, keys, removal{whole: last, again: true}, out)
}

// expired reports whether an offset has outlived its use: its group has had no members
// for long, or had none ever, or all of them read other topics (KIP-211). While a
// group rebalances nobody knows what its members read.
func (m *Machine) expired(g *group, key model.TopicPartition) bool {
	value, ok := g.offsets[key]
	if !ok || g.underWay[key] > 0 {
		return false
	}
	if value.doomed {
		return true
	}
	from := int64(noTime)
	switch {
	case g.protocolType == "" && g.state == model.GroupEmpty:
	case g.state == model.GroupEmpty:
		from = g.since
	case g.state != model.GroupStable, !g.readable, g.isSubscribed(key.Topic):
		return false
	}
	age, most := value.age(&m.calendar, m.settings.Retention.Milliseconds(), from)
	return age >= most
}
