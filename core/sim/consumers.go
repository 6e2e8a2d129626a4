package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/group"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/core/sim/world"
)

// manualGroup has no members: offsets are committed from outside.
const manualGroup = "manual"

// consumers are the processes of one group.
type consumers struct {
	name    string
	members []*member
	quiet   []bool // partitions to which nothing comes for now
	audits  int64
	made    int // members, ever
}

// GroupOptionsOf draws the shape of a run with groups from its seed.
func GroupOptionsOf(seed uint64) Options {
	w := world.New(seed^0x67a0b5, nil)
	o := Options{
		Partitions:        1 + w.Rand.IntN(5),
		Pace:              w.Between(20*time.Millisecond, 200*time.Millisecond),
		Flush:             partition.FlushPolicy(w.Rand.IntN(3)),
		InFlight:          1 << w.Rand.IntN(6),
		SnapshotAfter:     1 + w.Rand.IntN(30),
		SegmentBytes:      int64(1000 + w.Rand.IntN(8000)),
		RetentionBytes:    -1,
		Faulty:            w.Between(5*time.Second, 9*time.Second),
		Calm:              w.Between(500*time.Millisecond, 4*time.Second),
		FaultOneIn:        20 + w.Rand.IntN(300),
		Groups:            1 + w.Rand.IntN(2),
		Members:           1 + w.Rand.IntN(3),
		OffsetsPartitions: 1 + w.Rand.IntN(3),
		ChunkBytes:        300 + w.Rand.IntN(4000),
		Coordination:      group.DefaultSettings(),
	}
	c := &o.Coordination
	c.SessionMin = 100 * time.Millisecond
	c.InitialDelay = w.Between(20*time.Millisecond, 200*time.Millisecond)
	c.Retention = w.Between(2*time.Second, 5*time.Second)
	c.ExpiryEvery = time.Second
	c.CommitTimeout = w.Between(200*time.Millisecond, time.Second)
	o.Granted = w.Chance(2)
	return o
}

// consumeInGroups makes the groups and all that happens to them.
func (s *simulation) consumeInGroups() {
	s.ledger = newLedger(s.check, s.broker, s.report, s.opts.Coordination.Retention)
	s.open = make(map[*flight]time.Time)
	for i := range s.opts.Groups {
		g := &consumers{name: fmt.Sprintf("group-%d", i), quiet: make([]bool, s.opts.Partitions)}
		s.consumers = append(s.consumers, g)
		for range s.opts.Members {
			s.enter(g, "", s.w.Between(0, 500*time.Millisecond))
		}
	}
	s.commitFromOutside()
	s.lookOn()
	s.sway()
	s.troubleGroups()
}

// sway has processes come and go at some times for sure.
func (s *simulation) sway() {
	const times = 6
	for i := range times {
		s.w.After(s.opts.Faulty*time.Duration(i+1)/(times+1), func() {
			g := s.consumers[i%len(s.consumers)]
			if alive := g.alive(); len(alive) > s.opts.Members {
				alive[0].leave()
			} else {
				s.enter(g, "", 0)
			}
		})
	}
}

// enter starts a process, under the name of a static member or none.
func (s *simulation) enter(g *consumers, instance string, after time.Duration) *member {
	g.made++
	m := &member{
		s: s, group: g, name: fmt.Sprintf("%s/%d", g.name, g.made), instance: instance, old: s.w.Chance(4),
		session: s.w.Between(300*time.Millisecond, 800*time.Millisecond), patience: s.w.Between(400*time.Millisecond, 1200*time.Millisecond),
	}
	if instance == "" && s.w.Chance(3) {
		m.instance = fmt.Sprintf("static-%d", g.made)
	}
	g.members = append(g.members, m)
	m.do(after, m.join)
	return m
}

// alive are the processes of a group that run.
func (g *consumers) alive() []*member {
	return slices.DeleteFunc(slices.Clone(g.members), func(m *member) bool { return m.gone })
}

// fetchOffsets asks for offsets of a group; by is the member that asks, or nil.
func (s *simulation) fetchOffsets(name string, keys []model.TopicPartition, heard func(model.FetchedOffsets), lost func(), by *member) {
	q := model.FetchOffsets{Group: name, Epoch: -1, Partitions: keys}
	var before []look
	post := func(g *groups, done func(model.FetchedOffsets)) {
		before = s.ledger.asks(s.ledger.of(name), keys)
		g.FetchOffsets(context.Background(), q, done)
	}
	told := func(a model.FetchedOffsets) {
		if a.Err == nil {
			s.ledger.fetched(s.ledger.of(name), keys, before, a.Offsets)
		}
	}
	if by != nil {
		send(by, "fetch", by.delay(), time.Second, post, told, heard, lost)
		return
	}
	ask(s, "fetch of offsets of "+name, s.w.Between(0, 2*time.Millisecond), time.Second, post, told, heard, lost)
}

// commitOffsets commits, as a member or, without one, from outside.
func commitOffsets(s *simulation, by *member, q model.CommitOffsets, keys []model.TopicPartition, offsets []int64, delay time.Duration, heard func(error), lost func()) {
	var c claim
	var attempts []*attempt
	post := func(g *groups, done func(model.CommittedOffsets)) {
		c = s.ledger.arrives(q.Group, q.Generation, q.MemberID)
		if by == nil {
			c.stale = ""
		}
		marks := make([]string, len(keys))
		attempts = s.ledger.attempted(c.g, keys, offsets, marks)
		q.Offsets = make([]model.GroupOffset, len(keys))
		for i := range keys {
			q.Offsets[i] = model.GroupOffset{TopicPartition: keys[i], Offset: offsets[i], LeaderEpoch: model.NoEpoch, Metadata: marks[i]}
		}
		s.w.Note("%s commits %v in generation %d", q.Group, offsets, q.Generation)
		g.Commit(context.Background(), q, done)
	}
	told := func(a model.CommittedOffsets) {
		s.w.Note("%s's commit of %v: %v", q.Group, offsets, a.Err)
		s.ledger.settled(c, keys, attempts, a.Err)
		if a.Err == nil {
			s.report.Commits += len(keys)
			if by != nil {
				s.ledger.accepted(c, "a commit")
			}
		} else if definite(a.Err) && c.stale != "" {
			s.report.Stale++
		}
	}
	ended := func(a model.CommittedOffsets) { heard(a.Err) }
	if by != nil {
		send(by, "commit", delay, delay+time.Second, post, told, ended, lost)
		return
	}
	ask(s, "commit to "+q.Group, delay, delay+time.Second, post, told, ended, lost)
}

// commitFromOutside keeps the offsets of a group without members.
func (s *simulation) commitFromOutside() {
	keys, offset := ordersOf([]int32{0}), int64(0)
	var next func()
	again := func() { s.w.After(s.w.Between(10*time.Millisecond, 2*time.Second), next) }
	next = func() {
		offset++
		commitOffsets(s, nil, model.CommitOffsets{Group: manualGroup, Generation: -1, Retention: -1}, keys, []int64{offset}, s.w.Between(0, 2*time.Millisecond),
			func(error) { again() }, again)
	}
	again()
}

// lookOn fetches offsets from outside, again and again.
func (s *simulation) lookOn() {
	most := 150 * time.Millisecond
	if !s.f.On {
		most = calmFor / 2
	}
	s.w.After(s.w.Between(5*time.Millisecond, most), func() {
		if s.broker.up {
			s.unanswered()
			s.lookAt(s.w.Rand.IntN(len(s.consumers) + 1))
		}
		s.lookOn()
	})
}

func (s *simulation) lookAt(i int) {
	name := manualGroup
	if i < len(s.consumers) {
		name = s.consumers[i].name
	}
	s.fetchOffsets(name, s.allKeys(), func(model.FetchedOffsets) {}, func() {}, nil)
}

func (s *simulation) allKeys() []model.TopicPartition {
	var partitions []int32
	for p := range s.opts.Partitions {
		partitions = append(partitions, int32(p))
	}
	return append(ordersOf(partitions), model.TopicPartition{Topic: auditTopic})
}

// troubleGroups brings, again and again while the faults are on, one of the things
// that happen to members and coordinators.
func (s *simulation) troubleGroups() {
	s.w.After(s.w.Between(50*time.Millisecond, 500*time.Millisecond), func() {
		if !s.f.On {
			return
		}
		s.troubleGroup(s.consumers[s.w.Rand.IntN(len(s.consumers))])
		s.troubleGroups()
	})
}

func (s *simulation) troubleGroup(g *consumers) {
	alive := g.alive()
	var m *member
	if len(alive) > 0 {
		m = alive[s.w.Rand.IntN(len(alive))]
	}
	switch n := s.w.Rand.IntN(16); {
	case n < 2 && len(alive) < 5, m == nil && n < 7:
		s.enter(g, "", 0)
	case m == nil && n < 11:
		if n < 9 {
			s.deleteGroup(g)
		}
	case n < 4:
		m.leave()
	case n < 6:
		m.stall(s.w.Between(50*time.Millisecond, 3*time.Second))
	case n < 9:
		m.vanish()
		if n > 6 {
			s.comeBack(m)
		}
	case n == 9: // a second process of a static member, while the first may run
		if m.instance != "" {
			s.enter(g, m.instance, 0)
		}
	case n == 10:
		for _, one := range alive {
			one.vanish()
		}
	case n == 11:
		s.moveAway()
	case n == 12:
		s.deleteAudits(g)
	case n == 13:
		s.stopSoon()
	case n == 14:
		s.makeAnew()
	case n == 15:
		p := s.w.Rand.IntN(len(g.quiet))
		g.quiet[p] = !g.quiet[p]
	}
}

// comeBack starts a process in the place of one that has vanished: a static member
// under its name, another with the ID that it had.
func (s *simulation) comeBack(m *member) {
	s.report.Returned++
	back := s.enter(m.group, m.instance, s.w.Between(time.Millisecond, 1500*time.Millisecond))
	back.instance, back.session, back.patience = m.instance, m.session, m.patience
	if m.instance == "" && s.w.Chance(2) {
		back.id = m.id
	}
}

// moveAway takes a partition of the offsets topic from the broker for a while, or
// only begins a new leader epoch.
func (s *simulation) moveAway() {
	index := int32(s.w.Rand.IntN(s.opts.OffsetsPartitions))
	s.report.Moves++
	s.w.Note("offsets partition %d moves away", index)
	if s.w.Chance(2) {
		s.lead(index, model.NoNode)
	}
	s.w.After(s.w.Between(time.Millisecond, 800*time.Millisecond), func() {
		s.w.Note("offsets partition %d moves back", index)
		s.lead(index, nodeID)
	})
}

func (s *simulation) lead(index int32, leader model.NodeID) {
	p := model.Partition{Topic: offsetsID, Index: index}
	s.change(&image.PartitionChangeRecord{Partition: p, LeaderChange: true, Leader: leader})
}

func (s *simulation) change(records ...image.Record) {
	if err := s.broker.change(records...); err != nil {
		s.check.violate("%v", err)
	}
}

// stopSoon stops the broker as SIGTERM does: what is being written may finish, for a
// while.
func (s *simulation) stopSoon() {
	if !s.broker.up {
		return
	}
	s.w.Note("broker stops")
	s.broker.groups.Stop()
	life := s.broker.life
	s.w.After(s.w.Between(time.Millisecond, 300*time.Millisecond), func() {
		if life == s.broker.life {
			s.killBroker()
		}
	})
}

// makeAnew deletes the topic that nobody is subscribed to, and makes another of that
// name. What was committed of the first goes, unless the broker does not hear of it;
// what is committed from now on stays.
func (s *simulation) makeAnew() {
	old, ok := s.broker.img.TopicByName(auditTopic)
	if !ok {
		return
	}
	s.w.Note("topic %s is deleted", auditTopic)
	for _, g := range s.consumers {
		s.ledger.attempted(s.ledger.of(g.name), []model.TopicPartition{{Topic: auditTopic}}, []int64{-1}, nil)
	}
	s.change(&image.TopicRemovalRecord{ID: old.ID, Name: old.Name})
	id := old.ID
	id[1]++
	s.w.After(s.w.Between(time.Millisecond, time.Second), func() {
		s.w.Note("topic %s is made anew", auditTopic)
		s.change(topic(id, auditTopic, 1)...)
	})
}

// deleteAudits removes an offset that no member needs.
func (s *simulation) deleteAudits(g *consumers) {
	keys := []model.TopicPartition{{Topic: auditTopic}}
	var c claim
	var attempts []*attempt
	ask(s, "deletion of offsets of "+g.name, s.w.Between(0, 2*time.Millisecond), time.Second,
		func(groups *groups, done func(model.DeletedOffsets)) {
			c = claim{g: s.ledger.of(g.name)}
			attempts = s.ledger.attempted(c.g, keys, []int64{-1}, nil)
			groups.DeleteOffsets(context.Background(), model.DeleteOffsets{Group: g.name, Partitions: keys}, done)
		},
		func(a model.DeletedOffsets) {
			s.w.Note("deletion of offsets of %s: %v", g.name, a.Err)
			s.ledger.settled(c, keys, attempts, a.Err)
			if a.Err == nil {
				s.report.Deleted++
			}
		},
		func(model.DeletedOffsets) {}, func() {})
}

// deleteGroup removes a group, if it has no members.
func (s *simulation) deleteGroup(g *consumers) {
	keys := s.allKeys()
	offsets := make([]int64, len(keys))
	for i := range offsets {
		offsets[i] = -1
	}
	var c claim
	var attempts []*attempt
	ask(s, "deletion of "+g.name, s.w.Between(0, 2*time.Millisecond), time.Second,
		func(groups *groups, done func(error)) {
			c = claim{g: s.ledger.of(g.name)}
			c.g.deletions++
			attempts = s.ledger.attempted(c.g, keys, offsets, nil)
			groups.Delete(context.Background(), g.name, done)
		},
		func(err error) {
			s.w.Note("deletion of %s: %v", g.name, err)
			if err != nil && definite(err) {
				c.g.deletions = max(0, c.g.deletions-1)
			}
			s.ledger.settled(c, keys, attempts, err)
			if err == nil {
				s.report.Deleted++
			}
		},
		func(error) {}, func() {})
}
