package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/transport"
)

// wires carry messages between nodes of one process, at once and on goroutines of their own.
type wires struct {
	mu    sync.Mutex
	nodes map[string]*Node
}

func (w *wires) at(endpoint string) *Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[endpoint]
}

func (w *wires) set(endpoint string, n *Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[endpoint] = n
}

func (w *wires) Post(to Address, message []byte, _ bool) {
	if n := w.at(to.Endpoint); n != nil {
		go func() { _ = n.Receive(message) }()
	}
}

func (w *wires) Ask(to Address, question []byte, timeout time.Duration, done func([]byte, error)) {
	n := w.at(to.Endpoint)
	if n == nil {
		done(nil, transport.Errorf(transport.ErrRefused, "nobody is there"))
		return
	}
	var once sync.Once
	timer := time.AfterFunc(timeout, func() { once.Do(func() { done(nil, errors.New("no answer")) }) })
	go n.Question(question, func(answer []byte) {
		timer.Stop()
		go once.Do(func() { done(answer, nil) })
	})
}

// Three nodes as they run in production, each on its own goroutine and quorum.db: commands
// are served by every one of them, and while they are stopped and started in turn.
func TestThreeNodesRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wires{nodes: map[string]*Node{}}
		var stops [3]func()
		var cluster model.ClusterID
		run := func(i int, cfg Config) *Node {
			cfg.NodeID, cfg.Endpoint, cfg.Seeds = model.NodeID(i+1), fmt.Sprint("host-", i), []string{"host-0", "host-1", "host-2"}
			n, err := Open(cfg, Deps{Peers: w})
			if err != nil {
				t.Fatal(err)
			}
			w.set(cfg.Endpoint, n)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- n.Run(ctx) }()
			stops[i] = func() {
				began := time.Now()
				cancel()
				if err := errors.Join(<-done, n.Close()); err != nil {
					t.Error(err)
				}
				w.set(cfg.Endpoint, nil)
				if took := time.Since(began); took > time.Second {
					t.Errorf("the end of node %d took %v", i+1, took)
				}
			}
			return n
		}
		var cfgs [3]Config
		var nodes [3]*Node
		for i := range 3 {
			cfgs[i] = testConfig(t)
			cfgs[i].Bootstrap = i == 0
			if cfgs[i].Verdict = (Verdict{Create: true}); i > 0 {
				cfgs[i].Verdict = Verdict{Join: cluster, Seed: "host-0"}
			}
			nodes[i] = run(i, cfgs[i])
			cluster = nodes[0].Identity().ClusterID
		}
		register(t, nodes[2])
		time.Sleep(5 * time.Second)
		for round := range 6 {
			i := round % 3
			stops[i]()
			for j := range 3 {
				if j != i {
					createTopic(t, nodes[j], fmt.Sprintf("t%d-%d", round, j))
				}
			}
			nodes[i] = run(i, cfgs[i])
			time.Sleep(3 * time.Second)
			if nodes[i].Leader() == model.NoNode || nodes[i].Image().TopicCount() != 2*(round+1) {
				t.Errorf("node %d came back to leader %d and %d topics", i+1, nodes[i].Leader(), nodes[i].Image().TopicCount())
			}
		}
		for i, n := range nodes {
			s, err := n.Describe(soon(t))
			if err != nil || len(s.Voters) != 3 || s.Leader != n.Leader() || s.HighWatermark <= n.Image().Offset {
				t.Errorf("node %d: the quorum is %+v, %v", i+1, s, err)
			}
			for _, v := range s.Voters {
				if v.ID != s.Leader && time.Since(v.LastContact) > time.Second {
					t.Errorf("voter %d was heard from at %v, it is %v", v.ID, v.LastContact, time.Now())
				}
			}
		}
		for _, stop := range stops {
			stop()
		}
	})
}

// What a peer sends is an error at worst.
func FuzzPeers(f *testing.F) {
	a, err := Open(Config{Dir: f.TempDir(), NodeID: 1, Bootstrap: true, Reserve: 1}, Deps{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = a.Close() })
	now := time.Unix(1, 0)
	a.Loop().Turn(now)
	f.Add(a.vote(a, 5))
	f.Add(header(kindWho, a.self()))
	f.Add(append(header(kindMember, a.self()), (&memberChange{how: memberAnnounced, member: a.asMember()}).encode()...))
	f.Add(append(header(kindCommand, a.self()), `1{"AllocateProducerIDs":{}}`...))
	f.Add(notLeader(Address{Endpoint: "x", Node: 1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = decodeAnswer(b)
		_ = a.Receive(b)
		replies := 0
		a.Question(b, func([]byte) { replies++ })
		a.Loop().Turn(now)
		if ended, err := a.Ended(); ended && !errors.Is(err, ErrDamaged) {
			t.Errorf("it ended: %v", err)
		}
		if replies > 1 {
			t.Errorf("%d answers", replies)
		}
	})
}
