package replica

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// steppedExecutor keeps work until it is told to run some.
type steppedExecutor struct {
	lanes  []Lane
	queues map[Lane][]func(context.Context)
	others []func(context.Context)
}

func (e *steppedExecutor) Ordered(lane Lane, work func(context.Context)) {
	if _, ok := e.queues[lane]; !ok {
		e.lanes = append(e.lanes, lane)
	}
	e.queues[lane] = append(e.queues[lane], work)
}

func (e *steppedExecutor) Go(_ model.DirectoryID, work func(context.Context)) {
	e.others = append(e.others, work)
}

// run runs the n-th of what may run now.
func (e *steppedExecutor) run(n int) bool {
	if n < len(e.others) {
		work := e.others[n]
		e.others = slices.Delete(e.others, n, n+1)
		work(context.Background())
		return true
	}
	n -= len(e.others)
	for _, lane := range e.lanes {
		q := e.queues[lane]
		if len(q) == 0 {
			continue
		}
		if n == 0 {
			e.queues[lane] = q[1:]
			q[0](context.Background())
			return true
		}
		n--
	}
	return false
}

// steppedClock is moved by hand. Nobody may wait by it.
type steppedClock struct{ now time.Time }

func (c *steppedClock) Now() time.Time { return c.now }
func (c *steppedClock) NewTimer(time.Duration) (<-chan time.Time, func() bool) {
	panic("a stepped manager waits for nothing")
}
func (c *steppedClock) AfterFunc(time.Duration, func()) func() bool {
	panic("a stepped manager waits for nothing")
}

// stepped is a manager on one goroutine.
type stepped struct {
	t     *testing.T
	m     *Manager
	store *restartable
	exec  *steppedExecutor
	clock *steppedClock
	rng   *rand.Rand
}

func newStepped(t *testing.T) *stepped {
	t.Helper()
	return &stepped{
		t: t, store: newRestartable(t, memstore.Options{}), clock: &steppedClock{now: time.Unix(1e9, 0)},
		exec: &steppedExecutor{queues: map[Lane][]func(context.Context){}},
	}
}

func (s *stepped) boot(c *cluster) {
	s.exec = &steppedExecutor{queues: map[Lane][]func(context.Context){}} // the work of an earlier life is gone
	cfg := testConfig()
	cfg.OpenWait = 0
	cfg.TailBytes = int64(s.rng.IntN(3)) * 100_000
	broker := DefaultBroker()
	broker.RetentionEvery = 0 // the records are stamped long ago
	var err error
	s.m, err = New(cfg, Deps{
		Directories: []Directory{{ID: testDir, Name: "main", Store: s.store}},
		Logger:      discard(), Clock: s.clock, Executor: s.exec,
		Settings: SettingsOf(cfg.NodeID, broker),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.m.Apply(c.img)
}

// turn gives one thing that can happen its turn, and moves time when nothing
// can.
func (s *stepped) turn() {
	loops := s.m.Loops()
	switch n := s.rng.IntN(3); n {
	case 0, 1:
		s.exec.run(s.rng.IntN(4))
	}
	l := loops[s.rng.IntN(len(loops))]
	if at, ok := l.Deadline(); ok && l.Pending() == 0 && at.After(s.clock.now) && s.rng.IntN(4) == 0 {
		s.clock.now = at
	}
	l.Turn(s.clock.now)
}

// TestSteppedByHand runs the same shards as production on one goroutine, from a
// seed: the store is killed, power is lost, the broker dies, and what was
// acknowledged with acks=all is there at its offset in the end.
func TestSteppedByHand(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			first := runStepped(t, seed)
			if again := runStepped(t, seed); first != again {
				t.Fatalf("the same seed gave\n%s\nand\n%s", first, again)
			}
		})
	}
}

func runStepped(t *testing.T, seed uint64) string {
	s := newStepped(t)
	s.rng = rand.New(rand.NewPCG(seed, 1))
	c := newCluster(t, topicRecords(testTopic, "orders", 2)...)
	s.boot(c)
	acked := map[string]string{} // "partition/offset" to value
	history := ""
	for i := range 600 {
		switch n := s.rng.IntN(100); {
		case n < 35:
			p := int32(s.rng.IntN(2))
			value := fmt.Sprint(i)
			a := makeBatch(t, batch.Options{}, value+strings.Repeat(" ", s.rng.IntN(2)*keepBytes))
			a.Partition = part(p)
			a, done := lent(a, s.rng.IntN(2) == 0, func(r model.Appended) {
				history += fmt.Sprintf("%s@%d:%v ", value, r.BaseOffset, r.Err == nil)
				if r.Err == nil {
					acked[fmt.Sprint(p, "/", r.BaseOffset)] = value
				}
			})
			s.m.Append(t.Context(), a, done)
		case n == 35:
			s.store.kill()
			s.store.start(t)
		case n == 36:
			s.store.disk.LosePower(seed)
			s.store.start(t)
			s.boot(c) // the broker died with its machine
		case n == 37:
			s.boot(c)
		default:
			s.turn()
		}
	}
	for range 400 {
		s.turn()
	}
	for p := range int32(2) {
		got := s.m.Fetch(t.Context(), model.Fetch{Partitions: []model.FetchPartition{{Partition: part(p), MaxBytes: 1 << 20, CurrentEpoch: -1, LastFetchedEpoch: -1}}, MaxBytes: 1 << 20}).Partitions[0]
		if got.Err != nil {
			t.Fatal(got.Err)
		}
		for r, err := range batch.Records(slices.Concat(got.Data...), 0) {
			if err != nil {
				t.Fatal(err)
			}
			at := fmt.Sprint(p, "/", r.Offset)
			if want, ok := acked[at]; ok && want != strings.TrimRight(string(r.Value), " ") {
				t.Errorf("%s holds %s, acknowledged was %s", at, r.Value, want)
			}
			delete(acked, at)
		}
	}
	if len(acked) > 0 {
		t.Errorf("acknowledged and gone: %v", acked)
	}
	if history == "" {
		t.Error("nothing was answered")
	}
	return history
}
