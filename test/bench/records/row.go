package main

import (
	"context"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/test/bench/load"
	"github.com/brokerd/brokerd/test/bench/rpc"
)

// What an acknowledgement survives, as a row tells it.
const (
	pageCache = "page cache"
	synced    = "fsync"
)

// durability is what an acknowledgement of a NATS server survives.
func (r role) durability() string {
	if r == natsAll {
		return synced
	}
	return pageCache
}

// row is one thing that is measured, on its sides in turn.
type row struct {
	name       string // of -rows
	title      string
	durability string
	sides      []sideSpec
	nats       *natsSide // one side more, on demand, where NATS has what compares
	bare       *sideSpec // likewise, the bare loop
	metrics    []metric
	// fresh rows have servers of their own, which they start themselves; else they are
	// those of other rows, and run.
	fresh bool
	// single rows are about one broker only.
	single bool
	// cold rows are about a server that has just started: no JVM is waited for.
	cold bool

	// once is before the first round of a side, last after the last one of all; before and
	// after are of each round. None of them is measured, and all but run may be nil.
	once   func(ctx context.Context, b *bench, s *side) error
	before func(ctx context.Context, b *bench, s *side) error
	run    func(ctx context.Context, s *side) (measured, error)
	after  func(ctx context.Context, s *side) error
	last   func(ctx context.Context, s *side) error
}

// sideSpec is a side before its server runs.
type sideSpec struct {
	role       role
	label      string   // where it is not the role's own
	partitions int      // of the topic that the row makes
	settings   []string // of that topic: name, value, ...

	// In the place of the row's own, where they are not nil.
	once func(ctx context.Context, b *bench, s *side) error
	run  func(ctx context.Context, s *side) (measured, error)
}

// natsSide is a side on NATS.
type natsSide struct {
	sideSpec
	note string // in what it differs from the others
}

// side is a server in a row.
type side struct {
	sideSpec
	*started
	topic rpc.Topic
	ends  []int64
	idle  int64  // RSS before the load, of rows about memory
	image string // folder of data that each round begins with
	// begin is called by a round once it is prepared: what it measures begins here.
	begin func() error

	values [][]float64 // of each metric, in each counted round
}

func (s *side) makeTopic(ctx context.Context) (err error) {
	s.topics++
	s.topic, err = s.conn.CreateTopic(ctx, fmt.Sprintf("bench-%d", s.topics), s.partitions, s.settings...)
	return err
}

// deleteTopic deletes it, and waits until its files are gone, so that what they cost
// falls into nobody's round.
func (s *side) deleteTopic(ctx context.Context) error {
	if err := s.conn.DeleteTopic(s.topic); err != nil {
		return err
	}
	return s.WaitQuiet(ctx)
}

func newTopic(ctx context.Context, _ *bench, s *side) error { return s.makeTopic(ctx) }

func dropTopic(ctx context.Context, s *side) error { return s.deleteTopic(ctx) }

// measured is a round.
type measured struct {
	load.Result
	cpu         time.Duration
	idle, added int64 // RSS before a load, and what it added; of rows about memory
	rss         int64 // at the end, or the most
}

// metric is one number of a round.
type metric struct {
	name string
	of   func(m measured) float64
	// plain metrics are not compared.
	plain bool
}

var (
	recordRate = metric{name: "records/s", of: func(m measured) float64 { return float64(m.Records) / m.Elapsed.Seconds() }}
	recordCPU  = metric{name: "server CPU, µs a record", of: func(m measured) float64 { return micros(m.cpu) / float64(m.Records) }}
	rate       = metric{name: "requests/s", of: func(m measured) float64 { return float64(m.Requests) / m.Elapsed.Seconds() }}
	requestCPU = metric{name: "server CPU, µs a request", of: func(m measured) float64 { return micros(m.cpu) / float64(m.Requests) }}
	bandwidth  = metric{name: "MB/s", plain: true, of: func(m measured) float64 { return float64(m.Bytes) / 1e6 / m.Elapsed.Seconds() }}
	rss        = metric{name: "RSS, MiB", plain: true, of: func(m measured) float64 { return mebibytes(m.rss) }}
	idleRSS    = metric{name: "RSS idle, MiB", of: func(m measured) float64 { return mebibytes(m.idle) }}
	loadedRSS  = metric{name: "RSS loaded, the most, MiB", of: func(m measured) float64 { return mebibytes(m.rss) }}
	addedRSS   = metric{name: "RSS added, MiB", plain: true, of: func(m measured) float64 { return mebibytes(m.added) }}
	processors = metric{name: "server CPU, processors", of: func(m measured) float64 { return m.cpu.Seconds() / m.Elapsed.Seconds() }}
	seconds    = metric{name: "s", of: func(m measured) float64 { return m.Elapsed.Seconds() }}
)

func latency(p float64) metric {
	return metric{name: fmt.Sprintf("p%v, ms", p), of: func(m measured) float64 { return micros(percentile(m.Latencies, p)) / 1000 }}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }
