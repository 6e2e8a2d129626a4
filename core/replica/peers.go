package replica

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/brokerd/brokerd/core/model"
)

// PeerStatus is what goes between this broker and another one.
type PeerStatus struct {
	Node model.NodeID
	// Sent and Received are bytes of messages with batches, since the manager was made.
	Sent, Received int64
	// Lag is how many records the followers there have still to acknowledge of what this
	// broker leads, and LagMax of the partition in which it is most. Those without a stream
	// are not counted.
	Lag, LagMax int64
}

// traffic is what streams with a node have carried, those that are down too.
type traffic struct{ sent, received atomic.Int64 }

// trafficWith is that of a node.
func (m *Manager) trafficWith(node model.NodeID) *traffic {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.traffic[node]
	if t == nil {
		t = &traffic{}
		m.traffic[node] = t
	}
	return t
}

// lagQuery is how far followers are behind, from each shard once.
type lagQuery struct {
	answers chan map[model.NodeID]PeerStatus // room for all: no shard waits
}

// Peers is the nodes with which there ever was a stream, in order. It waits for the shards
// until ctx ends; what they have not told by then is left out.
func (m *Manager) Peers(ctx context.Context) []PeerStatus {
	q := &lagQuery{answers: make(chan map[model.NodeID]PeerStatus, len(m.shards))}
	asked := 0
	for _, s := range m.shards {
		if s.loop.Complete(Input{kind: inputLag, rare: &rare{lag: q}}) {
			asked++
		}
	}
	all := map[model.NodeID]PeerStatus{}
	for more := true; more && asked > 0; asked-- {
		select {
		case answer := <-q.answers:
			for node, p := range answer {
				all[node] = all[node].and(p)
			}
		case <-ctx.Done():
			more = false
		}
	}
	m.mu.Lock()
	for node, t := range m.traffic {
		p := all[node]
		p.Sent, p.Received = t.sent.Load(), t.received.Load()
		all[node] = p
	}
	m.mu.Unlock()
	out := make([]PeerStatus, 0, len(all))
	for _, node := range slices.Sorted(maps.Keys(all)) {
		p := all[node]
		p.Node = node
		out = append(out, p)
	}
	return out
}

// and is the lag of both.
func (p PeerStatus) and(o PeerStatus) PeerStatus {
	p.Lag += o.Lag
	p.LagMax = max(p.LagMax, o.LagMax)
	return p
}

// lags is how far each node's followers are behind in this shard.
func (s *Shard) lags() map[model.NodeID]PeerStatus {
	out := map[model.NodeID]PeerStatus{}
	for _, r := range s.replicas {
		if r.machine == nil || r.deleting {
			continue
		}
		r.machine.Behind(func(node model.NodeID, records int64) {
			out[node] = out[node].and(PeerStatus{Lag: records, LagMax: records})
		})
	}
	return out
}

// LeaseOver reports whether the active controller has not answered for this broker for so
// long that others may lead by now.
func (m *Manager) LeaseOver() bool { return m.lapsed(m.deps.Clock.Now()) }
