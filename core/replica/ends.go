package replica

import (
	"maps"
	"slices"

	"github.com/brokerd/brokerd/core/model"
)

// LogEnds says where logs end, in the order of the partitions, without those that are not
// here or not open now. It asks no store, and may be called concurrently.
func (m *Manager) LogEnds(ps []model.Partition) []model.LogEnd {
	var out []model.LogEnd
	replicas := *m.replicas.Load()
	for _, p := range ps {
		r, ok := replicas[p]
		if !ok {
			continue
		}
		if end, ok := r.view.Load().LogEnd(); ok {
			out = append(out, end)
		}
	}
	return out
}

// Replicas describes all replicas of this broker, but for their bytes. It asks no store, and
// may be called concurrently.
func (m *Manager) Replicas() []model.ReplicaStatus {
	return statuses(slices.Collect(maps.Values(*m.replicas.Load())), nil)
}
