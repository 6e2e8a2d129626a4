package partition

import "github.com/brokerd/brokerd/core/model"

// Behind tells of each follower that this leader has accepted how many records it has still
// to acknowledge.
func (m *Machine) Behind(tell func(node model.NodeID, records int64)) {
	if m.role != roleLeader {
		return
	}
	for i := range m.followers {
		if f := &m.followers[i]; f.live {
			tell(f.node, max(0, m.stored-f.acked))
		}
	}
}
