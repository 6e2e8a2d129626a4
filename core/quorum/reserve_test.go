package quorum

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// fillUp makes topics until they are refused for want of room, and returns their
// names.
func fillUp(t *testing.T, n *Node) (made []model.TopicRef) {
	t.Helper()
	for i := range 10_000 {
		name := fmt.Sprintf("topic-%04d", i)
		rs, err := n.CreateTopics(soon(t), []model.NewTopic{{Name: name, Partitions: 8, ReplicationFactor: 1}}, false)
		if errors.Is(err, model.ErrStorage) {
			return made
		}
		if err != nil || rs[0].Err != nil {
			t.Fatalf("topic %d: %v, %+v", i, err, rs)
		}
		made = append(made, model.TopicRef{Name: name})
	}
	t.Fatal("the disk does not fill")
	return nil
}

// Where quorum.db cannot grow, topics are refused before the reserve is used up:
// the node goes on, starts again, and again, and deletes topics; once there is room,
// topics are made again.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.Reserve, cfg.sizeMax, cfg.SnapshotEntries = 128<<10, 512<<10, 50
		n := open(t, cfg)
		stop := start(t, n)
		register(t, n)
		made := fillUp(t, n)
		if len(made) < 10 {
			t.Fatalf("full after %d topics", len(made))
		}
		if _, err := n.CreatePartitions(soon(t), []model.MorePartitions{{Topic: made[0].Name, Count: 9}}, false); !errors.Is(err, model.ErrStorage) {
			t.Errorf("more partitions without room: %v", err)
		}
		for range 20 {
			stop()
			n = open(t, cfg)
			stop = start(t, n)
			register(t, n)
		}
		if got := n.Image().TopicCount(); got != len(made) {
			t.Errorf("%d topics of %d are there", got, len(made))
		}
		if rs, err := n.DeleteTopics(soon(t), made[:1]); err != nil || rs[0].Err != nil {
			t.Fatalf("delete a topic without room: %v, %+v", err, rs)
		}
		stop()
		cfg.sizeMax = 0 // room returns
		n = open(t, cfg)
		start(t, n)
		register(t, n)
		createTopic(t, n, "again")
	})
}

// Room that returns while the node runs is found.
func TestRoomReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.Reserve, cfg.sizeMax = 128<<10, 512<<10
		n := open(t, cfg)
		var returns atomic.Bool
		n.OnImage(func(*image.Image) {
			if returns.Load() {
				onDisk(n).db.MaxSize = 0
			}
		})
		start(t, n)
		register(t, n)
		made := fillUp(t, n)
		returns.Store(true)
		if rs, err := n.DeleteTopics(soon(t), made[:1]); err != nil || rs[0].Err != nil {
			t.Fatalf("delete a topic without room: %v, %+v", err, rs)
		}
		time.Sleep(2 * reserveTicks * n.cfg.Tick)
		createTopic(t, n, "again")
	})
}

// The reserve is free pages, whose place is written, and a filler that a crash left
// is removed.
func TestReserveIsKept(t *testing.T) {
	cfg := testConfig(t)
	cfg.Reserve = 256 << 10
	n := open(t, cfg)
	if onDisk(n).hasReserve() {
		t.Fatal("a new database has a reserve: nothing is tested")
	}
	if err := onDisk(n).keepReserve(); err != nil {
		t.Fatal(err)
	}
	if err := onDisk(n).db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket(bucketReserve)
		if err != nil {
			return err
		}
		return b.Put(keyFiller, make([]byte, 100<<10))
	}); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = open(t, cfg)
	defer n.Close()
	if !onDisk(n).filled {
		t.Fatal("the filler is not noticed")
	}
	size := onDisk(n).db.Stats().FreePageN
	if err := onDisk(n).keepReserve(); err != nil || onDisk(n).filled || !onDisk(n).hasReserve() {
		t.Errorf("reserve after a crash: %v, filled %v, %d pages free before", err, onDisk(n).filled, size)
	}
	err := onDisk(n).db.View(func(tx *bbolt.Tx) error {
		if tx.Bucket(bucketReserve) != nil {
			t.Error("the filler is still there")
		}
		return check(tx)
	})
	if err != nil {
		t.Error(err)
	}
}
