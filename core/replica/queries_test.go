package replica

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// silent is a store that answers no query by time.
type silent struct{ *restartable }

func (silent) FindTimestamp(ctx context.Context, _ storage.TimestampQuery) (storage.BatchInfo, bool, error) {
	<-ctx.Done()
	return storage.BatchInfo{}, false, storage.Errorf(storage.ErrUnknown, "find a timestamp: %v", ctx.Err())
}

// TestManyQueriesWaitNoLongerThanOne: a client asks of all its partitions at
// once, and waits for one answer.
func TestManyQueriesWaitNoLongerThanOne(t *testing.T) {
	const partitions = 20
	offsets, ends := make([]model.OffsetQuery, partitions), make([]model.EpochQuery, partitions)
	for i := range int32(partitions) {
		offsets[i] = model.OffsetQuery{Partition: part(i), Timestamp: 5, CurrentEpoch: model.NoEpoch}
		ends[i] = model.EpochQuery{Partition: part(i), CurrentEpoch: model.NoEpoch}
	}
	synctest.Test(t, func(t *testing.T) {
		store := newRestartable(t, memstore.Options{})
		c := newCluster(t, topicRecords(testTopic, "orders", partitions)...)
		cfg := testConfig()
		cfg.Limits.BackoffMin, cfg.Limits.BackoffMax = time.Second, time.Second
		store.kill()
		f := start(t, store, c, cfg, func(d *Deps) { d.Directories[0].Store = silent{store} })
		took := func(what string, want time.Duration, ask func() int) {
			begun := time.Now()
			if failed := ask(); failed != partitions {
				t.Errorf("%s: %d queries of %d failed", what, failed, partitions)
			}
			if got := time.Since(begun); got != want {
				t.Errorf("%s: took %s, want %s", what, got, want)
			}
		}
		askOffsets := func() (failed int) {
			for _, a := range f.Offsets(t.Context(), offsets) {
				if a.Err != nil {
					failed++
				}
			}
			return failed
		}
		took("offsets of logs that are not open", cfg.OpenWait, askOffsets)
		took("epochs of logs that are not open", cfg.OpenWait, func() (failed int) {
			for _, a := range f.EpochEnds(t.Context(), ends) {
				if a.Err != nil {
					failed++
				}
			}
			return failed
		})
		store.start(t)
		for i := range int32(partitions) {
			f.mustProduce(part(i), "x")
		}
		took("offsets of a store that does not answer", cfg.OpenWait+cfg.StoreTimeout, askOffsets)
		if err := f.stop(); err != nil {
			t.Fatal(err)
		}
	})
}
