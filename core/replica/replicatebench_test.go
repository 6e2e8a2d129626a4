package replica

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// straight is a stream between two managers without anything between them: what one sends
// the other has when Send returns. Bytes are copied once, as a network does.
type straight struct {
	mu    sync.Mutex // one message at a time, in each direction
	other *straight
	to    Receiver
	id    StreamID
}

func (s *straight) Want(model.NodeID, bool) {}
func (s *straight) End(StreamID)            { panic("a stream was ended") }

func (s *straight) Send(_ StreamID, parts [][]byte, sent func(bool)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	room := s.other.to.StreamRoom(s.other.id, n)
	at := 0
	for _, p := range parts {
		at += copy(room[at:], p)
	}
	if sent != nil {
		sent(true)
	}
	s.other.to.StreamMessage(s.other.id, room)
	return true
}

// BenchmarkReplicate is one batch of 1 KiB with acks=all, from Manager.Append at the leader
// to its answer, with one follower and many under way. What is counted is of both.
func BenchmarkReplicate(b *testing.B) {
	c := newCluster(b,
		&image.BrokerRecord{ID: 1, Directories: []model.DirectoryID{testDir}},
		&image.BrokerRecord{ID: 2, Directories: []model.DirectoryID{testDir}},
		&image.TopicRecord{ID: testTopic, Name: "orders", ReplicationFactorTarget: 2})
	for i := range int32(4) {
		c.apply(&image.PartitionRecord{Partition: part(i), Registration: image.Partition{
			Replicas: []model.NodeID{1, 2}, Directories: []model.DirectoryID{testDir, testDir}, ISR: []model.NodeID{1, 2}, Leader: 1,
		}})
	}
	leads, follows := &straight{id: 1}, &straight{id: 2}
	leads.other, follows.other = follows, leads
	var brokers []*fixture
	for i, s := range []*straight{leads, follows} {
		store := newRestartable(b, memstore.Options{})
		cfg := testConfig()
		cfg.NodeID, cfg.TailBytes = model.NodeID(i+1), 8<<20
		f := start(b, store, c, cfg, func(d *Deps) {
			d.Directories[0].Store, d.Streams, d.Buffers = nullStore{store}, s, nil
		})
		s.to = f.Manager
		brokers = append(brokers, f)
	}
	up := sync.OnceFunc(func() {
		leads.mu.Lock() // each side is told before it hears of the other
		follows.mu.Lock()
		var both sync.WaitGroup
		both.Go(func() { brokers[0].StreamUp(1, 2, false) })
		both.Go(func() { brokers[1].StreamUp(2, 1, true) })
		for _, f := range brokers {
			for f.link(1) == nil && f.link(2) == nil {
				runtime.Gosched()
			}
		}
		leads.mu.Unlock()
		follows.mu.Unlock()
		both.Wait()
	})
	up()
	f := brokers[0]
	for i := range int32(4) {
		f.mustProduce(part(i), "warm")
	}
	a := makeBatch(b, batch.Options{}, string(make([]byte, 1024)))
	var wg sync.WaitGroup
	ctx := context.Background()
	b.SetBytes(int64(len(a.Data)))
	b.ReportAllocs()
	under := make(chan struct{}, 256)
	for i := 0; b.Loop(); i++ {
		next := a
		next.Partition, next.Data = part(int32(i%4)), slices.Clone(a.Data)
		wg.Add(1)
		under <- struct{}{}
		f.Append(ctx, next, func(r model.Appended) {
			if r.Err != nil {
				b.Error(r.Err)
			}
			<-under
			wg.Done()
		})
	}
	wg.Wait()
}
