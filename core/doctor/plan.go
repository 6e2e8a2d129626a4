package doctor

import (
	"cmp"
	"slices"
)

// Plan is what mends the findings that replicas and leaders can mend: first the moves, then,
// when they are done, the elections.
type Plan struct {
	Moves     []Move
	Elections []Election
}

// Move gives a partition other replicas, or another order of them.
type Move struct {
	Topic     string
	Partition int32
	From, To  []int32
}

// Election has the first replica of a partition lead it.
type Election struct {
	Topic     string
	Partition int32
}

// Mend plans for what can be done with the brokers that serve: replicas for partitions that
// have too few, in racks where they have none, on the brokers that have least; and leaders
// where the first replica is in sync and does not lead, or one broker leads all groups. What
// is being reassigned, has no leader, or has a replica on a broker that is dead, is left as it
// is: a reassignment ends when all of its replicas are in sync.
func Mend(c *Cluster) Plan { return newView(c).fixes }

func (v *view) plan() Plan {
	m := planner{view: v, replicas: make(map[int32]int), first: make(map[int32]int)}
	for i := range v.topics {
		for j := range v.topics[i].Partitions {
			p := &v.topics[i].Partitions[j]
			for _, r := range p.Replicas {
				m.replicas[r]++
			}
			if len(p.Replicas) > 0 {
				m.first[p.Replicas[0]]++
			}
		}
	}
	var plan Plan
	for i := range v.topics {
		t := &v.topics[i]
		spread, apart := m.offsets(t)
		m.own = make(map[int32]int)
		for j := range t.Partitions {
			if r := t.Partitions[j].Replicas; len(r) > 0 {
				m.own[r[0]]++
			}
		}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if len(p.Replicas) == 0 || len(p.Adding)+len(p.Removing) > 0 || !v.serves(p) || len(v.dead(p)) > 0 {
				continue
			}
			to := m.replicasFor(t, p, spread, apart)
			if !slices.Equal(to, p.Replicas) {
				plan.Moves = append(plan.Moves, Move{t.Name, p.Index, p.Replicas, to})
			}
			if first := to[0]; first != p.Leader && v.alive(first) && (slices.Contains(p.ISR, first) || !slices.Contains(p.Replicas, first)) {
				plan.Elections = append(plan.Elections, Election{t.Name, p.Index})
			}
		}
	}
	return plan
}

// planner counts what brokers have, and are to have.
type planner struct {
	*view
	replicas map[int32]int
	first    map[int32]int // how many partitions each is the first replica of
	own      map[int32]int // of the topic that is planned for
}

// offsets says of the offsets topic whether one broker is to lead all of it, and whether all
// of it is in one rack of several.
func (m *planner) offsets(t *Topic) (spread, apart bool) {
	if t.Name != offsetsTopic || len(t.Partitions) < 2 {
		return false, false
	}
	racks, _ := m.racks()
	spread, apart = true, len(racks) > 1
	rack := ""
	for i := range t.Partitions {
		p := &t.Partitions[i]
		spread = spread && len(p.Replicas) > 0 && p.Replicas[0] == t.Partitions[0].Replicas[0]
		for _, r := range p.Replicas {
			if rack == "" {
				rack = m.state[r].Rack
			}
			apart = apart && rack != "" && m.state[r].Rack == rack
		}
	}
	return spread, apart
}

// replicasFor are the replicas that a partition is to have.
func (m *planner) replicasFor(t *Topic, p *Partition, spread, apart bool) []int32 {
	want := min(m.wanted(t, p), len(m.serving))
	to := slices.Clone(p.Replicas)
	if apart && len(to) >= want && len(to) > 1 { // one moves to another rack
		last := len(to) - 1
		if to[last] == p.Leader {
			last--
		}
		if with := m.more(to, len(to)+1); len(with) > len(to) {
			m.replicas[to[last]]--
			to[last] = with[len(to)]
		}
	}
	raised := len(to) < want
	to = m.more(to, want)
	if !raised && !spread {
		return to
	}
	m.own[to[0]]--
	m.first[to[0]]--
	first := slices.MinFunc(to, func(a, b int32) int {
		return cmp.Or(compareBools(m.mayLead(p, a), m.mayLead(p, b)), cmp.Compare(m.own[a], m.own[b]), cmp.Compare(m.first[a], m.first[b]),
			cmp.Compare(slices.Index(to, a), slices.Index(to, b)))
	})
	m.own[first]++
	m.first[first]++
	return append([]int32{first}, without(to, []int32{first})...)
}

// mayLead says whether a replica serves, and is in sync or about to be made.
func (m *planner) mayLead(p *Partition, r int32) bool {
	return m.alive(r) && (slices.Contains(p.ISR, r) || !slices.Contains(p.Replicas, r))
}

// more is replicas with others, up to so many.
func (m *planner) more(to []int32, want int) []int32 {
	to = slices.Clone(to)
	for len(to) < want {
		var best *Broker
		for _, b := range m.serving {
			if !slices.Contains(to, b.ID) && (best == nil || m.better(to, b, best)) {
				best = b
			}
		}
		if best == nil {
			break
		}
		m.replicas[best.ID]++
		to = append(to, best.ID)
	}
	return to
}

// better says whether a replica is to be placed on a before b, which comes first by ID.
func (m *planner) better(to []int32, a, b *Broker) bool {
	other := func(b *Broker) bool {
		return !slices.ContainsFunc(to, func(r int32) bool { return m.state[r].Rack == b.Rack })
	}
	return cmp.Or(compareBools(other(a), other(b)), cmp.Compare(m.replicas[a.ID], m.replicas[b.ID])) < 0
}
