package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

const (
	// linger is longer than any session and rebalance of a member: after it, nobody
	// is a member who has gone.
	linger = 3 * time.Second
	// calmFor is how long groups are watched to stay as they are.
	calmFor = 1500 * time.Millisecond
	// waitMax is what a request that waits for other members may take longer than others.
	waitMax = 5 * time.Second
)

// healGroups ends what disturbs members: each process that runs is the only one of its
// name, and every group has one.
func (s *simulation) healGroups() {
	for i := range s.opts.OffsetsPartitions * min(s.opts.Groups, 1) {
		if p, _, ok := s.broker.img.Partition(model.Partition{Topic: offsetsID, Index: int32(i)}); ok && p.Leader != nodeID {
			s.lead(int32(i), nodeID)
		}
	}
	for _, g := range s.consumers {
		clear(g.quiet)
		names := make(map[string]bool)
		for _, m := range slices.Backward(g.members) {
			if m.instance != "" && names[m.instance] && !m.gone {
				m.vanish()
			}
			names[m.instance] = names[m.instance] || !m.gone
		}
		for _, m := range g.alive() {
			m.commits = 0 // from now on they have to come through
		}
		if len(g.alive()) == 0 {
			s.enter(g, "", 0)
		}
	}
}

// peace has one more member in each group, and then one less, while nothing else
// happens.
func (s *simulation) peace() {
	for _, change := range []func(*consumers){
		func(g *consumers) { s.enter(g, "", 0) },
		func(g *consumers) {
			if alive := g.alive(); len(alive) > 1 { // one may have found that another has its name
				alive[0].leave()
			}
		},
	} {
		for _, g := range s.consumers {
			change(g)
		}
		s.runUntilServed()
	}
}

// runUntilServed runs until all clients are served, and says so when they are not.
func (s *simulation) runUntilServed() {
	limit, look := s.w.Now().Add(patience), s.w.Now()
	s.runUntil(func() bool {
		if s.w.Now().Before(look) {
			return false
		}
		look = s.w.Now().Add(time.Millisecond)
		return s.served() || !s.w.Now().Before(limit) || len(s.check.violations) > 0
	})
	if !s.served() {
		s.check.violate("clients are not served %s after the last fault%s", patience, s.unsettled())
	}
}

// unsettled says which group is not where it should be: all processes that run are
// members of one generation, which has all partitions, each once, and commits.
func (s *simulation) unsettled() string {
	for _, g := range s.consumers {
		if why := g.unsettled(s.opts.Partitions); why != "" {
			return fmt.Sprintf(": %s: %s", g.name, why)
		}
	}
	return ""
}

func (g *consumers) unsettled(partitions int) string {
	owners := make([]int, partitions)
	alive := g.alive()
	for _, m := range alive {
		switch {
		case !m.settled:
			return m.name + " has no assignment"
		case m.generation != alive[0].generation:
			return fmt.Sprintf("%s is in generation %d, %s in %d", m.name, m.generation, alive[0].name, alive[0].generation)
		case len(m.owned) > 0 && m.commits == 0:
			return m.name + " has not committed"
		}
		for _, p := range m.owned {
			owners[p]++
		}
	}
	for p, n := range owners {
		if n != 1 {
			return fmt.Sprintf("partition %d has %d owners", p, n)
		}
	}
	return ""
}

// calm expects that settled groups stay as they are, while nothing happens.
func (s *simulation) calm() {
	if s.opts.Groups == 0 || len(s.check.violations) > 0 {
		return
	}
	s.peace()
	s.runFor(linger)
	s.runUntilServed()
	if len(s.check.violations) > 0 {
		return
	}
	before := s.generations()
	s.runFor(calmFor)
	s.undisturbed(before, "in calm")
	s.describe()
}

func (s *simulation) runFor(d time.Duration) {
	end := s.w.Now().Add(d)
	s.runUntil(func() bool { return !s.w.Now().Before(end) || len(s.check.violations) > 0 })
}

// generations are those of all groups. Errors count from now on.
func (s *simulation) generations() []int32 {
	var out []int32
	for _, g := range s.consumers {
		out = append(out, g.alive()[0].generation)
		for _, m := range g.members {
			m.errors = 0
		}
	}
	return out
}

func (s *simulation) undisturbed(before []int32, when string) {
	if why := s.unsettled(); why != "" {
		s.check.violate("%s, groups do not stay settled%s", when, why)
	}
	for i, g := range s.consumers {
		for _, m := range g.alive() {
			if m.errors > 0 || m.generation != before[i] {
				s.check.violate("%s, %s, which was in generation %d, is in %d and heard %d errors", when, m.name, before[i], m.generation, m.errors)
			}
		}
	}
}

// describe expects every group to be shown with the members that run, and no others.
func (s *simulation) describe() {
	for _, g := range s.consumers {
		var want []string
		for _, m := range g.alive() {
			want = append(want, m.id)
		}
		slices.Sort(want)
		ask(s, "description of "+g.name, 0, time.Second,
			func(groups *groups, done func(model.DescribedGroup)) {
				groups.Describe(context.Background(), g.name, done)
			},
			func(model.DescribedGroup) {},
			func(a model.DescribedGroup) {
				var got []string
				for _, m := range a.Members {
					got = append(got, m.MemberID)
				}
				slices.Sort(got)
				if a.Err != nil || a.State != model.GroupStable || !slices.Equal(got, want) {
					s.check.violate("%s is described as %v with %q (%v), want %q", g.name, a.State, got, a.Err, want)
				}
			},
			func() { s.check.violate("%s is not described", g.name) })
	}
	s.runFor(20 * time.Millisecond)
}

// goOn expects that groups survive a restart of the broker: nobody has to join again,
// and every offset is where it was.
func (s *simulation) goOn() {
	if len(s.check.violations) > 0 {
		return // groups may be in any state
	}
	before := s.generations()
	s.runFor(calmFor)
	s.undisturbed(before, "after a restart")
	s.describe()
	for i := range len(s.consumers) + 1 {
		answered := false
		name, keys := manualGroup, s.allKeys()
		if i < len(s.consumers) {
			name = s.consumers[i].name
		}
		s.fetchOffsets(name, keys, func(a model.FetchedOffsets) { answered = a.Err == nil }, func() {}, nil)
		s.runFor(50 * time.Millisecond)
		if !answered {
			s.check.violate("the offsets of %s cannot be fetched after a restart", name)
		}
	}
}
