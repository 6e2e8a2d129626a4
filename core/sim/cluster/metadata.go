package cluster

import (
	"errors"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/quorum"
	"github.com/brokerd/brokerd/core/sim/world"
	"github.com/brokerd/brokerd/sdk/transport"
)

// finding is the loop of a node that has no metadata yet: it asks who has.
type finding struct {
	n *node
	f *quorum.Finder
}

// metadata is the loop of a node's part in the quorum.
type metadata struct{ n *node }

var (
	_ world.Loop = (*finding)(nil)
	_ world.Loop = (*metadata)(nil)
)

// startMetadata begins the node's part in the quorum, or looks for one.
func (n *node) startMetadata() error {
	n.quorum, n.finder = nil, nil
	n.links.posted = func(_ transport.Peer, message []byte) {
		if n.quorum != nil {
			if err := n.quorum.Receive(message); err != nil {
				n.c.check.Violate("node %d cannot read a message of the quorum: %v", n.id, err)
			}
		}
	}
	n.links.asked = func(_ transport.Peer, question []byte, answer func([]byte)) {
		switch {
		case n.quorum != nil:
			n.quorum.Question(question, answer)
		case n.finder != nil:
			n.finder.Question(question, answer)
		}
	}
	if n.quorumDisk.stored != nil || len(n.c.nodes) == 1 { // or there is nobody to ask
		return n.startQuorum(quorum.Verdict{})
	}
	f, err := quorum.NewFinder(n.quorumConfig(), n.quorumDeps())
	if err != nil {
		return fmt.Errorf("look for a cluster: %w", err)
	}
	n.finder = f
	n.loops.Add(&finding{n: n, f: f})
	return nil
}

func (n *node) quorumConfig() quorum.Config {
	cfg := quorum.Config{
		Dir: "simulated", NodeID: n.id, ClusterID: clusterID, Bootstrap: n.id == 1, Endpoint: n.endpoint,
		SnapshotEntries: n.c.opts.SnapshotEntries,
		Controller: controller.Config{
			RebalanceEvery: n.c.opts.RebalanceEvery, RaisesMax: raisesMax, RaiseAfter: n.c.opts.RaiseAfter, RaiseAway: n.c.opts.RaiseAway,
		},
	}
	for _, o := range n.c.nodes {
		cfg.Seeds = append(cfg.Seeds, o.endpoint)
	}
	return cfg
}

func (n *node) quorumDeps() quorum.Deps {
	return quorum.Deps{
		Logger: n.logger(), Clock: n, Rand: randomReader{n.c}, Disk: &openDisk{d: n.quorumDisk, life: n.life}, Peers: n.links,
	}
}

func (n *node) startQuorum(v quorum.Verdict) error {
	cfg := n.quorumConfig()
	cfg.Verdict = v
	q, err := quorum.Open(cfg, n.quorumDeps())
	if err != nil {
		return fmt.Errorf("open the quorum: %w", err)
	}
	n.quorum = q
	l := n.life
	q.OnImage(func(img *image.Image) {
		if !l.over { // otherwise it has died in a save
			n.published(img)
		}
	})
	n.loops.Add(&metadata{n: n})
	return nil
}

// over: a quorum was found, and what is answered later is of no use.
func (f *finding) over() bool { return f.n.quorum != nil }

// Pending implements world.Loop.
func (f *finding) Pending() int {
	if f.over() {
		return 0
	}
	return f.f.Loop().Pending()
}

// Deadline implements world.Loop.
func (f *finding) Deadline() (time.Time, bool) {
	if f.over() {
		return time.Time{}, false
	}
	return f.f.Loop().Deadline()
}

// Turn implements world.Loop.
func (f *finding) Turn(now time.Time) {
	n := f.n
	if f.over() {
		return
	}
	f.f.Loop().Turn(now)
	v, ok := f.f.Verdict()
	if !ok {
		return
	}
	n.c.w.Note("node %d joins %q, creates %v", n.id, v.Join, v.Create)
	if err := n.startQuorum(v); err != nil {
		n.c.check.Violate("node %d does not start: %v", n.id, err)
	}
}

// Pending implements world.Loop.
func (m *metadata) Pending() int { return m.n.quorum.Loop().Pending() }

// Deadline implements world.Loop.
func (m *metadata) Deadline() (time.Time, bool) { return m.n.quorum.Loop().Deadline() }

// Turn implements world.Loop.
func (m *metadata) Turn(now time.Time) {
	m.n.quorum.Loop().Turn(now)
	switch ended, err := m.n.quorum.Ended(); {
	case !ended || m.n.life.over:
	case m.n.isGone() && errors.Is(err, quorum.ErrRemoved):
		m.n.c.returned(m.n)
	default:
		m.n.c.check.Violate("the quorum of node %d has ended: %v", m.n.id, err)
	}
}

// command has the active controller decide something, asked at this node.
func (n *node) command(op controller.Op, done func(controller.Answer)) { n.Start(op, nil, done) }

// Start implements membership.Commander.
func (n *node) Start(op controller.Op, gone <-chan struct{}, done func(controller.Answer)) {
	if n.quorum == nil {
		done(controller.Answer{Err: model.ErrNotController})
		return
	}
	n.touched = true
	l, answered := n.life, false
	n.quorum.Start(op, gone, func(a controller.Answer) {
		if l.over {
			return
		}
		if answered {
			n.c.check.Violate("a command of node %d was answered twice", n.id)
		}
		answered = true
		done(a)
	})
}

// makeTopic asks some node to make a topic, again and again until one has.
func (c *cluster) makeTopic(topic model.NewTopic, made func(model.TopicID)) {
	done := false
	c.making++
	has := func(id model.TopicID) {
		if !done {
			done = true
			c.making--
			c.check.TopicMade(topic.Name, id)
			made(id)
		}
	}
	var try func()
	try = func() {
		if done {
			return
		}
		c.w.After(c.w.Between(500*time.Millisecond, 2*time.Second), try)
		n := c.someNode()
		if n == nil || n.img == nil {
			return
		}
		n.command(controller.CreateTopics{Topics: []model.NewTopic{topic}}, func(a controller.Answer) {
			switch t, known := n.img.TopicByName(topic.Name); {
			case a.Err != nil || len(a.Topics) != 1:
				c.w.Note("topic %s is not made: %v", topic.Name, a.Err)
			case a.Topics[0].Err == nil:
				has(a.Topics[0].ID)
			case errors.Is(a.Topics[0].Err, model.ErrTopicExists) && known: // an answer was lost
				has(t.ID)
			default:
				c.w.Note("topic %s is not made: %v", topic.Name, a.Topics[0].Err)
			}
		})
	}
	try()
}

// unvoted says what is wrong with the voters of the quorum, or "".
func (c *cluster) unvoted() string {
	for _, n := range c.nodes {
		if !n.up() || n.quorum == nil || !n.quorum.Leading() {
			continue
		}
		s, err := n.quorum.Status()
		if err != nil {
			continue
		}
		want := 1
		if len(c.nodes) >= votersTarget {
			want = votersTarget
		}
		if len(s.Voters) != want {
			return fmt.Sprintf("the quorum has %d voters", len(s.Voters))
		}
		for _, v := range s.Voters {
			if at := c.node(v.ID); at == nil || at.quorum == nil || at.quorum.Identity().DirectoryID != v.Directory {
				return fmt.Sprintf("the quorum has voter %d of a directory that is no more", v.ID)
			}
		}
		return ""
	}
	return "the quorum has no leader"
}

const votersTarget = 3
