package replica

import (
	"context"
	"maps"
	"slices"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/storage"
)

// topicSeen is a topic as it was last applied.
type topicSeen struct {
	topic    *image.Topic
	own      map[string]string
	settings TopicSettings
}

// purge is the logs of a removed topic in one directory.
type purge struct {
	topic model.TopicID
	dir   model.DirectoryID
}

// Quarantined is a log that the metadata does not know. It is left alone.
type Quarantined struct {
	Directory string // the store's name
	ID        storage.LogID
	Label     string
	Bytes     int64
}

type quarantineKey struct {
	dir model.DirectoryID
	id  storage.LogID
}

// Apply brings the replicas in line with img. It does not wait for logs to be
// opened or deleted. What was applied before Run takes effect when it runs.
// Images before this broker's registration are passed over: they may lack the
// last entries of the metadata log, so that logs which they do not name are no
// strangers, and their leader epochs end with the registration.
func (m *Manager) Apply(img *image.Image) {
	old := m.image.Load()
	first := old == nil
	if first && !m.registered(img) {
		return
	}
	now := maps.Clone(*m.replicas.Load())
	var inputs []Input
	if old != nil {
		for t := range old.Topics() {
			if next, ok := img.Topic(t.ID); !ok || next != t {
				inputs = m.dropGone(img, t, now, inputs)
			}
		}
	}
	// A survey that sees this image finds what is being deleted counted, and one
	// that does not finds nothing that was made under it.
	m.image.Store(img)
	defaults := img.BrokerDefaults(m.cfg.NodeID, nil)
	same := !first && maps.Equal(defaults, m.defaults)
	m.defaults = defaults
	if m.reviewLinks(img, old) {
		same = false // leaders are to name themselves by the new registration
	}
	for t := range img.Topics() {
		inputs = m.applyTopic(img, t, same, now, inputs)
	}
	m.strays.publish(madeAnew(now, *m.replicas.Load(), inputs), func() { m.replicas.Store(&now) })
	m.reviewQuarantine(img)
	for _, in := range inputs {
		in.replica.shard.loop.Complete(in)
	}
	m.wantLeaders()
	m.applyThrottles(img)
	if first {
		m.survey()
		return
	}
	m.purgeRemoved(img, old)
}

// madeAnew are the replicas of now, of those in inputs, that were not there before.
func madeAnew(now, before map[model.Partition]*replica, inputs []Input) []*replica {
	var made []*replica
	for i := range inputs {
		if r := inputs[i].replica; now[r.id] == r && before[r.id] != r {
			made = append(made, r)
		}
	}
	return made
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

// dropGone gives up the replicas of a topic that are no longer this broker's.
// They were, in the image before: that is why their logs may be deleted. All are
// counted before the first is, so that nobody hears too early that none is left.
func (m *Manager) dropGone(img *image.Image, t *image.Topic, now map[model.Partition]*replica, inputs []Input) []Input {
	_, stays := img.Topic(t.ID)
	if !stays {
		delete(m.topics, t.ID)
	}
	for i := range t.Partitions {
		id := model.Partition{Topic: t.ID, Index: int32(i)}
		r, here := now[id]
		if !here {
			continue
		}
		if p, _, ok := img.Partition(id); ok && slices.Contains(p.Replicas, m.cfg.NodeID) {
			continue
		}
		delete(now, id)
		m.follows(r, model.NoNode)
		if !stays {
			m.expectPurge(r)
		}
		m.deps.Logger.Info("replica removed by the metadata; deleting its log", "topic", r.topic, "partition", id.Index)
		inputs = append(inputs, Input{kind: inputRemove, replica: r})
	}
	return inputs
}

// applyTopic collects the inputs that bring a topic's replicas here in line.
func (m *Manager) applyTopic(img *image.Image, t *image.Topic, sameDefaults bool, now map[model.Partition]*replica, inputs []Input) []Input {
	own := img.Config(model.Resource{Type: model.ResourceTopic, Name: t.Name})
	seen, known := m.topics[t.ID]
	same := known && sameDefaults && maps.Equal(seen.own, own)
	if same && seen.topic == t {
		return inputs
	}
	settings, err := m.deps.Settings(img, t.Name)
	if err != nil {
		m.deps.Logger.Error("topic settings cannot be resolved; the last good ones stay", "topic", t.Name, "err", err)
		settings = seen.settings
		if !known {
			settings = TopicSettings{Settings: partition.DefaultSettings()}
		}
	}
	m.topics[t.ID] = topicSeen{topic: t, own: own, settings: settings}
	for i := range t.Partitions {
		p := &t.Partitions[i]
		at := slices.Index(p.Replicas, m.cfg.NodeID)
		if at < 0 {
			continue
		}
		id := model.Partition{Topic: t.ID, Index: int32(i)}
		r, ok := now[id]
		if ok && same && seen.hasPartition(t, i) {
			continue
		}
		if ok && r.dirID != m.directoryOf(p, at) {
			m.deps.Logger.Info("the metadata has another directory for a replica, which begins anew there", "topic", t.Name, "partition", i)
			m.follows(r, model.NoNode)
			inputs = append(inputs, Input{kind: inputRemove, replica: r})
			ok = false
		}
		if !ok {
			r = m.newReplica(id, t.Name, p, at)
			now[id] = r
		}
		inputs = append(inputs, Input{kind: inputAssign, replica: r, rare: &rare{assign: m.assignment(t, id.Index, settings)}})
		if p.Leader == m.cfg.NodeID {
			m.follows(r, model.NoNode)
		} else {
			m.follows(r, p.Leader)
		}
	}
	return inputs
}

// hasPartition reports whether nothing of a partition has changed: a change of one of many
// is to cost no more than itself.
func (s *topicSeen) hasPartition(t *image.Topic, i int) bool {
	return s.topic.ReplicationFactorTarget == t.ReplicationFactorTarget && i < len(s.topic.Partitions) &&
		s.topic.Partitions[i].PartitionEpoch == t.Partitions[i].PartitionEpoch
}

// sessionBits are what a life of the broker has for its sessions.
const sessionBits = 32

func (m *Manager) assignment(t *image.Topic, index int32, settings TopicSettings) *assignment {
	p := &t.Partitions[index]
	a := &assignment{leads: p.Leader == m.cfg.NodeID, settings: settings}
	a.session = partition.Session(max(0, m.epoch.Load())) << sessionBits
	target := int(t.ReplicationFactorTarget)
	if a.leads {
		a.lead = partition.Lead{
			Epoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, BrokerEpoch: model.BrokerEpoch(m.epoch.Load()),
			ISR: p.ISR, ELR: p.ELR, Replicas: p.Replicas, Adding: len(p.Adding), Target: target,
		}
		a.throttled = throttledOf(index, m.cfg.NodeID, p.Replicas, &settings)
	} else {
		a.follow = partition.Follow{
			Epoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Leader: p.Leader,
			ISR: p.ISR, ELR: p.ELR, Replicas: p.Replicas, Adding: len(p.Adding), Target: target,
		}
	}
	return a
}

// follows counts whom a replica follows.
func (m *Manager) follows(r *replica, leader model.NodeID) {
	if r.dir == nil {
		leader = model.NoNode
	}
	if r.leader != model.NoNode {
		m.following[r.leader]--
	}
	if r.leader = leader; leader != model.NoNode {
		m.following[leader]++
	}
}

// wantLeaders asks for streams to those that lead what is followed here, who share the
// memory for what they send.
func (m *Manager) wantLeaders() {
	for _, node := range slices.Sorted(maps.Keys(m.following)) {
		if m.following[node] == 0 {
			delete(m.following, node)
		}
		if now := m.following[node] > 0; now != m.wanted[node] {
			if m.wanted[node] = now; !now {
				delete(m.wanted, node)
			}
			m.deps.Streams.Want(node, now)
		}
	}
	m.window.Store(max(1, m.cfg.CopyBytes/int64(max(1, len(m.wanted)))))
}

// directoryOf is where the metadata has a replica of this broker's.
func (m *Manager) directoryOf(p *image.Partition, at int) model.DirectoryID {
	if at < len(p.Directories) && !p.Directories[at].IsZero() {
		return p.Directories[at]
	}
	return m.deps.Directories[0].ID
}

// newReplica makes the value that readers find at once.
func (m *Manager) newReplica(id model.Partition, topic string, p *image.Partition, at int) *replica {
	dir := m.directoryOf(p, at)
	r := &replica{id: id, topic: topic, shard: m.shardOf(id), dirID: dir, dir: m.dirs[dir], leader: model.NoNode}
	v := &view{View: partition.New(partition.Config{Partition: id, Node: m.cfg.NodeID, Limits: m.cfg.Limits}).View()}
	v.Status = partition.StatusOpening
	if r.dir != nil {
		r.fromMemory = &r.dir.fromMemory[r.shard.index]
	} else {
		v.Status = partition.StatusOffline
		v.Why = notOurs(dir)
		m.deps.Logger.Error("replica is offline", "topic", topic, "partition", id.Index, "err", v.Why)
	}
	r.view.Store(v)
	return r
}

// expectPurge counts a log of a removed topic that is about to be deleted.
func (m *Manager) expectPurge(r *replica) {
	if r.dir == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.purging[purge{r.id.Topic, r.dir.ID}]++
}

// deleted implements host: a log is gone.
func (m *Manager) deleted(r *replica) {
	if r.dir == nil {
		return
	}
	m.unquarantine(r.dir.ID, r.logID())
	key := purge{r.id.Topic, r.dir.ID}
	m.mu.Lock()
	left, counted := m.purging[key]
	if counted && left > 1 {
		m.purging[key] = left - 1
	} else {
		delete(m.purging, key)
	}
	m.mu.Unlock()
	if counted && left <= 1 {
		m.purged(key)
	}
}

func (m *Manager) purged(key purge) {
	if m.deps.Purged != nil {
		m.deps.Purged(key.topic, key.dir)
	}
}

// purgeRemoved answers for topics that were removed between two images and of
// which no replica was here.
func (m *Manager) purgeRemoved(img, old *image.Image) {
	for t := range img.RemovedTopics() {
		if _, before := old.Removed(t.ID); before {
			continue
		}
		for _, dir := range t.Directories {
			m.mu.Lock()
			_, busy := m.purging[purge{t.ID, dir}]
			m.mu.Unlock()
			if d, ours := m.dirs[dir]; ours && !busy {
				m.exec.Go(d.ID, func(ctx context.Context) { m.surveyOne(ctx, d) })
			}
		}
	}
}

// survey looks, once, at what the stores hold against the metadata.
func (m *Manager) survey() {
	for i := range m.deps.Directories {
		d := &m.deps.Directories[i]
		m.exec.Go(d.ID, func(ctx context.Context) { m.surveyOne(ctx, d) })
	}
}

// surveyOne deletes logs of topics that the metadata says were removed, and
// reports logs that it does not know, which are left alone.
func (m *Manager) surveyOne(ctx context.Context, d *Directory) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.OpenTimeout)
	defer cancel()
	logs, err := d.Store.List(ctx)
	if err != nil {
		m.deps.Logger.Warn("list the logs of a store; unknown ones are not reported", "directory", d.Name, "err", err)
		return
	}
	// The image is read after the list: whatever is in the list was made under
	// this image or an earlier one.
	img := m.image.Load()
	var doomed []*replica
	for _, l := range logs {
		id := model.Partition{Topic: l.ID.Topic, Index: l.ID.Partition}
		if removed, ok := img.Removed(id.Topic); ok && slices.Contains(removed.Directories, d.ID) {
			doomed = append(doomed, &replica{id: id, topic: l.Label, dirID: d.ID, dir: d, shard: m.shardOf(id)})
			continue
		}
		if !m.knows(img, id) {
			m.quarantine(d, l)
		}
	}
	m.purgeAll(img, d, doomed)
}

// purgeAll deletes logs of removed topics, and answers for removed topics that
// have none here.
func (m *Manager) purgeAll(img *image.Image, d *Directory, doomed []*replica) {
	for _, r := range doomed {
		m.expectPurge(r)
	}
	for _, r := range doomed {
		m.deps.Logger.Info("deleting the log of a removed topic", "topic", r.topic, "partition", r.id.Index, "directory", d.Name)
		r.view.Store(&view{})
		r.shard.loop.Complete(Input{kind: inputRemove, replica: r})
	}
	for t := range img.RemovedTopics() {
		if !slices.Contains(t.Directories, d.ID) {
			continue
		}
		key := purge{t.ID, d.ID}
		m.mu.Lock()
		_, busy := m.purging[key]
		m.mu.Unlock()
		if !busy {
			m.purged(key)
		}
	}
}

// knows reports whether img places a replica of the partition on this broker.
func (m *Manager) knows(img *image.Image, id model.Partition) bool {
	p, _, ok := img.Partition(id)
	return ok && slices.Contains(p.Replicas, m.cfg.NodeID)
}

func (m *Manager) quarantine(d *Directory, l storage.LogInfo) {
	key := quarantineKey{d.ID, l.ID}
	m.mu.Lock()
	_, told := m.quarantined[key]
	// An image that came meanwhile either is seen here, or reviews what is added
	// here.
	if told || m.knows(m.image.Load(), model.Partition{Topic: l.ID.Topic, Index: l.ID.Partition}) {
		m.mu.Unlock()
		return
	}
	m.quarantined[key] = Quarantined{Directory: d.Name, ID: l.ID, Label: l.Label, Bytes: l.Bytes}
	m.mu.Unlock()
	m.deps.Logger.Warn("a log is unknown to the metadata; it is left alone",
		"topic", l.Label, "partition", l.ID.Partition, "directory", d.Name, "bytes", l.Bytes)
	m.tellQuarantined()
}

// reviewQuarantine lets go of what img knows.
func (m *Manager) reviewQuarantine(img *image.Image) {
	var known []Quarantined
	m.mu.Lock()
	for key, q := range m.quarantined {
		if m.knows(img, model.Partition{Topic: key.id.Topic, Index: key.id.Partition}) {
			delete(m.quarantined, key)
			known = append(known, q)
		}
	}
	m.mu.Unlock()
	for _, q := range known {
		m.deps.Logger.Info("the metadata knows a log again", "topic", q.Label, "partition", q.ID.Partition, "directory", q.Directory)
	}
	if len(known) > 0 {
		m.tellQuarantined()
	}
}

// unquarantine forgets a log that was deleted.
func (m *Manager) unquarantine(dir model.DirectoryID, id storage.LogID) {
	key := quarantineKey{dir, id}
	m.mu.Lock()
	_, was := m.quarantined[key]
	delete(m.quarantined, key)
	m.mu.Unlock()
	if was {
		m.tellQuarantined()
	}
}

// tellQuarantined tells the number until it has told the last one, since others
// may do so at the same time.
func (m *Manager) tellQuarantined() {
	for told := -1; ; {
		m.mu.Lock()
		n := len(m.quarantined)
		m.mu.Unlock()
		if n == told {
			return
		}
		m.deps.Events.Quarantined(n)
		told = n
	}
}

// Quarantine lists the logs that the metadata does not know.
func (m *Manager) Quarantine() []Quarantined {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.quarantined))
}
