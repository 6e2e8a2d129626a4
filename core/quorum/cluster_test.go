package quorum

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

var (
	seedsFlag = flag.Int("seeds", 60, "how many seeds the tests of clusters run")
	firstFlag = flag.Uint64("seed", 1, "the first seed")
)

// seeds runs a test of a cluster under many seeds, each of which can be run alone again.
func seeds(t *testing.T, f func(t *testing.T, seed uint64)) {
	total := *seedsFlag
	if testing.Short() {
		total = min(total, 15)
	}
	for seed := *firstFlag; seed < *firstFlag+uint64(total); seed++ {
		if !t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { f(t, seed) }) {
			return
		}
	}
}

// Three nodes that start together become a cluster of three voters, at once.
func TestThreeNodes(t *testing.T) {
	w := newWorld(t, 1, 3, nil)
	for _, s := range w.sites {
		s.start()
	}
	w.until(5*time.Second, func() bool { return w.leader() != nil })
	w.register()
	w.settle(3)
	if took := w.now.Sub(time.Unix(1e9, 0)); took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
}

// FR-36 (KAFKA-16144): nobody asks anything of a cluster for ten minutes. Who leads
// leads for all that time, in one term. One that votes alone: TestSingleVoterNeverResigns.
func TestFR36AnIdleLeaderStays(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		w := grown(t, uint64(nodes), nodes, nodes, func(c *Config) { c.VotersTarget = nodes })
		leader, turns := w.leader(), w.turns
		term := func() uint64 { return leader.node.store.hard.GetTerm() }
		began := term()
		w.until(10*time.Minute, func() bool { return w.leader() != leader || term() != began })
		if w.leader() != leader || term() != began {
			w.failf("%d nodes: term %d became %d", nodes, began, term())
		}
		if w.turns < turns+5000 {
			w.failf("%d nodes have turned %d times: no time has passed", nodes, w.turns-turns)
		}
	}
}

// lives lets a cluster live with faults.
type lives struct {
	*world
	wipes, moves bool
}

// down is a node that does not run now, or comes back after a while.
func (l *lives) restart(s *site) {
	l.after(time.Duration(l.rand.Int64N(int64(4*time.Second))), func() {
		if s.node == nil && s.finder == nil {
			s.start()
			s.turn()
		}
	})
}

// mayWipe says whether a voter can lose its disk now: what was committed must be with a
// majority of those who have one.
func (l *lives) mayWipe(s *site) bool {
	if s.disk.stored == nil || l.voters() < 3 {
		return false
	}
	leader := l.leader().node
	for m := range leader.Image().Members() {
		at := l.siteOf(m.Node)
		if at.disk.stored == nil || at.disk.stored.Identity.DirectoryID != m.Directory {
			return false // one is lost already
		}
	}
	// Those who have not heard yet that the cluster has grown need the voters of before.
	settled := 0
	for _, o := range l.sites {
		if o != s && o.node != nil && len(o.node.conf.GetVoters()) == l.voters() && len(o.node.conf.GetVotersOutgoing()) == 0 {
			settled++
		}
	}
	return settled >= l.voters()/2+1
}

func (w *world) siteOf(id model.NodeID) *site { return w.sites[id-1] }

func (l *lives) fault() {
	s := l.sites[l.rand.IntN(len(l.sites))]
	up := s.node != nil
	switch l.rand.IntN(30) {
	case 0, 1:
		if up {
			l.tally["crashes"]++
			s.crash()
			l.restart(s)
		}
	case 2:
		if up {
			l.tally["dying disks"]++
			s.disk.die, s.disk.keep = true, l.chance(500)
		}
	case 3:
		if up {
			l.tally["stops"]++
			s.node.Stop()
			s.turn()
		}
	case 4:
		l.tally["pauses"]++
		s.paused = l.now.Add(time.Duration(l.rand.Int64N(int64(3 * time.Second))))
	case 5:
		l.drop, l.double = l.rand.IntN(200), l.rand.IntN(200)
		l.delay = time.Duration(1+l.rand.IntN(100)) * time.Millisecond
	case 6:
		l.tally["cuts"]++
		to := l.sites[l.rand.IntN(len(l.sites))]
		l.cuts[[2]*site{s, to}] = true
	case 7:
		l.tally["isolations"]++
		for _, to := range l.sites {
			l.cuts[[2]*site{s, to}] = true
			if l.chance(700) {
				l.cuts[[2]*site{to, s}] = true
			}
		}
	case 8, 9:
		clear(l.cuts)
	case 10:
		if l.wipes && l.mayWipe(s) {
			l.tally["wipes"]++
			s.wipe()
			l.restart(s)
		}
	case 11:
		if l.moves && up {
			l.tally["moves"]++
			s.crash()
			s.endpoint = fmt.Sprint(s.endpoint, "'")
			s.cfg.Endpoint = s.endpoint
			l.restart(s)
		}
	default:
		s.create()
	}
}

// live lets faults happen for d.
func (l *lives) live(d time.Duration) {
	for end := l.now.Add(d); l.now.Before(end); {
		l.run(time.Duration(l.rand.Int64N(int64(200 * time.Millisecond))))
		l.fault()
		for _, s := range l.sites {
			if s.node == nil && s.finder == nil && l.chance(20) {
				s.start()
				s.turn()
			}
		}
	}
}

// Whatever happens to a cluster, what was committed is the same everywhere and for ever,
// a term has one leader, nobody votes twice in one, what was answered as done is in the
// image of every later leader; and when faults end, everything is served.
func TestClusterUnderFaults(t *testing.T) {
	total := map[string]int{}
	seeds(t, func(t *testing.T, seed uint64) {
		nodes := 3 + 2*int(seed%2)
		w := newWorld(t, seed, nodes, func(c *Config) {
			c.SnapshotEntries = 5 + int(seed%40)
			if seed%4 == 1 {
				c.VotersTarget = 5
			}
		})
		l := &lives{world: w, wipes: seed%3 == 0, moves: seed%5 == 0}
		for _, s := range w.sites {
			s.start()
		}
		w.until(20*time.Second, func() bool { return w.leader() != nil })
		w.register()
		l.live(30 * time.Second)
		w.settle(w.sites[0].cfg.withDefaults().VotersTarget)
		for k, v := range w.tally {
			total[k] += v
		}
		total["turns"] += w.turns
	})
	t.Log(total)
	for what, floor := range map[string]int{"elections": 2, "crashes": 2, "done": 20, "snapshots": 1, "stops": 1, "dying disks": 1} {
		if total[what] < floor**seedsFlag && !testing.Short() && !t.Failed() {
			t.Errorf("%d %s in %d seeds: nothing is tested", total[what], what, *seedsFlag)
		}
	}
}
