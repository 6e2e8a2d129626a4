package quorum

import (
	"testing"
	"time"
)

// Three nodes that start together become a cluster of three voters.
func TestThreeNodes(t *testing.T) {
	w := newWorld(t, 1, 3, nil)
	for _, s := range w.sites {
		s.start()
	}
	w.until(5*time.Second, func() bool { return w.leader() != nil })
	w.register()
	w.settle(3)

}
