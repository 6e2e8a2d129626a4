package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

func testConfig(t *testing.T) Config {
	return Config{
		Dir: t.TempDir(), NodeID: 1, Bootstrap: true, LockTimeout: 20 * time.Millisecond, Reserve: 16 << 10,
		Controller: controller.Config{BrokerLease: time.Hour}, // nobody sends heartbeats
	}
}

var testRegistration = Registration{
	NodeID: 1, FeatureLevelMin: 1, FeatureLevelMax: image.FeatureLevel, Incarnation: [16]byte{1}, Rack: "a",
	Listeners:   map[string]image.Endpoint{"PLAINTEXT": {Host: "localhost", Port: 9092}},
	Directories: []model.DirectoryID{{1}},
}

func open(t *testing.T, cfg Config) *Node {
	t.Helper()
	n, err := Open(cfg, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// onDisk is a node's quorum.db.
func onDisk(n *Node) *database { return n.store.disk.(*database) }

// start runs a node until stop is called, or the test ends.
func start(t *testing.T, n *Node) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, n.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func createTopic(t *testing.T, n *Node, name string) model.TopicResult {
	t.Helper()
	rs, err := n.CreateTopics(soon(t), []model.NewTopic{{Name: name, Partitions: 2, ReplicationFactor: -1}}, false)
	if err != nil || rs[0].Err != nil {
		t.Fatalf("create topic %s: %v, %+v", name, err, rs)
	}
	return rs[0]
}

// register registers a broker, and has it unfenced.
func register(t *testing.T, n *Node) model.BrokerEpoch {
	t.Helper()
	return registerAs(t, n, testRegistration)
}

func registerAs(t *testing.T, n *Node, r Registration) model.BrokerEpoch {
	t.Helper()
	r.ClusterID = n.Identity().ClusterID
	epoch, err := n.RegisterBroker(soon(t), r)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := n.Heartbeat(soon(t), controller.Heartbeat{Broker: r.NodeID, Epoch: epoch, Offset: n.Image().Offset})
	if err != nil || answer.Fenced || !answer.CaughtUp {
		t.Fatalf("the first heartbeat: %+v, %v", answer, err)
	}
	return epoch
}

// What was acknowledged is in the image at once, and after a restart.
func TestAcknowledgedIsThere(t *testing.T) {
	cfg := testConfig(t)
	n := open(t, cfg)
	stop := start(t, n)
	epoch := register(t, n)
	if b, ok := n.Image().Broker(1); !ok || b.Epoch != epoch || b.Fenced {
		t.Fatalf("broker 1 = %+v, %v; epoch %d", b, ok, epoch)
	}
	r := createTopic(t, n, "orders")
	topic, ok := n.Image().TopicByName("orders")
	if !ok || topic.ID != r.ID || len(topic.Partitions) != 2 || topic.ReplicationFactorTarget != 3 || r.ReplicationFactor != 1 {
		t.Fatalf("topic = %+v, %v; answer %+v", topic, ok, r)
	}
	block, err := n.AllocateProducerIDs(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	id := n.Identity()
	stop()

	cfg.Bootstrap = false
	n = open(t, cfg)
	if n.Identity() != id || id.ClusterID == "" || len(id.ClusterID) != 22 || id.DirectoryID.IsZero() {
		t.Errorf("identity %+v became %+v", id, n.Identity())
	}
	start(t, n)
	again, err := n.AllocateProducerIDs(soon(t))
	if err != nil || again.First != block.First+int64(block.Count) {
		t.Errorf("block %+v after %+v: %v", again, block, err)
	}
	if topic, ok := n.Image().Topic(r.ID); !ok || topic.Name != "orders" {
		t.Errorf("after a restart: %+v, %v", topic, ok)
	}
}

// Status tells of what was acknowledged, and only while this node leads.
func TestStatus(t *testing.T) {
	n := open(t, testConfig(t))
	if s, err := n.Status(); !errors.Is(err, model.ErrNotLeaderOrFollower) {
		t.Errorf("before it runs: %+v, %v", s, err)
	}
	stop := start(t, n)
	register(t, n)
	before, err := n.Status()
	if err != nil {
		t.Fatal(err)
	}
	createTopic(t, n, "orders")
	after, err := n.Status()
	if err != nil {
		t.Fatal(err)
	}
	if after.Leader != 1 || after.Epoch < 1 || after.Epoch != before.Epoch || after.HighWatermark <= before.HighWatermark ||
		after.HighWatermark != n.Image().Offset+1 {
		t.Errorf("status %+v after %+v, the image is at %d", after, before, n.Image().Offset)
	}
	if p := n.Progress(); !p.Leads || !p.Voter || p.Leader != 1 || p.Term != uint64(after.Epoch) || p.Committed != after.HighWatermark || p.Applied != p.Committed || p.End < p.Committed {
		t.Errorf("progress %+v, status %+v", p, after)
	}
	if v := after.Voters; len(v) != 1 || v[0].ID != 1 || v[0].Directory != n.Identity().DirectoryID || v[0].LEO < after.HighWatermark {
		t.Errorf("voters %+v", v)
	}
	stop()
	if s, err := n.Status(); !errors.Is(err, model.ErrNotLeaderOrFollower) {
		t.Errorf("after the end: %+v, %v", s, err)
	}
	if p := n.Progress(); p.Leads {
		t.Errorf("after the end: %+v", p)
	}
}

// A broker that comes back with a new incarnation gets a later epoch, and what
// it led gets a new leader epoch.
func TestRegisterAgain(t *testing.T) {
	n := open(t, testConfig(t))
	start(t, n)
	first := register(t, n)
	topic := createTopic(t, n, "t")
	if again := register(t, n); again != first {
		t.Errorf("the same incarnation: epoch %d became %d", first, again)
	}
	r := testRegistration
	r.ClusterID, r.Incarnation = n.Identity().ClusterID, [16]byte{2}
	if _, err := n.RegisterBroker(soon(t), r); !errors.Is(err, model.ErrDuplicateBroker) {
		t.Errorf("another incarnation, while the first was heard: %v", err)
	}
	if err := n.FenceBroker(soon(t), 1, first); err != nil {
		t.Fatal(err)
	}
	if second := registerAs(t, n, r); second <= first {
		t.Errorf("another incarnation: epoch %d after %d", second, first)
	}
	p, _, _ := n.Image().Partition(model.Partition{Topic: topic.ID})
	if p.Leader != 1 || p.LeaderEpoch == 0 {
		t.Errorf("led after the restart: %+v", p)
	}
	if c := n.Counts(); c.Clean == 0 || c.Longest+c.Unclean != 0 {
		t.Errorf("counted %+v", c)
	}
}

// Commands that come together are decided in order, and see each other.
func TestConcurrentCommands(t *testing.T) {
	n := open(t, testConfig(t))
	start(t, n)
	register(t, n)
	const callers = 50
	var wg sync.WaitGroup
	var mu sync.Mutex
	made, refused := 0, 0
	for i := range callers {
		wg.Go(func() {
			rs, err := n.CreateTopics(soon(t), []model.NewTopic{
				{Name: "same", Partitions: 1, ReplicationFactor: 1}, {Name: fmt.Sprint("own-", i), Partitions: 1, ReplicationFactor: 1},
			}, false)
			if err != nil || rs[1].Err != nil {
				t.Errorf("caller %d: %v, %+v", i, err, rs)
				return
			}
			if _, ok := n.Image().TopicByName("same"); !ok {
				t.Error("answered about a topic that the image has not")
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case rs[0].Err == nil:
				made++
			case errors.Is(rs[0].Err, model.ErrTopicExists):
				refused++
			}
		})
	}
	wg.Wait()
	if made != 1 || refused != callers-1 || n.Image().TopicCount() != callers+1 {
		t.Errorf("made %d, refused %d, topics %d", made, refused, n.Image().TopicCount())
	}
}

// Whoever listens sees every image in order, beginning with the one there was,
// and before the caller hears of it.
func TestOnImage(t *testing.T) {
	n := open(t, testConfig(t))
	var mu sync.Mutex
	var offsets []int64
	last := func() int64 { mu.Lock(); defer mu.Unlock(); return offsets[len(offsets)-1] }
	n.OnImage(func(img *image.Image) {
		mu.Lock()
		defer mu.Unlock()
		offsets = append(offsets, img.Offset)
	})
	start(t, n)
	register(t, n)
	for i := range 5 {
		createTopic(t, n, fmt.Sprint("t", i))
		if got := n.Image().Offset; last() < got {
			t.Errorf("answered at offset %d, listeners were at %d", got, last())
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if offsets[0] != 1 {
		t.Errorf("the first image was at %d", offsets[0])
	}
	for i := range offsets[1:] {
		if offsets[i] >= offsets[i+1] {
			t.Fatalf("offsets %v", offsets)
		}
	}
}

func TestValidateOnlyChangesNothing(t *testing.T) {
	n := open(t, testConfig(t))
	start(t, n)
	register(t, n)
	before := n.Image()
	rs, err := n.CreateTopics(soon(t), []model.NewTopic{{Name: "t", Partitions: 1, ReplicationFactor: 1}}, true)
	if err != nil || rs[0].Err != nil || n.Image() != before {
		t.Errorf("validate only: %v, %+v, image changed: %v", err, rs, n.Image() != before)
	}
}

// FR-36: a single voter leads at once, and never resigns by itself.
func TestSingleVoterNeverResigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := open(t, testConfig(t))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.Run(ctx) }()
		synctest.Wait()
		if !n.Leading() {
			t.Error("it does not lead before the first tick")
		}
		term := n.store.hard.GetTerm()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if !n.Leading() || n.store.hard.GetTerm() != term {
			t.Errorf("after 10 idle minutes: leading %v, term %d became %d", n.Leading(), term, n.store.hard.GetTerm())
		}
		cancel()
		if err := errors.Join(<-done, n.Close()); err != nil {
			t.Error(err)
		}
	})
}

func TestCallsEnd(t *testing.T) {
	n := open(t, testConfig(t))
	short, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, err := n.AllocateProducerIDs(short); !errors.Is(err, model.ErrRequestTimedOut) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("before Run: %v", err)
	}
	start(t, n)()
	if _, err := n.AllocateProducerIDs(t.Context()); !errors.Is(err, model.ErrNotController) {
		t.Errorf("after Run: %v", err)
	}
	if err := n.Run(t.Context()); err == nil {
		t.Error("Run began twice")
	}
}

// pump turns the loop once, without waiting for anything.
func pump(t *testing.T, n *Node) {
	t.Helper()
	n.loop.Turn(time.Unix(0, 0))
	if ended, err := n.Ended(); ended {
		t.Fatal(err)
	}
}

func wanted(op controller.Op) (*request, <-chan controller.Answer) {
	reply := make(chan controller.Answer, 1)
	return &request{op: op, reply: func(a controller.Answer) { reply <- a }}, reply
}

// ask gives a request to the loop, as do does.
func ask(n *Node, op controller.Op) <-chan controller.Answer {
	r, reply := wanted(op)
	n.loop.Complete(Input{request: r})
	return reply
}

// After a proposal was dropped nothing that rested on it is decided, and the
// node leads again by itself once what it had proposed before is applied.
func TestDroppedProposal(t *testing.T) {
	n := open(t, testConfig(t))
	defer n.Close()
	early := ask(n, controller.AllocateProducerIDs{})
	pump(t, n)
	if a := <-early; a.Err != nil || !n.Leading() {
		t.Fatalf("asked before it led: %+v", a)
	}

	inFlight, lost := wanted(controller.AllocateProducerIDs{})
	n.accept(inFlight)
	n.proposalDropped(errors.New("for a test"))
	after, held := wanted(controller.AllocateProducerIDs{})
	n.accept(after)
	if n.Leading() || len(n.held) != 1 {
		t.Errorf("leading %v with %d held", n.Leading(), len(n.held))
	}
	pump(t, n)
	if a := <-lost; !errors.Is(a.Err, model.ErrNotController) {
		t.Errorf("in flight when the proposal was dropped: %+v", a)
	}
	if a := <-held; a.Err != nil || a.ProducerIDs.First != 2000 {
		t.Errorf("asked after it: %+v; the block in flight was committed and is gone", a)
	}
}

// Commands that wait together share one write to disk.
func TestCommandsShareASync(t *testing.T) {
	n := open(t, testConfig(t))
	defer n.Close()
	pump(t, n)
	before := writes(t, n)
	var replies []<-chan controller.Answer
	for range 20 {
		replies = append(replies, ask(n, controller.AllocateProducerIDs{}))
	}
	pump(t, n)
	for _, r := range replies {
		if a := <-r; a.Err != nil {
			t.Error(a.Err)
		}
	}
	if got := writes(t, n) - before; got != 1 {
		t.Errorf("20 commands took %d writes", got)
	}
}

// writes is how many transactions the database has committed.
func writes(t *testing.T, n *Node) (id int) {
	t.Helper()
	if err := onDisk(n).db.View(func(tx *bbolt.Tx) error { id = tx.ID(); return nil }); err != nil {
		t.Fatal(err)
	}
	return id
}

func BenchmarkAllocateProducerIDs(b *testing.B) {
	n, err := Open(Config{Dir: b.TempDir(), NodeID: 1, Bootstrap: true}, Deps{})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := n.AllocateProducerIDs(ctx); err != nil {
				b.Error(err)
			}
		}
	})
	cancel()
	if err := errors.Join(<-done, n.Close()); err != nil {
		b.Fatal(err)
	}
}
