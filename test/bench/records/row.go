package main

import (
	"context"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/test/bench/load"
	"github.com/brokerd/brokerd/test/bench/peer"
	"github.com/brokerd/brokerd/test/bench/rpc"
)

// What an acknowledgement survives, as a row tells it.
const (
	pageCache = "page cache"
	synced    = "fsync"
)

// row is one thing that is measured, on its sides in turn.
type row struct {
	name       string // of -rows
	title      string
	durability string
	sides      []sideSpec
	metrics    []metric
	// before and after are of each round, and not measured; either may be nil.
	before, after func(ctx context.Context, s *side) error
	run           func(ctx context.Context, s *side) (load.Result, error)
	// once is before the first round of a side.
	once func(ctx context.Context, s *side) error
}

// sideSpec is a side before its server runs.
type sideSpec struct {
	role       role
	label      string   // where it is not the role's own
	partitions int      // of the topic that the row makes
	settings   []string // of that topic: name, value, ...
}

// side is a server in a row.
type side struct {
	sideSpec
	server *peer.Server
	conn   *rpc.Conn
	topics *int // made on this server, for their names
	topic  rpc.Topic
	ends   []int64

	values    [][]float64 // of each metric, in each counted round
	compiling []float64   // processors that the JVM's compiler took
}

func (s *side) createTopic(ctx context.Context) (err error) {
	*s.topics++
	s.topic, err = s.conn.CreateTopic(ctx, fmt.Sprintf("bench-%d", *s.topics), s.partitions, s.settings...)
	return err
}

// deleteTopic deletes it, and waits until its files are gone, so that what they cost
// falls into nobody's round.
func (s *side) deleteTopic(ctx context.Context) error {
	if err := s.conn.DeleteTopic(s.topic); err != nil {
		return err
	}
	return s.server.WaitQuiet(ctx)
}

// measured is a round.
type measured struct {
	load.Result
	cpu time.Duration
	rss int64
	// rssBefore is from before the round.
	rssBefore int64
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
	rss        = metric{name: "RSS, MiB", plain: true, of: func(m measured) float64 { return float64(m.rss) / (1 << 20) }}
)

func latency(p float64) metric {
	return metric{name: fmt.Sprintf("p%v, ms", p), of: func(m measured) float64 { return micros(percentile(m.Latencies, p)) / 1000 }}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
