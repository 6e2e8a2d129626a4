package check

import (
	"fmt"
	"slices"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// Unsettled says what is not as it should be some time after faults have ended, or "": each
// node is registered and not fenced, every partition has a leader, no reassignment is under
// way, and all replicas are in sync.
func Unsettled(img *image.Image, nodes []model.NodeID) string {
	for _, n := range nodes {
		if b, ok := img.Broker(n); !ok {
			return fmt.Sprintf("broker %d is not registered", n)
		} else if b.Fenced {
			return fmt.Sprintf("broker %d is fenced", n)
		}
	}
	for t := range img.Topics() {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			if p.Leader == model.NoNode {
				return fmt.Sprintf("partition %s-%d has no leader", t.Name, i)
			}
			if len(p.Adding)+len(p.Removing) > 0 {
				return fmt.Sprintf("partition %s-%d is still to get replicas %v and to lose %v", t.Name, i, p.Adding, p.Removing)
			}
			for _, n := range p.Replicas {
				if slices.Contains(nodes, n) && !slices.Contains(p.ISR, n) {
					return fmt.Sprintf("replica %d of partition %s-%d is not in sync", n, t.Name, i)
				}
			}
		}
	}
	return ""
}
