package replica

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// nullStore takes appends and forgets them, so that what is measured is ours.
type nullStore struct{ *restartable }

func (nullStore) Append(_ context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
	last := req.Batches[len(req.Batches)-1].LastOffset
	done(storage.AppendResult{LEO: last + 1, Durable: last + 1, Survives: storage.SurvivesMachine}, nil)
}

// BenchmarkAppend is one batch of 1 KiB from Manager.Append to its answer, with
// many under way.
func BenchmarkAppend(b *testing.B) {
	store := newRestartable(b, memstore.Options{})
	cfg := testConfig()
	f := start(b, store, newCluster(b, topicRecords(testTopic, "orders", 4)...), cfg, func(d *Deps) {
		d.Directories[0].Store = nullStore{store}
	})
	for i := range int32(4) {
		f.mustProduce(part(i), "warm")
	}
	a := makeBatch(b, batch.Options{}, string(make([]byte, 1024)))
	var wg sync.WaitGroup
	done := func(r model.Appended) {
		if r.Err != nil {
			b.Error(r.Err)
		}
		wg.Done()
	}
	ctx := context.Background()
	b.SetBytes(int64(len(a.Data)))
	b.ReportAllocs()
	under := make(chan struct{}, 256)
	for i := 0; b.Loop(); i++ {
		next := a
		next.Partition, next.Data = part(int32(i%4)), slices.Clone(a.Data)
		wg.Add(1)
		under <- struct{}{}
		f.Append(ctx, next, func(r model.Appended) { <-under; done(r) })
	}
	wg.Wait()
}
