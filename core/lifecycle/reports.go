package lifecycle

import (
	"slices"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// Reports are the partitions of which a broker is to say how long its logs are, with each
// heartbeat: nobody leads them, all that were in sync may have lost something since, and
// this broker was one of them. (KIP-966)
func Reports(img *image.Image, node model.NodeID) []model.Partition {
	var out []model.Partition
	for t := range img.Topics() {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			if p.Leader == model.NoNode && len(p.ISR) == 0 && len(p.ELR) == 0 && slices.Contains(p.LastKnownELR, node) {
				out = append(out, model.Partition{Topic: t.ID, Index: int32(i)})
			}
		}
	}
	return out
}
