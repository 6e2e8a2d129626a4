package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/replica"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// life is one life of a broker: the replicas and the groups that it has, on a store in
// memory.
type life struct {
	t      *testing.T
	groups *Manager
	events *counts
	stop   func()
}

func newLife(t *testing.T, disk *memstore.Disk, faults *memstore.Faults, c *cluster) *life {
	t.Helper()
	store, _, err := memstore.Open(disk, storage.Config{Identity: storage.Identity{ClusterID: "c", NodeID: 1}},
		memstore.Options{Before: faults.Before, After: faults.After})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	cfg := replica.DefaultConfig()
	cfg.NodeID, cfg.TailBytes, cfg.ShutdownTimeout = 1, 0, 5*time.Second
	cfg.Limits.BackoffMin, cfg.Limits.BackoffMax = time.Millisecond, 20*time.Millisecond
	replicas, err := replica.New(cfg, replica.Deps{Directories: []replica.Directory{{ID: testDir, Name: "main", Plugin: "memstore", Store: store}}, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	own := DefaultConfig()
	own.NodeID = 1
	l := &life{t: t, events: &counts{}}
	if l.groups, err = New(own, Deps{Log: replicas, Controller: noController{}, Logger: log, Events: l.events}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ends, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = replicas.Run(ctx) })
	ran := make(chan struct{})
	go func() { defer close(ran); _ = l.groups.Run(ends) }()
	l.stop = sync.OnceFunc(func() {
		end()
		<-ran
		cancel()
		running.Wait()
		disk.Kill()
	})
	t.Cleanup(l.stop)
	replicas.Apply(c.img)
	l.groups.Apply(c.img)
	return l
}

// ask waits for one answer.
func ask[A any](t *testing.T, question func(done func(A))) A {
	t.Helper()
	answers := make(chan A, 1)
	question(func(a A) { answers <- a })
	select {
	case a := <-answers:
		return a
	case <-time.After(time.Minute):
		t.Fatal("no answer within a minute")
		panic("unreachable")
	}
}

func (l *life) commit(group string, at int64) error {
	l.t.Helper()
	a := ask(l.t, func(done func(model.CommittedOffsets)) {
		l.groups.Commit(l.t.Context(), model.CommitOffsets{Group: group, Generation: -1, Retention: -1, Offsets: []model.GroupOffset{offset(0, at)}}, done)
	})
	if a.Err != nil {
		return a.Err
	}
	return a.Offsets[0]
}

// committed asks until the group is loaded; -1: nothing.
func (l *life) committed(group string) int64 {
	l.t.Helper()
	for {
		a := ask(l.t, func(done func(model.FetchedOffsets)) {
			l.groups.FetchOffsets(l.t.Context(), model.FetchOffsets{Group: group, Epoch: -1, Partitions: []model.TopicPartition{{Topic: ordersName}}}, done)
		})
		if a.Err == nil {
			return a.Offsets[0].Offset
		}
		if !errors.Is(a.Err, model.ErrCoordinatorLoading) && !errors.Is(a.Err, model.ErrNotCoordinator) {
			l.t.Fatal(a.Err)
		}
	}
}

// What was committed outlives stores whose answers are lost, brokers that are
// stopped, and power that is: what a group finds is never below what it was told.
func TestCommitsOutliveLostAnswersAndPower(t *testing.T) {
	const groups, lives, commits = 8, 4, 60
	disk, faults, c := &memstore.Disk{}, &memstore.Faults{}, newCluster(t, append(topicRecords(offsetsID, model.OffsetsTopic, 4), topicRecords(ordersID, ordersName, 1)...)...)
	var told, tried [groups]atomic.Int64
	for i := range groups {
		told[i].Store(-1)
		tried[i].Store(-1)
	}
	for n := range lives {
		l := newLife(t, disk, faults, c)
		for i := range groups {
			if got := l.committed(fmt.Sprint("g", i)); got < told[i].Load() || got > tried[i].Load() {
				t.Fatalf("life %d: group %d finds %d, was told %d and has tried %d", n, i, got, told[i].Load(), tried[i].Load())
			}
		}
		for i, class := range []error{storage.ErrUnknown, storage.ErrGone, storage.ErrRetry, storage.ErrUnknown} {
			faults.Add(memstore.Fault{Kind: memstore.OpAppend, After: !errors.Is(class, storage.ErrRetry), Skip: 10 * (i + 1), Class: class})
		}
		var wg sync.WaitGroup
		for i := range groups {
			wg.Go(func() {
				for range commits {
					next := tried[i].Load() + 1
					tried[i].Store(next)
					if err := l.commit(fmt.Sprint("g", i), next); err == nil {
						told[i].Store(next)
					}
				}
			})
		}
		wg.Wait()
		if n%2 == 0 {
			l.stop()
			continue
		}
		disk.LosePower(rand.Uint64())
		l.stop()
	}
	l := newLife(t, disk, faults, c)
	for i := range groups {
		if told[i].Load() < lives*commits/2 {
			t.Errorf("group %d was told only %d of %d commits", i, told[i].Load(), lives*commits)
		}
		if got := l.committed(fmt.Sprint("g", i)); got < told[i].Load() || got > tried[i].Load() {
			t.Errorf("group %d finds %d, was told %d and has tried %d", i, got, told[i].Load(), tried[i].Load())
		}
	}
}

// A full store refuses commits, and nothing is read again for it.
func TestFullStore(t *testing.T) {
	disk, c := &memstore.Disk{}, newCluster(t, append(topicRecords(offsetsID, model.OffsetsTopic, 1), topicRecords(ordersID, ordersName, 1)...)...)
	l := newLife(t, disk, &memstore.Faults{}, c)
	l.committed("g")
	if err := l.commit("g", 1); err != nil {
		t.Fatal(err)
	}
	disk.SetFree(0)
	for range 10 {
		if err := l.commit("g", 2); !errors.Is(err, model.ErrNotCoordinator) {
			t.Fatalf("without room: %v", err)
		}
	}
	if got := l.committed("g"); got != 1 {
		t.Errorf("it finds %d", got)
	}
	disk.SetFree(-1)
	if err := l.commit("g", 3); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if loads, refused := l.events.get(&l.events.loads), l.events.get(&l.events.refused); loads != 1 || refused != 10 {
		t.Errorf("%d loads, %d refusals", loads, refused)
	}
}

// FR-14: members wait for each other when the broker is stopped; they are told at once.
func TestParkedMembersAreToldOfAStop(t *testing.T) {
	c := newCluster(t, append(topicRecords(offsetsID, model.OffsetsTopic, 1), topicRecords(ordersID, ordersName, 1)...)...)
	l := newLife(t, &memstore.Disk{}, &memstore.Faults{}, c)
	l.committed("g")
	join := model.JoinGroup{Group: "g", ProtocolType: "consumer", Protocols: []model.GroupProtocol{{Name: "range"}},
		SessionTimeout: time.Minute, RebalanceTimeout: time.Hour, ClientID: "c"}
	told := make(chan error, 1)
	l.groups.Join(t.Context(), join, func(a model.JoinedGroup) { told <- a.Err })
	l.stop()
	select {
	case err := <-told:
		if !errors.Is(err, model.ErrNotCoordinator) && !errors.Is(err, model.ErrCoordinatorNotAvailable) {
			t.Errorf("told %v", err)
		}
	default:
		t.Error("nothing was told")
	}
}
