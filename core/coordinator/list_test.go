package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

func (s *stepped) list() *answer[model.ListedGroups] {
	a := &answer[model.ListedGroups]{t: s.t}
	s.List(context.Background(), a.done)
	for _, l := range s.Loops() {
		l.Turn(s.now)
	}
	return a
}

func TestListIsOfAllPartitions(t *testing.T) {
	s := newStepped(t, 50, nil)
	s.turn()
	if a := s.list(); a.times != 1 || a.value.Err != nil || len(a.value.Groups) != 0 {
		t.Fatalf("without groups: %+v", a)
	}
	var want []string
	for i := range 100 {
		want = append(want, fmt.Sprint("group-", i))
		s.mustCommit(want[i], 1)
	}
	a := s.list()
	var got []string
	for _, g := range a.value.Groups {
		got = append(got, g.Group)
	}
	slices.Sort(got)
	slices.Sort(want)
	if a.times != 1 || !slices.Equal(got, want) {
		t.Fatalf("%d groups, %v", len(got), a.value.Err)
	}
	s.restart(nil)
	if a := s.list(); a.times != 1 || !errors.Is(a.value.Err, model.ErrCoordinatorLoading) {
		t.Errorf("while they are loaded: %+v", a)
	}
}

func TestListWithoutPartitions(t *testing.T) {
	s := newStepped(t, 1, nil)
	s.Apply(s.cluster.apply(leaderChange(offsetsID, model.NoNode)))
	s.turn()
	if a := s.list(); a.times != 1 || a.value.Err != nil || len(a.value.Groups) != 0 {
		t.Errorf("%+v", a)
	}
}

func TestQuestionsWithoutATopic(t *testing.T) {
	m, made, _, _ := newFinder(t)
	m.Apply(made.cluster.img)
	a := &answer[model.DescribedGroup]{t: t}
	m.Describe(t.Context(), "g", a.done)
	if a.times != 1 || !errors.Is(a.value.Err, model.ErrNotCoordinator) || a.value.Group != "g" {
		t.Errorf("%+v", a)
	}
}

// Every question has one answer, whenever the loops end.
func TestEveryQuestionIsAnswered(t *testing.T) {
	m, made, _, _ := newFinder(t)
	m.Apply(made.cluster.img)
	m.Apply(made.cluster.apply(topicRecords(offsetsID, model.OffsetsTopic, 50)...))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	const each = 200
	answers := make(chan error, 20*each)
	for i := range each {
		name := fmt.Sprint("g", i)
		if i == each/2 {
			stop()
		}
		if i == each*3/4 {
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		}
		m.Join(t.Context(), model.JoinGroup{Group: name, ProtocolType: "consumer", Protocols: []model.GroupProtocol{{Name: "range"}}, SessionTimeout: time.Minute, RebalanceTimeout: time.Minute},
			func(a model.JoinedGroup) { answers <- a.Err })
		m.Sync(t.Context(), model.SyncGroup{Group: name}, func(a model.SyncedGroup) { answers <- a.Err })
		m.Heartbeat(t.Context(), model.GroupHeartbeat{Group: name}, func(err error) { answers <- err })
		m.Leave(t.Context(), model.LeaveGroup{Group: name}, func(a model.LeftGroup) { answers <- a.Err })
		m.Commit(t.Context(), model.CommitOffsets{Group: name, Generation: -1}, func(a model.CommittedOffsets) { answers <- a.Err })
		m.FetchOffsets(t.Context(), model.FetchOffsets{Group: name, Epoch: -1, All: true}, func(a model.FetchedOffsets) { answers <- a.Err })
		m.DeleteOffsets(t.Context(), model.DeleteOffsets{Group: name}, func(a model.DeletedOffsets) { answers <- a.Err })
		m.Describe(t.Context(), name, func(a model.DescribedGroup) { answers <- a.Err })
		m.Delete(t.Context(), name, func(err error) { answers <- err })
		m.List(t.Context(), func(a model.ListedGroups) { answers <- a.Err })
	}
	if n := len(answers); n != 10*each {
		t.Errorf("%d answers to %d questions", n, 10*each)
	}
	if _, err := m.Census(t.Context()); err == nil {
		t.Error("a census after the end")
	}
}

func TestABusyCoordinatorDoesNotHoldItsCallers(t *testing.T) {
	s := newStepped(t, 1, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	errs := make(map[error]int)
	for range 10_000 { // more than the mailbox takes
		s.Heartbeat(ctx, model.GroupHeartbeat{Group: "g"}, func(err error) { errs[errors.Unwrap(err)]++ })
	}
	if errs[context.Canceled] == 0 {
		t.Errorf("told %v", errs)
	}
}

func TestCensus(t *testing.T) {
	s := newStepped(t, 10, nil)
	s.turn()
	for i := range 7 {
		s.mustCommit(fmt.Sprint("simple-", i), 1)
	}
	for i := range 3 {
		s.Join(t.Context(), model.JoinGroup{Group: fmt.Sprint("joined-", i), ProtocolType: "consumer", Protocols: []model.GroupProtocol{{Name: "range"}},
			SessionTimeout: 10 * time.Second, RebalanceTimeout: time.Minute}, func(model.JoinedGroup) {})
	}
	s.turn()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := s.Census(t.Context())
		if err != nil || c.Members != 3 || c.Groups[model.GroupEmpty] != 7 || c.Groups[model.GroupCompletingRebalance] != 3 {
			t.Errorf("%+v, %v", c, err)
		}
	}()
	for {
		select {
		case <-done:
			return
		default:
			s.Loops()[0].Turn(s.now)
		}
	}
}
