package quorum

import (
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/controller"
)

// A leader that was paused for so long that others may have elected another gives no broker its
// lease before a majority has said that it leads still.
func TestALeaderThatWasPausedAsksFirst(t *testing.T) {
	w := grown(t, 1, 3, 3, nil)
	leader := w.leader()
	b, _ := leader.node.Image().Broker(1)
	beat := controller.Heartbeat{Broker: b.ID, Epoch: b.Epoch, Offset: leader.node.Image().Offset}
	for _, tc := range []struct {
		pause time.Duration
		first bool
	}{{300 * time.Millisecond, false}, {5 * time.Second, true}} {
		w.cut(leader)
		leader.paused = w.now.Add(tc.pause)
		w.run(tc.pause)
		answers := 0
		leader.node.Start(beat, nil, func(a controller.Answer) {
			if answers++; a.Err != nil {
				w.failf("after a pause of %v: %v", tc.pause, a.Err)
			}
		})
		leader.turn()
		if asks := answers == 0; asks != tc.first {
			w.failf("after a pause of %v it asks first: %v", tc.pause, asks)
		}
		if w.run(5 * time.Second); tc.first && answers > 0 {
			w.failf("answered by one that others do not hear")
		}
		clear(w.cuts)
		if !w.until(20*time.Second, func() bool { return answers == 1 && w.leader() != nil }) {
			w.failf("%d answers", answers)
		}
		leader = w.leader()
	}
	w.settle(3)
}
