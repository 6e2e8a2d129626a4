package memnet

import "time"

// Faults is what is wrong with the way from one node to another; the way back has its
// own. The zero value is a network that carries everything at once.
type Faults struct {
	// Cut: what is under way is lost when it would arrive, and what is sent, too: messages,
	// ends of links, dials and the answers to them. Nobody is told. A link that has lost
	// a message carries none on that way any more.
	Cut bool
	// Hold: what would arrive waits until the fault ends, as where a network sends again
	// what was lost.
	Hold bool
	// Delay is how long messages take; Late is how long some take, LateChance of them.
	Delay, Late Range
	LateChance  float64
	// BytesPerSecond is how much each lane carries. Zero: no limit.
	BytesPerSecond int64
	// LoseChance is how likely a message is lost, and with it all that its link carries later.
	LoseChance float64
	// EndChance is how likely a link that has lost a message ends, and EndAfter when. The
	// others are silent for ever.
	EndChance float64
	EndAfter  Range

	// Sloppy is for messages within a link, beyond what the contract lets a network do.
	Sloppy Sloppy
}

// Sloppy says how likely each message is dropped while its link goes on, comes twice, or
// changes places with another that is under way on its link.
type Sloppy struct {
	DropChance, TwiceChance, SwapChance float64
}

// Range is a time between two, both included, from none to a century.
type Range struct{ Min, Max time.Duration }

// way is the way from one node to another.
type way struct {
	Faults
	// busy is until when each lane's bandwidth is used by what was sent.
	busy [2]int64
}

// SetFaults says what is wrong, from now on, with the way from one node to another. What
// is under way already keeps its time, unless it was held.
func (m *Machine) SetFaults(now time.Time, from, to Node, f Faults) {
	m.tick(now)
	m.ways[from][to].Faults = f
	m.revive(from)
}

// Faults returns what is wrong with the way from one node to another.
func (m *Machine) Faults(from, to Node) Faults { return m.ways[from][to].Faults }

// Heal ends the faults of all ways, and all pauses. Nodes that are down stay so, and links
// that have lost messages.
func (m *Machine) Heal(now time.Time) {
	m.tick(now)
	for from := range m.ways {
		for to := range m.ways[from] {
			m.ways[from][to].Faults = Faults{}
		}
		m.nodes[from].paused = false
	}
	for n := range m.nodes {
		m.revive(Node(n))
	}
}

// Pause stops a node: what would reach it waits, and it gets no events.
func (m *Machine) Pause(node Node) { m.nodes[node].paused = true }

// Resume lets a node that was paused go on.
func (m *Machine) Resume(now time.Time, node Node) {
	m.tick(now)
	m.nodes[node].paused = false
	m.revive(node)
}

// revive lets everything that waits at, to or from a node be due, to wait again where
// it must.
func (m *Machine) revive(node Node) {
	for e := m.nodes[node].first; e >= 0; e = m.end(e).next {
		for _, end := range [2]int32{e, e ^ 1} {
			for kind := range alarmKinds {
				if m.end(end).place[kind] == waiting {
					m.set(end, kind, m.now)
				}
			}
		}
	}
}

// travel returns when something of n bytes that is sent now, on a lane, arrives.
func (m *Machine) travel(w *way, lane int, n int) int64 {
	at := m.now
	if w.BytesPerSecond > 0 {
		at = max(at, w.busy[lane]) + int64(float64(n)/float64(w.BytesPerSecond)*float64(time.Second))
		w.busy[lane] = at
	}
	if m.chance(w.LateChance) {
		return at + m.between(w.Late)
	}
	return at + m.between(w.Delay)
}

func (m *Machine) chance(p float64) bool { return p > 0 && m.rand.Float64() < p }

func (m *Machine) between(r Range) int64 {
	least, most := min(max(r.Min, 0), longest), min(r.Max, longest)
	if most <= least {
		return int64(least)
	}
	return int64(least) + m.rand.Int64N(int64(most-least)+1)
}
