package peer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/brokerd/brokerd/core/loop"
	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/peer"
	"github.com/brokerd/brokerd/core/quorum"
	"github.com/brokerd/brokerd/core/replica"
	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
)

var (
	_ quorum.Peers    = (*peer.Links)(nil)
	_ replica.Streams = (*peer.Links)(nil)
	_ peer.Streams    = replica.Receiver(nil)
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is one node of a network, with owners that remember what they were told.
type node struct {
	t         *testing.T
	net       *memnet.Network
	id        model.NodeID
	transport transport.Transport
	links     *peer.Links
	budget    *memory.Budget
	run       func() error // ends Run

	mu      sync.Mutex
	posts   [][]byte
	up      map[model.StreamID]model.NodeID
	dialled map[model.StreamID]bool
	ups     int
	rooms   map[model.StreamID][]byte
	got     map[model.NodeID][][]byte
	roomMax int
	events  map[peer.EventKind]int
	// answer is what is answered to a question; nil: itself.
	answer func(question []byte, answer func([]byte))
}

func endpoint(id model.NodeID) string { return fmt.Sprintf("n%d", id) }

func at(id model.NodeID) model.Address { return model.Address{Endpoint: endpoint(id), Node: id} }

func start(t *testing.T, net *memnet.Network, id model.NodeID, budget int64) *node {
	t.Helper()
	identity := transport.Identity{ClusterID: "c", NodeID: int32(id), DirectoryID: transport.DirectoryID{byte(id + 1)}}
	tr, err := net.Open(t.Context(), transport.Config{Identity: identity, Settings: memnet.Settings(endpoint(id), "secret")})
	if err != nil {
		t.Fatal(err)
	}
	cfg := peer.Defaults()
	cfg.Identity, cfg.Proof = identity, transport.ProofMember
	n := &node{
		t: t, net: net, id: id, transport: tr, budget: memory.New(budget), roomMax: 64 << 20,
		up: map[model.StreamID]model.NodeID{}, dialled: map[model.StreamID]bool{}, rooms: map[model.StreamID][]byte{},
		got: map[model.NodeID][][]byte{}, events: map[peer.EventKind]int{},
	}
	n.links, err = peer.NewLinks(cfg, peer.Deps{
		Transport: tr, Clock: loop.System{}, Rand: rand.New(rand.NewPCG(1, uint64(id))), Memory: n.budget,
		Watch: n.watch, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	n.links.ServeQuorum(n)
	n.links.ServeStreams(n)
	for i := range model.NodeID(4) {
		n.links.Locate(i, endpoint(i))
	}
	// What is wanted no more before Run begins is not dialled.
	n.links.Want(3, true)
	n.links.Want(3, false)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.links.Run(ctx) }()
	n.run = sync.OnceValue(func() error {
		cancel()
		err := <-ended
		_ = tr.Close()
		return err
	})
	return n
}

// stop ends a node, of which nothing may be left.
func (n *node) stop() {
	n.t.Helper()
	if err := n.run(); !errors.Is(err, context.Canceled) && !errors.Is(err, transport.ErrClosed) {
		n.t.Errorf("node %d has ended with %v", n.id, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.up) > 0 {
		n.t.Errorf("node %d has ended, and %d streams are up", n.id, len(n.up))
	}
	if held := n.links.Held(); held > 0 {
		n.t.Errorf("node %d has ended, and %d links and streams are left", n.id, held)
	}
	if n.budget.Used() > 0 {
		n.t.Errorf("node %d has ended, and has %d bytes of the budget", n.id, n.budget.Used())
	}
}

func (n *node) watch(e peer.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events[e.Kind]++
}

// Posted implements peer.Quorum.
func (n *node) Posted(_ transport.Peer, message []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.posts = append(n.posts, message)
}

// Asked implements peer.Quorum.
func (n *node) Asked(_ transport.Peer, question []byte, answer func([]byte)) {
	if n.answer != nil {
		n.answer(question, answer)
		return
	}
	answer(question)
}

// StreamUp implements peer.Streams.
func (n *node) StreamUp(s model.StreamID, node model.NodeID, dialled bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, up := n.up[s]; up {
		n.t.Errorf("stream %d comes up twice", s)
	}
	n.up[s], n.dialled[s] = node, dialled
	n.ups++
}

// StreamRoom implements peer.Streams.
func (n *node) StreamRoom(s model.StreamID, size int) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, up := n.up[s]; !up {
		n.t.Errorf("stream %d wants room, and is not up", s)
	}
	if size > n.roomMax {
		return nil
	}
	n.rooms[s] = make([]byte, size)
	return n.rooms[s]
}

// StreamMessage implements peer.Streams.
func (n *node) StreamMessage(s model.StreamID, message []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	node, up := n.up[s]
	if !up || unsafe.SliceData(n.rooms[s]) != unsafe.SliceData(message) {
		n.t.Errorf("a message of stream %d (up: %v) is not in the memory that was given for it", s, up)
	}
	n.got[node] = append(n.got[node], message)
}

// StreamDown implements peer.Streams.
func (n *node) StreamDown(s model.StreamID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, up := n.up[s]; !up {
		n.t.Errorf("stream %d goes down, and is not up", s)
	}
	delete(n.up, s)
}

// stream returns the stream with a node that was dialled, or accepted.
func (n *node) stream(with model.NodeID, dialled bool) model.StreamID {
	n.mu.Lock()
	defer n.mu.Unlock()
	for s, node := range n.up {
		if node == with && n.dialled[s] == dialled {
			return s
		}
	}
	return 0
}

// made is how many streams have come up.
func (n *node) made() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ups
}

// posted is how many posts have come.
func (n *node) posted() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.posts)
}

// ask puts a question, and waits for its end.
func (n *node) ask(to model.Address, question []byte, timeout time.Duration) ([]byte, error) {
	type end struct {
		answer []byte
		err    error
	}
	ended := make(chan end, 2)
	n.links.Ask(to, question, timeout, func(answer []byte, err error) { ended <- end{answer, err} })
	e := <-ended
	return e.answer, e.err
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 1000 {
		synctest.Wait()
		if is() {
			return
		}
		time.Sleep(10 * time.Millisecond) // of the bubble
	}
	t.Fatalf("it is not so after 10 s: %s", what)
}

func TestQuestionsAndPosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memnet.NewNetwork(memnet.NetworkOptions{Seed: 1, RestChance: 0.2, Rest: memnet.Range{Max: 5 * time.Millisecond}})
		a, b := start(t, net, 0, 1<<30), start(t, net, 1, 1<<30)
		var children sync.WaitGroup
		for i := range 50 {
			children.Go(func() {
				question := bytes.Repeat([]byte{byte(i)}, i*5000)
				answer, err := a.ask(at(1), question, time.Minute)
				if err != nil || !bytes.Equal(answer, question) {
					t.Errorf("question %d: %d bytes, %v", i, len(answer), err)
				}
			})
		}
		children.Wait()
		// By its endpoint alone.
		if answer, err := b.ask(model.Address{Endpoint: endpoint(0), Node: model.NoNode}, []byte("who?"), time.Minute); err != nil || string(answer) != "who?" {
			t.Errorf("%q, %v", answer, err)
		}
		if _, err := b.ask(model.Address{Endpoint: endpoint(1), Node: model.NoNode}, []byte("me?"), time.Minute); !errors.Is(err, peer.ErrSelf) {
			t.Errorf("to itself: %v", err)
		}
		a.links.Post(at(1), bytes.Repeat([]byte{7}, 20<<20), true)
		a.links.Post(at(1), []byte("small"), false)
		eventually(t, "both posts have come", func() bool { return b.posted() == 2 })
		a.stop()
		if _, err := a.ask(at(1), nil, time.Minute); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("a question after the end: %v", err)
		}
		if _, err := b.ask(at(0), nil, time.Minute); !errors.Is(err, transport.ErrRefused) {
			t.Errorf("a question to who is gone: %v", err)
		}
		b.stop()
	})
}

func TestStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memnet.NewNetwork(memnet.NetworkOptions{Seed: 2, RestChance: 0.2, Rest: memnet.Range{Max: 5 * time.Millisecond}})
		a, b := start(t, net, 0, 1<<30), start(t, net, 1, 1<<30)
		a.links.Want(1, true)
		eventually(t, "the stream is up", func() bool { return a.stream(1, true) > 0 && b.stream(0, false) > 0 })
		var settled sync.WaitGroup
		for i := range 20 {
			part := bytes.Repeat([]byte{byte(i)}, 1+i*100_000)
			settled.Add(2)
			taken := func(taken bool) {
				if !taken {
					t.Errorf("message %d was not taken", i)
				}
				settled.Done()
			}
			if !a.links.Send(a.stream(1, true), [][]byte{{byte(i)}, part}, taken) || !b.links.Send(b.stream(0, false), [][]byte{part, {byte(i)}}, taken) {
				t.Fatalf("message %d was refused", i)
			}
		}
		settled.Wait()
		eventually(t, "all has come", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(a.got[1]) == 20 && len(b.got[0]) == 20
		})
		for i := range 20 {
			want := bytes.Repeat([]byte{byte(i)}, 2+i*100_000)
			if !bytes.Equal(a.got[1][i], want) || !bytes.Equal(b.got[0][i], want) {
				t.Fatalf("message %d has changed", i)
			}
		}
		// It lives while nothing is said, and its memory is its owner's to refuse.
		time.Sleep(time.Hour)
		synctest.Wait()
		if a.made() != 1 || b.made() != 1 {
			t.Fatalf("%d and %d streams were made", a.made(), b.made())
		}
		b.mu.Lock()
		b.roomMax = 10
		b.mu.Unlock()
		a.links.Send(a.stream(1, true), [][]byte{make([]byte, 11)}, nil)
		eventually(t, "another stream is up", func() bool { return a.made() == 2 && b.made() == 2 && b.stream(0, false) > 0 })
		b.stop()
		eventually(t, "it is down", func() bool { return a.stream(1, true) == 0 })
		b = start(t, net, 1, 1<<30)
		eventually(t, "it is up again", func() bool { return a.stream(1, true) > 0 && b.stream(0, false) > 0 })
		a.links.Want(1, false)
		eventually(t, "it is down at both ends", func() bool { return a.stream(1, true) == 0 && b.stream(0, false) == 0 })
		a.stop()
		b.stop()
	})
}

// A node is killed and cut off, and is linked again when that is over, with nothing lost of
// what is counted.
func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memnet.NewNetwork(memnet.NetworkOptions{Seed: 3})
		nodes := []*node{start(t, net, 0, 1<<30), start(t, net, 1, 1<<30), start(t, net, 2, 1<<30)}
		for _, n := range nodes {
			for i := range nodes {
				n.links.Want(model.NodeID(i), true)
			}
		}
		r := rand.New(rand.NewPCG(3, 3))
		asked, ended := 0, make(chan error, 10_000)
		for range 60 {
			i := r.IntN(3)
			switch r.IntN(4) {
			case 0:
				if err := net.Kill(endpoint(model.NodeID(i)), memnet.Death(r.IntN(2))); err != nil {
					t.Fatal(err)
				}
				_ = nodes[i].run()
				nodes[i].stop()
				nodes[i] = start(t, net, model.NodeID(i), 1<<30)
				for j := range nodes {
					nodes[i].links.Want(model.NodeID(j), true)
				}
			case 1:
				if err := net.SetFaults(endpoint(model.NodeID(i)), endpoint(model.NodeID((i+1)%3)), memnet.Faults{Cut: r.IntN(2) == 0}); err != nil {
					t.Fatal(err)
				}
			default:
				for range 10 {
					asked++
					nodes[i].links.Ask(at(model.NodeID((i+1)%3)), make([]byte, 1000), 3*time.Second, func(_ []byte, err error) { ended <- err })
				}
			}
			time.Sleep(time.Duration(r.Int64N(int64(2 * time.Second))))
		}
		net.Heal()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		failed := 0
		for range asked {
			select {
			case err := <-ended:
				if err != nil {
					failed++
				}
			default:
				t.Fatal("a question has not ended")
			}
		}
		if len(ended) > 0 || failed == 0 || failed == asked {
			t.Errorf("of %d questions %d failed, and %d ended twice", asked, failed, len(ended))
		}
		for i, n := range nodes {
			for j := range nodes {
				if i != j && (n.stream(model.NodeID(j), true) == 0 || n.stream(model.NodeID(j), false) == 0) {
					t.Errorf("there is no stream between nodes %d and %d", i, j)
				}
			}
		}
		for _, n := range nodes {
			n.stop()
		}
	})
}

// A large message waits for memory, and holds up nothing small.
func TestMemoryIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memnet.NewNetwork(memnet.NetworkOptions{Seed: 4})
		a, b := start(t, net, 0, 1<<30), start(t, net, 1, 2<<20)
		if err := b.budget.Acquire(t.Context(), 1<<20); err != nil {
			t.Fatal(err)
		}
		a.links.Post(at(1), make([]byte, 3<<19), true)
		if _, err := a.ask(at(1), []byte("small"), time.Second); err != nil {
			t.Errorf("a small question waits for the memory of a large message: %v", err)
		}
		if b.posted() > 0 {
			t.Error("a message came without memory")
		}
		b.budget.Release(1 << 20)
		eventually(t, "it has come", func() bool { return b.posted() == 1 })
		if used := b.budget.Used(); used != 0 {
			t.Errorf("%d bytes are still taken", used)
		}
		a.stop()
		b.stop()
	})
}

// A stream that nobody owns yet is ended, and made again when somebody does.
func TestStreamsWithoutOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memnet.NewNetwork(memnet.NetworkOptions{Seed: 5})
		a, b := start(t, net, 0, 1<<30), start(t, net, 1, 1<<30)
		b.links.ServeStreams(nil)
		a.links.Want(1, true)
		eventually(t, "it was tried", func() bool { return a.made() > 3 })
		b.links.ServeStreams(b)
		eventually(t, "it is up", func() bool { return b.stream(0, false) > 0 })
		a.stop()
		b.stop()
	})
}

// Run ends with an error when the transport does.
func TestTransportEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, memnet.NewNetwork(memnet.NetworkOptions{}), 0, 1<<20)
		_ = n.transport.Close()
		synctest.Wait()
		if err := n.run(); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("Run has ended with %v", err)
		}
	})
}

// A link that was given up before it was begun is not made.
func TestGivenUpBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memnet.NewNetwork(memnet.NetworkOptions{})
		three := start(t, net, 3, 1<<20)
		zero := start(t, net, 0, 1<<20) // has wanted it for a moment
		if _, err := zero.ask(at(3), nil, time.Second); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if held := three.links.Held(); held != 1 || three.made() > 0 || zero.made() > 0 {
			t.Errorf("%d links, and streams came up", held)
		}
		zero.stop()
		three.stop()
	})
}

// The memory of a message whose rest has not come is given back.
func TestHalfAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memnet.NewNetwork(memnet.NetworkOptions{RestChance: 1, Rest: memnet.Range{Min: time.Second, Max: time.Second}})
		a, b := start(t, net, 0, 1<<30), start(t, net, 1, 1<<30)
		a.links.Post(at(1), make([]byte, 1<<20), true)
		eventually(t, "the message has begun to come", func() bool { return b.budget.Used() > 0 })
		b.stop()
		if b.posted() > 0 {
			t.Error("half a message was given")
		}
		a.stop()
	})
}

// A stranger to the rules is hung up on, and gets no memory.
func TestTooLargeAHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memnet.NewNetwork(memnet.NetworkOptions{})
		b := start(t, net, 1, 1<<30)
		raw, err := net.Open(t.Context(), transport.Config{
			Identity: transport.Identity{ClusterID: "c", NodeID: 0}, Settings: memnet.Settings(endpoint(0), "secret"),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = raw.Close() }()
		for lane, size := range map[transport.Lane]int{transport.Data: peer.HelloBytesMax + 1, transport.Control: peer.ControlBytesMax + 1} {
			link, err := raw.Dial(t.Context(), transport.Target{Endpoint: endpoint(1), Lane: lane, NodeID: 1})
			if err != nil {
				t.Fatal(err)
			}
			message := make([]byte, size)
			message[0], message[1] = 1, 1 // a post
			if err := link.Send(t.Context(), message); err != nil {
				t.Fatal(err)
			}
			if _, err := link.Receive(t.Context(), func(context.Context, int) ([]byte, error) { return nil, nil }); !errors.Is(err, transport.ErrClosed) {
				t.Errorf("%s: the link goes on: %v", lane, err)
			}
			_ = link.Close()
		}
		if b.posted() > 0 {
			t.Error("it was given to the owner")
		}
		b.stop()
	})
}
