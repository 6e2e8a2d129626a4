package replica

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// TestRefusedBeforeThereIsAReplica: a producer has two batches under way when this broker
// hears that it leads. The first came too early; the second must not get in before it, since
// then the first never would.
func TestRefusedBeforeThereIsAReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := newCluster(t)
		f := start(t, newRestartable(t, memstore.Options{}), cl, testConfig(), nil)
		send := func(at int32) model.Appended {
			return f.produce(part(0), makeBatch(t, batch.Options{Producer: &batch.Producer{ID: 7, Sequence: at}}, "v"))
		}
		for at := range int32(2) {
			if r := send(at); !errors.Is(r.Err, model.ErrNotLeaderOrFollower) || !r.Refused {
				t.Fatalf("without a replica: %+v", r)
			}
		}
		f.Apply(cl.apply(topicRecords(testTopic, "orders", 1)...))
		if r := send(2); !errors.Is(r.Err, model.ErrOutOfOrderSequence) {
			t.Fatalf("what follows one that was refused: %+v", r)
		}
		for at := range int32(3) {
			if r := send(at); r.Err != nil || r.BaseOffset != int64(at) {
				t.Fatalf("sent again, in order, sequence %d: %+v", at, r)
			}
		}
		if err := f.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestStraysAreBounded: whoever sends to a broker that knows nothing of his partitions takes
// no memory without an end.
func TestStraysAreBounded(t *testing.T) {
	var s strays
	nobody := func() *replica { return nil }
	for i := range int32(3 * straysMax) {
		s.remember(part(i), &recordbatch.Info{ProducerID: 1}, nobody)
		s.remember(part(i), &recordbatch.Info{ProducerID: -1}, nobody)
	}
	n := 0
	for _, all := range s.of {
		n += len(all)
	}
	if n != s.all || n > straysMax {
		t.Fatalf("%d batches are kept, %d are counted, want at most %d", n, s.all, straysMax)
	}
	r := &replica{id: part(3*straysMax - 1)}
	s.publish([]*replica{r}, func() {})
	if len(r.refused) != 1 || s.all != n-1 {
		t.Fatalf("%d batches of the last partition, %d are left of %d", len(r.refused), s.all, n)
	}
}
