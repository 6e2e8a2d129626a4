package replica

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// TestAStoreThatNeverAnswersHoldsNobodyWhenTheBrokerStops: neither the client
// whose append is under way nor the one that waits for room.
func TestAStoreThatNeverAnswersHoldsNobodyWhenTheBrokerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.ShutdownTimeout = time.Second
		cfg.AppendBytes = 1 // one append at a time
		store := newRestartable(t, memstore.Options{Defer: func(func()) {}})
		m, err := New(cfg, Deps{Directories: []Directory{{ID: testDir, Name: "main", Store: store}}, Logger: discard()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		m.Apply(newCluster(t, topicRecords(testTopic, "orders", 1)...).img)
		answers := make(chan error, 2)
		for range 2 {
			a := makeBatch(t, batch.Options{}, "v")
			a.Partition, a.Timeout = part(0), time.Hour
			go m.Append(context.Background(), a, func(r model.Appended) { answers <- r.Err })
		}
		synctest.Wait()
		cancel()
		if err := <-ended; err == nil {
			t.Error("Run says that the logs were closed")
		}
		for range 2 {
			if err := <-answers; !errors.Is(err, model.ErrNotLeaderOrFollower) {
				t.Errorf("an append heard %v", err)
			}
		}
	})
}
