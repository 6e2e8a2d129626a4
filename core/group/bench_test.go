package group

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// TestHeartbeatsAllocateNothing: there are thousands each second.
func TestHeartbeatsAllocateNothing(t *testing.T) {
	var out Effects
	b := newBig(50, &out)
	now := storyBegins.Add(time.Minute)
	beat := Heartbeat{GroupHeartbeat: model.GroupHeartbeat{Group: "big", Generation: 1}}
	i := 0
	got := testing.AllocsPerRun(1000, func() {
		i++
		now = now.Add(time.Millisecond)
		beat.MemberID = b.members[i%len(b.members)]
		b.m.Step(now, &beat, &out)
		if out.Responses[0].Answer != (Answer(Done{})) {
			t.Fatal(out.Responses[0].Answer)
		}
		out.Reset()
	})
	if got != 0 {
		t.Errorf("a heartbeat allocates %v times", got)
	}
}

// BenchmarkHeartbeat is one heartbeat in a group of 500.
func BenchmarkHeartbeat(b *testing.B) {
	var out Effects
	g := newBig(500, &out)
	now := storyBegins.Add(time.Minute)
	beat := Heartbeat{GroupHeartbeat: model.GroupHeartbeat{Group: "big", Generation: 1}}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		beat.MemberID = g.members[i%len(g.members)]
		g.m.Step(now, &beat, &out)
		out.Reset()
	}
}

// BenchmarkRebalance is a whole rebalance of a group of 500: all join, all sync, the
// assignment is written.
func BenchmarkRebalance(b *testing.B) {
	var out Effects
	g := newBig(500, &out)
	b.ReportAllocs()
	for b.Loop() {
		g.rebalance(&out)
	}
}

// BenchmarkLoad is the loading of 100,000 offsets of 1,000 groups with three members.
func BenchmarkLoad(b *testing.B) {
	records := bigLog(1000, 100)
	b.ReportAllocs()
	for b.Loop() {
		var out Effects
		if m := serving(DefaultSettings(), records, &out); len(m.groups) != 1000 {
			b.Fatal(len(m.groups))
		}
	}
}

// committer commits ten offsets of a group without members, until they are durable.
type committer struct {
	m       *Machine
	out     Effects
	in      Commit
	written Written
}

func newCommitter() *committer {
	c := &committer{in: Commit{CommitOffsets: model.CommitOffsets{Group: "g", Generation: -1, Retention: -1}}}
	c.m = serving(DefaultSettings(), nil, &c.out)
	for i := range int32(10) {
		c.in.Offsets = append(c.in.Offsets, model.GroupOffset{TopicPartition: model.TopicPartition{Topic: "topic", Partition: i}})
	}
	return c
}

func (c *committer) commit() {
	c.out.Reset()
	c.m.Step(storyBegins, &c.in, &c.out)
	c.written = Written{Gen: c.m.gen, ID: c.out.Writes[0].ID}
	c.m.Step(storyBegins, &c.written, &c.out)
}

// A commit allocates its records, what they hold, and its answer, however many offsets
// it has.
func TestCommitAllocatesLittle(t *testing.T) {
	c := newCommitter()
	if n := testing.AllocsPerRun(1000, c.commit); n > 3 {
		t.Fatalf("%v allocations for a commit", n)
	}
}

// BenchmarkCommit is a commit of ten offsets, until it is durable.
func BenchmarkCommit(b *testing.B) {
	c := newCommitter()
	b.ReportAllocs()
	for b.Loop() {
		c.commit()
	}
}

// BenchmarkExpiry is a look at 100,000 offsets of which none has expired.
func BenchmarkExpiry(b *testing.B) {
	var out Effects
	m := serving(DefaultSettings(), bigLog(1000, 100), &out)
	b.ReportAllocs()
	for b.Loop() {
		m.expire(storyBegins, &out)
	}
}

func bigLog(groups, offsets int) []Record {
	var records []Record
	at := storyBegins.UnixMilli()
	for i := range groups {
		g := newGroup(fmt.Sprintf("group-%d", i))
		g.protocolType, g.protocol, g.generation = "consumer", "range", 1
		for j := range 3 {
			g.add(&member{id: fmt.Sprintf("client-%d", j), session: 45 * time.Second, rebalance: 5 * time.Minute,
				protocols: []model.GroupProtocol{{Name: "range", Metadata: consumerMetadata("topic")}}, assignment: make([]byte, 50)})
		}
		records = append(records, g.record(storyBegins, nil))
		for j := range offsets {
			c := committed{offset: int64(j), at: at, expires: -1}
			records = append(records, Record{Key: offsetKey(g.id, model.TopicPartition{Topic: "topic", Partition: int32(j)}), Value: c.encode(), Timestamp: at})
		}
	}
	return records
}

// big is a group of many members that is Stable.
type big struct {
	m          *Machine
	members    []string
	generation int32
}

func newBig(members int, out *Effects) *big {
	b := &big{m: serving(DefaultSettings(), nil, out)}
	ids := 0
	b.m.newID = func() string { ids++; return strconv.Itoa(ids) }
	for i := range members {
		b.m.Step(storyBegins, b.join(""), out)
		b.members = append(b.members, "c-"+strconv.Itoa(i+1))
	}
	b.m.Step(storyBegins.Add(3*time.Second), &Fired{}, out)
	b.m.Step(storyBegins.Add(6*time.Second), &Fired{}, out)
	out.Reset()
	b.generation = 1
	b.sync(out)
	return b
}

func (b *big) join(member string) *Join {
	return &Join{JoinGroup: model.JoinGroup{Group: "big", MemberID: member, ClientID: "c", ProtocolType: "consumer", SessionTimeout: 45 * time.Second,
		RebalanceTimeout: 5 * time.Minute, Protocols: []model.GroupProtocol{{Name: "range", Metadata: consumerMetadata("topic")}}}}
}

func (b *big) rebalance(out *Effects) {
	for _, member := range b.members { // the first is the leader, and forces it
		b.m.Step(storyBegins, b.join(member), out)
	}
	b.generation++
	out.Reset()
	b.sync(out)
}

func (b *big) sync(out *Effects) {
	q := &Sync{SyncGroup: model.SyncGroup{Group: "big", Generation: b.generation}}
	for _, member := range b.members {
		q.Assignments = append(q.Assignments, model.MemberAssignment{MemberID: member, Assignment: make([]byte, 50)})
	}
	for _, member := range b.members {
		q.MemberID = member
		b.m.Step(storyBegins, q, out)
		q.Assignments = nil
	}
	b.m.Step(storyBegins, &Written{Gen: b.m.gen, ID: out.Writes[0].ID}, out)
	if b.m.groups["big"].state != model.GroupStable {
		panic("the group is not stable")
	}
	out.Reset()
}
