package group

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/brokerd/brokerd/core/model"
)

// heartbeat keeps a member's session.
func (m *Machine) heartbeat(now time.Time, in *Heartbeat, out *Effects) {
	if in.Group == "" {
		respond(out, in.ID, Done{fmt.Errorf("heartbeat of a group: %w", model.ErrInvalidGroupID)})
		return
	}
	g, ok := m.groups[in.Group]
	if !ok {
		respond(out, in.ID, Done{fmt.Errorf("there is no group %q: %w", in.Group, model.ErrUnknownMemberID)})
		return
	}
	mem, err := g.check(in.MemberID, in.InstanceID, in.Generation)
	if err == nil && in.Generation != g.generation {
		err = errGeneration(g, in.Generation)
	}
	if err != nil {
		respond(out, in.ID, Done{err})
		return
	}
	m.alarms.set(&mem.alarm, now.Add(mem.session))
	if g.state == model.GroupPreparingRebalance {
		respond(out, in.ID, Done{model.ErrRebalanceInProgress})
		return
	}
	respond(out, in.ID, Done{})
}

// leave removes members.
func (m *Machine) leave(now time.Time, in *Leave, out *Effects) {
	if in.Group == "" {
		respond(out, in.ID, Left{model.LeftGroup{Err: fmt.Errorf("leave a group: %w", model.ErrInvalidGroupID)}})
		return
	}
	errs := make([]error, len(in.Members))
	g, ok := m.groups[in.Group]
	if !ok {
		for i := range errs {
			errs[i] = fmt.Errorf("there is no group %q: %w", in.Group, model.ErrUnknownMemberID)
		}
		respond(out, in.ID, Left{model.LeftGroup{Members: errs}})
		return
	}
	before := len(g.members)
	for i := range in.Members {
		errs[i] = m.leaveOne(g, &in.Members[i], out)
	}
	respond(out, in.ID, Left{model.LeftGroup{Members: errs}})
	if left := before - len(g.members); left > 0 {
		reason := "a member has left"
		if left > 1 {
			reason = fmt.Sprintf("%d members have left", left)
		}
		m.rebalance(now, g, reason, out)
		return
	}
	m.pendingGone(now, g, out)
}

// leaveOne removes one member, by its ID, or by its instance ID alone, or forgets who was
// given the ID and has not joined with it.
func (m *Machine) leaveOne(g *group, q *model.LeavingMember, out *Effects) error {
	id := q.MemberID
	if p, ok := g.pending[id]; ok {
		m.removePending(p)
		return nil
	}
	if mem, ok := g.static[q.InstanceID]; ok && id == "" && q.InstanceID != "" {
		id = mem.id
	}
	mem, err := g.check(id, q.InstanceID, noGeneration)
	if err != nil {
		return err
	}
	m.removeMember(mem, "it has left: "+short(q.Reason), out)
	return nil
}

// removeMember takes a member out and answers what it waits for.
func (m *Machine) removeMember(mem *member, why string, out *Effects) {
	g := mem.group
	gone := fmt.Errorf("member %q was removed: %w", mem.id, model.ErrUnknownMemberID)
	if mem.join.waits {
		failJoin(out, mem.join.id, "", gone)
		mem.join = request{}
		g.joining--
	}
	if mem.sync.waits {
		failSync(out, mem.sync.id, gone)
		mem.sync = request{}
	}
	g.remove(mem)
	m.keep(g, -mem.kept)
	m.alarms.cancel(&mem.alarm)
	out.Notices = append(out.Notices, Notice{Kind: NoticeRemoved, Group: g.id, Member: mem.id, Generation: g.generation, Count: len(g.members), Text: why})
}

// ring: the session of the member is over. One that waits is alive as far as anybody
// can know, except that one which was never answered does not wait for ever.
func (mem *member) ring(m *Machine, now time.Time, out *Effects) {
	if !mem.fresh && (mem.join.waits || mem.sync.waits) {
		return // its session begins anew with the answer
	}
	m.removeMember(mem, "its session is over", out)
	m.rebalance(now, mem.group, "the session of member "+mem.id+" is over", out)
}

// short is a client's reason as far as it is shown.
func short(reason string) string { return cut(reason, reasonMax) }

// cut is s, or as many of its first characters as fit into a number of bytes.
func cut(s string, bytes int) string {
	if len(s) <= bytes {
		return s
	}
	for bytes > 0 && !utf8.RuneStart(s[bytes]) {
		bytes--
	}
	return s[:bytes]
}
