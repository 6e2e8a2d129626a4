package group

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// join takes a member in, or takes it in again.
func (m *Machine) join(now time.Time, in *Join, out *Effects) {
	q := &in.JoinGroup
	if err := m.checkJoin(q); err != nil {
		failJoin(out, in.ID, q.MemberID, err)
		return
	}
	q.Protocols = distinct(q.Protocols)
	g, ok := m.groups[q.Group]
	if err := m.fitsJoin(now, g, q, out); err != nil {
		failJoin(out, in.ID, q.MemberID, err)
		return
	}
	switch {
	case !ok && q.MemberID != "":
		failJoin(out, in.ID, q.MemberID, fmt.Errorf("there is no group %q: %w", q.Group, model.ErrUnknownMemberID))
		return
	case !ok && (q.ProtocolType == "" || len(q.Protocols) == 0):
		failJoin(out, in.ID, q.MemberID, fmt.Errorf("a member offers nothing to group %q: %w", q.Group, model.ErrInconsistentProtocol))
		return
	case !ok:
		g = m.addGroup(q.Group, now)
	}
	switch {
	case g.deleting:
		failJoin(out, in.ID, q.MemberID, errDeleting(g))
	case !m.accepts(g, q):
		m.turnAway(now, in, g, out)
	case !g.supports(q.ProtocolType, q.Protocols):
		failJoin(out, in.ID, q.MemberID, fmt.Errorf("members of group %q have no protocol in common with it: %w", g.id, model.ErrInconsistentProtocol))
	case q.MemberID == "":
		m.joinNew(now, in, g, out)
	default:
		m.joinKnown(now, in, g, out)
	}
}

// checkJoin looks at what does not need the group.
func (m *Machine) checkJoin(q *model.JoinGroup) error {
	if q.Group == "" || len(q.Group) > stringMax {
		return fmt.Errorf("join a group: %w", model.ErrInvalidGroupID)
	}
	if q.SessionTimeout < m.settings.SessionMin || q.SessionTimeout > m.settings.SessionMax {
		return fmt.Errorf("a session of %s is not between %s and %s: %w",
			q.SessionTimeout, m.settings.SessionMin, m.settings.SessionMax, model.ErrInvalidSessionTimeout)
	}
	long := max(len(q.MemberID), len(q.InstanceID), len(q.ClientID), len(q.ClientHost), len(q.ProtocolType))
	for i := range q.Protocols {
		long = max(long, len(q.Protocols[i].Name))
	}
	if long > stringMax {
		return fmt.Errorf("a name has %d bytes, more than %d: %w", long, stringMax, model.ErrInvalidRequest)
	}
	q.RebalanceTimeout = min(max(q.RebalanceTimeout, 0), timeoutMax)
	return nil
}

// fitsJoin refuses a member, or more that one offers, for which there is no memory. Who
// is a member stays one.
func (m *Machine) fitsJoin(now time.Time, g *group, q *model.JoinGroup, out *Effects) error {
	n, mem := m.joinBytes(g, q)
	err := m.fits(n, mem != nil, q.Group, out)
	if err != nil && mem != nil && mem.id == q.MemberID && !mem.join.waits {
		m.alarms.set(&mem.alarm, now.Add(mem.session))
	}
	return err
}

// distinct drops protocols that are offered twice.
func distinct(protocols []model.GroupProtocol) []model.GroupProtocol {
	seen := make(map[string]struct{}, len(protocols))
	for i := range protocols {
		if _, twice := seen[protocols[i].Name]; !twice {
			seen[protocols[i].Name] = struct{}{}
		}
	}
	if len(seen) == len(protocols) {
		return protocols
	}
	kept := make([]model.GroupProtocol, 0, len(seen))
	for _, p := range protocols {
		if _, first := seen[p.Name]; first {
			delete(seen, p.Name)
			kept = append(kept, p)
		}
	}
	return kept
}

// accepts reports whether there is room. While members rejoin those count that have,
// so that a group which has become too large loses the slowest; a static one that has
// not keeps its place.
func (m *Machine) accepts(g *group, q *model.JoinGroup) bool {
	mem, known := g.byID[q.MemberID]
	if q.MemberID == "" && q.InstanceID != "" {
		mem, known = g.static[q.InstanceID]
	}
	_, asked := g.pending[q.MemberID]
	switch {
	case !known && !asked && len(g.pending) >= m.settings.SizeMax:
		return false
	case g.state == model.GroupEmpty:
		return true
	case g.state == model.GroupPreparingRebalance:
		return known && mem.join.waits || g.taken(mem, m.settings.SizeMax) < m.settings.SizeMax
	}
	return known || len(g.members) < m.settings.SizeMax
}

// taken counts the places of a group that rebalances, without one member's; exactly
// where it may come to most.
func (g *group) taken(without *member, most int) int {
	taken := g.joining
	if taken+len(g.static) < most {
		return taken
	}
	for _, mem := range g.static {
		if mem != without && !mem.join.waits {
			taken++
		}
	}
	return taken
}

// turnAway refuses who does not fit into a full group.
func (m *Machine) turnAway(now time.Time, in *Join, g *group, out *Effects) {
	failJoin(out, in.ID, "", fmt.Errorf("group %q has %d members: %w", g.id, m.settings.SizeMax, model.ErrGroupMaxSize))
	if mem, ok := g.byID[in.MemberID]; ok {
		m.removeMember(mem, "the group is full", out)
	} else if p, ok := g.pending[in.MemberID]; ok {
		m.removePending(p)
	}
	m.completeIfAll(now, g, out)
}

// joinNew takes in who has no ID.
func (m *Machine) joinNew(now time.Time, in *Join, g *group, out *Effects) {
	name := in.ClientID
	if in.InstanceID != "" {
		name = in.InstanceID
	}
	id := cut(name, nameMax) + "-" + m.newID()
	if old, ok := g.static[in.InstanceID]; ok && in.InstanceID != "" {
		if err := m.full(); err != nil {
			failJoin(out, in.ID, "", err)
			return
		}
		m.replace(now, in, old, id, out)
		return
	}
	if in.InstanceID != "" || !in.AsksForID {
		m.addMember(now, in, g, id, out)
		return
	}
	p := &pending{group: g, id: id}
	p.alarm.owner = p
	g.pending[id] = p
	m.keep(g, sizeOfPending(id))
	m.alarms.set(&p.alarm, now.Add(in.SessionTimeout))
	failJoin(out, in.ID, id, model.ErrMemberIDRequired)
}

// joinKnown takes in who has an ID.
func (m *Machine) joinKnown(now time.Time, in *Join, g *group, out *Effects) {
	if p, ok := g.pending[in.MemberID]; ok && in.InstanceID == "" {
		m.removePending(p)
		m.addMember(now, in, g, in.MemberID, out)
		return
	}
	mem, err := g.check(in.MemberID, in.InstanceID, noGeneration)
	if err != nil {
		failJoin(out, in.ID, in.MemberID, err)
		return
	}
	same := mem.matches(in.Protocols)
	switch {
	case g.state == model.GroupCompletingRebalance && same: // the answer may have been lost
		m.alarms.set(&mem.alarm, now.Add(mem.session))
		respond(out, in.ID, Joined{g.joined(mem, g.leader == mem.id)})
	case g.state == model.GroupStable && same && g.leader != mem.id:
		m.alarms.set(&mem.alarm, now.Add(mem.session))
		respond(out, in.ID, Joined{g.joined(mem, false)})
	default:
		m.waitInJoin(in, mem, out)
		m.rebalance(now, g, "member "+mem.id+" joins again: "+short(in.Reason), out)
	}
}

// addMember takes a new member in.
func (m *Machine) addMember(now time.Time, in *Join, g *group, id string, out *Effects) {
	mem := &member{id: id, instance: in.InstanceID, clientID: in.ClientID, clientHost: in.ClientHost, fresh: true}
	if len(g.members) == 0 {
		g.protocolType = in.ProtocolType
	}
	if g.initial {
		g.more = true
	}
	g.add(mem)
	m.waitInJoin(in, mem, out)
	m.alarms.set(&mem.alarm, now.Add(newJoinMax))
	m.rebalance(now, g, "member "+id+" joins: "+short(in.Reason), out)
}

// waitInJoin lets a member wait for the next generation, with what it offers now. An
// earlier request of it is answered: its client has given that up.
func (m *Machine) waitInJoin(in *Join, mem *member, out *Effects) {
	if !mem.matches(in.Protocols) {
		mem.group.offer(mem, own(in.Protocols))
	}
	m.measure(mem)
	mem.session, mem.rebalance = in.SessionTimeout, in.RebalanceTimeout
	if mem.join.waits {
		failJoin(out, mem.join.id, mem.id, fmt.Errorf("the member has joined again: %w", model.ErrRebalanceInProgress))
		mem.group.joining--
	}
	mem.join = request{id: in.ID, waits: true, skips: in.SkipsAssignment}
	mem.group.joining++
}

// own are protocols that keep nothing of the request that they came in.
func own(protocols []model.GroupProtocol) []model.GroupProtocol {
	all := make([]model.GroupProtocol, len(protocols))
	for i := range protocols {
		all[i] = model.GroupProtocol{Name: protocols[i].Name, Metadata: bytes.Clone(protocols[i].Metadata)}
	}
	return all
}

// answerJoin answers a member that waits in Join. Its session begins anew.
func (m *Machine) answerJoin(now time.Time, mem *member, answer model.JoinedGroup, out *Effects) {
	if !mem.join.waits {
		return
	}
	respond(out, mem.join.id, Joined{answer})
	mem.join = request{}
	mem.group.joining--
	m.alarms.set(&mem.alarm, now.Add(mem.session))
}

// joined is what a member is told of the generation.
func (g *group) joined(mem *member, everything bool) model.JoinedGroup {
	a := model.JoinedGroup{
		Generation:   g.generation,
		ProtocolType: g.protocolType,
		Protocol:     g.protocol,
		Leader:       g.leader,
		MemberID:     mem.id,
	}
	if everything {
		a.Members = make([]model.JoinedMember, len(g.members))
		for i, other := range g.members {
			a.Members[i] = model.JoinedMember{MemberID: other.id, InstanceID: other.instance, Metadata: other.metadata(g.protocol)}
		}
	}
	return a
}

// replace gives a static member that has come back a new ID. Whoever used the old one
// is fenced (KIP-345).
func (m *Machine) replace(now time.Time, in *Join, mem *member, id string, out *Effects) {
	g := mem.group
	fenced := fmt.Errorf("instance %q of group %q has joined anew: %w", mem.instance, g.id, model.ErrFencedInstanceID)
	m.answerJoin(now, mem, model.JoinedGroup{Generation: -1, MemberID: mem.id, Err: fenced}, out)
	m.answerSync(now, mem, model.SyncedGroup{Err: fenced}, out)
	r := &replacement{member: mem, id: id, generation: g.generation, request: in.ID, before: before{
		oldID: mem.id, oldLeader: g.leader, oldProtocols: mem.protocols, oldSession: mem.session, oldRebalance: mem.rebalance,
	}}
	unchanged := g.state == model.GroupStable && g.offersSame(mem, in.Protocols)
	g.rename(mem, id)
	mem.clientID, mem.clientHost, mem.fresh = in.ClientID, in.ClientHost, false
	m.waitInJoin(in, mem, out)
	m.alarms.set(&mem.alarm, now.Add(mem.session))
	if unchanged && g.elect() == g.protocol {
		m.hold(m.write(now, g, []Record{g.record(now, nil)}, r, out), sizeOfProtocols(r.oldProtocols))
		return
	}
	m.rebalance(now, g, "static member "+mem.instance+" came back: "+short(in.Reason), out)
}

// offersSame reports whether a member that offers protocols would get what it has: the
// metadata for the chosen protocol is equal, or subscribes to the same topics. (What
// else is in it, such as the partitions it owned, does not survive a client's restart.)
func (g *group) offersSame(mem *member, protocols []model.GroupProtocol) bool {
	was := mem.metadata(g.protocol)
	at := slices.IndexFunc(protocols, func(p model.GroupProtocol) bool { return p.Name == g.protocol })
	if at < 0 {
		return false
	}
	is := protocols[at].Metadata
	if bytes.Equal(was, is) {
		return true
	}
	old, fresh := map[string]struct{}{}, map[string]struct{}{}
	return g.protocolType == consumerProtocol && readTopics(was, old) && readTopics(is, fresh) && maps.Equal(old, fresh)
}

// replacement is the outcome of a static member's new ID while the group is Stable.
type replacement struct {
	member     *member
	id         string
	generation int32
	request    RequestID
	before
}

// before is what a static member was before it came back.
type before struct {
	oldID, oldLeader         string
	oldProtocols             []model.GroupProtocol
	oldSession, oldRebalance time.Duration
}

// stands reports that nothing has happened since that answers the member otherwise.
func (r *replacement) stands() bool {
	g := r.member.group
	return g.byID[r.id] == r.member && g.state == model.GroupStable && g.generation == r.generation
}

func (r *replacement) written(m *Machine, now time.Time, err error, out *Effects) {
	if err != nil {
		r.undo(m, now, err, out)
		return
	}
	mem, g := r.member, r.member.group
	if !r.stands() {
		return
	}
	if !mem.join.waits || mem.join.id != r.request {
		return
	}
	skip := mem.join.skips && g.leader == mem.id
	a := g.joined(mem, skip)
	a.SkipAssignment = skip
	if !mem.join.skips {
		a.Leader = r.oldLeader // so that it keeps what is assigned, rather than assign anew
	}
	m.answerJoin(now, mem, a, out)
}

// undo puts things back as they are in the log. Where the member has been replaced once
// more, and that is refused too, this is what it goes back to.
func (r *replacement) undo(m *Machine, now time.Time, err error, out *Effects) {
	for _, w := range m.writes.queue {
		if next, ok := w.outcome.(*replacement); ok && next.member == r.member && next.oldID == r.id {
			next.before = r.before
		}
	}
	if !r.stands() {
		return
	}
	r.fail(m, now, err, out)
	r.member.group.rename(r.member, r.oldID)
	r.member.group.offer(r.member, r.oldProtocols)
	r.member.session, r.member.rebalance = r.oldSession, r.oldRebalance
	m.measure(r.member)
}

func (r *replacement) late(m *Machine, now time.Time, err error, out *Effects) bool {
	if r.stands() {
		r.fail(m, now, err, out)
	}
	return false
}

func (r *replacement) fail(m *Machine, now time.Time, err error, out *Effects) {
	if r.member.join.waits && r.member.join.id == r.request {
		m.answerJoin(now, r.member, model.JoinedGroup{Generation: -1, Err: err}, out)
	}
}

func (r *replacement) abandon(error, *Effects) {} // the member waits in Join

// removePending forgets who was given an ID.
func (m *Machine) removePending(p *pending) {
	delete(p.group.pending, p.id)
	p.group.pending = trim(p.group.pending, &p.group.widest.pending)
	m.keep(p.group, -sizeOfPending(p.id))
	m.alarms.cancel(&p.alarm)
}

// ring: who was given an ID has not joined with it.
func (p *pending) ring(m *Machine, now time.Time, out *Effects) {
	m.removePending(p)
	m.pendingGone(now, p.group, out)
}

// pendingGone does what a group needs that may have waited for somebody who was no member.
func (m *Machine) pendingGone(now time.Time, g *group, out *Effects) {
	m.completeIfAll(now, g, out)
	m.vanish(g)
}
