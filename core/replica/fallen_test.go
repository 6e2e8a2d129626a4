package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/storage"
)

// fill has a batch in the log of every broker for each value, and waits until they are there.
func (f *fleet) fill(values ...string) {
	f.t.Helper()
	for _, v := range values {
		f.produce(f.leader(part(0)), part(0), v)
	}
	f.allHave(int64(len(values)))
}

func (f *fleet) allHave(leo int64) {
	f.t.Helper()
	f.eventually("all have all", func() bool {
		return !slices.ContainsFunc(f.nodes(), func(n model.NodeID) bool { return f.status(n).LEO < leo })
	})
}

func (f *fleet) status(node model.NodeID) model.ReplicaStatus {
	all := f.brokers[node].Directories(context.Background())
	return all[0].Replicas[0]
}

// fallBack has the store of a broker start again without what it had not flushed, and tells.
func (f *fleet) fallBack(node model.NodeID) {
	f.t.Helper()
	f.fall(node)
	f.brokers[node].Restarted("main")
}

// fall does so, and tells nobody.
func (f *fleet) fall(node model.NodeID) {
	f.t.Helper()
	store := f.stores[node].restartable
	store.kill()
	lost := 0
	for seed := uint64(1); lost == 0; seed++ {
		if seed == 100 {
			f.t.Fatal("the store has lost nothing")
		}
		lost, _ = store.disk.LosePower(seed)
	}
	store.start(f.t)
}

func numbered(n int) []string {
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprint("value ", i)
	}
	return values
}

// serves wants all values from whoever leads, which is not the one that is named, nor is that
// one in sync.
func (f *fleet) servesWithout(node model.NodeID, n int) {
	f.t.Helper()
	f.eventually("another one leads, and the one that lacks something is not in sync", func() bool {
		return f.leader(part(0)) != node && !slices.Contains(f.isr(part(0)), node)
	})
	if got := f.values(f.leader(part(0)), part(0)); len(got) != n {
		f.t.Fatalf("broker %d leads, and has %d of %d values: %v", f.leader(part(0)), len(got), n, got)
	}
}

// TestAStoreThatFallsBackIsNotInSync, whether its broker follows or leads: another one leads,
// until it has all again.
func TestAStoreThatFallsBackIsNotInSync(t *testing.T) {
	for _, leads := range []bool{false, true} {
		t.Run(fmt.Sprint("leads=", leads), func(t *testing.T) {
			f := newFleet(t, 3, 1, func(cfg *Config) { cfg.Limits.LagMax = time.Hour })
			f.fill(numbered(20)...)
			node := model.NodeID(2)
			if leads {
				node = 1
			}
			for _, o := range f.nodes() { // it takes nothing from others before it was to lead
				f.mesh.cut(node, o, true)
			}
			f.fallBack(node)
			if !leads {
				f.elect(part(0), node)
			}
			f.servesWithout(node, 20)
			for _, o := range f.nodes() {
				f.mesh.cut(node, o, false)
			}
			f.eventually("it is in sync again", func() bool { return len(f.isr(part(0))) == 3 })
			f.elect(part(0), node)
			if got := f.values(node, part(0)); len(got) != 20 {
				t.Fatalf("in sync again, and leading, it has %v", got)
			}
		})
	}
}

// TestADamagedLeaderHasAnotherOneLead that is in sync. Clients are told to ask again, and it
// stays out of the ISR. (FR-41)
func TestADamagedLeaderHasAnotherOneLead(t *testing.T) {
	f := newFleet(t, 3, 1, func(cfg *Config) { cfg.TailBytes = 0 })
	f.fill(numbered(20)...)
	if err := f.stores[1].disk.FlipBit(storage.LogID{Topic: testTopic}, 5, 500); err != nil {
		t.Fatal(err)
	}
	if got := f.brokers[1].fetchOne(part(0), 5, time.Minute); !errors.Is(got.Err, model.ErrStorage) || len(got.Data) != 0 {
		t.Fatalf("fetch of a damaged batch: %+v", got)
	}
	f.servesWithout(1, 20)
	f.produce(f.leader(part(0)), part(0), "one more")
	f.allHave(21)
	f.servesWithout(1, 21)
	// It is elected by whoever does not know, and yields again.
	f.elect(part(0), 1)
	f.servesWithout(1, 21)
}

// TestALogThatStartsWithinALostBatchBeginsAnew: the log of a follower was trimmed within its
// last batch, and has lost that.
func TestALogThatStartsWithinALostBatchBeginsAnew(t *testing.T) {
	f := newFleet(t, 2, 1, nil)
	for range 2 {
		a := makeBatch(t, batch.Options{}, numbered(10)...)
		if r := f.brokers[1].produce(part(0), a); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	f.allHave(20)
	if a := f.brokers[1].Trim(t.Context(), []model.TrimQuery{{Partition: part(0), Offset: 15}})[0]; a.Err != nil {
		t.Fatal(a.Err)
	}
	f.eventually("the follower's log is trimmed", func() bool { return f.status(2).LogStart == 15 })
	f.mesh.cut(2, 1, true)
	f.fallBack(2)
	f.eventually("the follower's log is empty", func() bool { return f.status(2).LEO == 15 })
	f.mesh.cut(2, 1, false)
	f.allHave(20)
	f.eventually("it is in sync", func() bool { return len(f.isr(part(0))) == 2 && f.status(2).LogStart == 15 })
	f.elect(part(0), 2)
	f.eventually("it leads", func() bool { return f.status(2).Leader && f.status(2).HighWatermark == 20 })
	if got := f.brokers[2].valuesFrom(part(0), 15); len(got) != 5 {
		t.Fatalf("it has %v", got)
	}
}
