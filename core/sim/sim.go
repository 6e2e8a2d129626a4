package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/group"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/core/sim/world"
)

// plainProducer: every so many-th producer, and the first, is not idempotent.
const plainProducer = 4

// Options are the shape of one run.
type Options struct {
	Partitions     int
	Producers      int
	Batches        int // for each producer
	Pace           time.Duration
	Flush          partition.FlushPolicy
	InFlight       int
	SnapshotAfter  int
	SegmentBytes   int64
	RetentionBytes int64 // negative: none
	Faulty         time.Duration
	Calm           time.Duration // the longest pause between two misfortunes
	FaultOneIn     int           // operations of the store fail, or a few more: while faults are on
	// Granted: the store lends the ends of logs to the broker.
	Granted bool

	// Groups is how many groups of consumers there are; 0: none, and what follows
	// does not matter.
	Groups            int
	Members           int // of each, at first
	OffsetsPartitions int
	Coordination      group.Settings
	ChunkBytes        int
	// Log gets every event; nil: nobody.
	Log func(string)
}

// Report is what happened in one run.
type Report struct {
	Seed        uint64
	Acked       int // records, by acknowledgement
	Retried     int
	LostAnswers int
	Kills       int // of the broker
	Deaths      int // of the plugin alone
	PowerLosses int
	Lost        int // unflushed batches that power losses took
	Torn        int // of them, torn writes
	Failed      int // operations of the store
	Full        int // times that the disk filled
	Trims       int
	Reads       int // records
	Granted     int // appends that the broker wrote itself
	Found       int // of them, those that an opening found, the store not having been told

	Rebalances int
	Commits    int // offsets, by acknowledgement
	Stale      int // commits that were refused as stale
	Fetched    int // committed offsets
	Expired    int // offsets
	Deleted    int // offsets, and groups
	Fenced     int
	Stalls     int // of members
	Vanished   int // members
	Returned   int // of them, came back
	Moves      int // of the leadership of offsets partitions
	Trace      uint64
	Violations []string
}

// Crashes counts every end of a process.
func (r Report) Crashes() int { return r.Kills + r.Deaths + r.PowerLosses }

// simulation is one run.
type simulation struct {
	w         *world.World
	opts      Options
	f         *world.Faults
	broker    *broker
	check     *checker
	producers []*producer
	report    *Report

	ledger    *ledger
	consumers []*consumers
	open      map[*flight]time.Time // requests of groups that the broker has not answered, since when
}

// OptionsOf draws the shape of a run from its seed.
func OptionsOf(seed uint64) Options {
	w := world.New(seed^0x0b5, nil)
	o := Options{
		Partitions:     1 + w.Rand.IntN(3),
		Producers:      2 + w.Rand.IntN(4),
		Batches:        12 + w.Rand.IntN(20),
		Pace:           w.Between(time.Millisecond, 60*time.Millisecond),
		Flush:          partition.FlushPolicy(w.Rand.IntN(3)),
		InFlight:       1 << w.Rand.IntN(6),
		SnapshotAfter:  1 + w.Rand.IntN(30),
		SegmentBytes:   int64(200 + w.Rand.IntN(3000)),
		RetentionBytes: -1,
		Faulty:         w.Between(2*time.Second, 6*time.Second),
		Calm:           500 * time.Millisecond,
		FaultOneIn:     8,
	}
	if w.Chance(4) {
		o.RetentionBytes = int64(500 + w.Rand.IntN(5000))
	}
	o.Granted = w.Chance(2)
	return o
}

// patience is how long after the last fault every client must have been served.
const patience = 3 * time.Minute

// Run runs one seed. The error is the simulator's own; what the broker did wrong
// is in the report.
func Run(seed uint64, opts Options) (Report, error) {
	report := &Report{Seed: seed}
	w := world.New(seed, opts.Log)
	s := &simulation{w: w, opts: opts, report: report, check: newChecker(w, opts.RetentionBytes >= 0)}
	s.f = &world.Faults{W: w, On: true, OneIn: opts.FaultOneIn + w.Rand.IntN(60)}
	b, err := newBroker(w, opts, s.f, report)
	if err != nil {
		return *report, fmt.Errorf("make the broker: %w", err)
	}
	s.broker = b
	if err := b.start(); err != nil {
		return *report, fmt.Errorf("start the broker: %w", err)
	}
	s.clients()
	s.trouble()
	s.watch()
	if opts.Groups > 0 {
		s.consumeInGroups()
	}
	end := w.Now().Add(opts.Faulty)
	s.runUntil(func() bool { return !w.Now().Before(end) || len(s.check.violations) > 0 })
	s.heal()
	s.runUntilServed()
	s.calm()
	if err := s.finish(); err != nil {
		return *report, err
	}
	report.Violations, report.Trace, report.Failed = s.check.violations, w.Trace(), s.f.Failed
	return *report, nil
}

// clients makes the producers.
func (s *simulation) clients() {
	for i := range s.opts.Producers {
		p := &producer{
			s: s, id: i, left: s.opts.Batches, acks: model.AcksAll, pid: int64(1000 + i),
			partition: model.Partition{Topic: topicID, Index: int32(s.w.Rand.IntN(s.opts.Partitions))},
		}
		if i%plainProducer == 0 {
			p.pid = model.NoProducerID
			p.acks = []model.Acks{model.AcksAll, model.AcksAll, model.AcksLeader}[s.w.Rand.IntN(3)]
		}
		p.start()
		s.producers = append(s.producers, p)
	}
}

func (s *simulation) runUntil(stop func() bool) {
	for !stop() {
		s.broker.pump()
		if s.w.Over() {
			return
		}
		s.w.Step()
	}
}

func (s *simulation) served() bool {
	for _, p := range s.producers {
		if !p.done() {
			return false
		}
	}
	return s.unsettled() == ""
}

// heal ends the faults: what is down comes up.
func (s *simulation) heal() {
	s.f.On = false
	s.broker.disk.SetFree(-1)
	s.w.Note("faults end")
	s.healGroups()
}

// watch reads and looks at the broker's offsets, again and again.
func (s *simulation) watch() {
	if s.opts.Producers == 0 {
		return
	}
	s.w.After(s.w.Between(time.Millisecond, 40*time.Millisecond), func() {
		if s.broker.up {
			s.read()
			s.status()
		}
		s.watch()
	})
}

func (s *simulation) status() {
	for _, d := range s.broker.manager.Directories(context.Background()) {
		for _, r := range d.Replicas {
			if r.Offline == nil && r.Leader && r.LEO > 0 {
				s.check.status(r)
			}
		}
	}
}

// read fetches from some place of some partition.
func (s *simulation) read() {
	p := model.Partition{Topic: topicID, Index: int32(s.w.Rand.IntN(s.opts.Partitions))}
	seen := s.check.of(p)
	from := seen.logStart
	if seen.hw > from {
		from += s.w.Rand.Int64N(seen.hw - from)
	}
	got := s.fetch(p, from, 200+s.w.Rand.IntN(2000))
	if got.Err != nil {
		return
	}
	s.consume(p, from, got)
}

func (s *simulation) fetch(p model.Partition, from int64, maxBytes int) model.Fetched {
	return s.broker.manager.Fetch(context.Background(), model.Fetch{
		Partitions: []model.FetchPartition{{
			Partition: p, Offset: from, LogStart: -1, MaxBytes: maxBytes, CurrentEpoch: model.NoEpoch, LastFetchedEpoch: model.NoEpoch,
		}},
		MaxBytes: maxBytes,
	}).Partitions[0]
}

// consume hands what was fetched to the checker and returns the next offset.
func (s *simulation) consume(p model.Partition, from int64, got model.Fetched) (next int64, values []string) {
	next = from
	for r, err := range batch.Records(slices.Concat(got.Data...), 0) {
		if err != nil {
			s.check.violate("partition %d: what was fetched at %d is damaged: %v", p.Index, from, err)
			return next, values
		}
		if r.Offset >= got.HighWatermark {
			s.check.violate("partition %d: offset %d was served, the high watermark is %d", p.Index, r.Offset, got.HighWatermark)
		}
		if r.Offset < from {
			continue
		}
		s.check.consumed(p, r.Offset, string(r.Value))
		values = append(values, string(r.Value))
		next = r.Offset + 1
		s.report.Reads++
	}
	return next, values
}

// finish starts the broker once more, cleanly or after a kill, and reads it all.
func (s *simulation) finish() error {
	if s.w.Chance(2) && s.broker.up && s.broker.store.alive {
		if !s.broker.stopCleanly() {
			s.check.violate("the store did not shut down cleanly")
			s.broker.kill()
		}
	} else {
		s.broker.kill()
	}
	if err := s.broker.start(); err != nil {
		return fmt.Errorf("start the broker again: %w", err)
	}
	if s.opts.Groups > 0 {
		s.goOn()
		return nil
	}
	for i := range s.opts.Partitions {
		s.readAll(model.Partition{Topic: topicID, Index: int32(i)})
	}
	return nil
}

// readAll reads a partition from its log start to its end.
func (s *simulation) readAll(p model.Partition) {
	limit := s.w.Now().Add(patience)
	var values []string
	next, start := int64(-1), int64(0)
	for {
		if next < 0 {
			next = s.check.of(p).logStart
		}
		got := s.fetch(p, next, 1<<20)
		if got.Err == nil && got.HighWatermark >= 0 {
			if len(values) == 0 {
				start = max(next, got.LogStart)
			}
			if next >= got.HighWatermark {
				s.check.final(p, start, got.HighWatermark, values)
				return
			}
			was := next
			var more []string
			next, more = s.consume(p, next, got)
			values = append(values, more...)
			if next > was {
				continue
			}
		}
		if !s.w.Now().Before(limit) {
			s.check.violate("partition %d does not serve: %v", p.Index, got.Err)
			return
		}
		if got.Err != nil && got.LogStart > next && len(values) == 0 {
			next = got.LogStart
		}
		s.broker.pump()
		if s.w.Over() {
			s.check.violate("partition %d does not serve and nothing is to come: %v", p.Index, got.Err)
			return
		}
		s.w.Step()
	}
}
