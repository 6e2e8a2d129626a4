package transporttest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
	"github.com/brokerd/brokerd/sdk/transport/transporttest"
)

// dialling breaks Dial: its target is changed, and what it gives.
func dialling(target func(n *brokenNode, to transport.Target) transport.Target, result func(err error) error) func() fault {
	return func() fault {
		return fault{dial: func(ctx context.Context, n *brokenNode, to transport.Target) (transport.Link, error) {
			if target != nil {
				to = target(n, to)
			}
			l, err := n.Transport.Dial(ctx, to)
			if err != nil && result != nil {
				return nil, result(err)
			}
			return l, err
		}}
	}
}

// instead gives an error of another class for one of a class.
func instead(of, class error) func(error) error {
	return func(err error) error {
		if errors.Is(err, of) {
			return transport.Errorf(class, "told as another class: %v", err.Error())
		}
		return err
	}
}

func brokenDials() []broken {
	return []broken{
		{name: "capabilities change", caughtBy: "endpoint", says: "Capabilities were", fault: func() fault {
			var asked atomic.Int64
			return fault{capabilities: func(has transport.Capabilities) transport.Capabilities {
				has.Refuses = asked.Add(1)%2 == 0
				return has
			}}
		}},
		{name: "what is sent before Accept is lost", caughtBy: "dial-early", says: "receive a message", fault: func() fault {
			var accepted atomic.Int64
			return fault{
				made: func(l *brokenLink) {
					if !l.dialled {
						accepted.Add(1)
					}
				},
				send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
					if accepted.Load() == 0 {
						return nil
					}
					return l.Link.Send(ctx, parts...)
				},
			}
		}},
		{name: "Dial waits for Accept", caughtBy: "dial-early", says: "dials node", fault: func() fault {
			var accepting atomic.Int64
			return fault{
				accept: func(ctx context.Context, n *brokenNode) (transport.Link, error) {
					accepting.Add(1)
					return n.Transport.Accept(ctx)
				},
				dial: func(ctx context.Context, n *brokenNode, to transport.Target) (transport.Link, error) {
					if accepting.Load() == 0 {
						return nil, hang(ctx)
					}
					return n.Transport.Dial(ctx, to)
				},
			}
		}},
		{name: "unaccepted links have no bound", caughtBy: "dial-unaccepted", says: "links were dialled", fault: hoarding},
		{name: "lanes share the bound of unaccepted links", caughtBy: "dial-unaccepted", says: "dial for another lane", fault: func() fault {
			var full atomic.Bool
			return fault{dial: func(ctx context.Context, n *brokenNode, to transport.Target) (transport.Link, error) {
				if full.Load() && to.Lane == transport.Control {
					return nil, transport.Errorf(transport.ErrRetry, "too many links are not accepted")
				}
				l, err := n.Transport.Dial(ctx, to)
				if err != nil {
					full.Store(true)
				}
				return l, err
			}}
		}},
		{name: "who waits to dial is invalid", caughtBy: "dial-unaccepted", says: "links unaccepted", fault: dialling(nil, instead(transport.ErrRetry, transport.ErrInvalid))},
		{name: "who waits to dial is refused", caughtBy: "kill-busy", says: "nobody accepts links", fault: dialling(nil, instead(transport.ErrRetry, transport.ErrRefused))},
		{name: "nobody is closed", caughtBy: "dial-nobody", says: "want class", fault: dialling(nil, instead(transport.ErrRefused, transport.ErrClosed))},
		{name: "refused without having promised it", caughtBy: "dial-nobody", says: "does not promise it", fault: func() fault {
			return fault{capabilities: func(has transport.Capabilities) transport.Capabilities { has.Refuses = false; return has }}
		}},
		{name: "where a node was it stays", caughtBy: "dial-again", says: "node 1 dials node 2", fault: func() fault {
			var places sync.Map
			return fault{dial: func(ctx context.Context, n *brokenNode, to transport.Target) (transport.Link, error) {
				place, _ := places.LoadOrStore([2]int32{n.id.NodeID, to.NodeID}, to.Endpoint)
				to.Endpoint = place.(string)
				return n.Transport.Dial(ctx, to)
			}}
		}},
	}
}

// hoarding accepts at once whatever is dialled, and keeps it.
func hoarding() fault {
	type hoard struct {
		links chan transport.Link
		stop  context.CancelFunc
	}
	var mu sync.Mutex
	hoards := map[*brokenNode]*hoard{}
	of := func(n *brokenNode) *hoard {
		mu.Lock()
		defer mu.Unlock()
		if hoards[n] == nil {
			ctx, stop := context.WithCancel(context.Background())
			h := &hoard{links: make(chan transport.Link, 1<<16), stop: stop}
			hoards[n] = h
			go func() {
				for {
					l, err := n.Transport.Accept(ctx)
					if err != nil {
						return
					}
					h.links <- l
				}
			}()
		}
		return hoards[n]
	}
	return fault{
		accept: func(ctx context.Context, n *brokenNode) (transport.Link, error) {
			select {
			case l := <-of(n).links:
				return l, nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		},
		close: func(n *brokenNode) error { of(n).stop(); return n.Transport.Close() },
	}
}

func brokenTargets() []broken {
	anybody := func(_ *brokenNode, to transport.Target) transport.Target { to.NodeID = transport.AnyNode; return to }
	return []broken{
		{name: "the peer's directory is not told", caughtBy: "peer", says: "Peer says", fault: func() fault {
			return fault{peer: func(p transport.Peer, l *brokenLink) transport.Peer {
				if !l.dialled {
					p.DirectoryID = transport.DirectoryID{}
				}
				return p
			}}
		}},
		{name: "lanes are all one", caughtBy: "peer", says: "Lane says", fault: func() fault {
			return fault{lane: func(transport.Lane) transport.Lane { return transport.Control }}
		}},
		{name: "a seed has to be known", caughtBy: "any-node", says: "invalid", fault: func() fault {
			return fault{dial: func(ctx context.Context, n *brokenNode, to transport.Target) (transport.Link, error) {
				if to.NodeID == transport.AnyNode {
					return nil, transport.Errorf(transport.ErrInvalid, "which node?")
				}
				return n.Transport.Dial(ctx, to)
			}}
		}},
		{name: "any node is the right one", caughtBy: "other-node", says: "succeeded", fault: dialling(anybody, nil)},
		{name: "the wrong node gets a link", caughtBy: "other-node", says: "Accept gives a link", fault: func() fault {
			return fault{dial: func(ctx context.Context, n *brokenNode, to transport.Target) (transport.Link, error) {
				l, err := n.Transport.Dial(ctx, anybody(n, to))
				if err == nil && to.NodeID != transport.AnyNode && l.Peer().NodeID != to.NodeID {
					return nil, transport.Errorf(transport.ErrOther, "node %d answers", l.Peer().NodeID)
				}
				return l, err
			}}
		}},
		{name: "who answers is not told", caughtBy: "other-node", says: "does not tell so", fault: dialling(nil, func(err error) error {
			if errors.Is(err, transport.ErrOther) {
				return transport.ErrOther
			}
			return err
		})},
		{name: "any cluster is the right one", caughtBy: "other-cluster", says: "succeeded", fault: dialling(func(_ *brokenNode, to transport.Target) transport.Target { to.ClusterID = ""; return to }, nil)},
		{name: "who has no cluster is denied", caughtBy: "no-cluster", says: "denied", fault: func() fault {
			return fault{dial: func(ctx context.Context, n *brokenNode, to transport.Target) (transport.Link, error) {
				if n.id.ClusterID == "" {
					return nil, transport.Errorf(transport.ErrDenied, "a stranger")
				}
				return n.Transport.Dial(ctx, to)
			}}
		}},
		{name: "who is of another cluster is denied", caughtBy: "no-cluster", says: "a node of another cluster dials any", fault: func() fault {
			return fault{dial: func(ctx context.Context, n *brokenNode, to transport.Target) (transport.Link, error) {
				if strings.HasSuffix(n.id.ClusterID, "2") {
					return nil, transport.Errorf(transport.ErrDenied, "a stranger")
				}
				return n.Transport.Dial(ctx, to)
			}}
		}},
		{name: "every lane is one", caughtBy: "target-invalid", says: "succeeded", fault: dialling(func(_ *brokenNode, to transport.Target) transport.Target {
			if to.Lane == 3 {
				to.Lane = transport.Data
			}
			return to
		}, nil)},
		{name: "who dials has proved nothing", caughtBy: "proof", says: "has proved none", fault: func() fault {
			return fault{peer: func(p transport.Peer, l *brokenLink) transport.Peer {
				if !l.dialled {
					p.Proof = transport.ProofNone
				}
				return p
			}}
		}},
		{name: "everybody is believed", caughtBy: "denied", says: "succeeded", aim: func(_ *testing.T, target *transporttest.Target, _ *memnet.Network) {
			target.Outsider = target.Open
		}},
		{name: "who is denied tries again", caughtBy: "denied", says: "want class", fault: dialling(nil, instead(transport.ErrDenied, transport.ErrRetry))},
		{name: "every name is believed", caughtBy: "impostor", says: "succeeded", fault: func() fault {
			return fault{
				capabilities: func(has transport.Capabilities) transport.Capabilities { has.Proof = transport.ProofNode; return has },
				peer:         func(p transport.Peer, _ *brokenLink) transport.Peer { p.Proof = transport.ProofNode; return p },
			}
		}, aim: func(_ *testing.T, target *transporttest.Target, _ *memnet.Network) { target.Impostor = target.Open }},
	}
}

// listener is what a node of the memory network answers to strangers.
type listener struct {
	t *testing.T
	// answer talks to a stranger until stop.
	answer func(n *brokenNode, conn net.Conn, stop <-chan struct{})
	keep   bool // connections that are open when the node is closed

	mu    sync.Mutex
	nodes map[string]*brokenNode
	conns map[*brokenNode][]net.Conn
	group sync.WaitGroup
}

// listen lets strangers connect to the target's nodes.
func listen(t *testing.T, target *transporttest.Target, l *listener) {
	l.t, l.nodes, l.conns = t, map[string]*brokenNode{}, map[*brokenNode][]net.Conn{}
	stop := make(chan struct{})
	t.Cleanup(func() {
		close(stop)
		for _, conns := range l.conns {
			for _, conn := range conns {
				conn.Close()
			}
		}
		l.group.Wait()
	})
	open := target.Open
	target.Open = func(ctx context.Context, id transport.Identity) (transport.Transport, error) {
		opened, err := open(ctx, id)
		if err != nil {
			return nil, err
		}
		n := opened.(*brokenNode)
		n.fault.close = func(n *brokenNode) error {
			if !l.keep {
				l.mu.Lock()
				for _, conn := range l.conns[n] {
					conn.Close()
				}
				l.mu.Unlock()
			}
			return n.Transport.Close()
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.nodes[n.Endpoint()] = n
		return n, nil
	}
	target.Stranger = func(_ context.Context, endpoint string) (net.Conn, error) {
		near, far := net.Pipe()
		l.mu.Lock()
		defer l.mu.Unlock()
		n := l.nodes[endpoint]
		l.conns[n] = append(l.conns[n], far)
		l.group.Go(func() { l.answer(n, far, stop) })
		return near, nil
	}
}

// shut reads what a transport holds of what is not authenticated, and hangs up.
func shut(_ *brokenNode, conn net.Conn, _ <-chan struct{}) {
	defer conn.Close()
	_, _ = io.CopyN(io.Discard, conn, 64<<10)
}

func brokenStrangers() []broken {
	aim := func(l func() *listener) func(*testing.T, *transporttest.Target, *memnet.Network) {
		return func(t *testing.T, target *transporttest.Target, _ *memnet.Network) { listen(t, target, l()) }
	}
	return []broken{
		{name: "garbage ends links", caughtBy: "stranger-garbage", says: "closed", aim: aim(func() *listener {
			return &listener{answer: func(n *brokenNode, conn net.Conn, stop <-chan struct{}) {
				for _, l := range n.all() {
					l.Link.Close()
				}
				shut(n, conn, stop)
			}}
		})},
		{name: "strangers fill memory", caughtBy: "stranger-memory", says: "strangers have sent", aim: aim(func() *listener {
			return &listener{answer: func(n *brokenNode, conn net.Conn, stop <-chan struct{}) {
				var said bytes.Buffer
				_, _ = io.CopyN(&said, conn, 1<<20)
				<-stop // it is waited for the rest
				said.Reset()
			}}
		})},
		{name: "a length is believed", caughtBy: "stranger-memory", says: "strangers have sent", aim: aim(func() *listener {
			return &listener{answer: func(n *brokenNode, conn net.Conn, stop <-chan struct{}) {
				var head [4]byte
				_, _ = io.ReadFull(conn, head[:])
				said := make([]byte, int(head[1])<<16|int(head[2])<<8)
				_, _ = io.CopyN(io.Discard, conn, 64<<10)
				<-stop
				clear(said)
			}}
		})},
		{name: "strangers are waited for", caughtBy: "stranger-silent", says: "dial beside", fault: func() fault {
			return fault{dial: func(ctx context.Context, n *brokenNode, to transport.Target) (transport.Link, error) {
				if to.Lane == transport.Control {
					return nil, hang(ctx)
				}
				return n.Transport.Dial(ctx, to)
			}}
		}, aim: aim(func() *listener { return &listener{answer: shut} })},
		{name: "strangers stay after Close", caughtBy: "stranger-silent", says: "connection is open", aim: aim(func() *listener {
			return &listener{answer: shut, keep: true}
		})},
	}
}

// TestStrangersWhoAreShutOut: the cases of strangers pass where nothing is wrong.
func TestStrangersWhoAreShutOut(t *testing.T) {
	fine := broken{aim: func(t *testing.T, target *transporttest.Target, _ *memnet.Network) {
		listen(t, target, &listener{answer: shut})
	}}
	report := transporttest.Check(t.Context(), fine.target(t), transporttest.Options{
		Filter:   func(name string) bool { return needs(t, name).Stranger },
		Patience: 10 * time.Second,
	})
	if n := report.Count(transporttest.Passed); n != 3 {
		t.Fatalf("%d cases of 3 pass: %+v", n, report.Results)
	}
}
