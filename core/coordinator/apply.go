package coordinator

import (
	"maps"
	"slices"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// Apply brings the machines in line with img: those of partitions of the offsets
// topic that this broker leads, under their leader epochs. It does not wait for
// anything. What was applied before Run takes effect when it runs. Images before
// this broker's registration are passed over: they may lack the last entries of the
// metadata log, so that topics which they do not name are not gone, and their leader
// epochs end with the registration.
func (m *Manager) Apply(img *image.Image) {
	old := m.view.Load()
	if old.img == nil && !m.registered(img) {
		return
	}
	next := &view{img: img}
	if t, ok := img.TopicByName(model.OffsetsTopic); ok {
		next.topic, next.partitions = t.ID, len(t.Partitions)
	}
	m.applyLimit(img)
	m.applyLeaders(img)
	m.view.Store(next)
	if old.img != nil {
		m.applyDeleted(old.img, img)
	}
	m.mu.Lock()
	m.wakeLocked()
	m.mu.Unlock()
}

// registered reports whether img has this start of the broker, and with it all
// that was committed before.
func (m *Manager) registered(img *image.Image) bool {
	if m.deps.Incarnation == [16]byte{} {
		return true
	}
	b, ok := img.Broker(m.cfg.NodeID)
	return ok && b.Incarnation == m.deps.Incarnation
}

// applyLeaders tells the shards what has changed.
func (m *Manager) applyLeaders(img *image.Image) {
	now := make(map[int32]lead)
	if t, ok := img.TopicByName(model.OffsetsTopic); ok {
		for i := range t.Partitions {
			if p := &t.Partitions[i]; p.Leader == m.cfg.NodeID {
				now[int32(i)] = lead{partition: model.Partition{Topic: t.ID, Index: int32(i)}, epoch: p.LeaderEpoch}
			}
		}
	}
	for _, index := range slices.Sorted(maps.Keys(m.led)) {
		if _, still := now[index]; !still {
			m.shardOf(index).complete(Input{kind: inputResign, index: index})
		}
	}
	for _, index := range slices.Sorted(maps.Keys(now)) {
		if l := now[index]; m.led[index] != l {
			m.shardOf(index).complete(Input{kind: inputLead, index: index, seldom: &seldom{lead: &l}})
		}
	}
	m.led = now
}

// applyLimit tells the shards how large a batch may be.
func (m *Manager) applyLimit(img *image.Image) {
	c, err := img.TopicConfig(model.OffsetsTopic, m.cfg.NodeID, m.cfg.Static)
	if err != nil {
		m.deps.Logger.Error("topic settings cannot be resolved; the last good ones stay", "topic", model.OffsetsTopic, "err", err)
		return
	}
	if int(c.MaxMessageBytes) == m.told {
		return
	}
	m.told = int(c.MaxMessageBytes)
	for _, s := range m.shards {
		s.complete(Input{kind: inputLimit, seldom: &seldom{bytes: m.told}})
	}
}

// applyDeleted tells all machines of topics that are gone, or are others under the
// same name.
func (m *Manager) applyDeleted(old, img *image.Image) {
	var gone []string
	for t := range old.Topics() {
		if _, stays := img.Topic(t.ID); !stays {
			gone = append(gone, t.Name)
		}
	}
	if len(gone) == 0 {
		return
	}
	for _, s := range m.shards {
		s.complete(Input{kind: inputDeleted, seldom: &seldom{topics: gone}})
	}
}

// exists implements host: it reports whether there is a topic of this name now.
func (m *Manager) exists(topic string) bool {
	img := m.view.Load().img
	if img == nil {
		return true
	}
	_, ok := img.TopicByName(topic)
	return ok
}
