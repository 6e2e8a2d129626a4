package group

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"pgregory.net/rapid"
)

// topics that are committed to, and subscribed to.
var worldTopics = []string{"t", "u", "v"}

func (w *world) join(c *client) {
	names := []string{"range", "sticky"}
	q := model.JoinGroup{Group: c.group, MemberID: c.member, InstanceID: c.instance, ClientID: "c", ProtocolType: "consumer",
		SessionTimeout: 10 * time.Second, RebalanceTimeout: 20 * time.Second,
		AsksForID: rapid.Bool().Draw(w.t, "asks"), SkipsAssignment: rapid.Bool().Draw(w.t, "skips")}
	for _, name := range names[rapid.IntRange(0, 1).Draw(w.t, "protocols"):] {
		q.Protocols = append(q.Protocols, model.GroupProtocol{Name: name, Metadata: consumerMetadata(rapid.SampledFrom(worldTopics[:2]).Draw(w.t, "topic"))})
	}
	w.ask(func(id RequestID) Input { return &Join{ID: id, JoinGroup: q} })
}

func (w *world) sync(c *client) {
	q := model.SyncGroup{Group: c.group, Generation: c.generation, MemberID: c.member, InstanceID: c.instance}
	if c.leader {
		for _, other := range c.others {
			who := other.MemberID
			if other.InstanceID != "" {
				who = other.InstanceID
			}
			key := fmt.Sprint(c.group, c.generation, who)
			what := fmt.Sprint(key, "/", w.nextID)
			w.assigned[key] = append(w.assigned[key], what)
			q.Assignments = append(q.Assignments, model.MemberAssignment{MemberID: other.MemberID, Assignment: []byte(what)})
		}
	}
	w.ask(func(id RequestID) Input { return &Sync{ID: id, SyncGroup: q} })
}

func (w *world) commit(c *client) {
	q := model.CommitOffsets{Group: c.group, Generation: c.generation, MemberID: c.member, InstanceID: c.instance, Retention: -1}
	if rapid.IntRange(0, 3).Draw(w.t, "outside") == 0 {
		q.Generation, q.MemberID, q.InstanceID = -1, "", ""
	}
	for i := range rapid.IntRange(0, 2).Draw(w.t, "offsets") {
		q.Offsets = append(q.Offsets, model.GroupOffset{TopicPartition: w.key(), Offset: int64(w.nextID)*10 + int64(i)})
	}
	w.ask(func(id RequestID) Input { return &Commit{ID: id, CommitOffsets: q} })
}

func (w *world) key() model.TopicPartition {
	return model.TopicPartition{Topic: rapid.SampledFrom(worldTopics).Draw(w.t, "topic"), Partition: rapid.Int32Range(0, 1).Draw(w.t, "partition")}
}

// act does one thing.
func (w *world) act() {
	c := rapid.SampledFrom(w.clients).Draw(w.t, "client")
	switch rapid.SampledFrom([]string{"join", "join", "join", "sync", "sync", "sync", "heartbeat", "leave", "commit", "commit", "fetch",
		"delete-offsets", "delete", "topics", "pass", "pass", "long", "answer", "answer", "answer", "answer", "fail", "reload", "forget", "describe", "settings", "settle", "settle", "restart", "restart", "resign", "heartbeats"}).Draw(w.t, "act") {
	case "join":
		w.join(c)
	case "sync":
		w.sync(c)
	case "heartbeat":
		w.ask(func(id RequestID) Input {
			return &Heartbeat{ID: id, GroupHeartbeat: model.GroupHeartbeat{Group: c.group, Generation: c.generation, MemberID: c.member, InstanceID: c.instance}}
		})
	case "leave":
		q := model.LeaveGroup{Group: c.group, Members: []model.LeavingMember{{MemberID: c.member, InstanceID: c.instance}}}
		w.ask(func(id RequestID) Input { return &Leave{ID: id, LeaveGroup: q} })
	case "commit":
		w.commit(c)
	case "fetch":
		q := model.FetchOffsets{Group: c.group, Partitions: []model.TopicPartition{w.key()}}
		w.ask(func(id RequestID) Input { return &FetchOffsets{ID: id, FetchOffsets: q} })
	case "delete-offsets":
		q := model.DeleteOffsets{Group: c.group, Partitions: []model.TopicPartition{w.key(), w.key()}}
		w.ask(func(id RequestID) Input { return &DeleteOffsets{ID: id, DeleteOffsets: q} })
	case "delete":
		w.ask(func(id RequestID) Input { return &Delete{ID: id, Group: c.group} })
	case "topics":
		w.step(&TopicsDeleted{Topics: []string{rapid.SampledFrom(worldTopics).Draw(w.t, "topic")}})
	case "pass":
		w.pass(time.Duration(rapid.IntRange(1, 8000).Draw(w.t, "ms")) * time.Millisecond)
	case "long":
		w.pass(time.Duration(rapid.IntRange(1, 40).Draw(w.t, "minutes")) * time.Minute)
	case "answer", "fail":
		w.answerAny(nil)
	case "reload":
		w.reload()
	case "forget":
		c.member, c.generation, c.leader = "", -1, false
	case "describe":
		w.ask(func(id RequestID) Input { return &Describe{ID: id, Group: c.group} })
		w.ask(func(id RequestID) Input { return &List{ID: id} })
	case "settle":
		w.settle(c.group)
	case "restart":
		c.member, c.generation, c.leader = "", -1, false
		w.join(c)
		w.join(c)
	case "resign":
		w.resign()
	case "heartbeats":
		w.heartbeats()
	case "settings":
		w.step(&Configure{Settings: w.m.settings})
	}
}

// settle lets the clients of a group do what clients do until they have assignments.
func (w *world) settle(group string) {
	for range 3 {
		for _, c := range w.clients {
			if c.group == group {
				w.join(c)
			}
		}
		w.pass(7 * time.Second)
		for _, c := range w.clients {
			if c.group == group {
				w.sync(c)
			}
		}
		for range rapid.IntRange(0, len(w.open)).Draw(w.t, "answers") {
			w.answerAny(nil)
		}
	}
}

// heartbeats keeps everybody alive for a while.
func (w *world) heartbeats() {
	for range 20 {
		for _, c := range w.clients {
			w.ask(func(id RequestID) Input {
				return &Heartbeat{ID: id, GroupHeartbeat: model.GroupHeartbeat{Group: c.group, Generation: c.generation, MemberID: c.member, InstanceID: c.instance}}
			})
		}
		w.pass(5 * time.Second)
	}
}

// resign gives the groups away: nobody waits, and everybody is told where not to ask.
func (w *world) resign() {
	w.step(&Resign{})
	if len(w.answered) != len(w.requests) || !w.timer.IsZero() {
		w.t.Fatal("somebody waits for a machine that has resigned")
	}
	w.refused(model.ErrNotCoordinator)
	w.reload()
}

// refused asks everything, and gets the one answer.
func (w *world) refused(want error) {
	for _, in := range []Input{&Join{}, &Sync{}, &Heartbeat{}, &Leave{}, &Commit{}, &FetchOffsets{}, &DeleteOffsets{}, &Describe{}, &Delete{}, &List{}} {
		var out Effects
		w.m.Step(w.now, in, &out)
		if len(out.Responses) != 1 || !errors.Is(errOf(out.Responses[0].Answer), want) {
			w.t.Fatalf("%T is answered %+v", in, out.Responses)
		}
	}
}

func errOf(a Answer) error {
	switch a := a.(type) {
	case Joined:
		return a.Err
	case Synced:
		return a.Err
	case Left:
		return a.Err
	case Committed:
		return a.Err
	case Fetched:
		return a.Err
	case Deleted:
		return a.Err
	case Described:
		return a.Err
	case Listed:
		return a.Err
	case Done:
		return a.Err
	}
	return nil
}

func (w *world) answerAny(err error) {
	var waiting []int
	for i, o := range w.open {
		if !o.answered {
			waiting = append(waiting, i)
		}
	}
	if len(waiting) == 0 {
		return
	}
	if rapid.IntRange(0, 4).Draw(w.t, "refused") == 0 {
		err = model.ErrNotEnoughReplicas
	}
	w.answer(rapid.SampledFrom(waiting).Draw(w.t, "write"), err)
}

// TestAnyOrder does anything in any order.
func TestAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(1, 120).Draw(t, "acts") {
			w.act()
		}
		w.end()
	})
}

// end lets all writes be answered and all members vanish: nobody waits, and nothing is
// left that does not end by itself.
func (w *world) end() {
	for range 100 {
		for len(w.open) > 0 {
			i := slices.IndexFunc(w.open, func(o *openWrite) bool { return !o.answered })
			w.answer(i, nil)
		}
		w.pass(2 * time.Minute)
		if len(w.m.groups) == 0 && len(w.open) == 0 {
			break
		}
	}
	for id := range w.requests {
		if !w.answered[id] {
			w.t.Fatalf("request %d, %+v, is never answered", id, w.requests[id])
		}
	}
	if len(w.m.groups) > 0 || len(w.offsets) > 0 || len(w.m.alarms) != 1 {
		w.t.Fatalf("left: groups %v, offsets %v, %d alarms", w.m.groups, w.offsets, len(w.m.alarms))
	}
}
