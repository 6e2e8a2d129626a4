package group

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"pgregory.net/rapid"
)

// consumer is a client as they are: it joins, syncs, sends heartbeats, and begins again
// when it is told to.
type consumer struct {
	client
	waits RequestID // 0: for nothing
	step  string    // what it waits for, or does next
}

// act asks what is next, or takes the answer to what it has asked.
func (c *consumer) act(w *world) {
	if c.waits != 0 {
		if !w.answered[c.waits] {
			return
		}
		a := w.answers[c.waits]
		c.waits = 0
		c.take(a)
		return
	}
	switch c.step {
	case "join":
		q := model.JoinGroup{Group: c.group, MemberID: c.member, InstanceID: c.instance, ClientID: "c", ProtocolType: "consumer", AsksForID: true,
			SessionTimeout: 10 * time.Second, RebalanceTimeout: 20 * time.Second, Protocols: []model.GroupProtocol{
				{Name: "sticky", Metadata: consumerMetadata("t")}, {Name: "range", Metadata: consumerMetadata("t")}}}
		w.ask(func(id RequestID) Input { c.waits = id; return &Join{ID: id, JoinGroup: q} })
	case "sync":
		q := model.SyncGroup{Group: c.group, Generation: c.generation, MemberID: c.member, InstanceID: c.instance}
		for _, other := range c.others {
			what := fmt.Sprint(c.group, c.generation, other.MemberID)
			who := other.MemberID
			if other.InstanceID != "" {
				who = other.InstanceID
			}
			key := fmt.Sprint(c.group, c.generation, who)
			w.assigned[key] = append(w.assigned[key], what)
			q.Assignments = append(q.Assignments, model.MemberAssignment{MemberID: other.MemberID, Assignment: []byte(what)})
		}
		w.ask(func(id RequestID) Input { c.waits = id; return &Sync{ID: id, SyncGroup: q} })
	case "heartbeat":
		q := model.GroupHeartbeat{Group: c.group, Generation: c.generation, MemberID: c.member, InstanceID: c.instance}
		w.ask(func(id RequestID) Input { c.waits = id; return &Heartbeat{ID: id, GroupHeartbeat: q} })
	}
}

// take takes an answer.
func (c *consumer) take(a Answer) {
	err := errOf(a)
	if j, ok := a.(Joined); ok {
		c.generation, c.others = j.Generation, j.Members
		if err == nil || errors.Is(err, model.ErrMemberIDRequired) {
			c.member = j.MemberID
		}
	}
	switch {
	case errors.Is(err, model.ErrUnknownMemberID), errors.Is(err, model.ErrFencedInstanceID):
		c.member, c.step = "", "join"
	case err != nil:
		c.step = "join"
	case c.step == "join":
		c.step = "sync"
	default:
		c.step = "heartbeat"
	}
}

// TestGroupsRecover: whatever has happened, once the log takes writes and clients do
// what clients do, each group is Stable with all of them, and stays so.
func TestGroupsRecover(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(0, 60).Draw(t, "acts") {
			w.act()
		}
		var all []*consumer
		for _, c := range w.clients[:6] {
			keep := *c
			if rapid.Bool().Draw(t, "restarted") {
				keep.member = ""
			}
			all = append(all, &consumer{client: keep, step: rapid.SampledFrom([]string{"join", "sync", "heartbeat"}).Draw(t, "step")})
		}
		w.live(all, 3*time.Minute)
		generation := map[string]int32{"g0": w.m.groups["g0"].generation, "g1": w.m.groups["g1"].generation}
		w.live(all, 2*time.Minute)
		for id, was := range generation {
			g := w.m.groups[id]
			if g.state != model.GroupStable || len(g.members) != 3 || g.generation != was {
				t.Fatalf("group %s is %s (was at generation %d)", id, shape(g), was)
			}
		}
		for _, c := range all {
			if mem := w.m.groups[c.group].byID[c.member]; mem == nil || len(mem.assignment) == 0 {
				t.Fatalf("member %q of group %s has nothing assigned", c.member, c.group)
			}
		}
	})
}

// TestNoReloadFencesAMember: no other process uses the instance IDs, and so nobody hears
// that it is fenced, which is final to clients, whenever the coordinator starts again.
func TestNoReloadFencesAMember(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.calm = true
		var all []*consumer
		for _, c := range w.clients[:6] {
			all = append(all, &consumer{client: *c, step: "join"})
		}
		for range rapid.IntRange(10, 100).Draw(t, "acts") {
			c := rapid.SampledFrom(all).Draw(t, "consumer")
			switch rapid.IntRange(0, 9).Draw(t, "act") {
			case 0:
				w.reload()
			case 1: // it starts again, and hears nothing of what it has asked before
				*c = consumer{client: client{group: c.group, instance: c.instance, generation: -1}, step: "join"}
			case 2:
				w.pass(time.Duration(rapid.IntRange(1, 8000).Draw(t, "ms")) * time.Millisecond)
			case 3, 4, 5:
				w.answerAny(nil)
			default:
				w.pass(time.Second)
				for _, c := range all {
					c.act(w)
				}
			}
			for _, c := range all {
				if c.waits != 0 && errors.Is(errOf(w.answers[c.waits]), model.ErrFencedInstanceID) {
					t.Fatalf("instance %s of group %s, member %q of generation %d: %v", c.instance, c.group, c.member, c.generation, w.answers[c.waits])
				}
			}
		}
	})
}

// live lets time pass in which everything works.
func (w *world) live(all []*consumer, during time.Duration) {
	w.calm = true
	defer func() { w.calm = false; w.check() }()
	for end := w.now.Add(during); w.now.Before(end); w.pass(time.Second) {
		for _, c := range all {
			c.act(w)
		}
		for i := 0; i < len(w.open); {
			if w.open[i].answered {
				i++
				continue
			}
			w.answer(i, nil)
			i = 0
		}
	}
}
