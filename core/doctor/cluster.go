package doctor

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
)

// Cluster is what was seen of a cluster at one moment. The zero value of a field says that it
// is unknown.
type Cluster struct {
	// Bootstrap is where it was asked, as the commands of findings name it.
	Bootstrap string
	Brokers   []Broker
	Topics    []Topic
	Groups    []Group
	Quorum    Quorum
}

// State is what the cluster says of a broker.
type State uint8

// The states of a broker.
const (
	Unregistered State = iota // replicas are placed on it, and the cluster does not know it
	Serving
	Fenced
	Stopping
)

func (s State) String() string {
	return [...]string{"not there", "serving", "fenced", "stopping"}[s]
}

// Answer is a yes, a no, or not known.
type Answer uint8

// The answers.
const (
	Unknown Answer = iota
	No
	Yes
)

// Broker is one broker.
type Broker struct {
	ID    int32
	Host  string // that clients are told to dial
	Port  int32
	Rack  string // "": none
	State State
	// Reached says whether somebody answered at Host from where the cluster was asked, and
	// Unreached why not.
	Reached   Answer
	Unreached string
	// Astray says that the broker tells clients to dial the machine that they are on, although
	// it was asked on another one.
	Astray bool
}

// Topic is one topic, with all its partitions.
type Topic struct {
	Name     string
	Internal bool
	// Target is how many replicas its partitions are to have where nobody chose fewer.
	Target int
	// MinISR is min.insync.replicas as it is set.
	MinISR int
	// Unclean is whether a replica that lacks records may come to lead.
	Unclean    Answer
	Partitions []Partition
}

// Partition is one partition.
type Partition struct {
	Index    int32
	Leader   int32   // -1: none
	Replicas []int32 // the first is the one that is preferred to lead
	Adding   []int32 // those of them that a reassignment adds
	Removing []int32 // and those that it removes
	ISR      []int32
	// ELR are replicas out of sync that have all that was committed. (KIP-966)
	ELR []int32
	// MinISR is what has to be in sync for acks=all, where the cluster tells that; else it is
	// the topic's, but no more than there are replicas.
	MinISR int
	// Target is how many replicas it is to have, where the cluster tells that of each partition:
	// an operator may have chosen fewer than the topic's.
	Target int
}

// Group is a group of consumers.
type Group struct {
	Name string
	// Partition is that of the offsets topic in which the group is kept; whoever leads it is
	// the group's coordinator.
	Partition int32
}

// Quorum is who keeps the metadata, and elects.
type Quorum struct {
	// Known says that the active controller answered; Silent, why none did. With neither,
	// nothing is known of the quorum.
	Known  bool
	Silent string
	Leader int32
	Voters []Voter
}

// Voter is a controller that votes. One that has the ID of a broker is in the same process.
type Voter struct {
	ID int32
	// Current says that the active controller heard of it lately.
	Current bool
	// Lag is how many records of the metadata it lacks.
	Lag int64
}

// offsetsTopic is where groups are kept.
const offsetsTopic = "__consumer_offsets"

// lagMax is how much of the metadata a voter may lack that could be elected at once.
const lagMax = 1000

// view is a cluster in one order, and what is counted of it once.
type view struct {
	*Cluster
	topics  []Topic // internal ones first, then by name
	groups  []Group // by name
	state   map[int32]*Broker
	ids     []int32 // of all brokers, those that are only named by replicas too
	total   int     // partitions
	byName  map[string]*Topic
	serving []*Broker // on which replicas can be placed
	fixes   Plan
	moves   map[place]bool // that fixes has
}

// place is where a partition is.
type place struct {
	topic string
	index int32
}

func newView(c *Cluster) *view {
	v := &view{Cluster: c, topics: slices.Clone(c.Topics), groups: slices.Clone(c.Groups), state: make(map[int32]*Broker), byName: make(map[string]*Topic), moves: make(map[place]bool)}
	slices.SortFunc(v.topics, func(a, b Topic) int {
		return cmp.Or(compareBools(a.Internal, b.Internal), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(v.groups, func(a, b Group) int { return cmp.Compare(a.Name, b.Name) })
	for i := range c.Brokers {
		v.state[c.Brokers[i].ID] = &c.Brokers[i]
	}
	for i := range v.topics {
		t := &v.topics[i]
		v.byName[t.Name] = t
		t.Partitions = slices.Clone(t.Partitions)
		slices.SortFunc(t.Partitions, func(a, b Partition) int { return cmp.Compare(a.Index, b.Index) })
		v.total += len(t.Partitions)
		for _, p := range t.Partitions {
			for _, r := range p.Replicas {
				if v.state[r] == nil {
					v.state[r] = &Broker{ID: r}
				}
			}
		}
	}
	v.ids = slices.Sorted(maps.Keys(v.state))
	for _, id := range v.ids {
		if b := v.state[id]; b.State == Serving {
			v.serving = append(v.serving, b)
		}
	}
	v.fixes = v.plan()
	for _, m := range v.fixes.Moves {
		v.moves[place{m.Topic, m.Partition}] = true
	}
	return v
}

// compareBools has true come first.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// alive says whether a broker serves; one that is stopping does until it has stopped.
func (v *view) alive(id int32) bool {
	b := v.state[id]
	return b != nil && (b.State == Serving || b.State == Stopping)
}

// dead are the replicas of a partition whose brokers are.
func (v *view) dead(p *Partition) []int32 {
	var out []int32
	for _, r := range p.Replicas {
		if !v.alive(r) {
			out = append(out, r)
		}
	}
	return out
}

// racks are the racks of brokers that serve, each with those brokers, and whether all of
// these have one.
func (v *view) racks() (racks map[string][]int32, all bool) {
	racks, all = make(map[string][]int32), true
	for _, b := range v.serving {
		if b.Rack == "" {
			all = false
			continue
		}
		racks[b.Rack] = append(racks[b.Rack], b.ID)
	}
	return racks, all
}

// minISR is how many have to be in sync for acks=all: one, where that is not known.
func minISR(t *Topic, p *Partition) int {
	if p.MinISR > 0 {
		return p.MinISR
	}
	return max(1, min(t.MinISR, len(p.Replicas)))
}

// minISRKnown says whether the cluster told it.
func minISRKnown(t *Topic, p *Partition) bool { return p.MinISR > 0 || t.MinISR > 0 }

// present are the replicas that a partition has, without those that it is only given yet.
func present(p *Partition) []int32 { return without(p.Replicas, p.Adding) }

// whole are the replicas that have all that was committed.
func whole(p *Partition) []int32 { return append(slices.Clone(p.ISR), without(p.ELR, p.ISR)...) }

// without is a, but what is in b.
func without(a, b []int32) []int32 {
	var out []int32
	for _, x := range a {
		if !slices.Contains(b, x) {
			out = append(out, x)
		}
	}
	return out
}

// serves says whether a partition can be read.
func (v *view) serves(p *Partition) bool { return p.Leader >= 0 && v.alive(p.Leader) }

// takes says whether a partition that serves takes records with acks=all. One in sync that is
// dead holds them up until it has left.
func (v *view) takes(t *Topic, p *Partition) bool {
	return len(p.ISR) >= minISR(t, p) && !slices.ContainsFunc(p.ISR, func(r int32) bool { return !v.alive(r) })
}

// partitions are those of all topics for which is holds.
func (v *view) partitions(is func(*Topic, *Partition) bool) Partitions {
	var out Partitions
	for i := range v.topics {
		t := &v.topics[i]
		for j := range t.Partitions {
			if p := &t.Partitions[j]; is(t, p) {
				out.add(t, p)
			}
		}
	}
	return out
}

// each calls f with every one of these partitions.
func (v *view) each(all Partitions, f func(*Topic, *Partition)) {
	for _, some := range all {
		t := v.byName[some.Topic]
		for _, index := range some.Partitions {
			i, found := slices.BinarySearchFunc(t.Partitions, index, func(p Partition, index int32) int { return cmp.Compare(p.Index, index) })
			if found {
				f(t, &t.Partitions[i])
			}
		}
	}
}

// groupsIn are the groups that are kept in these partitions.
func (v *view) groupsIn(all Partitions) []string {
	i := slices.IndexFunc(all, func(t TopicPartitions) bool { return t.Topic == offsetsTopic })
	if i < 0 {
		return nil
	}
	in := make(map[int32]bool)
	for _, index := range all[i].Partitions {
		in[index] = true
	}
	var out []string
	for _, g := range v.groups {
		if in[g.Partition] {
			out = append(out, g.Name)
		}
	}
	return out
}

// number is an ID in text.
func number(id int32) string { return strconv.Itoa(int(id)) }
