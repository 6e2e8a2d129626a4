package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/brokerd/brokerd/test/bench/load"
	"github.com/brokerd/brokerd/test/bench/rpc"
	"golang.org/x/sync/errgroup"
)

const (
	// idleFor is how long a server is left alone before its memory is looked at.
	idleFor = 3 * time.Second
	// memoryEvery is between two looks while it works.
	memoryEvery = 200 * time.Millisecond
	// idleConnections and activeConnections are of the row about many of them.
	idleConnections   = 5000
	activeConnections = 1000
	activeEvery       = time.Second
	// killedBytes are in the log of a server that is killed, in batches of so many.
	killedBytes      = 2 << 30
	killedBatchBytes = 64 << 10
)

// fresh replaces the side's server by a new one, with an empty directory.
func fresh(ctx context.Context, b *bench, s *side) error {
	s.close()
	if err := s.Remove(); err != nil {
		return err
	}
	next, err := b.newServer(ctx, s.role)
	if err != nil {
		return err
	}
	s.started = next
	return nil
}

func stop(_ context.Context, s *side) error {
	s.close()
	return s.Remove()
}

// record is one that the role's servers take.
func (r role) record() []byte {
	value := load.Value(small, 0)
	if r.isNATS() {
		return value
	}
	return load.Batch(time.Now(), value)
}

// firstRecord makes the topic and has one record acknowledged in each partition.
func (s *side) firstRecord(ctx context.Context) error {
	if err := s.connect(ctx); err != nil {
		return err
	}
	if err := s.makeTopic(ctx); err != nil {
		return err
	}
	return s.conn.ProduceAll(ctx, s.topic, s.role.record())
}

// emptyRow is about a start on an empty directory.
func emptyRow() row {
	return row{
		name: "start-empty", title: "start on an empty directory, to the first acknowledged record", durability: pageCache,
		sides: both(1), nats: natsEmpty(), metrics: []metric{seconds}, fresh: true, cold: true,
		before: fresh,
		run: func(ctx context.Context, s *side) (m measured, err error) {
			begun := time.Now()
			if err := s.Start(ctx); err != nil {
				return m, err
			}
			err = s.firstRecord(ctx)
			m.Elapsed = time.Since(begun)
			return m, err
		},
		after: stop,
	}
}

// killRow is about a start after kill -9. Each round begins with the same files.
func killRow(o options) row {
	return row{
		name: "start-killed", single: true,
		title:      fmt.Sprintf("start after kill -9, 1,000 partitions and %.1f GiB of log, to a record acknowledged in each", float64(o.killed)/(1<<30)),
		durability: pageCache,
		sides:      both(manyPartitions), metrics: []metric{seconds}, fresh: true, cold: true,
		once: func(ctx context.Context, _ *bench, s *side) error { return fillAndKill(ctx, o, s) },
		before: func(_ context.Context, _ *bench, s *side) error {
			s.close()
			return replace(s.Data(), s.image)
		},
		run: restart,
		last: func(_ context.Context, s *side) error {
			s.close()
			return s.Remove()
		},
	}
}

func fillAndKill(ctx context.Context, o options, s *side) error {
	if err := s.Start(ctx); err != nil {
		return err
	}
	if err := s.firstRecord(ctx); err != nil {
		return err
	}
	batch, records, err := load.FullBatch(time.Now(), large, killedBatchBytes, load.None)
	if err != nil {
		return err
	}
	_, err = load.Produce{
		Addr: s.Addr, Topic: s.topic, Producers: s.partitions, InFlight: 1, Batch: batch, Records: records, BytesMax: o.killed,
	}.Run(ctx)
	if err != nil {
		return err
	}
	if s.ends, err = s.conn.EndOffsets(s.topic); err != nil {
		return err
	}
	s.close()
	s.image = s.Data() + ".image"
	return os.Rename(s.Data(), s.image)
}

// replace makes dir a copy of image, and waits until the disk has nothing to do with it.
func replace(dir, image string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if out, err := exec.Command("cp", "-a", image, dir).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w\n%s", image, err, out)
	}
	syscall.Sync()
	return nil
}

// restart starts the server on what it had, until a record is acknowledged in each partition;
// all that was there must be.
func restart(ctx context.Context, s *side) (m measured, err error) {
	begun := time.Now()
	if err := s.Start(ctx); err != nil {
		return m, err
	}
	if err := s.connect(ctx); err != nil {
		return m, err
	}
	if err := s.conn.ProduceAll(ctx, s.topic, s.role.record()); err != nil {
		return m, err
	}
	m.Elapsed = time.Since(begun)
	ends, err := s.conn.EndOffsets(s.topic)
	if err != nil {
		return m, err
	}
	for p, end := range ends {
		if end <= s.ends[p] {
			return m, fmt.Errorf("partition %d ends at %d, after it ended at %d", p, end, s.ends[p])
		}
	}
	return m, nil
}

// settle sends the server its first record, and notes what it takes when it is idle
// after that.
func (s *side) settle(ctx context.Context) error {
	if err := s.firstRecord(ctx); err != nil {
		return err
	}
	rpc.Pause(ctx, idleFor)
	use, err := s.Usage()
	s.idle = use.RSS
	return err
}

// memoryRow is about what a broker's processes take: alone, and at work. A broker of
// several has replicas of 1,000 partitions.
func memoryRow(o options) row {
	title, n := "memory of all processes, after one record", partitions
	if o.brokers > 1 {
		title, n = "memory of each broker and its plugins, with 1,000 partitions, after a record in each", manyPartitions
	}
	return row{
		name: "memory", title: title + ", and under full batches, 1,000 producers and consumers", durability: pageCache,
		sides: both(n), nats: natsMemory(o), metrics: []metric{idleRSS, loadedRSS}, fresh: true, cold: true,
		before: func(ctx context.Context, b *bench, s *side) error {
			if err := fresh(ctx, b, s); err != nil {
				return err
			}
			if err := s.Start(ctx); err != nil {
				return err
			}
			return s.settle(ctx)
		},
		run:   memoryUnder(func(ctx context.Context, s *side) error { return mix(ctx, o, s) }),
		after: stop,
	}
}

// memoryUnder is the run of a row about memory: what a broker took before something, and
// the most under it, on average of all.
func memoryUnder(do func(context.Context, *side) error) func(context.Context, *side) (measured, error) {
	return func(ctx context.Context, s *side) (m measured, err error) {
		brokers := int64(len(s.Addrs))
		m.idle = s.idle / brokers
		m.rss, err = most(ctx, s, func(ctx context.Context) error { return do(ctx, s) })
		m.rss /= brokers
		return m, err
	}
}

// most is the most memory that a server takes while something is done.
func most(ctx context.Context, s *side, do func(context.Context) error) (int64, error) {
	var rss int64
	g, ctx := errgroup.WithContext(ctx)
	done, end := context.WithCancel(ctx)
	g.Go(func() error {
		defer end()
		return do(ctx)
	})
	g.Go(func() error {
		for {
			use, err := s.Usage()
			if err != nil {
				return err
			}
			rss = max(rss, use.RSS)
			if !rpc.Pause(done, memoryEvery) {
				return nil
			}
		}
	})
	return rss, g.Wait()
}

// mix is some of every load, one after the other.
func mix(ctx context.Context, o options, s *side) error {
	full, records, err := load.FullBatch(time.Now(), large, load.BatchBytesMax, load.None)
	if err != nil {
		return err
	}
	one := load.Batch(time.Now(), load.Value(small, 0))
	for _, l := range []load.Produce{
		{Addr: s.Addr, Topic: s.topic, Producers: o.producers, InFlight: o.inFlight, Batch: full, Records: records, For: o.round, BytesMax: o.volume},
		{Addr: s.Addr, Topic: s.topic, Producers: manyProducers, InFlight: 1, Batch: one, Records: 1, For: o.round},
	} {
		if _, err := l.Run(ctx); err != nil {
			return err
		}
	}
	ends, err := s.conn.EndOffsets(s.topic)
	if err != nil {
		return err
	}
	_, err = load.Consume{Addr: s.Addr, Topic: s.topic, Ends: ends, Consumers: o.consumers}.Run(ctx)
	return err
}

// crowdRow is about many connections that do little.
func crowdRow(o options) row {
	batch := load.Batch(time.Now(), load.Value(small, 0))
	return row{
		name: "connections", single: true,
		title:      fmt.Sprintf("%s idle connections, %s with one record a second each", thousands(idleConnections), thousands(activeConnections)),
		durability: pageCache, sides: both(partitions),
		metrics: []metric{addedRSS, latency(50), latency(99)}, fresh: true,
		once: func(ctx context.Context, b *bench, s *side) error {
			if err := b.start(ctx, s.started, s.role); err != nil {
				return err
			}
			return s.settle(ctx)
		},
		run: func(ctx context.Context, s *side) (m measured, err error) {
			m.Result, err = load.Crowd{
				Addr: s.Addr, Topic: s.topic, Idle: idleConnections, Active: activeConnections, Every: activeEvery, Batch: batch, For: 3 * o.round, Ready: s.begin,
				AtEnd: func() error {
					use, err := s.Usage()
					m.rss, m.added = use.RSS, use.RSS-s.idle
					return err
				},
			}.Run(ctx)
			return m, err
		},
		last: stop,
	}
}

// warmJVM gives a server some of every load until its compiler has settled.
func (b *bench) warmJVM(ctx context.Context, s *started) error {
	w := &side{sideSpec: sideSpec{partitions: partitions}, started: s}
	for n := range warmRounds {
		if err := w.makeTopic(ctx); err != nil {
			return err
		}
		from, err := look(w)
		if err != nil {
			return err
		}
		if err := mix(ctx, b.o, w); err != nil {
			return fmt.Errorf("warm it up: %w", err)
		}
		to, err := look(w)
		if err != nil {
			return err
		}
		if err := w.deleteTopic(ctx); err != nil {
			return err
		}
		used := (to.compiling - from.compiling).Seconds() / to.at.Sub(from.at).Seconds()
		b.logf("%s: warm up, %d: its compiler used %.2f processors", s.Name, n+1, used)
		if used < settledMax || b.look() {
			break
		}
	}
	return nil
}
