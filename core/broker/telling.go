package broker

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/peer"
	"github.com/brokerd/brokerd/core/telemetry"
)

// lagWait bounds how long metrics wait for how far followers are.
const lagWait = time.Second

// telling is what metrics tell of this broker's part in its cluster.
type telling struct {
	node   model.NodeID
	static map[string]string // as in image.TopicConfig

	mu      sync.Mutex
	img     *image.Image // that counted is of
	counted countedImage
}

// countedImage is what an image says of partitions.
type countedImage struct {
	led        telemetry.Partitions // by this broker
	leaderless int                  // of those with a replica here
	all        telemetry.Controller
}

// of counts an image, once.
func (c *telling) of(img *image.Image) countedImage {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.img != img {
		c.img, c.counted = img, countImage(img, c.node, c.static)
	}
	return c.counted
}

func countImage(img *image.Image, node model.NodeID, static map[string]string) countedImage {
	var n countedImage
	minISR := img.MinISR(static)
	for t := range img.Topics() {
		for i := range t.Partitions {
			n.count(t, &t.Partitions[i], node, minISR)
		}
	}
	for b := range img.Brokers() {
		n.all.Brokers++
		if b.Fenced {
			n.all.Fenced++
		}
	}
	return n
}

func (n *countedImage) count(t *image.Topic, p *image.Partition, node model.NodeID, minISR func(*image.Topic, *image.Partition) int) {
	under := underReplicated(p)
	below := len(p.ISR) < minISR(t, p)
	add := func(to *telemetry.Partitions) {
		to.All++
		if under {
			to.UnderReplicated++
		}
		if below {
			to.UnderMinISR++
		}
	}
	add(&n.all.Partitions)
	switch p.Leader {
	case node:
		add(&n.led)
	case model.NoNode:
		n.all.Leaderless++
		if slices.Contains(p.Replicas, node) {
			n.leaderless++
		}
	}
	if t.BelowTarget(p) {
		n.all.BelowTarget++
	}
	if p.Raised {
		n.all.Raised++
	}
	if p.Loss != nil {
		n.all.Lossy++
		n.all.LastLossSeconds = max(n.all.LastLossSeconds, float64(p.Loss.At)/1000)
	}
}

// underReplicated reports whether a replica is not in sync, those left out that a
// reassignment adds.
func underReplicated(p *image.Partition) bool {
	return slices.ContainsFunc(p.Replicas, func(r model.NodeID) bool {
		return !slices.Contains(p.ISR, r) && !slices.Contains(p.Adding, r)
	})
}

// brokerLabel names a broker in metrics.
func brokerLabel(id model.NodeID) string { return strconv.Itoa(int(id)) }

// cluster is this broker's part in its cluster, as metrics.
func (b *Broker) cluster() telemetry.Cluster {
	now := b.now.Load()
	c := telemetry.Cluster{Fenced: true}
	if now.quorum == nil {
		return c
	}
	img, id := now.quorum.Image(), now.quorum.Identity().NodeID
	if self, ok := img.Broker(id); ok {
		c.Fenced = self.Fenced
	}
	counted := b.telling.of(img)
	c.Led, c.Leaderless = counted.led, counted.leaderless
	p := now.quorum.Progress()
	c.Quorum = telemetry.Quorum{
		Open: true, Active: p.Leads, Voter: p.Voter, Leader: p.Leader != model.NoNode, Term: p.Term, End: p.End, Committed: p.Committed, Applied: p.Applied,
	}
	c.Decided = telemetry.Decided(now.quorum.Counts())
	if s, err := now.quorum.Status(); err == nil {
		c.Controller = &counted.all
		c.Members = membersTold(s, b.deps.Clock.Now())
	}
	if now.replicas != nil {
		c.LeaseOver = now.replicas.LeaseOver()
		c.Peers = b.peers(img, id)
	}
	return c
}

// membersTold are the others of the quorum, as its leader sees them at a time.
func membersTold(s model.QuorumStatus, now time.Time) []telemetry.Member {
	var out []telemetry.Member
	var end int64 // of the leader
	for _, m := range s.Voters {
		if m.ID == s.Leader {
			end = m.LEO
		}
	}
	seen := map[model.NodeID]int{}
	for _, m := range slices.Concat(s.Voters, s.Observers) {
		if m.ID == s.Leader {
			continue
		}
		one := telemetry.Member{Broker: brokerLabel(m.ID), Lag: max(0, end-m.LEO), SilentSeconds: -1}
		if !m.LastContact.IsZero() {
			one.SilentSeconds = max(0, now.Sub(m.LastContact).Seconds())
		}
		// A node that has lost its directory is two members until the first is forgotten: the one
		// that was heard of counts.
		at, twice := seen[m.ID]
		switch {
		case !twice:
			seen[m.ID] = len(out)
			out = append(out, one)
		case out[at].SilentSeconds < 0 || one.SilentSeconds >= 0 && one.SilentSeconds < out[at].SilentSeconds:
			out[at] = one
		}
	}
	return out
}

// peers are the other brokers that are registered.
func (b *Broker) peers(img *image.Image, self model.NodeID) []telemetry.Peer {
	now := b.now.Load()
	ctx, cancel := context.WithTimeout(context.Background(), lagWait)
	defer cancel()
	traffic := now.replicas.Peers(ctx)
	var unreached []model.NodeID
	if now.links != nil {
		unreached = now.links.Unreached()
	}
	var out []telemetry.Peer
	for other := range img.Brokers() {
		if other.ID == self {
			continue
		}
		p := telemetry.Peer{Broker: brokerLabel(other.ID), Unreached: slices.Contains(unreached, other.ID)}
		for _, t := range traffic {
			if t.Node == other.ID {
				p.Sent, p.Received, p.Lag, p.LagMax = t.Sent, t.Received, t.Lag, t.LagMax
			}
		}
		out = append(out, p)
	}
	return out
}

// beginPeers makes what is counted of other brokers appear.
func (b *Broker) beginPeers() {
	node := b.now.Load().quorum
	if node == nil {
		return
	}
	for other := range node.Image().Brokers() {
		if other.ID != node.Identity().NodeID {
			b.metrics.Peers().Begin(brokerLabel(other.ID))
		}
	}
}

// countLinks counts what is found out about links with other brokers.
func countLinks(counts telemetry.Peers, e peer.Event) {
	to := brokerLabel(e.Address.Node)
	switch {
	case e.Kind == peer.Rejected:
		if !errors.Is(e.Err, peer.ErrSelf) {
			counts.Rejected()
		}
	case e.Address.Node == model.NoNode: // it is not known whom that would be
	case e.Kind == peer.Reached:
		counts.Made(to)
	case e.Kind == peer.Lost:
		counts.Lost(to)
	case e.Kind == peer.Refused, e.Kind == peer.Unreached:
		counts.Unreached(to)
	}
}
