package group

import (
	"errors"
	"fmt"

	"github.com/brokerd/brokerd/core/model"
)

// Memory is what machines count their bytes in. Several may share one.
type Memory struct {
	// Kept is for what a machine knows: groups, members and their protocols,
	// assignments, offsets. The last keptReserve of it is for groups' members alone:
	// for more that they offer, are assigned or commit. What is loaded from the log is
	// counted, and not refused.
	Kept Account
	// Writes is for what is under way to the log.
	Writes Account
}

// Account is a count of bytes, and how many there may be. Its methods do not block, and
// may be called by several machines at once: each of them may then go past the total by
// one request.
type Account interface {
	Total() int64
	Used() int64
	// Add takes bytes, or with n below 0 gives them back. It refuses nothing.
	Add(n int64)
}

// What things take beside the bytes of their strings and slices: themselves, and their
// places in maps and slices, as far as those have grown (TestWhatIsKeptIsWhatIsCounted).
const (
	groupBytes    = 2 << 10
	memberBytes   = 512
	protocolBytes = 128
	pendingBytes  = 256
	offsetBytes   = 208
	topicBytes    = 64
	writeBytes    = 512
	recordBytes   = 384
)

// keptReserve is the part of Memory.Kept that is for members alone.
const keptReserve = 8

// errMemory says what to do.
var errMemory = errors.New("groups have all the memory that they may have; raise the broker's `memory`, or delete groups and offsets")

// keep counts bytes of a group.
func (m *Machine) keep(g *group, n int) {
	if n == 0 || g.dropped {
		return
	}
	g.kept += n
	m.kept += n
	if m.memory.Kept != nil {
		m.memory.Kept.Add(int64(n))
	}
}

// keepWrite counts bytes of writes.
func (m *Machine) keepWrite(n int) {
	m.writes.kept += n
	if m.memory.Writes != nil {
		m.memory.Writes.Add(int64(n))
	}
}

// hold counts bytes that a write keeps until it is settled.
func (m *Machine) hold(w *write, n int) {
	w.kept += n
	m.keepWrite(n)
}

// forgetKept gives everything back.
func (m *Machine) forgetKept() {
	if m.memory.Kept != nil {
		m.memory.Kept.Add(-int64(m.kept))
	}
	m.kept = 0
	m.keepWrite(-m.writes.kept)
}

// fits refuses n more bytes where there is no room for them. members: they are for
// members of a group.
func (m *Machine) fits(n int, members bool, group string, out *Effects) error {
	a := m.memory.Kept
	if n <= 0 || a == nil {
		return nil
	}
	room := a.Total() - a.Used()
	if !members {
		room -= a.Total() / keptReserve
	}
	if int64(n) <= room {
		return nil
	}
	err := fmt.Errorf("%d bytes more for group %q: %w: %w", n, cut(group, nameMax), errMemory, model.ErrCoordinatorNotAvailable)
	out.Notices = append(out.Notices, Notice{Kind: NoticeMemory, Group: group, Count: n, Err: err})
	return err
}

// writesFit reports whether anything more may be written.
func (m *Machine) writesFit() bool {
	a := m.memory.Writes
	return a == nil || a.Used() < a.Total()
}

// measure counts a member as it is now.
func (m *Machine) measure(mem *member) {
	n := mem.size()
	m.keep(mem.group, n-mem.kept)
	mem.kept = n
}

// measureTopics counts what a group's members are subscribed to, as it is now.
func (m *Machine) measureTopics(g *group) {
	n := sizeOfTopics(g.subscribed)
	m.keep(g, n-g.topicsKept)
	g.topicsKept = n
}

// subscribe reads what a group's members are subscribed to. Where there is no room for
// that, it counts as what cannot be read.
func (m *Machine) subscribe(g *group) {
	g.subscribe(func(n int) bool {
		a := m.memory.Kept
		return a == nil || int64(n-g.topicsKept) <= a.Total()-a.Used()
	})
	m.measureTopics(g)
}

// setOffset shows an offset.
func (m *Machine) setOffset(g *group, key model.TopicPartition, value committed) {
	m.keep(g, g.offsetGrowth(key, value.metadata))
	g.offsets[key] = value
}

// dropOffset counts an offset that is about to be deleted.
func (m *Machine) dropOffset(g *group, key model.TopicPartition) {
	if value, ok := g.offsets[key]; ok {
		m.keep(g, -sizeOfOffset(key, value.metadata))
	}
}

// joinBytes is how much more is kept if a client is taken in as a member, and whether it
// is one. g is nil of a group that there is not.
func (m *Machine) joinBytes(g *group, q *model.JoinGroup) (n int, mem *member) {
	if g == nil {
		n, g = groupBytes+len(q.Group), &group{}
	}
	mem = g.byID[q.MemberID]
	if q.MemberID == "" && q.InstanceID != "" {
		mem = g.static[q.InstanceID]
	}
	if mem != nil {
		return sizeOfProtocols(q.Protocols) - sizeOfProtocols(mem.protocols), mem
	}
	if _, asked := g.pending[q.MemberID]; q.MemberID != "" && !asked {
		return 0, nil // it is told that it is not known
	}
	return n + memberBytes + 2*nameMax + len(q.InstanceID) + len(q.ClientID) + len(q.ClientHost) + sizeOfProtocols(q.Protocols), nil
}

// commitBytes is how much more is kept after a commit.
func (m *Machine) commitBytes(g *group, id string, keys []model.TopicPartition, values []committed) int {
	n := 0
	if g == nil {
		n, g = groupBytes+len(id), &group{}
	}
	for i := range keys {
		n += g.offsetGrowth(keys[i], values[i].metadata)
	}
	return n
}

// assignmentBytes is how much more is kept with new assignments.
func (g *group) assignmentBytes(of map[string][]byte) int {
	n := 0
	for _, mem := range g.members {
		n += len(of[mem.id]) - len(mem.assignment)
	}
	return n
}

func (g *group) offsetGrowth(key model.TopicPartition, metadata string) int {
	if old, ok := g.offsets[key]; ok {
		return len(metadata) - len(old.metadata)
	}
	return sizeOfOffset(key, metadata)
}

func sizeOfOffset(key model.TopicPartition, metadata string) int {
	return offsetBytes + len(key.Topic) + len(metadata)
}

func (mem *member) size() int {
	return memberBytes + len(mem.id) + len(mem.instance) + len(mem.clientID) + len(mem.clientHost) +
		sizeOfProtocols(mem.protocols) + len(mem.assignment)
}

func sizeOfProtocols(protocols []model.GroupProtocol) int {
	n := 0
	for i := range protocols {
		n += protocolBytes + len(protocols[i].Name) + len(protocols[i].Metadata)
	}
	return n
}

func sizeOfTopics(topics map[string]struct{}) int {
	n := len(topics) * topicBytes
	for topic := range topics {
		n += len(topic)
	}
	return n
}

func sizeOfPending(id string) int { return pendingBytes + len(id) }

// size is what the group takes beside its members, pending ones and offsets.
func (g *group) size() int { return groupBytes + len(g.id) }

// widths are the most entries that maps have had: maps keep the room of what is deleted.
type widths struct{ offsets, underWay, pending, byID, static, support int }

// trimMin is how many entries a map may have room for whatever it has.
const trimMin = 64

// trim is a map in less room where most of what it had has been deleted. It is called
// after each deletion.
func trim[K comparable, V any](from map[K]V, widest *int) map[K]V {
	*widest = max(*widest, len(from)+1)
	if *widest < trimMin || len(from) > *widest/4 {
		return from
	}
	to := make(map[K]V, len(from))
	for k, v := range from {
		to[k] = v
	}
	*widest = len(from)
	return to
}
