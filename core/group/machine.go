package group

import (
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// Bounds and times that are no settings.
const (
	// newJoinMax is how long a member that has never been answered may wait in Join.
	// Its client cannot send heartbeats, and may have gone.
	newJoinMax = 5 * time.Minute
	// reloadAfter and reloadMax are the pauses before a failed loading is tried again.
	reloadAfter = time.Second
	reloadMax   = 30 * time.Second
	// againMin is the shortest pause before something is tried again, whatever
	// timeouts clients have asked for.
	againMin = time.Second
	// stringMax is the longest string that the schemas of the log can hold.
	stringMax = 1<<15 - 1
	// nameMax is how much of a client's name goes into a member ID.
	nameMax = 1000
	// reasonMax is how much of a client's reason is shown.
	reasonMax = 200
)

// phase is where a machine is in its life.
type phase int8

const (
	phaseIdle    phase = iota // not the coordinator
	phaseLoading              // the log is being replayed
	phaseBroken               // loading failed; tried again when the machine's alarm rings
	phaseServing
)

// Machine is the coordinator of the groups of one offsets partition. It is not safe
// for concurrent use.
type Machine struct {
	settings Settings
	newID    func() string
	memory   Memory
	kept     int // bytes that are counted in memory.Kept

	phase    phase
	epoch    model.LeaderEpoch
	gen      Generation
	failures int // of loading, in a row

	groups map[string]*group
	order  []*group // all groups; the place of each is in its index
	widest int      // the most groups
	alarms alarms
	alarm  alarm     // for the next loading, or the next look at what has expired
	timer  time.Time // the last that was asked for; zero: none

	writes   writes
	idle     []*commitment // to be used again
	none     []error       // see noErrors
	calendar calendar
	newest   int64    // the newest record of the log, while loading
	gone     []string // topics that were deleted while loading
}

// New makes a machine that coordinates nothing until it leads. newID draws what makes
// a member's ID unique; it is called by Step. What the machine keeps is counted in
// memory until it resigns; where that has no Account nothing is counted or refused.
func New(settings Settings, newID func() string, memory Memory) *Machine {
	m := &Machine{settings: settings, newID: newID, memory: memory, epoch: model.NoEpoch}
	m.alarm.owner = m
	m.forget()
	return m
}

// Step handles one input. now carries a monotonic reading, which sessions are measured
// by; what is written and what expires is by its wall clock.
func (m *Machine) Step(now time.Time, in Input, out *Effects) {
	switch in := in.(type) {
	case *Lead:
		m.lead(in, out)
	case *Resign:
		m.resign(out)
	case *Configure:
		m.configure(now, in)
	case *Replay:
		m.replay(in, out)
	case *Loaded:
		m.loaded(now, in, out)
	case *Written:
		m.written(now, in, out)
	case *TopicsDeleted:
		m.topicsDeleted(now, in, out)
	case *Fired:
		m.fired(now, out)
	default:
		m.request(now, in, out)
	}
	m.setTimer(out)
}

// request answers a client, or lets it wait.
func (m *Machine) request(now time.Time, in Input, out *Effects) {
	if m.phase != phaseServing {
		err := model.ErrCoordinatorLoading
		if m.phase == phaseIdle {
			err = model.ErrNotCoordinator
		}
		refuse(in, err, out)
		return
	}
	switch in := in.(type) {
	case *Join:
		m.join(now, in, out)
	case *Sync:
		m.sync(now, in, out)
	case *Heartbeat:
		m.heartbeat(now, in, out)
	case *Leave:
		m.leave(now, in, out)
	case *Commit:
		m.commit(now, in, out)
	case *FetchOffsets:
		m.fetchOffsets(in, out)
	case *DeleteOffsets:
		m.deleteOffsets(now, in, out)
	case *Describe:
		m.describe(in, out)
	case *Delete:
		m.delete(now, in, out)
	case *List:
		m.list(in, out)
	}
}

// refuse answers a request with an error.
func refuse(in Input, err error, out *Effects) {
	switch in := in.(type) {
	case *Join:
		failJoin(out, in.ID, in.MemberID, err)
	case *Sync:
		failSync(out, in.ID, err)
	case *Heartbeat:
		respond(out, in.ID, Done{err})
	case *Leave:
		respond(out, in.ID, Left{model.LeftGroup{Err: err}})
	case *Commit:
		respond(out, in.ID, Committed{model.CommittedOffsets{Err: err}})
	case *FetchOffsets:
		respond(out, in.ID, Fetched{model.FetchedOffsets{Err: err}})
	case *DeleteOffsets:
		respond(out, in.ID, Deleted{model.DeletedOffsets{Err: err}})
	case *Describe:
		respond(out, in.ID, Described{model.DescribedGroup{Group: in.Group, Err: err}})
	case *Delete:
		respond(out, in.ID, Done{err})
	case *List:
		respond(out, in.ID, Listed{model.ListedGroups{Err: err}})
	}
}

func respond(out *Effects, id RequestID, answer Answer) {
	out.Responses = append(out.Responses, Response{ID: id, Answer: answer})
}

func failJoin(out *Effects, id RequestID, member string, err error) {
	respond(out, id, Joined{model.JoinedGroup{Generation: -1, MemberID: member, Err: err}})
}

func failSync(out *Effects, id RequestID, err error) {
	respond(out, id, Synced{model.SyncedGroup{Err: err}})
}

// lead begins to load.
func (m *Machine) lead(in *Lead, out *Effects) {
	if in.Epoch < m.epoch || in.Epoch == m.epoch && m.phase != phaseIdle {
		return
	}
	m.failAll(out, fmt.Errorf("the groups are loaded anew: %w", model.ErrNotCoordinator))
	m.epoch, m.failures = in.Epoch, 0
	m.load(out)
}

// resign forgets everything.
func (m *Machine) resign(out *Effects) {
	if m.phase == phaseIdle {
		return
	}
	m.failAll(out, fmt.Errorf("the groups have another coordinator: %w", model.ErrNotCoordinator))
	m.phase, m.gone = phaseIdle, nil
	m.gen++
	m.forget()
}

// forget drops all state that comes from the log.
func (m *Machine) forget() {
	m.forgetKept()
	m.groups, m.order, m.widest = make(map[string]*group), nil, 0
	m.alarms, m.alarm = nil, alarm{owner: m}
	m.writes = writes{last: m.writes.last}
}

// failAll answers everybody who waits.
func (m *Machine) failAll(out *Effects, err error) {
	for _, g := range m.order {
		for _, mem := range g.members {
			if mem.join.waits {
				failJoin(out, mem.join.id, mem.id, err)
			}
			if mem.sync.waits {
				failSync(out, mem.sync.id, err)
			}
		}
	}
	for _, w := range m.writes.queue {
		w.outcome.abandon(err, out)
	}
}

// configure takes new settings. They apply from the next time that each is looked at.
func (m *Machine) configure(now time.Time, in *Configure) {
	m.settings = in.Settings
	if m.phase == phaseServing {
		m.setExpiry(now)
	}
}

// fired rings what is due.
func (m *Machine) fired(now time.Time, out *Effects) {
	m.timer = time.Time{}
	for a := m.alarms.next(now); a != nil; a = m.alarms.next(now) {
		a.owner.ring(m, now, out)
	}
}

// ring is the machine's own alarm.
func (m *Machine) ring(_ *Machine, now time.Time, out *Effects) {
	switch m.phase {
	case phaseBroken:
		m.load(out)
	case phaseServing:
		m.expire(now, out)
		m.setExpiry(now)
	}
}

// setTimer asks for Fired at the earliest alarm, where that has changed.
func (m *Machine) setTimer(out *Effects) {
	first := m.alarms.first()
	if first.Equal(m.timer) {
		return
	}
	m.timer, out.at = first, first
	out.Timer = &out.at
}

// addGroup makes a group that has nothing yet.
func (m *Machine) addGroup(id string, now time.Time) *group {
	g := newGroup(id)
	g.since = now.UnixMilli()
	g.index = len(m.order)
	m.order = append(m.order, g)
	m.groups[id] = g
	m.keep(g, g.size())
	return g
}

// dropGroup forgets a group that has no members, and who was to become one.
func (m *Machine) dropGroup(g *group) {
	for _, p := range g.pending {
		m.alarms.cancel(&p.alarm)
	}
	m.alarms.cancel(&g.alarm)
	last := len(m.order) - 1
	m.order[g.index] = m.order[last]
	m.order[g.index].index = g.index
	m.order[last] = nil
	m.order = m.order[:last]
	delete(m.groups, g.id)
	m.groups = trim(m.groups, &m.widest)
	m.keep(g, -g.kept)
	g.dropped = true
}

// vanish forgets a group of which nothing is known, here or in the log.
func (m *Machine) vanish(g *group) {
	if g.state == model.GroupEmpty && len(g.pending) == 0 && len(g.offsets) == 0 && g.writes == 0 && !g.recorded {
		m.dropGroup(g)
	}
}
