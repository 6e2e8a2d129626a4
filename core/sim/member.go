package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// member is a consumer of a group, as clients of the classic protocol are: it joins,
// asks for its assignment, fetches the offsets of what it was assigned, and then
// commits what it has processed and keeps its session, until it is told to join again.
type member struct {
	s        *simulation
	group    *consumers
	name     string
	instance string // "": a dynamic member
	old      bool   // it joins without asking for an ID first
	session  time.Duration
	patience time.Duration // its rebalance timeout

	id         string
	generation int32
	owned      []int32
	next       map[int32]int64 // by partition
	era        int             // counts up with each membership; what is of an earlier one is dropped
	stalled    time.Time       // nothing is done until then
	gone       bool
	settled    bool // it has its assignment, and its offsets
	commits    int  // acknowledged in this membership
	errors     int  // heard since the faults ended, and the group was settled
	busy       bool // a commit is under way
}

// slot is what assignments are made for: it outlives a static member's ID.
func (m *member) slot(id string) string {
	if m.instance != "" {
		return m.instance
	}
	return id
}

// do runs something of this membership, when the member is not stalled.
func (m *member) do(after time.Duration, do func()) {
	era := m.era
	m.s.w.After(after, func() { m.now(era, do) })
}

func (m *member) now(era int, do func()) {
	switch {
	case m.gone || era != m.era:
	case m.s.w.Now().Before(m.stalled):
		m.s.w.At(m.stalled, func() { m.now(era, do) })
	default:
		do()
	}
}

// delay is how long a request is on its way.
func (m *member) delay() time.Duration {
	if m.s.f.On && m.s.w.Chance(60) {
		return m.s.w.Between(0, 3*time.Second)
	}
	return m.s.w.Between(0, 2*time.Millisecond)
}

// again waits a little before something is tried once more.
func (m *member) again() time.Duration { return m.s.w.Between(2*time.Millisecond, 40*time.Millisecond) }

// send is ask for a member: answers reach it while it is not stalled, and only in the
// membership in which it asked.
func send[A any](m *member, what string, delay, patience time.Duration, post func(*groups, func(A)), told, heard func(A), lost func()) *flight {
	era := m.era
	return ask(m.s, what+" of "+m.name, delay, patience, post, told,
		func(a A) { m.now(era, func() { heard(a) }) },
		func() { m.now(era, lost) })
}

// join asks to become a member, or to stay one.
func (m *member) join() {
	m.era++
	m.settled, m.busy, m.commits, m.owned = false, false, 0, nil
	q := model.JoinGroup{
		Group: m.group.name, MemberID: m.id, InstanceID: m.instance, ClientID: m.name, ProtocolType: "consumer",
		Protocols:      []model.GroupProtocol{{Name: "range", Metadata: subscription("orders")}},
		SessionTimeout: m.session, RebalanceTimeout: m.patience, AsksForID: m.instance == "" && !m.old,
		SkipsAssignment: m.instance != "",
	}
	f := send(m, "join", m.delay(), 2*m.patience+m.s.opts.Coordination.InitialDelay+time.Second,
		func(g *groups, done func(model.JoinedGroup)) { g.Join(context.Background(), q, done) },
		func(a model.JoinedGroup) {
			if a.Err == nil {
				m.s.w.Note("%s joins generation %d as %s", m.name, a.Generation, a.MemberID)
				m.s.ledger.joined(m.group.name, m.instance, a)
			}
		},
		m.joined,
		func() { m.do(m.again(), m.join) })
	f.most += waitMax
}

func (m *member) joined(a model.JoinedGroup) {
	switch {
	case errors.Is(a.Err, model.ErrMemberIDRequired):
		m.id = a.MemberID
		m.do(0, m.join)
		return
	case a.Err != nil:
		m.refused(a.Err)
		return
	}
	m.id, m.generation = a.MemberID, a.Generation
	var assignments []model.MemberAssignment
	if a.Leader == a.MemberID && !a.SkipAssignment {
		assignments = m.assign(a.Members)
	}
	m.sync(assignments)
}

// assign deals the partitions out, in the order of the members' names.
func (m *member) assign(members []model.JoinedMember) []model.MemberAssignment {
	slots := make([]string, len(members))
	for i, one := range members {
		slots[i] = one.MemberID
		if one.InstanceID != "" {
			slots[i] = one.InstanceID
		}
	}
	order := make([]int, len(members))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(slots[a], slots[b]) })
	out := make([]model.MemberAssignment, len(members))
	for at, i := range order {
		var mine []int32
		for p := at; p < m.s.opts.Partitions; p += len(members) {
			mine = append(mine, int32(p))
		}
		out[i] = model.MemberAssignment{MemberID: members[i].MemberID, Assignment: assignmentFor(m.generation, slots[i], mine)}
	}
	return out
}

func (m *member) sync(assignments []model.MemberAssignment) {
	q := model.SyncGroup{Group: m.group.name, Generation: m.generation, MemberID: m.id, InstanceID: m.instance, ProtocolType: "consumer", Protocol: "range", Assignments: assignments}
	var c claim
	f := send(m, "sync", m.delay(), m.patience+time.Second,
		func(g *groups, done func(model.SyncedGroup)) {
			c = m.s.ledger.arrives(q.Group, q.Generation, q.MemberID)
			g.Sync(context.Background(), q, done)
		},
		func(a model.SyncedGroup) {
			if a.Err == nil {
				m.s.w.Note("%s is assigned %s", m.name, a.Assignment)
				m.s.ledger.synced(c, m.slot(q.MemberID), a.Assignment)
			}
		},
		func(a model.SyncedGroup) {
			if a.Err != nil {
				m.refused(a.Err)
				return
			}
			got, err := parseAssignment(a.Assignment)
			if err != nil {
				return // the ledger has said so
			}
			m.owned = got.partitions
			m.do(m.session/4, m.beat)
			m.position()
		},
		func() { m.do(m.again(), func() { m.sync(assignments) }) })
	f.most += waitMax
}

// position fetches where to go on.
func (m *member) position() {
	keys := ordersOf(m.owned)
	m.s.fetchOffsets(m.group.name, keys, func(a model.FetchedOffsets) {
		if a.Err != nil {
			m.do(m.again(), m.position)
			return
		}
		m.next = make(map[int32]int64)
		for i, p := range m.owned {
			m.next[p] = max(a.Offsets[i].Offset, 0)
		}
		m.settled = true
		m.do(m.pace(), m.process)
	}, func() { m.do(m.again(), m.position) }, m)
}

// pace is how long processing takes. When the faults have ended there is less to do.
func (m *member) pace() time.Duration {
	if m.s.f.On {
		return m.s.w.Between(0, m.s.opts.Pace)
	}
	return m.s.w.Between(0, calmFor/4)
}

// process goes on in some of its partitions, and commits.
func (m *member) process() {
	var partitions []int32
	for _, p := range m.owned {
		// Now and then nothing comes for long.
		if m.next[p] == 0 || !m.group.quiet[p] && m.s.w.Chance(2) {
			partitions = append(partitions, p)
		}
	}
	if len(partitions) > 0 && !m.busy {
		keys := ordersOf(partitions)
		offsets := make([]int64, len(keys))
		for i, p := range partitions {
			m.next[p] += 1 + m.s.w.Rand.Int64N(5)
			offsets[i] = m.next[p]
		}
		if m.s.w.Chance(6) {
			m.group.audits++
			keys, offsets = append(keys, model.TopicPartition{Topic: auditTopic}), append(offsets, m.group.audits)
		}
		m.busy = true
		m.commit(keys, offsets)
	}
	m.do(m.pace(), m.process)
}

// commit tries until the offsets are committed, or the membership is over.
func (m *member) commit(keys []model.TopicPartition, offsets []int64) {
	delay := m.delay()
	if m.s.f.On && m.s.w.Chance(80) {
		// A process that stops with a commit on its way: others may have taken its
		// place when that arrives.
		delay = m.s.w.Between(m.session, 3*m.session+m.patience)
		m.stall(delay + time.Millisecond)
	}
	commitOffsets(m.s, m, model.CommitOffsets{Group: m.group.name, Generation: m.generation, MemberID: m.id, InstanceID: m.instance, Retention: -1}, keys, offsets, delay,
		func(err error) {
			m.busy = false
			switch {
			case err == nil:
				m.commits++
			case retriableByMember(err):
				m.busy = true
				m.do(m.again(), func() { m.commit(keys, offsets) })
			default:
				m.refused(err)
			}
		},
		func() { m.do(m.again(), func() { m.commit(keys, offsets) }) })
}

func retriableByMember(err error) bool {
	return errors.Is(err, model.ErrCoordinatorNotAvailable) || errors.Is(err, model.ErrCoordinatorLoading) || errors.Is(err, model.ErrNotCoordinator)
}

// beat keeps the session.
func (m *member) beat() {
	q := model.GroupHeartbeat{Group: m.group.name, Generation: m.generation, MemberID: m.id, InstanceID: m.instance}
	var c claim
	send(m, "heartbeat", m.delay(), m.session/2,
		func(g *groups, done func(error)) {
			c = m.s.ledger.arrives(q.Group, q.Generation, q.MemberID)
			g.Heartbeat(context.Background(), q, done)
		},
		func(err error) {
			if err == nil {
				m.s.ledger.accepted(c, "a heartbeat")
			}
		},
		func(err error) {
			if err != nil && !retriableByMember(err) {
				m.refused(err)
				return
			}
			m.do(m.session/4, m.beat)
		},
		func() { m.do(0, m.beat) })
}

// refused goes on as clients do.
func (m *member) refused(err error) {
	m.errors++
	m.s.w.Note("%s hears %v", m.name, err)
	switch {
	case errors.Is(err, model.ErrFencedInstanceID):
		m.s.report.Fenced++
		m.gone = true // another process has this name, or had it last
		if !m.s.f.On && len(m.group.alive()) == 0 {
			m.s.enter(m.group, "", 0)
		}
		return
	case errors.Is(err, model.ErrUnknownMemberID):
		m.id = ""
	case errors.Is(err, model.ErrIllegalGeneration), errors.Is(err, model.ErrGroupIDNotFound), errors.Is(err, model.ErrRebalanceInProgress), retriableByMember(err):
	default:
		m.s.check.violate("%s is refused for good: %v", m.name, err)
		return
	}
	m.era++
	m.settled, m.owned = false, nil
	m.do(m.again(), m.join)
}

func (m *member) stall(d time.Duration) {
	m.s.report.Stalls++
	m.stalled = m.s.w.Now().Add(d)
	m.s.w.Note("%s stalls for %s", m.name, d)
}

// vanish ends the process without a word.
func (m *member) vanish() {
	m.s.report.Vanished++
	m.s.w.Note("%s vanishes", m.name)
	m.gone = true
}

// leave ends the membership; static members just go (KIP-345).
func (m *member) leave() {
	m.s.w.Note("%s leaves", m.name)
	m.gone = true
	if m.instance != "" || m.id == "" {
		return
	}
	q := model.LeaveGroup{Group: m.group.name, Members: []model.LeavingMember{{MemberID: m.id}}}
	ask(m.s, "leave of "+m.name, m.delay(), time.Second,
		func(g *groups, done func(model.LeftGroup)) { g.Leave(context.Background(), q, done) },
		func(model.LeftGroup) {}, func(model.LeftGroup) {}, func() {})
}

// subscription is a consumer's metadata: version, topics, no user data.
func subscription(topics ...string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{0, 0}, uint32(len(topics)))
	for _, t := range topics {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(t))), t...)
	}
	return binary.BigEndian.AppendUint32(b, 0)
}

// assigned is what an assignment says.
type assigned struct {
	generation int32
	slot       string
	partitions []int32
}

func assignmentFor(generation int32, slot string, partitions []int32) []byte {
	b := fmt.Appendf(nil, "%d|%s|", generation, slot)
	for _, p := range partitions {
		b = fmt.Appendf(b, "%d,", p)
	}
	return b
}

func parseAssignment(b []byte) (assigned, error) {
	var a assigned
	parts := strings.Split(string(b), "|")
	if len(parts) != 3 {
		return a, errors.New("it is no assignment")
	}
	generation, err := strconv.Atoi(parts[0])
	if err != nil {
		return a, fmt.Errorf("its generation: %w", err)
	}
	a.generation, a.slot = int32(generation), parts[1]
	for p := range strings.SplitSeq(strings.TrimSuffix(parts[2], ","), ",") {
		if p == "" {
			continue
		}
		n, err := strconv.Atoi(p)
		if err != nil {
			return a, fmt.Errorf("its partitions: %w", err)
		}
		a.partitions = append(a.partitions, int32(n))
	}
	return a, nil
}
