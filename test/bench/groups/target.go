package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/test/bench/peer"
	"github.com/brokerd/brokerd/test/bench/rpc"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"
)

const (
	patience  = 3 * time.Minute
	lookEvery = 5 * time.Millisecond
	soon      = 20 * time.Millisecond
)

// target is one server with its groups, and what was measured of it.
type target struct {
	n      size
	server *peer.Server
	board  *board
	first  []*member // of each group
	stop   context.CancelFunc
	lives  sync.WaitGroup

	joined, committed            time.Duration
	rates, cpu                   []float64
	largeJoined, largeRebalanced time.Duration
	listening, served, heard     time.Duration
	rejoined, missing            int
	rss, rssAfter                int64
}

func newTarget(s *peer.Server, n size) *target {
	return &target{n: n, server: s, board: newBoard(), stop: func() {}}
}

func (t *target) end() {
	t.stop()
	t.server.Kill()
	t.lives.Wait()
}

func groupName(i int) string { return fmt.Sprintf("group-%04d", i) }

// prepare makes the topic, and the coordinator's.
func (t *target) prepare(ctx context.Context) error {
	c, err := rpc.Dial(ctx, t.server.Addr)
	if err != nil {
		return err
	}
	defer c.Close()
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version, create.TimeoutMillis = 5, 30_000
	topics := kmsg.NewCreateTopicsRequestTopic()
	topics.Topic, topics.NumPartitions, topics.ReplicationFactor = topic, int32(t.n.partitions), 1
	create.Topics = append(create.Topics, topics)
	created, err := rpc.Ask[*kmsg.CreateTopicsResponse](c, create, requestWait)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(created.Topics[0].ErrorCode); err != nil {
		return fmt.Errorf("create a topic: %w", err)
	}
	return t.retry(ctx, func() error {
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.Version, find.CoordinatorKeys = 4, []string{groupName(0)}
		found, err := rpc.Ask[*kmsg.FindCoordinatorResponse](c, find, requestWait)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(found.Coordinators[0].ErrorCode)
	})
}

// retry repeats what fails with an error that passes by itself.
func (t *target) retry(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := do()
		if err == nil || !kerr.IsRetriable(err) {
			return err
		}
		if !rpc.Pause(ctx, soon) {
			return fmt.Errorf("given up: %w", err)
		}
	}
}

func (t *target) startMembers(ctx context.Context) {
	ctx, t.stop = context.WithCancel(ctx)
	for i := range t.n.groups {
		for j := range t.n.members {
			m := &member{group: groupName(i), board: t.board}
			if j == 0 {
				t.first = append(t.first, m)
			}
			t.lives.Go(func() { m.run(ctx, t.server.Addr) })
		}
	}
}

func (t *target) wait(ctx context.Context, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for !done() {
		if !rpc.Pause(ctx, lookEvery) {
			return fmt.Errorf("%s: waited for %s: %w", t.server.Name, what, ctx.Err())
		}
	}
	return nil
}

// offsetOf is what is committed for the restart.
func offsetOf(group, partition int) int64 { return int64(1_000_000 + group*1000 + partition) }

// commitAll commits every partition of every group, with so many connections at once.
func (t *target) commitAll(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range t.n.workers {
		g.Go(func() error {
			c, err := rpc.Dial(ctx, t.server.Addr)
			if err != nil {
				return err
			}
			defer c.Close()
			for i := int(next.Add(1) - 1); i < t.n.groups; i = int(next.Add(1) - 1) {
				partitions := make([]int32, t.n.partitions)
				for p := range partitions {
					partitions[p] = int32(p)
				}
				if err := t.retry(ctx, func() error { return t.commitOne(c, i, partitions, 0) }); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (t *target) commitOne(c *rpc.Conn, group int, partitions []int32, more int64) error {
	cred, ok := t.board.credential(t.first[group])
	if !ok {
		return kerr.RebalanceInProgress
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation, req.MemberID = 8, groupName(group), cred.generation, cred.id
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = topic
	for _, p := range partitions {
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset = p, offsetOf(group, int(p))+more
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := rpc.Ask[*kmsg.OffsetCommitResponse](c, req, requestWait)
	if err != nil {
		return err
	}
	for _, rp := range resp.Topics[0].Partitions {
		if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
			return err
		}
	}
	return nil
}

// load commits one partition at a time for one round. What it commits is what the
// restart looks for.
func (t *target) load(ctx context.Context) (perSecond float64, commits int64, err error) {
	g, gctx := errgroup.WithContext(ctx)
	var count atomic.Int64
	begun := time.Now()
	for w := range t.n.workers {
		g.Go(func() error {
			c, err := rpc.Dial(gctx, t.server.Addr)
			if err != nil {
				return err
			}
			defer c.Close()
			for i := w; time.Since(begun) < t.n.round; i += t.n.workers {
				group, p := i%t.n.groups, int32(i/t.n.groups%t.n.partitions)
				if err := t.retry(gctx, func() error { return t.commitOne(c, group, []int32{p}, 0) }); err != nil {
					return err
				}
				count.Add(1)
			}
			return nil
		})
	}
	err = g.Wait()
	return float64(count.Load()) / time.Since(begun).Seconds(), count.Load(), err
}

// largeGroup times a group of many members from nothing, and one more.
func (t *target) largeGroup(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var lives sync.WaitGroup
	defer lives.Wait()
	defer cancel()
	b := newBoard()
	begun := time.Now()
	for range t.n.large {
		m := &member{group: "large", board: b}
		lives.Go(func() { m.run(ctx, t.server.Addr) })
	}
	if err := t.wait(ctx, "the large group", func() bool { return b.agree(t.n.large) }); err != nil {
		return err
	}
	t.largeJoined = time.Since(begun)
	begun = time.Now()
	m := &member{group: "large", board: b}
	lives.Go(func() { m.run(ctx, t.server.Addr) })
	if err := t.wait(ctx, "the large group with one more", func() bool { return b.agree(t.n.large + 1) }); err != nil {
		return err
	}
	t.largeRebalanced = time.Since(begun)
	return nil
}

// comeBack kills the server, starts it, and waits until all that it had is served.
func (t *target) comeBack(ctx context.Context) error {
	before := t.board.all()
	t.server.Kill()
	begun := time.Now()
	if err := t.server.Start(ctx); err != nil {
		return err
	}
	t.listening = time.Since(begun)
	c, err := rpc.Dial(ctx, t.server.Addr)
	if err != nil {
		return err
	}
	defer c.Close()
	for i := range t.n.groups {
		err := t.retry(ctx, func() error { return t.fetchOne(c, i) })
		for ; errors.Is(err, errMissing); err = t.retry(ctx, func() error { return t.fetchOne(c, i) }) {
			if t.missing++; time.Since(begun) > patience {
				return err
			}
			rpc.Pause(ctx, soon)
		}
		if err != nil {
			return err
		}
	}
	t.served = time.Since(begun)
	if err := t.wait(ctx, "all members", func() bool { return t.board.heard(begun, t.n.groups*t.n.members) }); err != nil {
		return err
	}
	t.heard = time.Since(begun)
	for m, c := range t.board.all() {
		if before[m] != c {
			t.rejoined++
		}
	}
	use, err := t.server.Usage()
	t.rssAfter = use.RSS
	return err
}

func (t *target) fetchOne(c *rpc.Conn, group int) error {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = 8
	rg := kmsg.NewOffsetFetchRequestGroup()
	rg.Group = groupName(group)
	req.Groups = append(req.Groups, rg)
	resp, err := rpc.Ask[*kmsg.OffsetFetchResponse](c, req, requestWait)
	if err != nil {
		return err
	}
	got := resp.Groups[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return err
	}
	n := 0
	for _, rt := range got.Topics {
		for _, p := range rt.Partitions {
			if n++; p.Offset != offsetOf(group, int(p.Partition)) {
				return fmt.Errorf("%s-%d of %s: offset %d was %d", rt.Topic, p.Partition, groupName(group), p.Offset, offsetOf(group, int(p.Partition)))
			}
		}
	}
	if n != t.n.partitions {
		return fmt.Errorf("%s has %d offsets, not %d: %w", groupName(group), n, t.n.partitions, errMissing)
	}
	return nil
}

// errMissing is of an answer without an error and without what was committed: a
// consumer that gets it begins anew.
var errMissing = errors.New("committed offsets are missing")

// spread is the median, and the least and the most.
func spread(v []float64, form string) string {
	if len(v) == 0 {
		return "none"
	}
	s := slices.Sorted(slices.Values(v))
	return fmt.Sprintf(form+" ("+form+" to "+form+")", s[len(s)/2], s[0], s[len(s)-1])
}

// ratio is the spread of a's rounds against those of b beside them.
func ratio(a, b []float64) string {
	var r []float64
	for i := range min(len(a), len(b)) {
		r = append(r, a[i]/b[i])
	}
	return spread(r, "%.2f")
}
