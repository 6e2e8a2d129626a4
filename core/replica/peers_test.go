package replica

import (
	"context"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// peer is what a broker tells of another one.
func (f *fleet) peer(node, of model.NodeID) PeerStatus {
	for _, p := range f.brokers[node].Peers(f.t.Context()) {
		if p.Node == of {
			return p
		}
	}
	return PeerStatus{Node: of}
}

// A leader tells how far its followers are behind, whether they are in sync or not, and both
// what went between them.
func TestPeers(t *testing.T) {
	f := newFleet(t, 3, 2, func(c *Config) { c.Limits.AppendStall = time.Hour }) // what holds is no fault of the log
	f.produce(1, part(0), "first")
	if p := f.peer(2, 3); p != (PeerStatus{Node: 3}) {
		t.Errorf("two followers have nothing between them: %+v", p)
	}
	slow := f.stores[3]
	slow.hold.Store(true)
	for _, v := range []string{"a", "b", "c"} {
		f.produce(1, part(0), v)
	}
	f.produce(1, part(1), "d")
	if p := f.peer(1, 3); p.Lag != 4 || p.LagMax != 3 || p.Sent == 0 {
		t.Errorf("of the slow one: %+v", p)
	}
	f.eventually("the other one has all", func() bool { p := f.peer(1, 2); return p.Lag == 0 && p.LagMax == 0 && p.Sent > 0 })
	slow.letGo()
	f.eventually("the slow one has all, too", func() bool { return f.peer(1, 3).Lag == 0 })
	f.eventually("what was sent has arrived", func() bool {
		return f.peer(3, 1).Received == f.peer(1, 3).Sent && f.peer(2, 1).Received == f.peer(1, 2).Sent
	})
	if p := f.peer(3, 1); p.Sent != 0 || p.Lag != 0 {
		t.Errorf("who leads nothing sends nothing: %+v", p)
	}

	// Nobody waits for ever for shards that have nothing to say any more.
	over, cancel := context.WithCancel(t.Context())
	cancel()
	f.brokers[1].Peers(over)
}
