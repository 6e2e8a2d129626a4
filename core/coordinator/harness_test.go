package coordinator

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/group"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

var (
	testDir    = model.DirectoryID{0xd1}
	offsetsID  = model.TopicID{0x0f}
	ordersID   = model.TopicID{0x70}
	ordersName = "orders"
)

// cluster builds images.
type cluster struct {
	t      testing.TB
	img    *image.Image
	offset int64
}

func newCluster(t testing.TB, more ...image.Record) *cluster {
	c := &cluster{t: t, img: &image.Image{}}
	c.apply(&image.ClusterRecord{Cluster: image.Cluster{ID: "c", FeatureLevel: 1, ReplicationFactorTarget: 3, MinISRTarget: 2}},
		&image.BrokerRecord{ID: 1, Directories: []model.DirectoryID{testDir}})
	c.apply(more...)
	return c
}

func (c *cluster) apply(records ...image.Record) *image.Image {
	c.t.Helper()
	c.offset++
	d := image.NewDelta(c.img, c.offset)
	for _, r := range records {
		if err := d.Apply(r); err != nil {
			c.t.Fatal(err)
		}
	}
	c.img = d.Image()
	return c.img
}

func topicRecords(id model.TopicID, name string, partitions int) []image.Record {
	out := []image.Record{&image.TopicRecord{ID: id, Name: name, ReplicationFactorTarget: 3}}
	for i := range partitions {
		out = append(out, &image.PartitionRecord{Partition: model.Partition{Topic: id, Index: int32(i)}, Registration: image.Partition{
			Replicas: []model.NodeID{1}, Directories: []model.DirectoryID{testDir}, ISR: []model.NodeID{1}, Leader: 1,
		}})
	}
	return out
}

// leaderChange begins another leader epoch of partition 0.
func leaderChange(id model.TopicID, leader model.NodeID) *image.PartitionChangeRecord {
	return &image.PartitionChangeRecord{Partition: model.Partition{Topic: id}, LeaderChange: true, Leader: leader}
}

// heldLog is a log in memory, which can be told to keep its answers.
type heldLog struct {
	mu      sync.Mutex
	parts   map[int32]*heldPart
	appends []model.Append // all that were asked for
	reads   int            // calls of Fetch
	waits   int            // calls of EpochEnds that may wait
	fail    error          // of reads
	damaged func(offset int64) bool
	// answer, if set, is asked what becomes of an append: it stays open where it
	// returns false.
	answer func(model.Append) (model.Appended, bool)
	open   []func(model.Appended) // done of the open ones, in order
}

type heldPart struct {
	batches [][]byte
	start   int64
	leo     int64
	hw      int64
}

func newHeldLog() *heldLog { return &heldLog{parts: make(map[int32]*heldPart)} }

func (l *heldLog) part(i int32) *heldPart {
	if l.parts[i] == nil {
		l.parts[i] = &heldPart{}
	}
	return l.parts[i]
}

// put appends a batch.
func (l *heldLog) put(index int32, data []byte, committed bool) int64 {
	p := l.part(index)
	info, err := recordbatch.Parse(data)
	if err != nil {
		panic(err)
	}
	base := p.leo
	recordbatch.Stamp(data, base, 0)
	p.batches = append(p.batches, data)
	p.leo = base + info.LastOffset - info.BaseOffset + 1
	if committed {
		p.hw = p.leo
	}
	return base
}

func (l *heldLog) Append(_ context.Context, a model.Append, done func(model.Appended)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.appends = append(l.appends, a)
	if l.answer != nil {
		r, settled := l.answer(a)
		if !settled {
			l.open = append(l.open, done)
			return
		}
		if r.Err != nil {
			done(r)
			return
		}
	}
	done(model.Appended{BaseOffset: l.put(a.Partition.Index, a.Data, true)})
}

func (l *heldLog) Fetch(_ context.Context, f model.Fetch) *model.FetchAnswer {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	q := f.Partitions[0]
	p := l.part(q.Partition.Index)
	out := model.Fetched{Partition: q.Partition, HighWatermark: p.hw, LogStart: p.start, Err: l.fail}
	if q.Offset < p.start || q.Offset > p.leo {
		out.Err = fmt.Errorf("offset %d: %w", q.Offset, model.ErrOffsetOutOfRange)
	}
	if out.Err != nil {
		return &model.FetchAnswer{Partitions: []model.Fetched{out}}
	}
	for _, b := range p.batches {
		info, err := recordbatch.Parse(b)
		if err != nil {
			panic(err)
		}
		if info.LastOffset < q.Offset || info.LastOffset >= p.hw {
			continue
		}
		if len(out.Data) > 0 && out.Bytes()+len(b) > q.MaxBytes {
			break
		}
		if l.damaged != nil && l.damaged(info.LastOffset) {
			if len(out.Data) == 0 {
				out.Err = fmt.Errorf("offset %d: %w", q.Offset, model.ErrCorruptMessage)
			}
			break
		}
		out.Data = append(out.Data, b)
	}
	return &model.FetchAnswer{Partitions: []model.Fetched{out}}
}

func (l *heldLog) EpochEnds(ctx context.Context, qs []model.EpochQuery) []model.EpochAnswer {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() == nil {
		l.waits++
	}
	return []model.EpochAnswer{{EpochEnd: model.EpochEnd{Epoch: qs[0].Epoch, EndOffset: l.part(qs[0].Partition.Index).leo}, Err: l.fail}}
}

// counts are Events that are kept.
type counts struct {
	mu           sync.Mutex
	loads        int
	failedLoads  int
	refused      int
	full         int
	committed    int
	notAvailable []string
}

func (c *counts) Loaded(time.Duration) { c.add(&c.loads, 1) }
func (c *counts) LoadFailed()          { c.add(&c.failedLoads, 1) }
func (c *counts) Refused()             { c.add(&c.refused, 1) }
func (c *counts) Full()                { c.add(&c.full, 1) }
func (c *counts) Committed(n int)      { c.add(&c.committed, n) }
func (c *counts) Rebalanced()          {}
func (c *counts) Expired(int)          {}

func (c *counts) NotAvailable(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notAvailable = append(c.notAvailable, reason)
}

func (c *counts) add(to *int, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*to += n
}

func (c *counts) get(of *int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *of
}

// noController is asked for nothing.
type noController struct{}

func (noController) CreateTopics(context.Context, []model.NewTopic, bool) ([]model.TopicResult, error) {
	panic("no topic is to be made")
}

// stepped is a manager on one goroutine, with a clock that is moved by hand.
type stepped struct {
	*Manager
	t       testing.TB
	log     *heldLog
	cluster *cluster
	events  *counts
	lines   *strings.Builder
	now     time.Time
	ordered []func(context.Context)
	others  []func(context.Context)
	most    int // reads that were under way at once

	incarnation [16]byte
	mem         group.Memory
}

func (s *stepped) Now() time.Time { return s.now }
func (s *stepped) NewTimer(time.Duration) (<-chan time.Time, func() bool) {
	panic("a stepped manager waits for nothing")
}
func (s *stepped) AfterFunc(time.Duration, func()) func() bool {
	panic("a stepped manager waits for nothing")
}
func (s *stepped) Ordered(_ int, work func(context.Context)) { s.ordered = append(s.ordered, work) }
func (s *stepped) Go(_ int, work func(context.Context)) {
	s.others = append(s.others, work)
	s.most = max(s.most, len(s.others))
}

// newStepped is a manager of one shard, with the offsets topic of this many
// partitions and a topic of orders.
func newStepped(t testing.TB, partitions int, change func(*Config)) *stepped {
	t.Helper()
	s := &stepped{t: t, log: newHeldLog(), events: &counts{}, lines: &strings.Builder{}, now: time.Unix(1_000_000_000, 0)}
	s.cluster = newCluster(t, slices.Concat(topicRecords(offsetsID, model.OffsetsTopic, partitions), topicRecords(ordersID, ordersName, 3))...)
	s.restart(change)
	return s
}

// restart is another life of the broker, with the same log.
func (s *stepped) restart(change func(*Config)) {
	s.t.Helper()
	cfg := DefaultConfig()
	cfg.NodeID, cfg.Shards = 1, 1
	cfg.Groups.InitialDelay = 0
	if change != nil {
		change(&cfg)
	}
	s.ordered, s.others = nil, nil
	m, err := New(cfg, Deps{Log: s.log, Controller: noController{}, Clock: s, Executor: s, Events: s.events, Incarnation: s.incarnation, Memory: s.mem, Logger: slog.New(slog.NewTextHandler(s.lines, nil))})
	if err != nil {
		s.t.Fatal(err)
	}
	s.Manager = m
	m.Apply(s.cluster.img)
}

// turn runs the loop until nothing is left to do at this time.
func (s *stepped) turn() {
	for {
		at, due := s.Loops()[0].Deadline()
		switch {
		case len(s.ordered) > 0:
			work := s.ordered[0]
			s.ordered = s.ordered[1:]
			work(context.Background())
		case s.Loops()[0].Pending() > 0 || due && !at.After(s.now):
			s.Loops()[0].Turn(s.now)
		case len(s.others) > 0:
			work := s.others[0]
			s.others = s.others[1:]
			work(context.Background())
		default:
			return
		}
	}
}

// advance lets time pass.
func (s *stepped) advance(d time.Duration) {
	for until := s.now.Add(d); ; {
		s.turn()
		at, set := s.Loops()[0].Deadline()
		if !set || at.After(until) {
			s.now = until
			s.turn()
			return
		}
		s.now = at
	}
}

// answer is what somebody was told, once.
type answer[A any] struct {
	t     testing.TB
	value A
	times int
}

func (a *answer[A]) done(v A) {
	a.value = v
	a.times++
	if a.times > 1 {
		a.t.Errorf("answered %d times: %v", a.times, v)
	}
}

func offset(partition int32, at int64) model.GroupOffset {
	return model.GroupOffset{TopicPartition: model.TopicPartition{Topic: ordersName, Partition: partition}, TopicID: ordersID, Offset: at, LeaderEpoch: model.NoEpoch}
}

func (s *stepped) commit(group string, at int64) *answer[model.CommittedOffsets] {
	a := &answer[model.CommittedOffsets]{t: s.t}
	s.Commit(context.Background(), model.CommitOffsets{Group: group, Generation: -1, Retention: -1, Offsets: []model.GroupOffset{offset(0, at)}}, a.done)
	return a
}

func (s *stepped) mustCommit(group string, at int64) {
	s.t.Helper()
	a := s.commit(group, at)
	s.turn()
	if err := committed(a); err != nil {
		s.t.Fatalf("commit of %s: %v", group, err)
	}
}

// committed is what a commit of one offset came to.
func committed(a *answer[model.CommittedOffsets]) error {
	switch {
	case a.times == 0:
		return errNoAnswer
	case a.value.Err != nil:
		return a.value.Err
	}
	return a.value.Offsets[0]
}

var errNoAnswer = fmt.Errorf("no answer: %w", io.EOF)

// fetch asks for what a group has committed of partition 0 of the orders; -1: nothing.
func (s *stepped) fetch(group string) (int64, error) {
	a := &answer[model.FetchedOffsets]{t: s.t}
	s.FetchOffsets(context.Background(), model.FetchOffsets{Group: group, Epoch: -1, Partitions: []model.TopicPartition{{Topic: ordersName}}}, a.done)
	s.Loops()[0].Turn(s.now) // and not more: what is being read stays so
	switch {
	case a.times == 0:
		return 0, errNoAnswer
	case a.value.Err != nil:
		return 0, a.value.Err
	}
	return a.value.Offsets[0].Offset, nil
}

func (s *stepped) mustHave(group string, want int64) {
	s.t.Helper()
	if got, err := s.fetch(group); err != nil || got != want {
		s.t.Fatalf("group %s has committed %d (%v), want %d", group, got, err, want)
	}
}

// records are those that a partition's log holds.
func (l *heldLog) records(t testing.TB, index int32) []group.Record {
	t.Helper()
	var out []group.Record
	for _, b := range l.part(index).batches {
		for r, err := range batch.Records(b, 0) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, group.Record{Key: r.Key, Value: r.Value, Timestamp: r.Timestamp})
		}
	}
	return out
}
