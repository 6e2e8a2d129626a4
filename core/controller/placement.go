package controller

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// placer spreads replicas: over racks first, then over brokers, round robin from
// a random start. Brokers that are fenced or shut down, or of whose directories none serves,
// come last, and never first in an assignment.
type placer struct {
	order  []seat // unfenced brokers, racks interleaved
	fenced []seat
	start  int
	placed map[model.NodeID]int // replicas given out by this placer
	next   int                  // partitions given out
}

// seat is a broker as the placer sees it.
type seat struct {
	id   model.NodeID
	rack string
}

func newPlacer(img *image.Image, rand *rand.Rand) *placer {
	p := &placer{placed: map[model.NodeID]int{}}
	racks := map[string][]seat{}
	var names []string
	for b := range img.Brokers() {
		s := seat{b.ID, b.Rack}
		if b.Fenced || b.ShuttingDown || !stores(b) {
			p.fenced = append(p.fenced, s)
			continue
		}
		if racks[b.Rack] == nil {
			names = append(names, b.Rack)
		}
		racks[b.Rack] = append(racks[b.Rack], s)
	}
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		rack := racks[name]
		rand.Shuffle(len(rack), func(i, j int) { rack[i], rack[j] = rack[j], rack[i] })
	}
	for more := true; more; {
		more = false
		for _, name := range names {
			if rack := racks[name]; len(rack) > 0 {
				p.order = append(p.order, rack[0])
				racks[name] = rack[1:]
				more = true
			}
		}
	}
	if len(p.order) > 0 {
		p.start = rand.IntN(len(p.order))
	}
	return p
}

// usable is how many replicas a partition can have: on unfenced brokers, and on
// all.
func (p *placer) usable() (unfenced, registered int) {
	return len(p.order), len(p.order) + len(p.fenced)
}

// place assigns the next partition. The factor is from 1 to the registered
// brokers, of which one at least is unfenced.
func (p *placer) place(factor int) []model.NodeID {
	n := len(p.order)
	leader := (p.start + p.next) % n
	// After each round the followers of a leader move on by one, so that they
	// are not always the same.
	follow := leader + 1 + p.next/n
	p.next++

	replicas := make([]model.NodeID, 0, factor)
	inRack := map[string]int{}
	take := func(s seat) {
		replicas = append(replicas, s.id)
		inRack[s.rack]++
		p.placed[s.id]++
	}
	take(p.order[leader])
	for len(replicas) < min(factor, n) {
		take(best(p.order, follow, func(s seat) (int, bool) {
			return inRack[s.rack]*(1<<32) + p.placed[s.id], slices.Contains(replicas, s.id)
		}))
	}
	for len(replicas) < factor {
		take(best(p.fenced, 0, func(s seat) (int, bool) {
			return inRack[s.rack]*(1<<32) + p.placed[s.id], slices.Contains(replicas, s.id)
		}))
	}
	return replicas
}

// best is the seat of the least weight that is not taken, the first of equals
// going round from a place.
func best(seats []seat, from int, weigh func(seat) (weight int, taken bool)) seat {
	found, lightest := -1, 0
	for i := range seats {
		at := (from + i) % len(seats)
		w, taken := weigh(seats[at])
		if !taken && (found < 0 || cmp.Less(w, lightest)) {
			found, lightest = at, w
		}
	}
	return seats[found]
}

// registration is a new partition with this assignment: its ISR are the replicas
// that are alive, the first of them leads.
func (d *decision) registration(replicas []model.NodeID) image.Partition {
	p := image.Partition{Replicas: replicas, Leader: model.NoNode}
	for _, n := range replicas {
		p.Directories = append(p.Directories, d.defaultDirectory(n))
	}
	for _, n := range replicas {
		if d.eligible(&p, n) {
			p.ISR = append(p.ISR, n)
		}
	}
	if len(p.ISR) > 0 {
		p.Leader = p.ISR[0]
	}
	return p
}

// stores says whether a broker has a directory that serves, as far as is known.
func stores(b *image.Broker) bool {
	return len(b.Directories) == 0 || slices.ContainsFunc(b.Directories, func(dir model.DirectoryID) bool { return !slices.Contains(b.Offline, dir) })
}

// defaultDirectory is where a broker puts new replicas; none where that is not known.
func (d *decision) defaultDirectory(n model.NodeID) model.DirectoryID {
	if b, ok := d.img.Broker(n); ok {
		for _, dir := range b.Directories {
			if !slices.Contains(b.Offline, dir) {
				return dir
			}
		}
		if len(b.Directories) > 0 {
			return b.Directories[0]
		}
	}
	return model.DirectoryID{}
}
