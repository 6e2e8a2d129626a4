package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// ledger knows what members of groups, and those that look at them from outside, asked
// and were told, at the broker's door: an answer counts that left it, whether or not it
// arrived.
type ledger struct {
	c      *checker
	b      *broker
	report *Report
	groups map[string]*groupSeen
	keep   time.Duration // the retention of offsets
}

// groupSeen is what is known of one group.
type groupSeen struct {
	name    string
	members bool // it may have members; otherwise offsets are committed from outside
	// synced is the highest generation of which somebody was told its assignment: that
	// is durable. joined is the highest that was told to a member in this term of the
	// coordinator.
	synced, joined int32
	term           int
	ids            map[string]string // by instance, in this term
	fenced         map[string]bool   // IDs that another has taken the place of, in this term
	told           map[int32]map[int32]string
	offsets        map[model.TopicPartition]*offsetSeen
	alive          time.Time // when a member of a generation that is durable was last told that it is one
	deletions      int       // of the group, that were asked for and not refused
}

// offsetSeen is what is known of one committed offset: the attempts to set or remove
// it, in the order in which they reached the broker, and which of them can be the last.
type offsetSeen struct {
	attempts []*attempt
	lowest   int  // of the attempts that may be in force
	none     bool // perhaps none is
}

// attempt is one commit or removal.
type attempt struct {
	offset  int64 // -1: a removal
	at      time.Time
	refused bool
	stale   bool // it must not be in force
}

func newLedger(c *checker, b *broker, report *Report, keep time.Duration) *ledger {
	return &ledger{c: c, b: b, report: report, groups: make(map[string]*groupSeen), keep: keep}
}

func (l *ledger) of(name string) *groupSeen {
	g := l.groups[name]
	if g == nil {
		g = &groupSeen{name: name, members: name != manualGroup, told: make(map[int32]map[int32]string), offsets: make(map[model.TopicPartition]*offsetSeen)}
		l.groups[name] = g
	}
	if g.term != l.b.terms || g.ids == nil {
		g.term, g.joined = l.b.terms, 0
		g.ids, g.fenced = make(map[string]string), make(map[string]bool)
	}
	return g
}

func (g *groupSeen) key(key model.TopicPartition) *offsetSeen {
	o := g.offsets[key]
	if o == nil {
		o = &offsetSeen{none: true}
		g.offsets[key] = o
	}
	return o
}

// claim is what a request says of its sender, and what was known when it arrived.
type claim struct {
	g          *groupSeen
	generation int32
	id         string
	term       int
	stale      string // why it must be refused; "": it need not
}

// arrives notes a request of a member.
func (l *ledger) arrives(name string, generation int32, id string) claim {
	g := l.of(name)
	c := claim{g: g, generation: generation, id: id, term: g.term}
	switch {
	case generation < g.synced:
		c.stale = fmt.Sprintf("generation %d has its assignment", g.synced)
	case generation < g.joined:
		c.stale = fmt.Sprintf("there is generation %d", g.joined)
	case g.fenced[id]:
		c.stale = "another has taken its place"
	}
	return c
}

// accepted: a request of a member was taken.
func (l *ledger) accepted(c claim, what string) {
	if c.generation <= c.g.synced {
		l.lives(c.g)
	}
	if c.stale != "" && c.term == l.b.terms {
		l.c.violate("group %s: %s of member %s in generation %d was taken: %s", c.g.name, what, c.id, c.generation, c.stale)
	}
}

// lives notes that the group has members. If it may have had none for long, any offset
// may have expired before.
func (l *ledger) lives(g *groupSeen) {
	for key, o := range g.offsets {
		o.none = o.none || key.Topic != auditTopic && l.mayExpire(g, key, o.lowest)
	}
	g.alive = l.c.w.Now()
}

// joined: a member was told of a generation.
func (l *ledger) joined(name, instance string, a model.JoinedGroup) {
	g := l.of(name)
	switch known := max(g.synced, g.joined); {
	case a.Generation <= known && l.mayBeGone(g): // perhaps it is another group of that name
		g.synced, g.joined, g.deletions = 0, 0, 0
		clear(g.told)
	case a.Generation < known:
		l.c.violate("group %s: member %s joined generation %d, and there was generation %d", name, a.MemberID, a.Generation, known)
	}
	g.joined = max(g.joined, a.Generation)
	if g.fenced[a.MemberID] {
		l.c.violate("group %s: member %s joined, and another has taken its place", name, a.MemberID)
	}
	if instance == "" {
		return
	}
	if old := g.ids[instance]; old != "" && old != a.MemberID {
		g.fenced[old] = true
	}
	g.ids[instance] = a.MemberID
}

// synced: a member was told its assignment.
func (l *ledger) synced(c claim, slot string, assignment []byte) {
	l.accepted(c, "a sync")
	g := c.g
	got, err := parseAssignment(assignment)
	switch {
	case err != nil:
		l.c.violate("group %s: member %s was assigned %q in generation %d: %v", g.name, c.id, assignment, c.generation, err)
		return
	case got.generation != c.generation || got.slot != slot:
		l.c.violate("group %s: member %s (%s) was given %q in generation %d", g.name, c.id, slot, assignment, c.generation)
		return
	}
	g.synced = max(g.synced, c.generation)
	l.lives(g)
	told := g.told[c.generation]
	if told == nil {
		told = make(map[int32]string)
		g.told[c.generation] = told
	}
	for _, p := range got.partitions {
		if other, ok := told[p]; ok && other != slot {
			l.c.violate("group %s: partition %d was given to %s and to %s in generation %d", g.name, p, other, slot, c.generation)
		}
		told[p] = slot
	}
}

// attempted notes a commit or a removal when it arrives, one for each key.
func (l *ledger) attempted(g *groupSeen, keys []model.TopicPartition, offsets []int64, marks []string) []*attempt {
	out := make([]*attempt, len(keys))
	for i, key := range keys {
		o := g.key(key)
		out[i] = &attempt{offset: offsets[i], at: l.c.w.Now()}
		if marks != nil {
			marks[i] = fmt.Sprintf("%d", len(o.attempts))
		}
		o.attempts = append(o.attempts, out[i])
	}
	return out
}

// refusals after which an attempt is known not to be in force, ever.
var refusals = []error{
	model.ErrIllegalGeneration, model.ErrUnknownMemberID, model.ErrFencedInstanceID, model.ErrRebalanceInProgress,
	model.ErrCoordinatorLoading, model.ErrGroupIDNotFound, model.ErrNonEmptyGroup, model.ErrGroupSubscribed,
}

func definite(err error) bool {
	for _, r := range refusals {
		if errors.Is(err, r) {
			return true
		}
	}
	return false
}

// settled: an attempt was answered.
func (l *ledger) settled(c claim, keys []model.TopicPartition, attempts []*attempt, err error) {
	if err != nil {
		for _, a := range attempts {
			a.refused = a.refused || definite(err)
		}
		return
	}
	for i, a := range attempts {
		a.stale = c.stale != "" && c.term == l.b.terms
		o := c.g.key(keys[i])
		for n := len(o.attempts) - 1; n >= o.lowest; n-- {
			if o.attempts[n] == a {
				o.lowest, o.none = n, a.offset < 0
			}
		}
	}
}

// look is what was known when somebody asked for an offset.
type look struct {
	lowest int
	none   bool
}

// asks notes what may be in force now.
func (l *ledger) asks(g *groupSeen, keys []model.TopicPartition) []look {
	out := make([]look, len(keys))
	for i, key := range keys {
		o := g.key(key)
		out[i] = look{lowest: o.lowest, none: o.none}
	}
	return out
}

// fetched: somebody was told committed offsets.
func (l *ledger) fetched(g *groupSeen, keys []model.TopicPartition, before []look, got []model.GroupOffset) {
	l.report.Fetched += len(keys)
	for i, key := range keys {
		if got[i].Offset < 0 && got[i].Metadata == "" {
			l.fetchedNone(g, key, before[i])
		} else {
			l.fetchedOne(g, key, before[i], got[i])
		}
	}
}

func (l *ledger) fetchedOne(g *groupSeen, key model.TopicPartition, before look, got model.GroupOffset) {
	o := g.key(key)
	n := -1
	if _, err := fmt.Sscanf(got.Metadata, "%d", &n); err != nil || n < 0 || n >= len(o.attempts) || o.attempts[n].offset != got.Offset {
		l.c.violate("group %s: nobody committed offset %d (%q) of %s-%d", g.name, got.Offset, got.Metadata, key.Topic, key.Partition)
		return
	}
	a := o.attempts[n]
	switch {
	case n < before.lowest:
		l.c.violate("group %s: the offset of %s-%d went back from commit %d (offset %d) to %d (offset %d)",
			g.name, key.Topic, key.Partition, before.lowest, o.attempts[min(before.lowest, len(o.attempts)-1)].offset, n, got.Offset)
	case a.refused:
		l.c.violate("group %s: commit %d of %s-%d was refused and is in force", g.name, n, key.Topic, key.Partition)
	case a.stale:
		l.c.violate("group %s: commit %d of %s-%d is of an old member and in force", g.name, n, key.Topic, key.Partition)
	}
	if n >= o.lowest {
		o.lowest, o.none = n, false
	}
}

func (l *ledger) fetchedNone(g *groupSeen, key model.TopicPartition, before look) {
	o := g.key(key)
	removal := -1
	for n := before.lowest; n < len(o.attempts) && removal < 0; n++ {
		if o.attempts[n].offset < 0 && !o.attempts[n].refused {
			removal = n
		}
	}
	switch {
	case before.none:
	case removal >= 0:
		if removal >= o.lowest {
			o.lowest, o.none = removal, true
		}
	case l.mayExpire(g, key, before.lowest):
		if o.lowest == before.lowest {
			o.lowest, o.none = o.lowest+1, true
		}
	default:
		l.c.violate("group %s: the offset of %s-%d is gone, it was commit %d (offset %d)",
			g.name, key.Topic, key.Partition, before.lowest, o.attempts[before.lowest].offset)
	}
}

// mayExpire reports whether what was last known to be in force, the attempt lowest, may
// have been kept long enough: of a topic that members read, when there was no member
// for so long.
func (l *ledger) mayExpire(g *groupSeen, key model.TopicPartition, lowest int) bool {
	since := g.alive
	if !g.members || key.Topic == auditTopic {
		o := g.key(key)
		since = o.attempts[min(lowest, len(o.attempts)-1)].at
	}
	return l.c.w.Now().Sub(since) >= l.keep
}

// mayBeGone reports whether the group may have been removed since: without an offset
// nothing keeps it but its members.
func (l *ledger) mayBeGone(g *groupSeen) bool {
	if g.deletions > 0 {
		return true
	}
	for key, o := range g.offsets {
		if !o.none && !l.mayExpire(g, key, o.lowest) {
			return false
		}
	}
	return true
}
