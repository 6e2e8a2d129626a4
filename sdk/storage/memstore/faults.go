package memstore

import (
	"sync"

	"github.com/brokerd/brokerd/sdk/storage"
)

// OpKind is a kind of operation of a Store.
type OpKind int

// The kinds, one for each method that does work.
const (
	OpOpen OpKind = iota + 1
	OpClose
	OpList
	OpDelete
	OpAppend
	OpRead
	OpScan
	OpFlush
	OpTruncate
	OpTrim
	OpRetain
	OpReplace
	OpFindTimestamp
	OpPutBlob
	OpGetBlob
	OpUsage
)

// Op is one operation on one log. A method that takes several logs is several
// operations.
type Op struct {
	Kind   OpKind
	Log    storage.LogID // zero when the operation has none, or the handle is unknown
	Handle storage.Handle
	Offset int64 // where it reads, appends or cuts
	Bytes  int   // of data passed in
}

// Fault makes operations of one kind fail.
type Fault struct {
	Kind OpKind
	// Log limits the fault to one log; the zero LogID means any.
	Log storage.LogID
	// Skip is how many matching operations go well first.
	Skip int
	// Times is how many fail then. Zero means one; negative, all.
	Times int
	// After makes an operation fail after its effect: ErrUnknown and ErrGone
	// leave open whether there was one. Otherwise it fails before.
	After bool
	// Class is the class of the error.
	Class error
}

// Faults is a list of faults to come; its methods Before and After are what
// Options want. It may be used from many goroutines.
type Faults struct {
	mu   sync.Mutex
	list []Fault
}

// Add adds a fault.
func (f *Faults) Add(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fault.Times == 0 {
		fault.Times = 1
	}
	f.list = append(f.list, fault)
}

// Before fails operations that a fault names, before their effect.
func (f *Faults) Before(op Op) error { return f.next(op, false) }

// After fails operations that a fault names, after their effect.
func (f *Faults) After(op Op) error { return f.next(op, true) }

func (f *Faults) next(op Op, after bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.list {
		fault := &f.list[i]
		switch {
		case fault.Kind != op.Kind || fault.After != after || fault.Times == 0:
			continue
		case fault.Log != storage.LogID{} && fault.Log != op.Log:
			continue
		case fault.Skip > 0:
			fault.Skip--
			continue
		}
		if fault.Times > 0 {
			fault.Times--
		}
		return storage.Errorf(fault.Class, "injected fault")
	}
	return nil
}
