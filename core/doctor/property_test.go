package doctor

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const clusters = 500

// drawn is a cluster as it could be: some brokers dead, some replicas behind, some partitions
// without a leader.
func drawn(seed uint64) *Cluster {
	r := rand.New(rand.NewPCG(seed, 1))
	n := 1 + r.IntN(6)
	c := &Cluster{Bootstrap: "b:1", Quorum: Quorum{Known: true}}
	racks := r.IntN(4)
	var alive []int32
	for id := int32(1); id <= int32(n); id++ {
		b := Broker{ID: id, State: Serving, Reached: Yes}
		if racks > 0 {
			b.Rack = string("abc"[r.IntN(racks)])
		}
		if id > 1 && r.IntN(6) == 0 {
			b.State = Fenced
		} else {
			alive = append(alive, id)
		}
		c.Brokers = append(c.Brokers, b)
	}
	for _, id := range [][]int32{{1}, alive, alive[:min(3, len(alive))], {9}, {1, 8, 9}}[r.IntN(5)] {
		c.Quorum.Voters = append(c.Quorum.Voters, Voter{ID: id, Current: true})
	}
	c.Quorum.Leader = c.Quorum.Voters[0].ID
	switch r.IntN(8) {
	case 0:
		c.Quorum = Quorum{Silent: "no answer"}
	case 1:
		c.Quorum = Quorum{}
	}
	for i := range 1 + r.IntN(4) {
		t := Topic{Name: fmt.Sprint("t", i), MinISR: r.IntN(4), Unclean: Answer(r.IntN(3)), Target: r.IntN(4)}
		if i == 0 {
			t.Name, t.Internal = offsetsTopic, true
		}
		for index := range int32(1 + r.IntN(4)) {
			t.Partitions = append(t.Partitions, drawnPartition(r, index, n, t.Target, alive))
		}
		c.Topics = append(c.Topics, t)
	}
	for i := range r.IntN(6) {
		c.Groups = append(c.Groups, Group{fmt.Sprint("g", i), r.Int32N(int32(len(c.Topics[0].Partitions)))})
	}
	return c
}

func drawnPartition(r *rand.Rand, index int32, brokers, target int, alive []int32) Partition {
	p := Partition{Index: index, Leader: -1}
	for _, id := range r.Perm(brokers)[:1+r.IntN(min(4, brokers))] {
		p.Replicas = append(p.Replicas, int32(id+1))
	}
	for _, id := range p.Replicas {
		switch r.IntN(5) {
		case 0, 1, 2:
			if slices.Contains(alive, id) {
				p.ISR = append(p.ISR, id)
			}
		case 3:
			p.ELR = append(p.ELR, id)
		}
	}
	switch {
	case len(p.ISR) > 0:
		p.Leader = p.ISR[r.IntN(len(p.ISR))]
	case len(p.ELR) == 0: // the last one in sync stays that
		p.ISR = p.Replicas[:1]
	}
	if r.IntN(3) == 0 {
		p.MinISR = 1 + r.IntN(len(p.Replicas))
	}
	if target > 0 && r.IntN(4) == 0 {
		p.Target = 1 + r.IntN(target)
	}
	if len(p.Replicas) > 2 && r.IntN(8) == 0 {
		p.Adding = without(p.Replicas, p.ISR)
	}
	return p
}

func clone(c *Cluster) *Cluster {
	out := *c
	out.Brokers, out.Groups, out.Topics = slices.Clone(c.Brokers), slices.Clone(c.Groups), slices.Clone(c.Topics)
	out.Quorum.Voters = slices.Clone(c.Quorum.Voters)
	for i := range out.Topics {
		out.Topics[i].Partitions = slices.Clone(out.Topics[i].Partitions)
		for j := range out.Topics[i].Partitions {
			p := &out.Topics[i].Partitions[j]
			p.Replicas, p.Adding, p.ISR, p.ELR = slices.Clone(p.Replicas), slices.Clone(p.Adding), slices.Clone(p.ISR), slices.Clone(p.ELR)
		}
	}
	return &out
}

// after is a cluster as a controller leaves it when these have died, step by step.
func after(c *Cluster, gone ...int32) *Cluster {
	out := clone(c)
	dead := func(id int32) bool { return slices.Contains(gone, id) }
	up := map[int32]bool{}
	for i := range out.Brokers {
		if dead(out.Brokers[i].ID) {
			out.Brokers[i].State = Fenced
		}
		up[out.Brokers[i].ID] = out.Brokers[i].State == Serving
	}
	votes := 0
	for i := range out.Quorum.Voters {
		v := &out.Quorum.Voters[i]
		v.Current = v.Current && !dead(v.ID)
		if v.Current {
			votes++
		}
	}
	if out.Quorum.Known && 2*votes <= len(out.Quorum.Voters) {
		out.Quorum = Quorum{Silent: "no majority"}
	}
	if out.Quorum.Silent != "" {
		return out
	}
	for i := range out.Topics {
		t := &out.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if p.Leader < 0 {
				continue
			}
			p.ISR = slices.DeleteFunc(p.ISR, dead)
			if !dead(p.Leader) {
				continue
			}
			p.Leader = -1
			pools := [][]int32{p.ISR, p.ELR}
			if t.Unclean == Yes {
				pools = append(pools, p.Replicas)
			}
			for _, pool := range pools {
				for _, r := range pool {
					if p.Leader < 0 && up[r] {
						p.Leader = r
						if !slices.Contains(p.ISR, r) {
							p.ISR = []int32{r}
						}
					}
				}
			}
		}
	}
	return out
}

// of are the partitions and groups of a kind of finding, whatever their subject.
func of(r Report, id string) map[string]bool {
	out := map[string]bool{}
	for _, f := range r.Findings {
		if f.ID != id {
			continue
		}
		maps.Copy(out, listed(f.Partitions))
		for _, g := range f.Groups {
			out[g] = true
		}
	}
	return out
}

func listed(all Partitions) map[string]bool {
	out := map[string]bool{}
	for _, t := range all {
		for _, p := range t.Partitions {
			out[fmt.Sprint(t.Topic, "-", p)] = true
		}
	}
	return out
}

func minus(a, b map[string]bool) map[string]bool {
	out := maps.Clone(a)
	maps.DeleteFunc(out, func(k string, _ bool) bool { return b[k] })
	return out
}

func partitionsOnly(m map[string]bool) map[string]bool {
	out := maps.Clone(m)
	maps.DeleteFunc(out, func(k string, _ bool) bool { return strings.HasPrefix(k, "g") })
	return out
}

// TestDeathIsWhatIsFoundAfterIt: what the report says of a death is what it finds, and did not
// find before, when the cluster is looked at after it. And where it says of no death anything,
// no death gives a critical finding.
func TestDeathIsWhatIsFoundAfterIt(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(clusters) {
		c := drawn(seed)
		before := Examine(c)
		for _, d := range before.Deaths {
			gone := d.Brokers
			if d.Subject.Kind == "controller" {
				gone = []int32{9}
				if d.Subject.Name == "8" {
					gone = []int32{8}
				}
			}
			then := Examine(after(c, gone...))
			for _, x := range []struct {
				what      string
				said, saw map[string]bool
			}{
				{"stops", listed(d.Stops), minus(of(then, "leaderless"), of(before, "leaderless"))},
				{"refuses", listed(d.RefusesWrites), minus(partitionsOnly(of(then, "under-min-isr")), of(before, "under-min-isr"))},
				{"groups", set(d.Groups), minus(of(then, "group-without-coordinator"), of(before, "group-without-coordinator"))},
				{"quorum", map[string]bool{"ends": d.EndsQuorum}, map[string]bool{"ends": strings.Contains(strings.Join(found(then), ","), "no-controller") && c.Quorum.Known}},
				{"loses", listed(d.Loses), lost(c, gone)},
			} {
				if diff := cmp.Diff(x.said, x.saw); diff != "" {
					t.Fatalf("seed %d, %s: %s, said and seen:\n%s", seed, d.Subject, x.what, diff)
				}
				for k := range x.said {
					if x.said[k] {
						seen[x.what]++
					}
				}
			}
			if len(d.Unclean) > 0 {
				seen["unclean"]++
			}
		}
	}
	for _, what := range []string{"stops", "refuses", "groups", "quorum", "loses", "unclean"} {
		if seen[what] < 50 {
			t.Errorf("%s was said %d times only: this test would pass without looking", what, seen[what])
		}
	}
}

func set(all []string) map[string]bool {
	out := map[string]bool{}
	for _, n := range all {
		out[n] = true
	}
	return out
}

// lost are the partitions of which nobody but these has everything.
func lost(c *Cluster, gone []int32) map[string]bool {
	out := map[string]bool{}
	for _, t := range c.Topics {
		for _, p := range t.Partitions {
			have, left := 0, 0
			for _, r := range p.Replicas {
				if !slices.Contains(p.ISR, r) && !slices.Contains(p.ELR, r) {
					continue
				}
				have++
				if !slices.Contains(gone, r) {
					left++
				}
			}
			if have > 0 && left == 0 {
				out[fmt.Sprint(t.Name, "-", p.Index)] = true
			}
		}
	}
	return out
}

// TestReportHasOneOrder: in whatever order a cluster was seen, the report is the same, and
// nothing of what was seen is changed.
func TestReportHasOneOrder(t *testing.T) {
	for seed := range uint64(200) {
		c := drawn(seed)
		want := Examine(c)
		if diff := cmp.Diff(drawn(seed), c); diff != "" {
			t.Fatalf("seed %d: changed\n%s", seed, diff)
		}
		r := rand.New(rand.NewPCG(seed, 2))
		r.Shuffle(len(c.Brokers), func(i, j int) { c.Brokers[i], c.Brokers[j] = c.Brokers[j], c.Brokers[i] })
		r.Shuffle(len(c.Topics), func(i, j int) { c.Topics[i], c.Topics[j] = c.Topics[j], c.Topics[i] })
		r.Shuffle(len(c.Groups), func(i, j int) { c.Groups[i], c.Groups[j] = c.Groups[j], c.Groups[i] })
		r.Shuffle(len(c.Quorum.Voters), func(i, j int) { c.Quorum.Voters[i], c.Quorum.Voters[j] = c.Quorum.Voters[j], c.Quorum.Voters[i] })
		for i := range c.Topics {
			p := c.Topics[i].Partitions
			r.Shuffle(len(p), func(i, j int) { p[i], p[j] = p[j], p[i] })
		}
		if diff := cmp.Diff(want, Examine(c)); diff != "" {
			t.Fatalf("seed %d: another order, another report\n%s", seed, diff)
		}
	}
}

// TestPlanMends: what is planned gives replicas to brokers that serve and have none, gives
// nobody more than is wanted, and leaves nothing to plan: at most, once, who leads the groups.
func TestPlanMends(t *testing.T) {
	moves, elections := 0, 0
	for seed := range uint64(clusters) {
		c := drawn(seed)
		plan := Mend(c)
		moves, elections = moves+len(plan.Moves), elections+len(plan.Elections)
		next := carried(t, c, plan)
		promised(t, seed, c, plan)
		again := Mend(next)
		for _, m := range again.Moves {
			if len(m.To) > len(m.From) {
				t.Fatalf("seed %d: planned %+v\nand then %+v", seed, plan, again)
			}
		}
		if last := Mend(carried(t, next, again)); len(last.Moves)+len(last.Elections) > 0 {
			t.Fatalf("seed %d: planned %+v\nthen %+v\nand then %+v", seed, plan, again, last)
		}
		v := newView(next)
		serving := len(v.serving)
		for i := range v.topics {
			topic := &v.topics[i]
			for j := range topic.Partitions {
				p := &topic.Partitions[j]
				if len(p.Adding) == 0 && v.serves(p) && len(v.dead(p)) == 0 && len(p.Replicas) < min(serving, v.wanted(topic, p)) {
					t.Fatalf("seed %d: %s-%d has %v, and %d are wanted, with %d brokers", seed, topic.Name, p.Index, p.Replicas, v.wanted(topic, p), serving)
				}
			}
		}
	}
	if moves < 500 || elections < 500 {
		t.Errorf("%d moves and %d elections: this test would pass without looking", moves, elections)
	}
}

// promised: what a finding says that a plan mends is in the plan.
func promised(t *testing.T, seed uint64, c *Cluster, plan Plan) {
	t.Helper()
	planned := map[string]bool{}
	for _, m := range plan.Moves {
		planned[fmt.Sprint(m.Topic, "-", m.Partition)] = true
	}
	for _, e := range plan.Elections {
		planned[fmt.Sprint(e.Topic, "-", e.Partition)] = true
	}
	for _, f := range Examine(c).Findings {
		if about := listed(f.Partitions); strings.Contains(f.Command, "--fix") && len(minus(about, planned)) == len(about) {
			t.Fatalf("seed %d: %s is to be mended by %q, and the plan has none of %v: %+v", seed, f.ID, f.Command, f.Partitions, plan)
		}
	}
}

// carried is a cluster after a plan.
func carried(t *testing.T, c *Cluster, plan Plan) *Cluster {
	t.Helper()
	out := clone(c)
	v := newView(c)
	partition := func(topic string, index int32) *Partition {
		i := slices.IndexFunc(out.Topics, func(t Topic) bool { return t.Name == topic })
		return &out.Topics[i].Partitions[index]
	}
	for _, m := range plan.Moves {
		p := partition(m.Topic, m.Partition)
		if !slices.Equal(p.Replicas, m.From) || !v.serves(p) {
			t.Fatalf("%+v: from %v, led by %d", m, p.Replicas, p.Leader)
		}
		for _, r := range m.To {
			if !v.alive(r) {
				t.Fatalf("%+v: broker %d does not serve, so that this never ends", m, r)
			}
			if !slices.Contains(m.From, r) {
				p.ISR = append(p.ISR, r)
			}
		}
		if len(m.To) < len(m.From) || len(slices.Compact(slices.Sorted(slices.Values(m.To)))) < len(m.To) {
			t.Fatalf("%+v: that is fewer", m)
		}
		p.Replicas = m.To
		p.ISR = slices.DeleteFunc(p.ISR, func(r int32) bool { return !slices.Contains(m.To, r) })
		p.ELR = nil
	}
	for _, e := range plan.Elections {
		p := partition(e.Topic, e.Partition)
		if p.Leader = p.Replicas[0]; !slices.Contains(p.ISR, p.Leader) {
			t.Fatalf("%+v: broker %d is not in sync", e, p.Leader)
		}
	}
	return out
}
