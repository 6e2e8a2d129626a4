package group

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// timeoutMax bounds the timeouts that clients ask for, as the schemas of the log do.
const timeoutMax = math.MaxInt32 * time.Millisecond

// rebalance begins one, or goes on with the one under way.
func (m *Machine) rebalance(now time.Time, g *group, why string, out *Effects) {
	if g.state == model.GroupPreparingRebalance {
		m.completeIfAll(now, g, out)
		return
	}
	m.prepare(now, g, why, out)
}

// prepare begins a rebalance: all members have to join.
func (m *Machine) prepare(now time.Time, g *group, why string, out *Effects) {
	if g.state == model.GroupCompletingRebalance {
		m.dropAssignment(now, g, fmt.Errorf("the group rebalances again: %w", model.ErrRebalanceInProgress), out)
	}
	g.initial = g.state == model.GroupEmpty
	g.become(now, model.GroupPreparingRebalance)
	out.Notices = append(out.Notices, Notice{Kind: NoticeRebalancing, Group: g.id, Generation: g.generation, Count: len(g.members), Text: why})
	switch {
	case g.initial:
		delay := m.settings.InitialDelay
		g.more, g.left = false, max(g.rebalanceTimeout()-delay, 0)
		m.alarms.set(&g.alarm, now.Add(delay))
	case g.allJoined():
		m.complete(now, g, out)
	default:
		m.alarms.set(&g.alarm, now.Add(g.rebalanceTimeout()))
	}
}

// dropAssignment answers all who wait for the assignment of this generation, which
// will not come.
func (m *Machine) dropAssignment(now time.Time, g *group, err error, out *Effects) {
	g.assigning = nil
	for _, mem := range g.members {
		mem.assignment = nil
		m.measure(mem)
		m.answerSync(now, mem, model.SyncedGroup{Err: err}, out)
	}
}

// completeIfAll completes a rebalance that nobody has to be waited for. The first
// one of a group waits out its delay.
func (m *Machine) completeIfAll(now time.Time, g *group, out *Effects) {
	if g.state == model.GroupPreparingRebalance && !g.initial && g.allJoined() {
		m.complete(now, g, out)
	}
}

// ring: the members have had their time.
func (g *group) ring(m *Machine, now time.Time, out *Effects) {
	switch g.state {
	case model.GroupPreparingRebalance:
		if g.initial && g.more && g.left > 0 {
			delay := min(m.settings.InitialDelay, g.left)
			g.more, g.left = false, max(g.left-m.settings.InitialDelay, 0)
			m.alarms.set(&g.alarm, now.Add(delay))
			return
		}
		m.complete(now, g, out)
	case model.GroupCompletingRebalance, model.GroupStable:
		for _, mem := range slices.Clone(g.members) {
			if !mem.synced {
				m.removeMember(mem, "it did not ask for its assignment", out)
			}
		}
		m.prepare(now, g, "members did not ask for their assignments", out)
	}
}

// complete ends the joining: those that have make the next generation.
func (m *Machine) complete(now time.Time, g *group, out *Effects) {
	m.alarms.cancel(&g.alarm)
	for _, mem := range slices.Clone(g.members) {
		if !mem.join.waits && mem.instance == "" {
			m.removeMember(mem, "it did not join in time", out)
		}
	}
	if len(g.members) > 0 && !g.chooseLeader() {
		// Static members alone, and none of them here: their sessions decide.
		m.alarms.set(&g.alarm, now.Add(max(g.rebalanceTimeout(), againMin)))
		return
	}
	g.initial = false
	if g.generation++; g.generation < 0 {
		g.generation = 0
	}
	if len(g.members) == 0 {
		m.becomeEmpty(now, g, out)
		return
	}
	g.protocol = g.elect()
	m.subscribe(g)
	g.become(now, model.GroupCompletingRebalance)
	g.unsynced = len(g.members)
	for _, mem := range g.members {
		mem.synced, mem.fresh = false, false
		m.alarms.set(&mem.alarm, now.Add(mem.session))
		m.answerJoin(now, mem, g.joined(mem, mem.id == g.leader), out)
	}
	m.alarms.set(&g.alarm, now.Add(g.rebalanceTimeout()))
}

// chooseLeader keeps the leader, or takes the first member that has joined where the
// leader has not.
func (g *group) chooseLeader() bool {
	if leader, ok := g.byID[g.leader]; ok && leader.join.waits {
		return true
	}
	for _, mem := range g.members {
		if mem.join.waits {
			g.leader = mem.id
			return true
		}
	}
	return false
}

// becomeEmpty writes down that nobody is left, or leaves that to the next look at what
// has expired.
func (m *Machine) becomeEmpty(now time.Time, g *group, out *Effects) {
	g.protocol = ""
	m.subscribe(g)
	g.become(now, model.GroupEmpty)
	out.Notices = append(out.Notices, Notice{Kind: NoticeEmpty, Group: g.id, Generation: g.generation})
	if g.behind = m.full() != nil; g.behind {
		return
	}
	m.write(now, g, []Record{g.record(now, nil)}, &emptied{group: g, generation: g.generation}, out)
}

// emptied is the outcome of a group's record without members. Nobody waits for it: until
// it is written, a coordinator that loads the group lets the last members expire again.
type emptied struct {
	group      *group
	generation int32
}

func (e *emptied) written(_ *Machine, _ time.Time, err error, _ *Effects) {
	if e.group.generation == e.generation {
		e.group.behind = err != nil
	}
}

func (e *emptied) late(*Machine, time.Time, error, *Effects) bool { return false }

func (e *emptied) abandon(error, *Effects) {}
