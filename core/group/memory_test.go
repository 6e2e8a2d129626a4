package group

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"pgregory.net/rapid"
)

// account is a count of bytes.
type account struct{ total, used int64 }

func (a *account) Total() int64 { return a.total }
func (a *account) Used() int64  { return a.used }
func (a *account) Add(n int64)  { a.used += n }

// checkMemory counts anew what the machine keeps.
func (w *world) checkMemory() {
	kept, writing := 0, 0
	for _, g := range w.m.groups {
		n := groupBytes + len(g.id) + sizeOfTopics(g.subscribed)
		for _, mem := range g.members {
			n += mem.size()
		}
		for id := range g.pending {
			n += sizeOfPending(id)
		}
		for key, value := range g.offsets {
			n += sizeOfOffset(key, value.metadata)
		}
		if n != g.kept {
			w.t.Fatalf("group %s keeps %d bytes, counted are %d", g.id, n, g.kept)
		}
		kept += n
	}
	for _, q := range w.m.writes.queue {
		writing += q.kept
	}
	if int64(kept) != w.kept.used || kept != w.m.kept || int64(writing) != w.writing.used || writing != w.m.writes.kept {
		w.t.Fatalf("kept %d and %d, counted %d and %d", kept, writing, w.kept.used, w.writing.used)
	}
	if w.m.phase == phaseIdle && kept+writing > 0 {
		w.t.Fatalf("%d bytes are kept after the end", kept+writing)
	}
}

// TestMemoryRunsShort does anything in any order while memory comes and goes.
func TestMemoryRunsShort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(1, 80).Draw(t, "acts") {
			switch rapid.IntRange(0, 9).Draw(t, "memory") {
			case 0:
				w.kept.total = w.kept.used + rapid.Int64Range(-2000, 4000).Draw(t, "kept")
			case 1:
				w.writing.total = rapid.Int64Range(0, 4000).Draw(t, "writing")
			}
			w.act()
		}
		w.kept.total, w.writing.total = 1<<40, 1<<40
		w.end()
		w.step(&Resign{})
		if w.kept.used != 0 || w.writing.used != 0 {
			t.Fatalf("%d and %d bytes are left", w.kept.used, w.writing.used)
		}
	})
}

// shortOfMemory is a machine whose memory is at its end: group g has one member and two offsets.
type shortOfMemory struct {
	t      *testing.T
	m      *Machine
	kept   *account
	now    time.Time
	member string
	out    Effects
}

func newShort(t *testing.T) *shortOfMemory {
	s := &shortOfMemory{t: t, kept: &account{total: 1 << 40}, now: storyBegins}
	settings := DefaultSettings()
	settings.InitialDelay = 0
	ids := 0
	s.m = New(settings, func() string { ids++; return fmt.Sprint(ids) }, Memory{Kept: s.kept})
	s.step(&Lead{Epoch: 1})
	s.step(&Loaded{Gen: s.m.gen})
	s.step(s.join("g", "", 100))
	s.step(&Fired{})
	s.member = s.out.Responses[0].Answer.(Joined).MemberID
	s.step(s.assign(1, 100))
	s.written()
	s.step(s.commit("g", 0, 1))
	s.written()
	s.kept.total = s.kept.used
	return s
}

func (s *shortOfMemory) step(in Input) error {
	s.out.Reset()
	s.m.Step(s.now, in, &s.out)
	if len(s.out.Responses) == 0 {
		return nil
	}
	return errOf(s.out.Responses[0].Answer)
}

func (s *shortOfMemory) written() {
	s.t.Helper()
	if len(s.m.writes.queue) == 0 {
		s.t.Fatalf("nothing was written: %+v", s.out.Responses)
	}
	if err := s.step(&Written{Gen: s.m.gen, ID: s.m.writes.queue[0].id}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shortOfMemory) join(group, member string, metadata int) *Join {
	return &Join{JoinGroup: model.JoinGroup{Group: group, MemberID: member, ProtocolType: "other", SessionTimeout: 10 * time.Second, RebalanceTimeout: 20 * time.Second,
		Protocols: []model.GroupProtocol{{Name: "p", Metadata: make([]byte, metadata)}}}}
}

func (s *shortOfMemory) assign(generation int32, bytes int) *Sync {
	return &Sync{SyncGroup: model.SyncGroup{Group: "g", Generation: generation, MemberID: s.member,
		Assignments: []model.MemberAssignment{{MemberID: s.member, Assignment: make([]byte, bytes)}}}}
}

func (s *shortOfMemory) commit(group string, partitions ...int32) *Commit {
	q := model.CommitOffsets{Group: group, Generation: -1, Retention: -1}
	if group == "g" {
		q.MemberID, q.Generation = s.member, 1
	}
	for _, p := range partitions {
		q.Offsets = append(q.Offsets, model.GroupOffset{TopicPartition: model.TopicPartition{Topic: "t", Partition: p}, Offset: 5})
	}
	return &Commit{CommitOffsets: q}
}

// refused: the request adds to what is kept, and is to be sent again.
func (s *shortOfMemory) refused(in Input) {
	s.t.Helper()
	used, groups := s.kept.used, len(s.m.groups)
	err := s.step(in)
	if !errors.Is(err, model.ErrCoordinatorNotAvailable) || !strings.Contains(err.Error(), "`memory`") {
		s.t.Errorf("%T is answered %v", in, err)
	}
	if len(s.out.Notices) != 1 || s.out.Notices[0].Kind != NoticeMemory {
		s.t.Errorf("%T: notices %+v", in, s.out.Notices)
	}
	if s.kept.used != used || len(s.m.groups) != groups || len(s.m.writes.queue) != 0 {
		s.t.Errorf("%T is refused and keeps %d bytes, %d groups", in, s.kept.used-used, len(s.m.groups)-groups)
	}
}

// TestNoMemory: what does not fit is refused; what takes nothing more is not, and who is
// there stays.
func TestNoMemory(t *testing.T) {
	s := newShort(t)
	s.refused(s.join("new", "", 1))
	s.refused(s.join("g", "", 1))
	s.refused(s.commit("new", 0))
	s.refused(s.commit("g", 0, 2))
	s.now = s.now.Add(9 * time.Second)
	s.refused(s.join("g", s.member, 101))
	s.now = s.now.Add(9 * time.Second)
	s.step(&Fired{})
	if err := s.step(&Heartbeat{GroupHeartbeat: model.GroupHeartbeat{Group: "g", Generation: 1, MemberID: s.member}}); err != nil {
		t.Errorf("a member's heartbeat: %v", err)
	}
	s.step(s.commit("g", 0, 1))
	s.written()
	if err := s.step(s.join("g", s.member, 100)); err != nil {
		t.Errorf("a member joins again: %v", err)
	}
	s.refused(s.assign(2, 101))
	s.step(s.assign(2, 100))
	s.written()
	if s.kept.used != s.kept.total {
		t.Errorf("%d bytes of %d", s.kept.used, s.kept.total)
	}
	leave := &Leave{LeaveGroup: model.LeaveGroup{Group: "g", Members: []model.LeavingMember{{MemberID: s.member}}}}
	if err := s.step(leave); err != nil {
		t.Error(err)
	}
	s.written()
	s.step(&Delete{Group: "g"})
	s.written()
	if s.kept.used != 0 || s.m.kept != 0 {
		t.Errorf("%d bytes are kept of nothing", s.kept.used)
	}
}

// TestTheRestIsForMembers: newcomers leave room for what members add.
func TestTheRestIsForMembers(t *testing.T) {
	s := newShort(t)
	s.kept.total = s.kept.used * 9 / 8
	s.refused(s.join("new", "", 1))
	s.refused(s.commit("new", 0))
	s.step(s.commit("g", 0, 1, 2))
	s.written()
	if err := s.step(s.join("g", s.member, 101)); err != nil {
		t.Errorf("a member joins again: %v", err)
	}
}

// TestWhatIsLoadedIsNotRefused, and is counted.
func TestWhatIsLoadedIsNotRefused(t *testing.T) {
	var out Effects
	a := &account{}
	m := New(DefaultSettings(), nil, Memory{Kept: a})
	m.Step(storyBegins, &Lead{Epoch: 1}, &out)
	m.Step(storyBegins, &Replay{Gen: m.gen, Records: bigLog(10, 10)}, &out)
	m.Step(storyBegins, &Loaded{Gen: m.gen}, &out)
	if len(m.groups) != 10 || len(m.groups["group-0"].members) != 3 || a.used < 10*(groupBytes+3*memberBytes+10*offsetBytes) {
		t.Errorf("%d groups, %d bytes", len(m.groups), a.used)
	}
}

// TestTopicsThatDoNotFit: a subscription for which there is no memory is one that cannot
// be read.
func TestTopicsThatDoNotFit(t *testing.T) {
	for _, room := range []bool{true, false} {
		s := newShort(t)
		s.kept.total = 1 << 40
		in := s.join("c", "", 0)
		in.ProtocolType, in.Protocols[0].Metadata = "consumer", consumerMetadata("a", "b")
		s.step(in)
		if !room {
			s.kept.total = s.kept.used + topicBytes
		}
		s.step(&Fired{})
		if g := s.m.groups["c"]; g.state != model.GroupCompletingRebalance || g.readable != room || !g.isSubscribed("a") || g.isSubscribed("z") == room {
			t.Errorf("room %v: %s, readable %v, topics %v", room, g.state, g.readable, g.subscribed)
		}
	}
}

// TestWhatIsKeptIsWhatIsCounted: the constants are what things take.
func TestWhatIsKeptIsWhatIsCounted(t *testing.T) {
	const many = 20_000
	metadata := consumerMetadata("a", "b")
	var asked []Write
	for _, tc := range []struct {
		name string
		fill func(m *Machine, i int, out *Effects)
	}{
		{"groups of one member", func(m *Machine, i int, out *Effects) {
			m.Step(storyBegins, &Join{JoinGroup: model.JoinGroup{Group: fmt.Sprint("group-", i), ClientID: fmt.Sprint("c", i), ProtocolType: "consumer", SessionTimeout: 10 * time.Second,
				Protocols: []model.GroupProtocol{{Name: fmt.Sprint("range", i), Metadata: metadata}}}}, out)
		}},
		{"members of one group", func(m *Machine, i int, out *Effects) {
			m.Step(storyBegins, &Join{JoinGroup: model.JoinGroup{Group: "g", ClientID: fmt.Sprint("c", i), InstanceID: fmt.Sprint("i", i), ProtocolType: "consumer", SessionTimeout: 10 * time.Second,
				Protocols: []model.GroupProtocol{{Name: "range", Metadata: metadata}}}}, out)
		}},
		{"protocols", func(m *Machine, i int, out *Effects) {
			q := model.JoinGroup{Group: fmt.Sprint(i / 1000), ProtocolType: "consumer", SessionTimeout: 10 * time.Second}
			for j := range 100 * min(1, (i+1)%1000/999) {
				q.Protocols = append(q.Protocols, model.GroupProtocol{Name: fmt.Sprint("p", j)})
			}
			m.Step(storyBegins, &Join{JoinGroup: q}, out)
		}},
		{"members that have not joined", func(m *Machine, i int, out *Effects) {
			m.Step(storyBegins, &Join{JoinGroup: model.JoinGroup{Group: "g", ClientID: fmt.Sprint("c", i), ProtocolType: "consumer", SessionTimeout: 10 * time.Second, AsksForID: true,
				Protocols: []model.GroupProtocol{{Name: "range", Metadata: metadata}}}}, out)
		}},
		{"offsets", func(m *Machine, i int, out *Effects) {
			m.Step(storyBegins, &Commit{CommitOffsets: model.CommitOffsets{Group: "g", Generation: -1, Retention: -1, Offsets: []model.GroupOffset{
				{TopicPartition: model.TopicPartition{Topic: fmt.Sprint("a-topic-", i), Partition: 1}, Metadata: fmt.Sprint(i)}}}}, out)
			m.Step(storyBegins, &Written{Gen: m.gen, ID: WriteID(i + 1)}, out)
		}},
		{"groups of one offset", func(m *Machine, i int, out *Effects) {
			m.Step(storyBegins, &Commit{CommitOffsets: model.CommitOffsets{Group: fmt.Sprint("group-", i), Generation: -1, Retention: -1, Offsets: []model.GroupOffset{
				{TopicPartition: model.TopicPartition{Topic: "topic", Partition: 1}}}}}, out)
			m.Step(storyBegins, &Written{Gen: m.gen, ID: WriteID(i + 1)}, out)
		}},
		{"writes under way", func(m *Machine, i int, out *Effects) {
			if i < writesMax {
				m.Step(storyBegins, &Commit{CommitOffsets: model.CommitOffsets{Group: "g", Generation: -1, Retention: -1, Offsets: []model.GroupOffset{
					{TopicPartition: model.TopicPartition{Topic: fmt.Sprint("a-topic-", i), Partition: 1}}}}}, out)
				asked = append(asked, out.Writes...)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &account{total: 1 << 40}
			var out Effects
			ids := 0
			m := New(DefaultSettings(), func() string { ids++; return fmt.Sprintf("%036d", ids) }, Memory{Kept: a, Writes: a})
			m.Step(storyBegins, &Lead{Epoch: 1}, &out)
			m.Step(storyBegins, &Loaded{Gen: m.gen}, &out)
			out.Reset()
			before := heapBytes()
			for i := range many {
				tc.fill(m, i, &out)
				out.Reset()
			}
			is := int64(heapBytes() - before)
			t.Logf("%d bytes each, counted %d", is/many, a.used/many)
			if is > a.used || a.used > 4*is+1<<20 {
				t.Errorf("%d bytes are counted as %d", is, a.used)
			}
			runtime.KeepAlive(m)
			runtime.KeepAlive(asked)
		})
	}
}

func heapBytes() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// TestMapsShrink: what has been deleted leaves no room behind.
func TestMapsShrink(t *testing.T) {
	all, widest := map[int]int{}, 0
	for i := range 10_000 {
		all[i] = i
	}
	for i := range 9_999 {
		delete(all, i)
		all = trim(all, &widest)
	}
	if len(all) != 1 || all[9_999] != 9_999 || widest > trimMin {
		t.Errorf("%d entries, room for %d", len(all), widest)
	}
}

// TestTheDefaultHolds: 1,000 groups of three members and 200,000 offsets fit into what
// groups have by default, and leave room for more.
func TestTheDefaultHolds(t *testing.T) {
	var out Effects
	a := &account{total: 64 << 20}
	m := New(DefaultSettings(), nil, Memory{Kept: a})
	m.Step(storyBegins, &Lead{Epoch: 1}, &out)
	m.Step(storyBegins, &Replay{Gen: m.gen, Records: bigLog(1000, 200)}, &out)
	m.Step(storyBegins, &Loaded{Gen: m.gen}, &out)
	t.Logf("%d bytes of %d", a.used, a.total)
	if len(m.groups) != 1000 || a.used > a.total-a.total/keptReserve {
		t.Errorf("%d groups take %d bytes of %d", len(m.groups), a.used, a.total)
	}
}
