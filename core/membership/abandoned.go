package membership

import (
	"fmt"
	"slices"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// abandonedNamed is how many partitions are named of those that a broker leaves behind.
const abandonedNamed = 10

// abandoned are the partitions that nobody else leads when a broker has been let go: how
// many, and the names of the first of them.
func abandoned(img *image.Image, node model.NodeID) (count int, names []string) {
	for t := range img.Topics() {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			if !slices.Contains(p.Replicas, node) || p.Leader != node && p.Leader != model.NoNode {
				continue
			}
			if count++; count <= abandonedNamed {
				names = append(names, fmt.Sprintf("%s-%d", t.Name, i))
			}
		}
	}
	return count, names
}

// tellAbandoned says what this broker, which others have let go, leaves behind.
func (m *Member) tellAbandoned() {
	if count, names := abandoned(m.deps.Image(), m.node); count > 0 {
		m.log.Warn("nobody leads some partitions while this broker is away: no other replica of theirs is in sync",
			"broker", int(m.node), "count", count, "partitions", names)
		return
	}
	m.log.Info("others lead what this broker led", "broker", int(m.node))
}
