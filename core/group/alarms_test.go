package group

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestAlarmsRingInTime compares the heap with a plain map: whatever is set, put off,
// brought forward or cancelled, each rings at its time and in order.
func TestAlarmsRingInTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var heap alarms
		all := make([]alarm, 8)
		due := map[*alarm]time.Time{}
		now := storyBegins
		for range rapid.IntRange(1, 200).Draw(t, "acts") {
			a := &all[rapid.IntRange(0, len(all)-1).Draw(t, "alarm")]
			switch rapid.IntRange(0, 3).Draw(t, "act") {
			case 0, 1:
				at := now.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "in")) * time.Second)
				heap.set(a, at)
				due[a] = at
			case 2:
				heap.cancel(a)
				delete(due, a)
			case 3:
				now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "pass")) * time.Second)
				for a := heap.next(now); a != nil; a = heap.next(now) {
					if at, ok := due[a]; !ok || at.After(now) {
						t.Fatalf("an alarm rings that is due at %v (%v)", at, ok)
					}
					delete(due, a)
				}
				for _, at := range due {
					if !at.After(now) {
						t.Fatal("an alarm did not ring")
					}
				}
			}
			first := time.Time{}
			for _, at := range due {
				if first.IsZero() || at.Before(first) {
					first = at
				}
			}
			// It may look too early, and never too late.
			if heap.first().IsZero() != first.IsZero() || heap.first().After(first) || len(heap) != len(due) {
				t.Fatalf("looks at %v, first due %v, %d of %d", heap.first(), first, len(heap), len(due))
			}
		}
	})
}
