package replica

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// leading is a cluster whose first broker leads a partition, with another in sync.
func leading(t *testing.T) *cluster {
	t.Helper()
	return newCluster(t, &image.BrokerRecord{ID: 2, Directories: []model.DirectoryID{{0xd2}}},
		&image.TopicRecord{ID: testTopic, Name: "orders", ReplicationFactorTarget: 2},
		&image.PartitionRecord{Partition: part(0), Registration: image.Partition{
			Replicas: []model.NodeID{1, 2}, Directories: []model.DirectoryID{testDir, {0xd2}}, ISR: []model.NodeID{1, 2}, Leader: 1,
		}})
}

// TestNoLeaseNoWeakAcks: a leader that may have been replaced while its process was paused
// acknowledges nothing, whatever acks were asked for, before it has heard that it leads still.
func TestNoLeaseNoWeakAcks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newRestartable(t, memstore.Options{}), leading(t), testConfig(), nil)
		send := func(acks model.Acks) <-chan model.Appended {
			a := makeBatch(t, batch.Options{}, "v")
			a.Partition, a.Acks, a.Timeout = part(0), acks, time.Hour
			answer := make(chan model.Appended, 1)
			f.Append(t.Context(), a, func(r model.Appended) { answer <- r })
			synctest.Wait()
			return answer
		}
		answered := func(what string, answer <-chan model.Appended, want bool) {
			t.Helper()
			select {
			case r := <-answer:
				if !want || r.Err != nil {
					t.Fatalf("%s: %+v", what, r)
				}
			default:
				if want {
					t.Fatalf("%s: not answered", what)
				}
			}
		}
		answered("a broker that has no lease yet, and never had one", send(model.AcksLeader), true)
		f.Leased(time.Now().Add(time.Second))
		answered("with a lease", send(model.AcksLeader), true)
		time.Sleep(1500 * time.Millisecond) // of the bubble: the process was paused
		strong, leader, none := send(model.AcksAll), send(model.AcksLeader), send(model.AcksNone)
		answered("acks=1 after the lease", leader, false)
		answered("acks=0 after the lease", none, false)
		f.Leased(time.Now().Add(-time.Millisecond))
		synctest.Wait()
		answered("acks=1, and what was heard was of before the pause", leader, false)
		f.Leased(time.Now().Add(time.Second))
		synctest.Wait()
		answered("acks=1 with another lease", leader, true)
		answered("acks=0 with another lease", none, true)
		answered("acks=all, of which the follower has said nothing", strong, false)
		answered("acks=1 in the lease", send(model.AcksLeader), true)
		if err := f.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestACutOffLeaderSendsClientsAway: what waits for followers that are not heard is given up
// soon after the lease is over, though nobody comes to wake the shard, and what comes then at
// once, readers as well; within a lease, and with the next one, it waits.
func TestACutOffLeaderSendsClientsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		f := start(t, newRestartable(t, memstore.Options{}), leading(t), cfg, nil)
		send := func() (answer func() (model.Appended, bool)) {
			a := makeBatch(t, batch.Options{}, "v")
			a.Partition, a.Acks, a.Timeout = part(0), model.AcksAll, time.Hour
			got := make(chan model.Appended, 1)
			f.Append(t.Context(), a, func(r model.Appended) { got <- r })
			return func() (model.Appended, bool) {
				synctest.Wait()
				select {
				case r := <-got:
					return r, true
				default:
					return model.Appended{}, false
				}
			}
		}
		const lease = time.Second
		early := send()
		f.Leased(time.Now().Add(lease))
		if r, ok := early(); ok {
			t.Fatalf("before it is known how long the lease lasts: %+v", r)
		}
		time.Sleep(lease / 2) // of the bubble
		f.Leased(time.Now().Add(lease))
		late := send()
		read := make(chan *model.FetchAnswer, 1)
		go func() {
			read <- f.Fetch(t.Context(), model.Fetch{MaxWait: time.Hour, MinBytes: 1, MaxBytes: 1 << 20,
				Partitions: []model.FetchPartition{{Partition: part(0), MaxBytes: 1 << 20, CurrentEpoch: model.NoEpoch, LastFetchedEpoch: model.NoEpoch}}})
		}()
		time.Sleep(lease + cfg.Limits.CommitMax/2)
		for _, answer := range []func() (model.Appended, bool){early, late} {
			if r, ok := answer(); ok {
				t.Fatalf("just after the lease: %+v", r)
			}
		}
		time.Sleep(cfg.Limits.CommitMax)
		for _, answer := range []func() (model.Appended, bool){early, late} {
			if r, ok := answer(); !ok || !errors.Is(r.Err, model.ErrNotLeaderOrFollower) || r.Refused {
				t.Fatalf("answered %t, %+v: it may be in the log of a follower", ok, r)
			}
		}
		if r, ok := send()(); !ok || !errors.Is(r.Err, model.ErrNotLeaderOrFollower) || !r.Refused {
			t.Fatalf("to a leader that is cut off: answered %t, %+v", ok, r)
		}
		if got := <-read; !errors.Is(got.Partitions[0].Err, model.ErrNotLeaderOrFollower) {
			t.Fatalf("a reader at the end is told %+v", got.Partitions[0])
		}
		if got := f.Offsets(t.Context(), []model.OffsetQuery{{Partition: part(0), Timestamp: model.TimestampLatest, CurrentEpoch: model.NoEpoch}})[0]; !errors.Is(got.Err, model.ErrNotLeaderOrFollower) {
			t.Fatalf("who asks for the end is told %+v", got)
		}
		f.Leased(time.Now().Add(time.Hour))
		again := send()
		time.Sleep(time.Minute)
		if r, ok := again(); ok {
			t.Fatalf("with another lease: %+v", r)
		}
		if err := f.stop(); err != nil {
			t.Fatal(err)
		}
	})
}
