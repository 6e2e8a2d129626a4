package peer

import (
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// unreachedFor is how long a dial that has failed counts. While there is something for a
// node, it is dialled more often.
const unreachedFor = 10 * time.Second

// Unreached are the nodes to which a dial has failed of late, and none has come to a link
// since, in order.
func (m *Machine) Unreached(now time.Time) []model.NodeID {
	var out []model.NodeID
	for _, t := range m.targets {
		if t.node != model.NoNode && !t.failedAt.IsZero() && now.Sub(t.failedAt) < unreachedFor {
			out = append(out, t.node)
		}
	}
	slices.Sort(out)
	return out
}

// Unreached is the Machine's.
func (x *Links) Unreached() []model.NodeID {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.machine.Unreached(x.deps.Clock.Now())
}
