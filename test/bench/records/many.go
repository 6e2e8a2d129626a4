package main

import (
	"context"
	"time"

	"github.com/brokerd/brokerd/test/bench/rpc"
)

// restFor is how long servers are left alone before it is measured what they do then.
const (
	restFor     = 2 * time.Second
	idleMeasure = 10 * time.Second
)

// createRow is about the making of many partitions.
func createRow() row {
	return row{
		name: "create-1000", title: "1,000 partitions created and led, and a record acknowledged in each", durability: pageCache,
		sides: both(manyPartitions), metrics: []metric{seconds},
		run: func(ctx context.Context, s *side) (m measured, err error) {
			begun := time.Now()
			if err := s.makeTopic(ctx); err != nil {
				return m, err
			}
			err = s.conn.ProduceAll(ctx, s.topic, s.role.record())
			m.Elapsed = time.Since(begun)
			return m, err
		},
		after: dropTopic,
	}
}

// idleRow is about what servers do that are left alone.
func idleRow() row {
	return row{
		name: "idle-1000", title: "all brokers, left alone with 1,000 partitions that have a record each", durability: pageCache,
		sides: both(manyPartitions), metrics: []metric{processors, rss},
		once: func(ctx context.Context, _ *bench, s *side) error {
			if err := s.makeTopic(ctx); err != nil {
				return err
			}
			return s.conn.ProduceAll(ctx, s.topic, s.role.record())
		},
		run: func(ctx context.Context, s *side) (m measured, err error) {
			rpc.Pause(ctx, restFor)
			if err := s.begin(); err != nil {
				return m, err
			}
			begun := time.Now()
			rpc.Pause(ctx, idleMeasure)
			m.Elapsed = time.Since(begun)
			return m, context.Cause(ctx)
		},
		last: dropTopic,
	}
}
