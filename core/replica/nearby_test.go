package replica

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/model"
)

// nearby fetches from one partition for a client that may be served by a follower, or
// sent elsewhere.
func (f *fixture) nearby(offset int64, wait time.Duration, change func(*model.FetchPartition)) model.Fetched {
	ask := model.FetchPartition{Partition: part(0), Offset: offset, LogStart: -1, MaxBytes: 1 << 20, CurrentEpoch: model.NoEpoch, LastFetchedEpoch: model.NoEpoch}
	change(&ask)
	return f.Fetch(context.Background(), model.Fetch{Partitions: []model.FetchPartition{ask}, MinBytes: 1, MaxBytes: 1 << 20, MaxWait: wait}).Partitions[0]
}

func atFollower(p *model.FetchPartition) { p.Nearby = true }
func elsewhere(p *model.FetchPartition)  { p.Elsewhere = true }

// TestAFollowerServesConsumers: what is committed, as soon as it hears of it, and nothing
// of what only some have; to others it is no leader. (KIP-392)
func TestAFollowerServesConsumers(t *testing.T) {
	f := newFleet(t, 3, 1, func(c *Config) { c.Limits.LagMax, c.Limits.AppendStall = time.Hour, time.Hour })
	f.produce(1, part(0), "a")
	follower := f.brokers[2]
	if got := follower.fetchOne(part(0), 0, 0); !errors.Is(got.Err, model.ErrNotLeaderOrFollower) {
		t.Fatalf("to a client of another rack it said %v", got.Err)
	}
	waiting := make(chan model.Fetched, 1)
	go func() { waiting <- follower.nearby(1, 20*time.Second, atFollower) }()
	f.produce(1, part(0), "b")
	got := <-waiting
	var values []string
	for r, err := range batch.Records(slices.Concat(got.Data...), 0) {
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, string(r.Value))
	}
	if got.Err != nil || !slices.Equal(values, []string{"b"}) || got.HighWatermark != 2 {
		t.Fatalf("who waited got %q, %+v", values, got)
	}

	f.stores[3].hold.Store(true)
	acked := make(chan model.Appended, 1)
	f.brokers[1].Append(t.Context(), addressed(makeBatch(t, batch.Options{}, "c")), func(a model.Appended) { acked <- a })
	view := func() *view { return (*follower.replicas.Load())[part(0)].view.Load() }
	f.eventually("the follower has what is not committed", func() bool { return view().LEO == 3 })
	if got := follower.nearby(2, 0, atFollower); got.Err != nil || got.Bytes() != 0 || got.HighWatermark != 2 {
		t.Errorf("of what is not committed it gave %d bytes, %+v", got.Bytes(), got)
	}
	if got := follower.nearby(4, 0, atFollower); !errors.Is(got.Err, model.ErrOffsetOutOfRange) {
		t.Errorf("of what nobody has it said %v", got.Err)
	}
	if got := f.brokers[1].nearby(3, 0, elsewhere); got.Err != nil || got.Elsewhere {
		t.Errorf("from beyond what all have the leader sent it elsewhere: %+v", got)
	}
	f.stores[3].letGo()
	if a := <-acked; a.Err != nil {
		t.Fatal(a.Err)
	}
	if got := follower.nearby(2, 20*time.Second, atFollower); got.Err != nil || got.Bytes() == 0 {
		t.Errorf("of what is committed by now it gave %+v", got)
	}
}

// addressed is an append to the partition of these tests, for acks=all.
func addressed(a model.Append) model.Append {
	a.Partition, a.Timeout = part(0), time.Minute
	return a
}

// TestALeaderSendsConsumersElsewhere: at once, and with nothing but offsets, from where
// every replica in sync can go on; a follower sends nobody anywhere. (KIP-392)
func TestALeaderSendsConsumersElsewhere(t *testing.T) {
	f := newFleet(t, 2, 1, nil)
	f.produce(1, part(0), "a")
	for _, offset := range []int64{0, 1} {
		got := f.brokers[1].nearby(offset, time.Hour, elsewhere)
		if got.Err != nil || !got.Elsewhere || got.Bytes() != 0 || got.HighWatermark != 1 || got.LogStart != 0 {
			t.Errorf("from %d on: %+v", offset, got)
		}
	}
	if got := f.brokers[1].nearby(2, 0, elsewhere); got.Elsewhere || !errors.Is(got.Err, model.ErrOffsetOutOfRange) {
		t.Errorf("beyond the end: %+v", got)
	}
	if got := f.brokers[2].nearby(0, 0, elsewhere); got.Elsewhere || !errors.Is(got.Err, model.ErrNotLeaderOrFollower) {
		t.Errorf("the follower said %+v", got)
	}
}
