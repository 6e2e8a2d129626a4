package main

import (
	"fmt"
	"slices"
)

// move gives a partition other replicas, or another order of them.
type move struct {
	partition *partitionView
	replicas  []int32
}

// stuck is a partition that cannot be moved, and why.
type stuck struct {
	partition *partitionView
	why       string
	few       bool // there are too few brokers
}

// load counts what brokers are to have.
type load map[int32]int

// least is the one of these that has the least; of equal ones the first.
func (l load) least(of []int32) int32 {
	best := of[0]
	for _, b := range of[1:] {
		if l[b] < l[best] {
			best = b
		}
	}
	return best
}

// serving are the brokers that serve, but one.
func (v *clusterView) serving(but int32) []int32 {
	var out []int32
	for _, b := range v.Brokers {
		if b.ID != but && b.State == stateServing {
			out = append(out, b.ID)
		}
	}
	return out
}

// preferred counts of how many partitions each broker is the first replica.
func (v *clusterView) preferred() load {
	l := load{}
	for i := range v.partitions {
		l[v.partitions[i].wanted()[0]]++
	}
	return l
}

// planDrain has others lead what a broker leads, or is to lead: it becomes the last of the
// replicas, and the one of those in sync that leads least the first.
func (v *clusterView) planDrain(id int32) (moves []move, cannot []stuck) {
	l, others := v.preferred(), v.serving(id)
	for i := range v.partitions {
		p := &v.partitions[i]
		has := p.wanted()
		if p.leader != id && has[0] != id {
			continue
		}
		var next []int32
		for _, r := range has {
			if r != id && slices.Contains(p.isr, r) && slices.Contains(others, r) {
				next = append(next, r)
			}
		}
		switch {
		case len(p.adding)+len(p.removing) > 0:
			cannot = append(cannot, stuck{partition: p, why: "is being reassigned: wait until that is done"})
			continue
		case len(has) == 1:
			cannot = append(cannot, stuck{partition: p, why: "has no other replica"})
			continue
		case len(next) == 0:
			cannot = append(cannot, stuck{partition: p, why: "has no other replica that is in sync"})
			continue
		}
		first := has[0]
		if !slices.Contains(next, first) {
			first = l.least(next)
			l[has[0]]--
			l[first]++
		}
		order := append([]int32{first}, less(has, []int32{first, id})...)
		if slices.Contains(has, id) {
			order = append(order, id)
		}
		moves = append(moves, move{p, order})
	}
	return moves, cannot
}

// planReturn has a broker lead again its share of the partitions that it has a replica of.
func (v *clusterView) planReturn(id int32) (moves []move) {
	l := v.preferred()
	share := len(v.partitions) / max(1, len(v.serving(id))+1)
	for l[id] < share {
		var most *partitionView
		for i := range v.partitions {
			p := &v.partitions[i]
			has := p.wanted()
			planned := slices.ContainsFunc(moves, func(m move) bool { return m.partition == p })
			if has[0] == id || planned || len(p.adding)+len(p.removing) > 0 || !slices.Contains(has, id) || !slices.Contains(p.isr, id) {
				continue
			}
			if most == nil || l[has[0]] > l[most.wanted()[0]] {
				most = p
			}
		}
		if most == nil || l[most.wanted()[0]] <= l[id]+1 {
			break
		}
		l[most.wanted()[0]]--
		l[id]++
		moves = append(moves, move{most, append([]int32{id}, less(most.wanted(), []int32{id})...)})
	}
	return moves
}

// planDecommission gives the replicas of a broker to others: in racks where the partition
// has none yet, and of those to the one that has the least. With fewer, a partition for
// which there is no other broker goes on with less replicas.
func (v *clusterView) planDecommission(id int32, fewer bool) (moves []move, cannot []stuck) {
	others := v.serving(id)
	l := load{}
	for i := range v.partitions {
		for _, r := range v.partitions[i].wanted() {
			l[r]++
		}
	}
	for i := range v.partitions {
		p := &v.partitions[i]
		has := p.wanted()
		at := slices.Index(has, id)
		if at < 0 {
			continue // it has none, or is about to have none
		}
		left := less(has, []int32{id})
		free := less(others, left)
		switch {
		case len(free) == 0 && !fewer:
			cannot = append(cannot, stuck{p, fmt.Sprintf("has %d replicas, and without broker %d there are %d brokers", len(has), id, len(others)), true})
			continue
		case len(free) == 0 && len(left) == 0:
			cannot = append(cannot, stuck{partition: p, why: "has no other replica, and there is no other broker"})
			continue
		case len(free) == 0:
			moves = append(moves, move{p, left})
			continue
		}
		to := l.least(v.apart(free, left))
		l[to]++
		next := slices.Clone(has)
		next[at] = to
		moves = append(moves, move{p, next})
	}
	return moves, cannot
}

// apart are those brokers that are in other racks than these, or all if there are none.
func (v *clusterView) apart(brokers, from []int32) []int32 {
	racks := map[string]bool{}
	for _, id := range from {
		if b := v.broker(id); b != nil && b.Rack != "" {
			racks[b.Rack] = true
		}
	}
	var out []int32
	for _, id := range brokers {
		if !racks[v.broker(id).Rack] {
			out = append(out, id)
		}
	}
	if len(out) == 0 {
		return brokers
	}
	return out
}
