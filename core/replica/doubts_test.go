package replica

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// doubtKeeper counts what it is told.
type doubtKeeper struct {
	kept  atomic.Bool
	times atomic.Int32
	asked func() // before it keeps anything
}

func (k *doubtKeeper) Doubt() error {
	if k.asked != nil {
		k.asked()
	}
	k.kept.Store(true)
	k.times.Add(1)
	return nil
}

func (k *doubtKeeper) Settle() error { k.kept.Store(false); return nil }

// TestAFallIsKeptUntilItIsSettled: that a log went back is kept before anybody hears of it, be the
// broker told of its store's restart or not, and until it is not counted on or has all again.
func TestAFallIsKeptUntilItIsSettled(t *testing.T) {
	for _, told := range []bool{false, true} {
		t.Run(fmt.Sprint("told=", told), func(t *testing.T) {
			f := newFleet(t, 3, 1, func(cfg *Config) { cfg.Limits.LagMax = time.Hour })
			f.fill(numbered(20)...)
			keeper := &doubtKeeper{asked: func() {
				if leo := f.status(2).LEO; leo != 20 {
					t.Errorf("it says that its log ends at %d before it is kept that it went back", leo)
				}
			}}
			f.brokers[2].doubts.keeper = keeper
			for _, o := range f.nodes() {
				f.mesh.cut(2, o, true)
			}
			f.fall(2)
			if told {
				f.brokers[2].Restarted("main")
				if !keeper.kept.Load() {
					t.Error("its store was started again, and that is not kept")
				}
			} else {
				f.elect(part(0), 3) // which has it open the log
			}
			f.eventually("the log without what is lost", func() bool { return f.status(2).LEO < 20 })
			if !keeper.kept.Load() || f.brokers[2].doubts.count.Load() != 1 {
				t.Errorf("it is kept: %v, of %d logs", keeper.kept.Load(), f.brokers[2].doubts.count.Load())
			}
			for _, o := range f.nodes() {
				f.mesh.cut(2, o, false)
			}
			f.eventually("it is in sync again", func() bool { return slices.Contains(f.isr(part(0)), 2) && f.status(2).LEO == 20 })
			f.eventually("it is settled", func() bool { return !keeper.kept.Load() })
			if n := keeper.times.Load(); n != 1 {
				t.Errorf("it was kept %d times", n)
			}
		})
	}
}

// TestARestartThatLosesNothingIsSettled, once all logs are open again.
func TestARestartThatLosesNothingIsSettled(t *testing.T) {
	f := newFleet(t, 3, 1, nil)
	f.fill(numbered(3)...)
	keeper := &doubtKeeper{}
	f.brokers[2].doubts.keeper = keeper
	f.stores[2].kill()
	f.stores[2].start(t)
	f.brokers[2].Restarted("main")
	f.eventually("it is settled", func() bool { return keeper.times.Load() == 1 && !keeper.kept.Load() })
}
