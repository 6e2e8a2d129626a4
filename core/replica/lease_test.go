package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// TestNoLeaseNoWeakAcks: a leader that may have been replaced while its process was paused
// acknowledges nothing, whatever acks were asked for, before it has heard that it leads still.
func TestNoLeaseNoWeakAcks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := newCluster(t, &image.BrokerRecord{ID: 2, Directories: []model.DirectoryID{{0xd2}}},
			&image.TopicRecord{ID: testTopic, Name: "orders", ReplicationFactorTarget: 2},
			&image.PartitionRecord{Partition: part(0), Registration: image.Partition{
				Replicas: []model.NodeID{1, 2}, Directories: []model.DirectoryID{testDir, {0xd2}}, ISR: []model.NodeID{1, 2}, Leader: 1,
			}})
		f := start(t, newRestartable(t, memstore.Options{}), cl, testConfig(), nil)
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
