package replica

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/storage"
)

// counted remembers how many logs were in quarantine at each change.
type counted struct {
	noEvents
	quarantined []int
}

func (c *counted) Quarantined(n int) { c.quarantined = append(c.quarantined, n) }

// opens counts the logs that a store was asked to open.
type opens struct {
	*restartable
	n atomic.Int64
}

func (o *opens) Open(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult {
	o.n.Add(int64(len(specs)))
	return o.restartable.Open(ctx, specs)
}

// restarted is a manager on one goroutine whose metadata log is being replayed:
// this start of the broker is not registered yet.
func restarted(t *testing.T, c *cluster, events Events, existing ...model.TopicID) (*stepped, *opens) {
	t.Helper()
	s := newStepped(t)
	store := &opens{restartable: s.store}
	for _, id := range existing {
		if res := s.store.Open(t.Context(), []storage.OpenSpec{{ID: storage.LogID{Topic: id}, Label: "b", Create: true}}); res[0].Err != nil {
			t.Fatal(res[0].Err)
		}
	}
	cfg := testConfig()
	cfg.OpenWait = 0
	var err error
	s.m, err = New(cfg, Deps{
		Directories: []Directory{{ID: testDir, Name: "main", Store: store}},
		Logger:      discard(), Clock: s.clock, Executor: s.exec, Events: events, Incarnation: [16]byte{7},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.m.Apply(c.img)
	s.settle()
	return s, store
}

func registration(incarnation byte) image.Record {
	return &image.BrokerRecord{ID: 1, Incarnation: [16]byte{incarnation}, Directories: []model.DirectoryID{testDir}}
}

// TestNothingIsAppliedBeforeTheBrokerIsRegistered: the image of a start lacks
// what was committed last, and the leader epochs in it end with the registration.
func TestNothingIsAppliedBeforeTheBrokerIsRegistered(t *testing.T) {
	events := &counted{}
	late := model.TopicID{0xbb}
	c := newCluster(t, append(topicRecords(testTopic, "orders", 3), registration(6))...)
	s, store := restarted(t, c, events, late)
	s.m.Apply(c.apply(topicRecords(late, "b", 1)...))
	s.settle()
	if n := store.n.Load(); n != 0 {
		t.Errorf("%d logs were opened before the registration", n)
	}
	changes := []image.Record{registration(7)}
	for i := range int32(3) {
		changes = append(changes, &image.PartitionChangeRecord{Partition: part(i), LeaderChange: true, Leader: 1})
	}
	s.m.Apply(c.apply(changes...))
	s.settle()
	if n := store.n.Load(); n != 4 {
		t.Errorf("%d openings of 4 logs", n)
	}
	if len(s.m.Quarantine()) != 0 || len(events.quarantined) != 0 {
		t.Errorf("in quarantine %+v, told %v; the metadata knows every log", s.m.Quarantine(), events.quarantined)
	}
}

// TestQuarantineEndsWhenTheMetadataKnowsTheLog: the number falls, and one that
// stays unknown stays in it.
func TestQuarantineEndsWhenTheMetadataKnowsTheLog(t *testing.T) {
	events := &counted{}
	back, gone, unknown := model.TopicID{0xbb}, model.TopicID{0xbc}, model.TopicID{0xee}
	c := newCluster(t, registration(7))
	s, _ := restarted(t, c, events, back, gone, unknown)
	if len(s.m.Quarantine()) != 3 {
		t.Fatalf("in quarantine: %+v, want three", s.m.Quarantine())
	}
	s.m.Apply(c.apply(topicRecords(back, "b", 1)...))
	s.m.Apply(c.apply(topicRecords(gone, "c", 1)...))
	s.m.Apply(c.apply(&image.TopicRemovalRecord{ID: gone, Name: "c", Directories: []model.DirectoryID{testDir}}))
	s.settle()
	q := s.m.Quarantine()
	if len(q) != 1 || q[0].ID.Topic != unknown || !slices.Equal(events.quarantined, []int{1, 2, 3, 2, 1}) {
		t.Fatalf("in quarantine %+v, told %v", q, events.quarantined)
	}
}
