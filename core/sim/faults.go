package sim

import (
	"time"

	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// faults decides what goes wrong, while it is on.
type faults struct {
	w      *world
	on     bool
	stall  bool // calls of the store take seconds
	oneIn  int  // operations fail, while on
	report *Report
	// armed waits for a step of an append, to happen in the midst of one.
	armed func()
}

// arm makes something happen right after some step of an append, or in a while
// if there is none.
func (f *faults) arm(happen func()) {
	once := func() {
		if happen != nil {
			now := happen
			happen, f.armed = nil, nil
			if f.on {
				now()
			}
		}
	}
	f.armed = once
	f.w.after(300*time.Millisecond, once)
}

// stepped: an append has had its effect, or its completion.
func (f *faults) stepped() {
	if f.armed != nil && f.w.chance(2) {
		f.w.after(0, f.armed)
	}
}

// storeDelay is how long a call waits before it reaches the store.
func (f *faults) storeDelay() time.Duration {
	if f.on && f.stall && f.w.chance(4) {
		return f.w.between(time.Second, 6*time.Second)
	}
	return f.w.between(0, 500*time.Microsecond)
}

// diskDelay is how long a step of an append takes in the store.
func (f *faults) diskDelay() time.Duration {
	if f.on && f.stall && f.w.chance(10) {
		return f.w.between(time.Second, 4*time.Second)
	}
	return f.w.between(0, 800*time.Microsecond)
}

// beforeClasses and afterClasses are what may go wrong before an operation has
// had an effect, and after.
var (
	beforeClasses = []error{storage.ErrRetry, storage.ErrGone, storage.ErrUnknown}
	afterClasses  = []error{storage.ErrGone, storage.ErrUnknown}
)

func (f *faults) before(op memstore.Op) error {
	if !f.on || !f.w.chance(f.oneIn) {
		return nil
	}
	f.report.Failed++
	class := beforeClasses[f.w.rand.IntN(len(beforeClasses))]
	if op.Kind == memstore.OpAppend && f.w.chance(3) {
		class = storage.ErrFull
	}
	f.w.note("store fails before %d: %v", op.Kind, class)
	return storage.Errorf(class, "injected")
}

func (f *faults) after(op memstore.Op) error {
	if !f.on || !f.w.chance(f.oneIn) {
		return nil
	}
	f.report.Failed++
	class := afterClasses[f.w.rand.IntN(len(afterClasses))]
	f.w.note("store fails after %d: %v", op.Kind, class)
	return storage.Errorf(class, "injected")
}
