package cluster

import (
	"math"
	"time"

	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/core/sim/world"
)

// Options are the shape of one run.
type Options struct {
	Nodes, NodesMax int // at first, and with those that join
	Partitions      int
	Producers       int
	Batches         int // for each producer
	Pace            time.Duration
	Flush           partition.FlushPolicy
	Blackouts       bool // all may lose power at once, though not all is flushed
	Shards          int
	InFlight        int
	SnapshotAfter   int
	SegmentBytes    int64
	// SnapshotEntries are between two snapshots of the metadata.
	SnapshotEntries int
	// Faulty is how long faults go on, and Round after how much of it all must serve
	// again before they do; zero: not before the end.
	Faulty, Round  time.Duration
	TopicsMax      int           // beside that of the producers, before one is removed again
	LagMax         time.Duration // of followers
	RebalanceEvery time.Duration // of leadership
	Usual          time.Duration // the longest way of a message, without faults
	StoreCall      time.Duration // likewise, the longest wait of a call before it reaches the store
	Calm           time.Duration // the longest pause between two misfortunes
	FaultOneIn     int           // operations of a store fail, while faults are on
	// Departures: nodes that vote leave for ever too, and nodes are lost for ever with their disks.
	Departures bool
	// FallBacks: stores lose what they have not flushed while their brokers live on.
	FallBacks bool
	// Throttle is about how many bytes a second go to replicas that catch up, of which there are
	// throttles then that change while faults are on; zero: there are none.
	Throttle int64
	// RaiseAfter and RaiseAway are those of the controller. A cluster that begins with one node
	// has topics with a target of three replicas, and grows while faults are on.
	RaiseAfter, RaiseAway time.Duration
	// Log gets every event; nil: nobody.
	Log func(string)
}

// OptionsOf draws the shape of a run from its seed.
func OptionsOf(seed uint64) Options {
	w := world.New(seed^0xc105, nil)
	nodes := []int{1, 3, 3, 3, 3, 3, 3, 5}[w.Rand.IntN(8)]
	flush, blackouts := partition.FlushPolicy(w.Rand.IntN(2)), w.Chance(3)
	batches, faulty := 20+w.Rand.IntN(60), w.Between(5*time.Second, 20*time.Second)
	o := Options{
		Nodes:      nodes,
		NodesMax:   []int{nodes, nodes, max(nodes+1, 3)}[w.Rand.IntN(3)],
		Partitions: 1 + w.Rand.IntN(4),
		Producers:  2 + w.Rand.IntN(4),
		Batches:    batches,
		// A producer's batches last for a part of the time of faults, or for all of it.
		Pace:            time.Duration(1+w.Rand.IntN(5)) * faulty / time.Duration(batches),
		Flush:           flush,
		Blackouts:       blackouts && flush != partition.FlushAlways,
		Shards:          1 + w.Rand.IntN(2),
		InFlight:        1 << w.Rand.IntN(6),
		SnapshotAfter:   1 + w.Rand.IntN(30),
		SnapshotEntries: 5 + w.Rand.IntN(60),
		SegmentBytes:    int64(200 + w.Rand.IntN(3000)),
		Faulty:          faulty,
		TopicsMax:       2 + w.Rand.IntN(6),
		LagMax:          among(w, 150*time.Millisecond, 500*time.Millisecond, 1500*time.Millisecond, 5*time.Second),
		RebalanceEvery:  among(w, 400*time.Millisecond, 2*time.Second, time.Hour),
		Usual:           among(w, time.Millisecond, time.Millisecond, 10*time.Millisecond, 50*time.Millisecond),
		StoreCall:       among(w, 500*time.Microsecond, 500*time.Microsecond, 20*time.Millisecond),
		Calm:            w.Between(100*time.Millisecond, 3*time.Second),
		FaultOneIn:      20 + w.Rand.IntN(300),
	}
	if nodes >= votersTarget && world.New(seed^0xfa11, nil).Chance(4) {
		o.Departures, o.NodesMax = true, nodes+1
	}
	o.FallBacks = flush != partition.FlushAlways && o.NodesMax > 1 && world.New(seed^0xfa11b, nil).Chance(3)
	if t := world.New(seed^0x7407, nil); o.NodesMax > 1 && t.Chance(4) {
		o.Throttle = 5_000 << t.Rand.IntN(4)
	}
	r := world.New(seed^0x9a15, nil)
	o.RaiseAfter = among(r, 100*time.Millisecond, time.Second, 5*time.Second)
	o.RaiseAway = among(r, time.Second, 5*time.Second, time.Minute)
	if nodes == 1 && !r.Chance(4) {
		o.NodesMax = 3 + r.Rand.IntN(2)
	}
	return o
}

// LongOptionsOf draws the shape of a run that lasts so long, in rounds, on a cluster that
// has followers or will have.
func LongOptionsOf(seed uint64, length time.Duration) Options {
	o := OptionsOf(seed)
	w := world.New(seed^0x10a6, nil)
	o.NodesMax = max(o.NodesMax, 3)
	if w.Chance(2) {
		o.NodesMax = max(o.NodesMax, 4)
	}
	o.Faulty, o.Round = length, w.Between(10*time.Second, 90*time.Second)
	o.Pace = w.Between(100*time.Millisecond, 2*time.Second)
	o.Batches = math.MaxInt // until the end
	return o
}

func among(w *world.World, choice ...time.Duration) time.Duration {
	return choice[w.Rand.IntN(len(choice))]
}
