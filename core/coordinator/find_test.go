package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// maker is a controller that makes topics in a cluster's metadata, or says why not.
type maker struct {
	mu      sync.Mutex
	cluster *cluster
	apply   func()
	fail    error
	asked   []model.NewTopic
	slow    time.Duration
}

func (m *maker) CreateTopics(ctx context.Context, topics []model.NewTopic, _ bool) ([]model.TopicResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, topics...)
	timer := time.NewTimer(m.slow)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, fmt.Errorf("the controller is slow: %w", model.ErrRequestTimedOut)
	}
	if m.fail != nil {
		return []model.TopicResult{{Name: topics[0].Name, Err: m.fail}}, nil
	}
	m.cluster.apply(topicRecords(offsetsID, topics[0].Name, int(topics[0].Partitions))...)
	m.apply()
	return []model.TopicResult{{Name: topics[0].Name, ID: offsetsID, Partitions: topics[0].Partitions, ReplicationFactor: 1}}, nil
}

// newRunningFinder is one that runs.
func newRunningFinder(t *testing.T) (*Manager, *maker, *counts, *strings.Builder) {
	t.Helper()
	m, made, events, lines := newFinder(t)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return m, made, events, lines
}

// newFinder is a manager, not running, in a cluster without an offsets topic.
func newFinder(t *testing.T) (*Manager, *maker, *counts, *strings.Builder) {
	t.Helper()
	made, events, lines := &maker{cluster: newCluster(t)}, &counts{}, &strings.Builder{}
	cfg := DefaultConfig()
	cfg.NodeID = 1
	m, err := New(cfg, Deps{Log: newHeldLog(), Controller: made, Events: events, Logger: slog.New(slog.NewTextHandler(lines, nil))})
	if err != nil {
		t.Fatal(err)
	}
	made.apply = func() { m.Apply(made.cluster.img) }
	return m, made, events, lines
}

// FR-7: the offsets topic has all of its partitions from the start. FR-3: one broker
// is enough for it.
func TestFirstUseMakesTheTopicOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, made, _, _ := newRunningFinder(t)
		made.slow = time.Second
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				node, err := m.Coordinator(t.Context(), fmt.Sprint("g", i))
				if err != nil || node != 1 {
					t.Errorf("group %d: %d, %v", i, node, err)
				}
				a := ask(t, func(done func(model.FetchedOffsets)) {
					m.FetchOffsets(t.Context(), model.FetchOffsets{Group: fmt.Sprint("g", i), Epoch: -1, All: true}, done)
				})
				if a.Err != nil {
					t.Errorf("group %d is not served yet: %v", i, a.Err)
				}
			})
		}
		synctest.Wait()
		m.Apply(made.cluster.img) // the first, so that all of them wait for metadata first
		wg.Wait()
		if len(made.asked) != 1 {
			t.Fatalf("asked for %d topics", len(made.asked))
		}
		got := made.asked[0]
		if got.Name != model.OffsetsTopic || got.Partitions != 50 || got.ReplicationFactor != -1 || got.ReplicationTarget != 3 || !got.Internal {
			t.Errorf("asked for %+v", got)
		}
		for key, want := range map[string]string{"cleanup.policy": "compact", "segment.bytes": "104857600", "compression.type": "producer"} {
			if v := got.Configs[key]; v == nil || *v != want {
				t.Errorf("%s is not %s", key, want)
			}
		}
		if v, set := got.Configs["min.insync.replicas"]; set {
			t.Errorf("min.insync.replicas is set to %s: the cluster's own is lowered by itself", *v)
		}
	})
}

// FR-2, FR-18: why there is no coordinator is told to the client, counted, and logged
// now and then; and the next one who asks gets one once the reason is gone.
func TestWhyThereIsNoCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, made, events, lines := newRunningFinder(t)
		m.Apply(made.cluster.img)
		made.fail = fmt.Errorf("the target is 3 replicas, and 1 brokers are registered: %w", model.ErrInvalidReplication)
		for range 120 {
			_, err := m.Coordinator(t.Context(), "g")
			if !errors.Is(err, model.ErrCoordinatorNotAvailable) || !strings.Contains(err.Error(), "the target is 3 replicas") {
				t.Fatalf("told %v", err)
			}
			if errors.Is(err, model.ErrInvalidReplication) {
				t.Fatal("the client would hear the code of the reason")
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := strings.Count(lines.String(), "not told their groups' coordinator"); n != 2 {
			t.Errorf("logged %d times in 12 s:\n%s", n, lines)
		}
		if !strings.Contains(lines.String(), "reason="+ReasonCreation) || !strings.Contains(lines.String(), "times=100") {
			t.Errorf("logged:\n%s", lines)
		}
		if len(events.notAvailable) != 120 || events.notAvailable[0] != ReasonCreation {
			t.Errorf("counted %d times, as %s", len(events.notAvailable), events.notAvailable[0])
		}
		made.fail = nil
		if node, err := m.Coordinator(t.Context(), "g"); err != nil || node != 1 {
			t.Errorf("%d, %v", node, err)
		}
	})
}

func TestCoordinatorDoesNotOutwaitItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, made, events, _ := newRunningFinder(t)
		find := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			begun := time.Now()
			_, err := m.Coordinator(ctx, "g")
			if took := time.Since(begun); took > time.Second {
				t.Errorf("it took %s", took)
			}
			return err
		}
		if err := find(); !errors.Is(err, model.ErrCoordinatorNotAvailable) {
			t.Errorf("without metadata: %v", err)
		}
		m.Apply(made.cluster.img)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := m.Coordinator(gone, "g"); !errors.Is(err, model.ErrCoordinatorNotAvailable) || len(made.asked) != 0 {
			t.Errorf("for one who has gone: %v, %d topics asked for", err, len(made.asked))
		}
		made.slow = time.Minute
		if err := find(); !errors.Is(err, model.ErrCoordinatorNotAvailable) {
			t.Errorf("while it is made: %v", err)
		}
		made.slow = 0
		if err := find(); err != nil {
			t.Errorf("later: %v", err)
		}
		m.Apply(made.cluster.apply(leaderChange(offsetsID, model.NoNode)))
		for i := range 200 {
			if group := fmt.Sprint(i); PartitionOf(group, 50) == 0 {
				_, err := m.Coordinator(t.Context(), group)
				if !errors.Is(err, model.ErrCoordinatorNotAvailable) || !strings.Contains(err.Error(), "partition 0 of __consumer_offsets has no leader") {
					t.Errorf("without a leader: %v", err)
				}
				break
			}
		}
		if got := fmt.Sprint(events.notAvailable); got != "[waiting waiting creation leader]" {
			t.Errorf("counted as %s", got)
		}
	})
}

// One who goes away while the topic is made for all takes nobody else's answer along.
func TestAnAttemptOutlivesWhoMadeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, made, events, lines := newRunningFinder(t)
		m.Apply(made.cluster.img)
		made.slow = time.Second
		gone, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := m.Coordinator(gone, "g"); !errors.Is(err, model.ErrCoordinatorNotAvailable) {
				t.Errorf("who went was told %v", err)
			}
		})
		synctest.Wait() // it is the one who asks
		for range 3 {
			wg.Go(func() {
				if node, err := m.Coordinator(t.Context(), "g"); err != nil || node != 1 {
					t.Errorf("who stayed was told %d, %v", node, err)
				}
			})
		}
		synctest.Wait()
		cancel()
		wg.Wait()
		if len(made.asked) != 2 || len(events.notAvailable) != 1 {
			t.Errorf("asked for %d times, %v not told", len(made.asked), events.notAvailable)
		}
		if strings.Contains(lines.String(), "not told") {
			t.Errorf("an operator is warned of a client that has gone:\n%s", lines)
		}
	})
}

// One who waits for another's attempt shares its end.
func TestAttemptsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, made, _, _ := newRunningFinder(t)
		m.Apply(made.cluster.img)
		made.slow, made.fail = time.Second, fmt.Errorf("no: %w", model.ErrPolicyViolation)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if _, err := m.Coordinator(t.Context(), "g"); !errors.Is(err, model.ErrCoordinatorNotAvailable) {
					t.Errorf("told %v", err)
				}
			})
		}
		wg.Wait()
		if len(made.asked) != 1 {
			t.Errorf("%d attempts", len(made.asked))
		}
	})
}
