package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

func dirOf(node model.NodeID) model.DirectoryID { return model.DirectoryID{0xd0 + byte(node)} }

// fleet is several brokers of one cluster, and its controller.
type fleet struct {
	t       testing.TB
	mesh    *mesh
	brokers map[model.NodeID]*fixture
	stores  map[model.NodeID]*heldStore

	mu      sync.Mutex
	cluster *cluster
	alters  int
}

// newFleet starts n brokers, of whom each has a replica of every partition, which the
// first leads.
func newFleet(t testing.TB, n int, partitions int, change func(*Config)) *fleet {
	f := &fleet{t: t, mesh: newMesh(t), brokers: map[model.NodeID]*fixture{}, stores: map[model.NodeID]*heldStore{}, cluster: &cluster{t: t, img: &image.Image{}}}
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
		f.stores[node] = &heldStore{restartable: store}
		d.Directories[0].ID, d.Directories[0].Store, d.Streams, d.Controller = dirOf(node), f.stores[node], streams, f
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
	change := &image.PartitionChangeRecord{Partition: c.Partition, ISR: isr}
	if slices.Contains(c.Lost, p.Leader) { // as the controller does: another one leads, if there is one
		if len(isr) == 0 {
			change.ISR = []model.NodeID{p.Leader}
		}
		change.LeaderChange, change.Leader = true, change.ISR[0]
	}
	f.applyLocked(change)
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
	f.eventually("followers know what is committed, and nothing more comes", func() bool {
		for _, b := range f.brokers {
			if v := (*b.replicas.Load())[part(1)].view.Load(); v.HighWater != int64(len(want)) {
				return false
			}
		}
		return true
	})
	if n := f.mesh.counts().ended; n > 0 {
		t.Errorf("%d streams were ended", n)
	}
}

// leader is who leads a partition, by the metadata.
func (f *fleet) leader(p model.Partition) model.NodeID {
	f.mu.Lock()
	defer f.mu.Unlock()
	got, _, _ := f.cluster.img.Partition(p)
	return got.Leader
}

// trouble does one thing to the brokers, or ends one.
func (f *fleet) trouble(rng *rand.Rand, partitions int) string {
	node := func() model.NodeID { return model.NodeID(1 + rng.IntN(len(f.brokers))) }
	switch a, b := node(), node(); rng.IntN(6) {
	case 0:
		f.mesh.cut(a, b, true)
		return "cut"
	case 1, 2:
		for from := range f.brokers {
			for to := range f.brokers {
				f.mesh.cut(from, to, false)
			}
		}
		return "heal"
	case 3:
		store := f.brokers[a].store
		store.kill()
		store.start(f.t)
		f.brokers[a].Restarted("main")
		return "kill"
	case 4:
		f.mesh.repeat()
		return "repeat"
	}
	p := part(int32(rng.IntN(partitions)))
	f.mu.Lock()
	defer f.mu.Unlock()
	got, _, _ := f.cluster.img.Partition(p)
	f.applyLocked(&image.PartitionChangeRecord{Partition: p, LeaderChange: true, Leader: got.ISR[rng.IntN(len(got.ISR))]})
	return "elect"
}

// TestNothingAcknowledgedIsLost: while links are cut, stores die, leaders change and old
// streams are said again, what was acknowledged stays at its offset, on every replica that
// is in sync.
func TestNothingAcknowledgedIsLost(t *testing.T) {
	const partitions, producers = 3, 6
	f := newFleet(t, 3, partitions, func(c *Config) { c.CopyBytes, c.Limits.LagMax = 256<<10, 40*time.Millisecond })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var mu sync.Mutex
	acked := map[model.Partition]map[int64]string{}
	total := 0
	var load sync.WaitGroup
	for i := range producers {
		p := part(int32(i % partitions))
		acked[p] = map[int64]string{}
		load.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				v := fmt.Sprintf("%d-%d", i, n)
				r := f.brokers[f.leader(p)].produce(p, makeBatch(t, batch.Options{}, v+strings.Repeat(" ", n%5*3000)))
				if r.Err != nil {
					continue
				}
				mu.Lock()
				acked[p][r.BaseOffset] = v
				total++
				mu.Unlock()
			}
		})
	}
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	did := map[string]int{}
	for range 100 {
		mu.Lock()
		until := total + rng.IntN(40)
		mu.Unlock()
		for wait := time.Now().Add(100 * time.Millisecond); time.Now().Before(wait); {
			mu.Lock()
			enough := total >= until
			mu.Unlock()
			if enough {
				break
			}
			<-time.After(time.Millisecond)
		}
		did[f.trouble(rng, partitions)]++
	}
	for from := range f.brokers {
		for to := range f.brokers {
			f.mesh.cut(from, to, false)
		}
	}
	cancel()
	load.Wait()
	t.Logf("%d acknowledged, %v, %d changes of an ISR, %s", total, did, f.alters, f.mesh)
	if total < 50 {
		t.Errorf("only %d were acknowledged", total)
	}
	f.eventually("all are in sync", func() bool {
		for p := range acked {
			if len(f.isr(p)) < 3 {
				return false
			}
		}
		return true
	})
	for p, values := range acked {
		f.holds(p, values)
	}
}

// holds sees that every broker has the same values, and those that were acknowledged.
func (f *fleet) holds(p model.Partition, acked map[int64]string) {
	f.t.Helper()
	var first []string
	for _, node := range f.nodes() {
		f.elect(p, node)
		var got []string
		for _, v := range f.values(node, p) {
			got = append(got, strings.TrimRight(v, " "))
		}
		if first == nil {
			first = got
		} else if !slices.Equal(first, got) {
			f.t.Errorf("partition %d: broker %d has another log than broker 1", p.Index, node)
		}
		has := map[string]bool{}
		for _, v := range got {
			has[v] = true
		}
		for at, v := range acked {
			if !has[fmt.Sprintf("%d=%s", at, v)] {
				f.t.Errorf("partition %d: broker %d does not have %s at %d", p.Index, node, v, at)
			}
		}
	}
}

// heldStore holds appends until it is let go.
type heldStore struct {
	*restartable
	hold  atomic.Bool
	bytes atomic.Int64 // held
	fails atomic.Int64 // so many reads
	mu    sync.Mutex
	held  []func()
}

func (h *heldStore) Append(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hold.Load() || len(h.held) > 0 {
		h.bytes.Add(req.Bytes())
		h.held = append(h.held, func() { h.restartable.Append(context.Background(), req, done) })
		return
	}
	h.restartable.Append(ctx, req, done)
}

func (h *heldStore) Read(ctx context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
	if h.fails.Add(-1) >= 0 {
		return storage.ReadResult{}, storage.Errorf(storage.ErrRetry, "not now")
	}
	return h.restartable.Read(ctx, req)
}

func (h *heldStore) letGo() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hold.Store(false)
	for _, f := range h.held {
		f()
	}
	h.held = nil
}

// TestASlowFollowerIsLeftOutAndComesBack: meanwhile it has no more under way than it has
// granted, and the others go on; also where what it lacks is no longer in memory.
func TestASlowFollowerIsLeftOutAndComesBack(t *testing.T) {
	const window = 128 << 10
	f := newFleet(t, 3, 1, func(c *Config) {
		c.CopyBytes, c.TailBytes = window, 256<<10
		c.Limits.AppendStall = time.Hour // what holds is no fault of the log
		c.Limits.InFlightBatches, c.Limits.InFlightBytes = 4, 50<<10
	})
	slow := f.stores[3]
	f.produce(1, part(0), "first")
	slow.hold.Store(true)
	acked := map[int64]string{0: "first"}
	for i := range 100 {
		v := fmt.Sprint(i)
		acked[f.produce(1, part(0), v+strings.Repeat(" ", 10_000))] = v
	}
	f.eventually("it is left out", func() bool { return slices.Equal(f.isr(part(0)), []model.NodeID{1, 2}) })
	if most := f.mesh.counts().most; most > window {
		t.Errorf("%d bytes were under way, %d granted", most, window)
	}
	if n := slow.bytes.Load(); n > window {
		t.Errorf("%d bytes wait for the store, %d granted", n, window)
	}
	slow.letGo()
	f.eventually("it is back", func() bool { return len(f.isr(part(0))) == 3 })
	if seen := f.mesh.counts(); seen.most > window || seen.asks != 2 || seen.ended != 0 {
		t.Errorf("%+v: want 2 subscriptions, and no stream ended", seen)
	}
	f.holds(part(0), acked)
}

// TestAFollowerForWhichTheLogIsTrimmedStartsAnew: what it was to get next goes while it is
// slow.
func TestAFollowerForWhichTheLogIsTrimmedStartsAnew(t *testing.T) {
	f := newFleet(t, 2, 1, func(c *Config) {
		c.CopyBytes, c.TailBytes = 16<<10, 32<<10
		c.Limits.LagMax, c.Limits.AppendStall = 50*time.Millisecond, time.Hour
	})
	f.produce(1, part(0), "first")
	f.stores[2].hold.Store(true)
	for range 40 {
		f.produce(1, part(0), strings.Repeat("x", 5000))
	}
	f.eventually("it is left out", func() bool { return len(f.isr(part(0))) == 1 })
	if a := f.brokers[1].Trim(t.Context(), []model.TrimQuery{{Partition: part(0), Offset: 30}})[0]; a.Err != nil || a.LowWatermark != 30 {
		t.Fatalf("trim: %+v", a)
	}
	f.stores[2].letGo()
	f.eventually("it is back", func() bool { return len(f.isr(part(0))) == 2 })
	want := f.brokers[1].valuesFrom(part(0), 30)
	f.elect(part(0), 2)
	f.eventually("it leads", func() bool {
		got := f.brokers[2].fetchOne(part(0), 30, 0)
		return got.Err == nil && got.HighWatermark == 41
	})
	if got := f.brokers[2].valuesFrom(part(0), 30); !slices.Equal(got, want) || len(got) != 11 {
		t.Errorf("%d values, want %d", len(got), len(want))
	}
	if got := f.brokers[2].fetchOne(part(0), 29, 0); !errors.Is(got.Err, model.ErrOffsetOutOfRange) {
		t.Errorf("offset 29 is there: %v", got.Err)
	}
}

// TestManyCatchUpAtOnce: what a follower lacks of more partitions than are read for it at
// one time, while others are at the tail, and reads fail.
func TestManyCatchUpAtOnce(t *testing.T) {
	const partitions = 12
	f := newFleet(t, 2, partitions, func(c *Config) { c.CopyBytes, c.TailBytes, c.Limits.LagMax = 64<<10, 64<<10, 50*time.Millisecond })
	acked := map[int64]string{}
	f.produce(1, part(0), "warm")
	f.mesh.cut(2, 1, true)
	for i := range int64(20) {
		for p := range int32(partitions) {
			acked[i] = fmt.Sprint(i)
			f.produce(1, part(p), acked[i]+strings.Repeat(" ", 5000))
		}
	}
	f.stores[1].fails.Store(5)
	f.mesh.cut(2, 1, false)
	for p := range int32(partitions) {
		f.eventually("all are in sync", func() bool { return len(f.isr(part(p))) == 2 })
		if p > 0 {
			f.holds(part(p), acked)
		}
	}
	if n := f.mesh.counts().ended; n > 0 {
		t.Errorf("%d streams were ended", n)
	}
}

// TestWhatTheControllerSaysIsKnown: nobody reckons with an answer that says more, or less,
// than it does.
func TestWhatTheControllerSaysIsKnown(t *testing.T) {
	for err, want := range map[error]partition.Outcome{
		nil:                           partition.OutcomeDone,
		model.ErrIneligibleReplica:    partition.OutcomeIneligible,
		model.ErrFencedLeaderEpoch:    partition.OutcomeStale,
		model.ErrInvalidUpdateVersion: partition.OutcomeStale,
		model.ErrUnknownTopicID:       partition.OutcomeStale,
		model.ErrInvalidRequest:       partition.OutcomeStale,
		model.ErrNotController:        partition.OutcomeUnknown,
		model.ErrRequestTimedOut:      partition.OutcomeUnknown,
		model.ErrStaleBrokerEpoch:     partition.OutcomeUnknown,
	} {
		if err != nil {
			err = fmt.Errorf("alter: %w", err)
		}
		if got := outcomeOf(err); got != want {
			t.Errorf("%v is outcome %d, want %d", err, got, want)
		}
	}
}

// TestABatchThatIsLargerThanAllThatIsGranted goes when nothing else is under way, whether
// it is in memory or has to be read.
func TestABatchThatIsLargerThanAllThatIsGranted(t *testing.T) {
	for _, tail := range []int64{0, 8 << 20} {
		f := newFleet(t, 2, 2, func(c *Config) { c.CopyBytes, c.TailBytes = 20<<10, tail })
		acked := map[int64]string{}
		for i := range 20 {
			v := fmt.Sprint(i)
			f.produce(1, part(1), v)
			size := i % 3 * 700_000
			if i%3 == 0 {
				size = 3000
			}
			acked[f.produce(1, part(0), v+strings.Repeat(" ", size))] = v
		}
		f.holds(part(0), acked)
	}
}
