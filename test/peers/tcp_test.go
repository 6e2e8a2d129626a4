package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/brokerd/brokerd/core/loop"
	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/peer"
	transporttcp "github.com/brokerd/brokerd/plugins/transport-tcp"
	"github.com/brokerd/brokerd/sdk/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long anything may take on a busy machine.
const patience = 30 * time.Second

// node is one node, whose owners answer a question with itself, and hand on what comes.
type node struct {
	links    *peer.Links
	endpoint string
	posts    chan []byte
	ups      chan model.StreamID
	downs    chan model.StreamID
	messages chan []byte
	refused  chan peer.Event
	stop     func() error
}

func start(tb testing.TB, id int32, listen string) *node {
	tb.Helper()
	identity := transport.Identity{ClusterID: "c", NodeID: id, DirectoryID: transport.DirectoryID{byte(id + 1)}}
	settings, err := json.Marshal(map[string]any{"listen": listen, "secret": "a secret of the tests, long enough to be one"})
	if err != nil {
		tb.Fatal(err)
	}
	tr, err := transporttcp.Provider().Open(tb.Context(), transport.Config{Identity: identity, Settings: settings})
	if err != nil {
		tb.Fatal(err)
	}
	n := &node{
		endpoint: tr.Endpoint(),
		posts:    make(chan []byte, 100), ups: make(chan model.StreamID, 100), downs: make(chan model.StreamID, 100),
		messages: make(chan []byte, 100), refused: make(chan peer.Event, 1000),
	}
	cfg := peer.Defaults()
	cfg.Identity, cfg.Proof = identity, transport.ProofMember
	n.links, err = peer.NewLinks(cfg, peer.Deps{
		Transport: tr, Clock: loop.System{}, Rand: rand.New(rand.NewPCG(1, uint64(id))), Memory: memory.New(256 << 20),
		Logger: slog.New(slog.DiscardHandler), Watch: func(e peer.Event) {
			if e.Kind == peer.Refused {
				n.refused <- e
			}
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	n.links.ServeQuorum(n)
	n.links.ServeStreams(n)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.links.Run(ctx) }()
	n.stop = sync.OnceValue(func() error {
		cancel()
		return errors.Join(<-ended, tr.Close())
	})
	tb.Cleanup(func() { _ = n.stop() })
	return n
}

// Posted implements peer.Quorum.
func (n *node) Posted(_ transport.Peer, message []byte) { n.posts <- message }

// Asked implements peer.Quorum.
func (n *node) Asked(_ transport.Peer, question []byte, answer func([]byte)) { answer(question) }

// StreamUp implements peer.Streams.
func (n *node) StreamUp(s model.StreamID, _ model.NodeID, _ bool) { n.ups <- s }

// StreamRoom implements peer.Streams.
func (n *node) StreamRoom(_ model.StreamID, size int) []byte { return make([]byte, size) }

// StreamMessage implements peer.Streams.
func (n *node) StreamMessage(_ model.StreamID, message []byte) { n.messages <- message }

// StreamDown implements peer.Streams.
func (n *node) StreamDown(s model.StreamID) { n.downs <- s }

func (n *node) at(id model.NodeID) model.Address {
	return model.Address{Endpoint: n.endpoint, Node: id}
}

func ask(n *node, to model.Address, question []byte) error {
	ended := make(chan error, 1)
	n.links.Ask(to, question, patience, func(answer []byte, err error) {
		if err == nil && !bytes.Equal(answer, question) {
			err = fmt.Errorf("%d bytes of answer to %d", len(answer), len(question))
		}
		ended <- err
	})
	return <-ended
}

func next[T any](tb testing.TB, what string, from <-chan T) (v T) {
	tb.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		tb.Fatalf("nothing has come of: %s", what)
	}
	return v
}

// Two nodes talk in every way, one goes, which the other hears of at once, and comes back at
// the same port.
func TestOverTCP(t *testing.T) {
	a, b := start(t, 0, "127.0.0.1:0"), start(t, 1, "127.0.0.1:0")
	for size := range 20 {
		if err := ask(a, b.at(1), bytes.Repeat([]byte{byte(size)}, size*20_000)); err != nil {
			t.Fatal(err)
		}
	}
	large := bytes.Repeat([]byte("large"), 5<<20)
	a.links.Post(b.at(1), large, true)
	if got := next(t, "a large post", b.posts); !bytes.Equal(got, large) {
		t.Fatalf("%d bytes came of %d", len(got), len(large))
	}
	a.links.Locate(1, b.endpoint)
	a.links.Want(1, true)
	from, to := next(t, "a stream", a.ups), next(t, "a stream", b.ups)
	for i := range 200 {
		whole := bytes.Repeat([]byte{byte(i)}, 2+i*3000)
		taken := make(chan bool, 1)
		if !a.links.Send(from, [][]byte{whole[:1], whole[1:]}, func(ok bool) { taken <- ok }) || !b.links.Send(to, [][]byte{whole}, nil) {
			t.Fatal("a message was refused")
		}
		if !next(t, "a message is taken", taken) {
			t.Fatal("a message was not taken")
		}
		if !bytes.Equal(next(t, "a message", b.messages), whole) || !bytes.Equal(next(t, "a message", a.messages), whole) {
			t.Fatalf("message %d has changed", i)
		}
	}
	endpoint := b.endpoint
	if err := b.stop(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	next(t, "the stream is down", a.downs)
	next(t, "the end of the stream at who stops", b.downs)
	if e := next(t, "evidence that the node is gone", a.refused); e.Address.Node != 1 {
		t.Fatalf("%+v", e)
	}
	err := ask(a, b.at(1), nil)
	if errors.Is(err, transport.ErrClosed) { // this was how the end of the link came to be known
		err = ask(a, b.at(1), nil)
	}
	if !errors.Is(err, transport.ErrRefused) {
		t.Fatalf("a question to who is gone: %v", err)
	}
	b = start(t, 1, endpoint)
	next(t, "a stream again", a.ups)
	next(t, "a stream again", b.ups)
	if err := ask(a, b.at(1), []byte("are you there?")); err != nil {
		t.Fatal(err)
	}
	if err := a.stop(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func BenchmarkAsk(b *testing.B) {
	one, two := start(b, 0, "127.0.0.1:0"), start(b, 1, "127.0.0.1:0")
	b.ReportAllocs()
	question := make([]byte, 100)
	for b.Loop() {
		if err := ask(one, two.at(1), question); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStream(b *testing.B) {
	one, two := start(b, 0, "127.0.0.1:0"), start(b, 1, "127.0.0.1:0")
	one.links.Locate(1, two.endpoint)
	one.links.Want(1, true)
	s := next(b, "a stream", one.ups)
	next(b, "a stream", two.ups)
	parts := [][]byte{make([]byte, 100), make([]byte, 64<<10)}
	b.SetBytes(64<<10 + 100)
	b.ReportAllocs()
	credit := make(chan struct{}, 64)
	for b.Loop() {
		select {
		case credit <- struct{}{}:
		case <-two.messages:
		}
		one.links.Send(s, parts, nil)
	}
}
