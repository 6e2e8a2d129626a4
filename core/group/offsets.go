package group

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// commit writes offsets. They are shown, and the client is answered, when they are
// durable.
func (m *Machine) commit(now time.Time, in *Commit, out *Effects) {
	q := &in.CommitOffsets
	g, err := m.checkCommit(now, q)
	if err == nil {
		err = m.full()
	}
	if err != nil {
		respond(out, in.ID, Committed{model.CommittedOffsets{Err: err}})
		return
	}
	c := m.newCommitment()
	c.group, c.request, c.waits = g, in.ID, true
	records := m.commitRecords(now, c, q)
	if len(records) == 0 {
		respond(out, in.ID, Committed{model.CommittedOffsets{Offsets: c.errs}})
		m.putCommitment(c)
		return
	}
	if err := m.fits(m.commitBytes(g, q.Group, c.keys, c.values), q.Generation >= 0, q.Group, out); err != nil {
		respond(out, in.ID, Committed{model.CommittedOffsets{Err: err}})
		m.putCommitment(c)
		return
	}
	if g == nil {
		c.group = m.addGroup(q.Group, now)
	}
	c.group.begin(c.keys)
	c.group.committing = c
	m.write(now, c.group, records, c, out)
}

// commitRecords makes the records of the offsets that may be committed, in memory that
// all of them share, and notes them in c, with what is wrong with the others.
func (m *Machine) commitRecords(now time.Time, c *commitment, q *model.CommitOffsets) []Record {
	at, expires, size := now.UnixMilli(), int64(-1), 0
	if q.Retention >= 0 {
		expires = at + q.Retention.Milliseconds()
	}
	c.keys, c.values = slices.Grow(c.keys, len(q.Offsets)), slices.Grow(c.values, len(q.Offsets))
	c.errs = m.noErrors(len(q.Offsets))
	bad := false
	for i := range q.Offsets {
		o := &q.Offsets[i]
		if err := m.checkOffset(o); err != nil {
			if !bad {
				c.errs, bad = make([]error, len(q.Offsets)), true
			}
			c.errs[i] = err
			continue
		}
		c.keys = append(c.keys, o.TopicPartition)
		c.values = append(c.values, committed{offset: o.Offset, epoch: o.LeaderEpoch, topicID: o.TopicID, metadata: o.Metadata, at: at, expires: expires})
		size += offsetKeyBytes(q.Group, o.TopicPartition) + c.values[len(c.values)-1].bytesMax()
	}
	room, records := make([]byte, 0, size), make([]Record, len(c.keys))
	for i := range records {
		begin := len(room)
		room = appendOffsetKey(room, q.Group, c.keys[i])
		middle := len(room)
		room = c.values[i].appendTo(room)
		records[i] = Record{Key: room[begin:middle:middle], Value: room[middle:len(room):len(room)], Timestamp: at}
	}
	return records
}

// noErrors is n times no error. All commits that have none share it, and nobody changes
// an answer.
func (m *Machine) noErrors(n int) []error {
	if n > noneMax {
		return make([]error, n)
	}
	if n > len(m.none) {
		m.none = make([]error, n)
	}
	return m.none[:n:n]
}

// noneMax is how much of it is kept.
const noneMax = 1024

// checkCommit decides whether the sender may commit. Of a group that there is not yet,
// it returns nil. A member's session begins anew.
func (m *Machine) checkCommit(now time.Time, q *model.CommitOffsets) (*group, error) {
	if len(q.Group) > stringMax {
		return nil, fmt.Errorf("commit offsets: %w", model.ErrInvalidGroupID)
	}
	g, ok := m.groups[q.Group]
	switch {
	case !ok && q.Generation < 0:
		return nil, nil
	case !ok:
		return nil, fmt.Errorf("there is no group %q: %w", q.Group, model.ErrGroupIDNotFound)
	case g.deleting:
		return nil, errDeleting(g)
	case q.Generation < 0 && g.state == model.GroupEmpty:
		return g, nil
	case q.Generation < 0 && q.MemberID == "" && q.InstanceID == "":
		return nil, fmt.Errorf("group %q has members, and the commit is of none: %w", g.id, model.ErrUnknownMemberID)
	}
	mem, err := g.check(q.MemberID, q.InstanceID, q.Generation)
	switch {
	case err != nil:
		return nil, err
	case q.Generation != g.generation:
		return nil, errGeneration(g, q.Generation)
	case g.state == model.GroupCompletingRebalance:
		return nil, model.ErrRebalanceInProgress
	}
	m.alarms.set(&mem.alarm, now.Add(mem.session))
	return g, nil
}

// checkOffset looks at one offset of a commit.
func (m *Machine) checkOffset(o *model.GroupOffset) error {
	if most := min(m.settings.MetadataMax, stringMax); len(o.Metadata) > most {
		return fmt.Errorf("the metadata of %s-%d has %d bytes, more than %d: %w", o.Topic, o.Partition, len(o.Metadata), most, model.ErrOffsetMetadataTooLarge)
	}
	if len(o.Topic) > stringMax {
		return fmt.Errorf("a topic's name has %d bytes: %w", len(o.Topic), model.ErrInvalidTopic)
	}
	return nil
}

// commitment is the outcome of a commit. It is used again when its write is settled.
type commitment struct {
	own     write // its write
	group   *group
	request RequestID
	waits   bool
	fetches []FetchOffsets // that wait with it
	keys    []model.TopicPartition
	values  []committed
	errs    []error // of all offsets that were asked about
}

// idleMax is how many commitments are kept for use, and idleKeys of how many offsets one
// may have been. A broker has many machines.
const (
	idleMax  = 16
	idleKeys = 64
)

func (m *Machine) newCommitment() *commitment {
	if n := len(m.idle); n > 0 {
		c := m.idle[n-1]
		m.idle = m.idle[:n-1]
		return c
	}
	return &commitment{}
}

// putCommitment keeps a commitment for use. Nothing refers to it.
func (m *Machine) putCommitment(c *commitment) {
	if len(m.idle) == idleMax || cap(c.keys) > idleKeys {
		return
	}
	clear(c.keys)
	clear(c.values)
	*c = commitment{keys: c.keys[:0], values: c.values[:0]}
	m.idle = append(m.idle, c)
}

func (c *commitment) written(m *Machine, _ time.Time, err error, out *Effects) {
	c.group.end(c.keys)
	if c.group.committing == c {
		c.group.committing = nil
	}
	if err != nil {
		c.answer(model.CommittedOffsets{Err: err}, out)
	} else {
		for i := range c.keys {
			m.setOffset(c.group, c.keys[i], c.values[i])
		}
		c.answer(model.CommittedOffsets{Offsets: c.errs}, out)
	}
	c.show(m, out)
}

func (c *commitment) late(m *Machine, _ time.Time, err error, out *Effects) bool {
	c.answer(model.CommittedOffsets{Err: err}, out)
	c.show(m, out)
	return false
}

func (c *commitment) abandon(err error, out *Effects) {
	c.answer(model.CommittedOffsets{Err: err}, out)
	for i := range c.fetches {
		refuse(&c.fetches[i], err, out)
	}
	c.fetches = nil
}

// show answers the fetches that came after the commit.
func (c *commitment) show(m *Machine, out *Effects) {
	for i := range c.fetches {
		m.showOffsets(&c.fetches[i], out)
	}
	c.fetches = nil
}

func (c *commitment) answer(a model.CommittedOffsets, out *Effects) {
	if c.waits {
		c.waits = false
		respond(out, c.request, Committed{a})
	}
}

// begin and end count what is under way for each offset.
func (g *group) begin(keys []model.TopicPartition) {
	if g.underWay == nil {
		g.underWay = make(map[model.TopicPartition]int, len(keys))
	}
	for _, key := range keys {
		g.underWay[key]++
	}
}

func (g *group) end(keys []model.TopicPartition) {
	g.widest.underWay = max(g.widest.underWay, len(g.underWay))
	for _, key := range keys {
		if n := g.underWay[key]; n > 1 {
			g.underWay[key] = n - 1
		} else {
			delete(g.underWay, key)
		}
	}
	switch {
	case len(g.underWay) > 0:
		g.underWay = trim(g.underWay, &g.widest.underWay)
	case g.widest.underWay > underWayKept:
		g.underWay, g.widest.underWay = nil, 0
	}
}

// underWayKept is how many offsets a map has had at most that is kept when it is empty.
const underWayKept = 16

// fetchOffsets waits for what is being committed as long as the committing client does:
// a client that does not wait for its commit's answer finds the commit, as where
// requests of a connection are taken one after the other.
func (m *Machine) fetchOffsets(in *FetchOffsets, out *Effects) {
	g, ok := m.groups[in.Group]
	if ok && g.committing != nil && g.committing.waits && g.touches(in) {
		g.committing.fetches = append(g.committing.fetches, *in)
		return
	}
	m.showOffsets(in, out)
}

// touches reports whether something that is asked for is under way.
func (g *group) touches(in *FetchOffsets) bool {
	underWay := func(key model.TopicPartition) bool { return g.underWay[key] > 0 }
	return in.All || slices.ContainsFunc(in.Partitions, underWay)
}

// showOffsets shows what is committed and durable.
func (m *Machine) showOffsets(in *FetchOffsets, out *Effects) {
	var offsets map[model.TopicPartition]committed
	if g, ok := m.groups[in.Group]; ok {
		offsets = g.offsets
	}
	var a model.FetchedOffsets
	if in.All {
		a.Offsets = make([]model.GroupOffset, 0, len(offsets))
		for key, value := range offsets {
			a.Offsets = append(a.Offsets, value.shown(key))
		}
		slices.SortFunc(a.Offsets, func(a, b model.GroupOffset) int { return compareKeys(a.TopicPartition, b.TopicPartition) })
	} else {
		a.Offsets = make([]model.GroupOffset, len(in.Partitions))
		for i, key := range in.Partitions {
			a.Offsets[i] = model.GroupOffset{TopicPartition: key, Offset: -1, LeaderEpoch: model.NoEpoch}
			if value, ok := offsets[key]; ok {
				a.Offsets[i] = value.shown(key)
			}
		}
	}
	respond(out, in.ID, Fetched{a})
}

// shown is the offset as clients see it.
func (c *committed) shown(key model.TopicPartition) model.GroupOffset {
	return model.GroupOffset{TopicPartition: key, TopicID: c.topicID, Offset: c.offset, LeaderEpoch: c.epoch, Metadata: c.metadata}
}

func compareKeys(a, b model.TopicPartition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// age is how much of its retention an offset has used up, and how much that is, in
// milliseconds. from is when its group lost its last member, or less.
func (c *committed) age(cal *calendar, retention, from int64) (age, most int64) {
	if c.expires >= 0 {
		return cal.age(c.at), max(c.expires-c.at, 0)
	}
	return cal.age(max(c.at, from)), retention
}

// noTime is before all times.
const noTime = math.MinInt64
