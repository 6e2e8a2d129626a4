package replica

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// TestALogThatStartsWithinABatchIsFollowed by one that does not have that batch: it takes it
// whole, and starts where the leader's log does.
func TestALogThatStartsWithinABatchIsFollowed(t *testing.T) {
	for _, tail := range []int64{0, 1 << 20} {
		f := newFleet(t, 2, 1, func(c *Config) { c.TailBytes, c.Limits.LagMax = tail, 50*time.Millisecond })
		f.produce(1, part(0), "first")
		f.mesh.cut(2, 1, true)
		for i := range 4 {
			f.produce(1, part(0), fmt.Sprint(i, "a"), fmt.Sprint(i, "b"), fmt.Sprint(i, "c"), fmt.Sprint(i, "d"))
		}
		f.eventually("it is left out", func() bool { return len(f.isr(part(0))) == 1 })
		f.trim(7)
		f.mesh.cut(2, 1, false)
		f.eventually("it is back", func() bool { return len(f.isr(part(0))) == 2 })
		want := f.brokers[1].valuesFrom(part(0), 7)
		f.eventually("its log starts there too", func() bool { return (*f.brokers[2].replicas.Load())[part(0)].view.Load().LogStart == 7 })
		f.elect(part(0), 2)
		f.eventually("it leads", func() bool {
			got := f.brokers[2].fetchOne(part(0), 7, 0)
			return got.Err == nil && got.HighWatermark == 17
		})
		if got := f.brokers[2].valuesFrom(part(0), 7); !slices.Equal(got, want) || len(got) != 10 {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

func (f *fleet) trim(to int64) {
	f.t.Helper()
	if a := f.brokers[1].Trim(f.t.Context(), []model.TrimQuery{{Partition: part(0), Offset: to}})[0]; a.Err != nil || a.LowWatermark != to {
		f.t.Fatalf("trim: %+v", a)
	}
}
