package world

import (
	"time"

	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// Faults decides what goes wrong, while it is on.
type Faults struct {
	W      *World
	On     bool
	Stall  bool // calls of the store take seconds
	OneIn  int  // operations fail, while on
	Failed int  // operations
	// Call is the longest wait of a call before it reaches the store, where none stalls.
	// Zero: half a millisecond.
	Call time.Duration
	// armed waits for a step of an append, to happen in the midst of one.
	armed func()
}

// Arm makes something happen right after some step of an append, or in a while
// if there is none.
func (f *Faults) Arm(happen func()) {
	once := func() {
		if happen != nil {
			now := happen
			happen, f.armed = nil, nil
			if f.On {
				now()
			}
		}
	}
	f.armed = once
	f.W.After(300*time.Millisecond, once)
}

// Stepped tells that an append has had its effect, or its completion.
func (f *Faults) Stepped() {
	if f.armed != nil && f.W.Chance(2) {
		f.W.After(0, f.armed)
	}
}

// StoreDelay is how long a call waits before it reaches the store.
func (f *Faults) StoreDelay() time.Duration {
	if f.On && f.Stall && f.W.Chance(4) {
		return f.W.Between(time.Second, 6*time.Second)
	}
	if f.On && f.Call > 0 {
		return f.W.Between(0, f.Call)
	}
	return f.W.Between(0, 500*time.Microsecond)
}

// DiskDelay is how long a step of an append takes in the store.
func (f *Faults) DiskDelay() time.Duration {
	if f.On && f.Stall && f.W.Chance(10) {
		return f.W.Between(time.Second, 4*time.Second)
	}
	return f.W.Between(0, 800*time.Microsecond)
}

// beforeClasses and afterClasses are what may go wrong before an operation has
// had an effect, and after.
var (
	beforeClasses = []error{storage.ErrRetry, storage.ErrGone, storage.ErrUnknown}
	afterClasses  = []error{storage.ErrGone, storage.ErrUnknown}
)

// Before is for memstore.Options.
func (f *Faults) Before(op memstore.Op) error {
	if !f.On || !f.W.Chance(f.OneIn) {
		return nil
	}
	f.Failed++
	class := beforeClasses[f.W.Rand.IntN(len(beforeClasses))]
	if op.Kind == memstore.OpAppend && f.W.Chance(3) {
		class = storage.ErrFull
	}
	f.W.Note("store fails before %d: %v", op.Kind, class)
	return storage.Errorf(class, "injected")
}

// After is for memstore.Options.
func (f *Faults) After(op memstore.Op) error {
	if !f.On || !f.W.Chance(f.OneIn) {
		return nil
	}
	f.Failed++
	class := afterClasses[f.W.Rand.IntN(len(afterClasses))]
	f.W.Note("store fails after %d: %v", op.Kind, class)
	return storage.Errorf(class, "injected")
}
