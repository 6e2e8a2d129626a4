package group

import (
	"bytes"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// sync gives a member its assignment, as soon as that is durable.
func (m *Machine) sync(now time.Time, in *Sync, out *Effects) {
	mem, err := m.checkSync(&in.SyncGroup)
	if err != nil {
		failSync(out, in.ID, err)
		return
	}
	g := mem.group
	m.alarms.set(&mem.alarm, now.Add(mem.session))
	if !mem.synced {
		mem.synced = true
		if g.unsynced--; g.unsynced == 0 {
			m.alarms.cancel(&g.alarm)
		}
	}
	if g.state == model.GroupStable {
		respond(out, in.ID, Synced{g.synced(mem)})
		return
	}
	assigns := mem.id == g.leader && g.assigning == nil
	var of map[string][]byte
	if assigns {
		of = g.assigned(in.Assignments)
		err := m.full()
		if err == nil {
			err = m.fits(g.assignmentBytes(of), true, g.id, out)
		}
		if err != nil {
			failSync(out, in.ID, err)
			return
		}
	}
	if mem.sync.waits {
		failSync(out, mem.sync.id, fmt.Errorf("the member has asked again: %w", model.ErrRebalanceInProgress))
	}
	mem.sync = request{id: in.ID, waits: true}
	if assigns {
		m.assign(now, g, of, out)
	}
}

// checkSync finds the member that may have its assignment.
func (m *Machine) checkSync(q *model.SyncGroup) (*member, error) {
	if q.Group == "" {
		return nil, fmt.Errorf("sync with a group: %w", model.ErrInvalidGroupID)
	}
	g, ok := m.groups[q.Group]
	if !ok || g.state == model.GroupEmpty {
		return nil, fmt.Errorf("group %q has no members: %w", q.Group, model.ErrUnknownMemberID)
	}
	mem, err := g.check(q.MemberID, q.InstanceID, q.Generation)
	switch {
	case err != nil:
		return nil, err
	case q.Generation != g.generation:
		return nil, errGeneration(g, q.Generation)
	case q.ProtocolType != "" && q.ProtocolType != g.protocolType, q.Protocol != "" && g.protocol != "" && q.Protocol != g.protocol:
		return nil, fmt.Errorf("group %q has %s %q: %w", g.id, g.protocolType, g.protocol, model.ErrInconsistentProtocol)
	case g.state == model.GroupPreparingRebalance:
		return nil, model.ErrRebalanceInProgress
	}
	return mem, nil
}

func errGeneration(g *group, generation int32) error {
	return fmt.Errorf("group %q has generation %d, not %d: %w", g.id, g.generation, generation, model.ErrIllegalGeneration)
}

// assigned is what members are given, by their IDs.
func (g *group) assigned(assignments []model.MemberAssignment) map[string][]byte {
	of := make(map[string][]byte, len(g.members))
	for _, one := range assignments {
		if mem, ok := g.byID[one.MemberID]; ok {
			of[mem.id] = one.Assignment
		}
	}
	return of
}

// assign writes what the leader has assigned. Nothing is kept of the request that it
// came in.
func (m *Machine) assign(now time.Time, g *group, of map[string][]byte, out *Effects) {
	for id := range of {
		of[id] = bytes.Clone(of[id])
	}
	a := &assignment{group: g, of: of}
	g.assigning = m.write(now, g, []Record{g.record(now, a.of)}, a, out)
	a.write = g.assigning
}

// assignment is the outcome of a generation's assignment.
type assignment struct {
	group *group
	write *write
	of    map[string][]byte // by member ID
}

func (a *assignment) written(m *Machine, now time.Time, err error, out *Effects) {
	g := a.group
	if g.assigning != a.write {
		return // the group has gone on
	}
	g.assigning = nil
	if err != nil {
		m.dropAssignment(now, g, err, out)
		m.prepare(now, g, "the assignment could not be written", out)
		return
	}
	g.become(now, model.GroupStable)
	out.Notices = append(out.Notices, Notice{Kind: NoticeStable, Group: g.id, Generation: g.generation, Count: len(g.members)})
	for _, mem := range g.members {
		mem.assignment = a.of[mem.id]
		m.measure(mem)
		m.answerSync(now, mem, g.synced(mem), out)
	}
}

// late: those that come back meanwhile wait for the same write.
func (a *assignment) late(m *Machine, now time.Time, err error, out *Effects) bool {
	if a.group.assigning != a.write {
		return false
	}
	for _, mem := range a.group.members {
		m.answerSync(now, mem, model.SyncedGroup{Err: err}, out)
	}
	return true
}

func (a *assignment) abandon(error, *Effects) {} // the members wait in Sync

// answerSync answers a member that waits in Sync. Its session begins anew.
func (m *Machine) answerSync(now time.Time, mem *member, answer model.SyncedGroup, out *Effects) {
	if !mem.sync.waits {
		return
	}
	respond(out, mem.sync.id, Synced{answer})
	mem.sync = request{}
	m.alarms.set(&mem.alarm, now.Add(mem.session))
}

// synced is what a member is told of its assignment.
func (g *group) synced(mem *member) model.SyncedGroup {
	return model.SyncedGroup{ProtocolType: g.protocolType, Protocol: g.protocol, Assignment: mem.assignment}
}
