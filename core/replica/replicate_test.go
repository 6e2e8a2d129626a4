package replica

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

func dirOf(node model.NodeID) model.DirectoryID { return model.DirectoryID{0xd0 + byte(node)} }

// fleet is several brokers of one cluster, and its controller.
type fleet struct {
	t       testing.TB
	mesh    *mesh
	brokers map[model.NodeID]*fixture

	mu      sync.Mutex
	cluster *cluster
	alters  int
}

// newFleet starts n brokers, of whom each has a replica of every partition, which the
// first leads.
func newFleet(t testing.TB, n int, partitions int, change func(*Config)) *fleet {
	f := &fleet{t: t, mesh: newMesh(t), brokers: map[model.NodeID]*fixture{}, cluster: &cluster{t: t, img: &image.Image{}}}
	var nodes []model.NodeID
	var dirs []model.DirectoryID
	records := []image.Record{&image.ClusterRecord{Cluster: image.Cluster{ID: "c", FeatureLevel: 1, ReplicationFactorTarget: int16(n), MinISRTarget: 1}}}
	for i := range n {
		node := model.NodeID(i + 1)
		nodes, dirs = append(nodes, node), append(dirs, dirOf(node))
		records = append(records, &image.BrokerRecord{ID: node, Directories: []model.DirectoryID{dirOf(node)}})
	}
	records = append(records, &image.TopicRecord{ID: testTopic, Name: "orders", ReplicationFactorTarget: int16(n)})
	for i := range partitions {
		records = append(records, &image.PartitionRecord{Partition: part(int32(i)), Registration: image.Partition{
			Replicas: nodes, Directories: dirs, ISR: nodes, Leader: 1,
		}})
	}
	f.cluster.apply(records...)
	for _, node := range nodes {
		f.start(node, newRestartable(t, memstore.Options{}), change)
	}
	return f
}

// start starts a broker on a store.
func (f *fleet) start(node model.NodeID, store *restartable, change func(*Config)) *fixture {
	f.t.Helper()
	cfg := testConfig()
	cfg.NodeID = node
	cfg.TailBytes = 1 << 20
	cfg.Limits.LagMax = 500 * time.Millisecond
	if change != nil {
		change(&cfg)
	}
	streams := f.mesh.streams(node)
	f.mu.Lock()
	defer f.mu.Unlock()
	b := start(f.t, store, f.cluster, cfg, func(d *Deps) {
		d.Directories[0].ID, d.Streams, d.Controller = dirOf(node), streams, f
	})
	f.brokers[node] = b
	f.mesh.attach(node, b.Manager)
	for want := range b.wanted {
		streams.Want(want, true)
	}
	return b
}

// apply commits records and tells the brokers.
func (f *fleet) apply(records ...image.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applyLocked(records...)
}

func (f *fleet) applyLocked(records ...image.Record) {
	f.cluster.apply(records...)
	for _, node := range f.nodes() {
		f.brokers[node].Apply(f.cluster.img)
	}
}

func (f *fleet) nodes() []model.NodeID {
	var out []model.NodeID
	for node := range f.brokers {
		out = append(out, node)
	}
	slices.Sort(out)
	return out
}

// AlterISR implements Controller.
func (f *fleet) AlterISR(changes []model.ISRChange, done func([]model.ISRResult, error)) {
	go func() {
		results := make([]model.ISRResult, len(changes))
		f.mu.Lock()
		for i := range changes {
			results[i] = f.alterLocked(&changes[i])
		}
		f.mu.Unlock()
		done(results, nil)
	}()
}

func (f *fleet) alterLocked(c *model.ISRChange) model.ISRResult {
	p, _, ok := f.cluster.img.Partition(c.Partition)
	switch {
	case !ok:
		return model.ISRResult{Err: model.ErrUnknownTopicID}
	case c.LeaderEpoch != p.LeaderEpoch:
		return model.ISRResult{Err: model.ErrFencedLeaderEpoch}
	case c.PartitionEpoch != p.PartitionEpoch:
		return model.ISRResult{Err: model.ErrInvalidUpdateVersion}
	}
	var isr []model.NodeID
	for _, m := range c.ISR {
		b, ok := f.cluster.img.Broker(m.Node)
		if !ok || m.Epoch != model.NoBrokerEpoch && m.Epoch != b.Epoch || m.Epoch == model.NoBrokerEpoch && !slices.Contains(p.ISR, m.Node) {
			return model.ISRResult{Err: model.ErrIneligibleReplica}
		}
		isr = append(isr, m.Node)
	}
	f.alters++
	f.applyLocked(&image.PartitionChangeRecord{Partition: c.Partition, ISR: isr})
	p, _, _ = f.cluster.img.Partition(c.Partition)
	return model.ISRResult{Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, ISR: p.ISR}
}

// elect makes a node the leader of a partition.
func (f *fleet) elect(p model.Partition, node model.NodeID) {
	f.apply(&image.PartitionChangeRecord{Partition: p, LeaderChange: true, Leader: node})
}

func (f *fleet) isr(p model.Partition) []model.NodeID {
	f.mu.Lock()
	defer f.mu.Unlock()
	got, _, _ := f.cluster.img.Partition(p)
	out := slices.Clone(got.ISR)
	slices.Sort(out)
	return out
}

// eventually waits for something that comes by itself.
func (f *fleet) eventually(what string, ok func() bool) {
	f.t.Helper()
	for until := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(until) {
			f.t.Fatalf("%s: not within 20 s; %s", what, f.mesh)
		}
		<-time.After(time.Millisecond)
	}
}

// produce appends with acks=all where the partition is led, until it is acknowledged.
func (f *fleet) produce(node model.NodeID, p model.Partition, values ...string) int64 {
	f.t.Helper()
	offset := int64(-1)
	f.eventually("produce", func() bool {
		r := f.brokers[node].produce(p, makeBatch(f.t, batch.Options{}, values...))
		if r.Err != nil && !errors.Is(r.Err, model.ErrNotLeaderOrFollower) {
			f.t.Fatalf("produce %v: %v", values, r.Err)
		}
		offset = r.BaseOffset
		return r.Err == nil
	})
	return offset
}

// values is all that a broker has below its high watermark, when it leads.
func (f *fleet) values(node model.NodeID, p model.Partition) []string {
	f.t.Helper()
	b := f.brokers[node]
	f.eventually("the leader knows the end", func() bool {
		return b.Offsets(context.Background(), []model.OffsetQuery{{Partition: p, Timestamp: model.TimestampLatest, CurrentEpoch: model.NoEpoch}})[0].Err == nil
	})
	return b.valuesFrom(p, 0)
}

// TestReplication: what a leader has acknowledged is on its followers, of whom each is
// made the leader in turn.
func TestReplication(t *testing.T) {
	f := newFleet(t, 3, 2, nil)
	var want []string
	for i, leader := range []model.NodeID{1, 2, 3, 1} {
		if i > 0 {
			f.elect(part(1), leader)
		}
		for range 3 {
			v := string(rune('a' + len(want)))
			at := f.produce(leader, part(1), v)
			if at != int64(len(want)) {
				t.Fatalf("%s is at %d, want %d", v, at, len(want))
			}
			want = append(want, string(rune('0'+at))+"="+v)
			if len(want) > 10 {
				break
			}
		}
		if got := f.values(leader, part(1)); len(got) < len(want) {
			t.Fatalf("leader %d has %v, want %v", leader, got, want)
		}
	}
	if got := f.isr(part(1)); len(got) != 3 {
		t.Fatalf("the ISR is %v", got)
	}
}
