package partition

import (
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// Input is what a machine can be stepped with: a pointer to one of the types of
// this file. The machine does not keep the pointer.
type Input interface{ input() }

// RequestID names a request to its host. The machine gives it back as it was.
type RequestID uint64

// Generation counts the openings of the log that a machine has asked for. What
// comes back from an earlier one is ignored.
type Generation uint64

// Fault is how a call of the store failed, by what is known of its effect.
type Fault int8

// The faults; see package storage for what each promises.
const (
	FaultNone    Fault = iota
	FaultRetry         // nothing was done; later it may succeed
	FaultFenced        // somebody else holds the log, or knows a higher epoch
	FaultCorrupt       // acknowledged bytes are damaged
	FaultFull          // nothing was done: no room
	FaultGone          // the log cannot be used through this opening; outcomes are open
	FaultInvalid       // nothing was done: the request did not fit the log
	FaultUnknown       // the outcome is open
)

var faultNames = [...]string{"none", "retry", "fenced", "corrupt", "full", "gone", "invalid", "unknown"}

// String is the fault's class as the storage contract names it.
func (f Fault) String() string {
	if f < 0 || int(f) >= len(faultNames) {
		return "fault"
	}
	return faultNames[f]
}

// Lead makes this replica the leader under Epoch, or tells a leader of a new
// ISR. A lower epoch than the machine has seen is ignored; the same one changes
// the ISR and the assignment, with a higher partition epoch, and nothing else; a higher
// one opens the log again. The next one settles
// what is under way; after one that was skipped, under which somebody else may have
// written, whoever waits is told, and the log is read anew.
type Lead struct {
	Epoch          model.LeaderEpoch
	PartitionEpoch model.PartitionEpoch
	BrokerEpoch    model.BrokerEpoch // of this broker's registration
	ISR            []model.NodeID
	ELR            []model.NodeID // KIP-966
	Replicas       []model.NodeID // the assignment
	Adding         int            // how many of them count for the minimum of the ISR only later (KIP-455)
	Target         int            // how many there are to be
}

// Resign ends leading and following: the log is closed. Whoever waits is told.
type Resign struct{ Epoch model.LeaderEpoch }

// Configure gives new settings. Reopen asks that the log be opened again, for
// settings that only the store applies.
type Configure struct {
	Settings Settings
	Reopen   bool
	// Role is the Lead or Follow of the same metadata, or nil. Both count at once: a leader
	// that has been deposed must not commit by the minimum of a later time.
	Role Input
}

// Stop ends the machine cleanly: it takes nothing more, lets what is under way
// finish, stores producer state, and asks for Close.
type Stop struct{}

// Opened answers OpenLog.
type Opened struct {
	Gen             Generation
	LogStart        int64
	LEO             int64
	Durable         int64
	Epochs          []EpochStart
	MayHaveLost     bool // the store's verdict
	Snapshot        []byte
	SnapshotOffset  int64
	SnapshotPresent bool
	Fault           Fault
	Err             error
}

// Scanned answers Scan with headers in order. Fewer than asked for means that
// the end was reached.
type Scanned struct {
	Gen     Generation
	Batches []recordbatch.Info
	Fault   Fault
	Err     error
}

// Append asks for one batch to be appended; it has been validated. Offsets in
// Batch are relative: only their difference counts.
type Append struct {
	ID       RequestID
	Batch    recordbatch.Info
	Acks     model.Acks
	Deadline time.Time // after it the client is told that time is up
	// Under, unless nil, is the only leader epoch under which it gets an offset.
	Under *model.LeaderEpoch
	// LogAppendTime is echoed: milliseconds, or -1.
	LogAppendTime int64
}

// Doubted tells whether others may lead by now, and this broker has not heard of it: its lease
// has run out. While that may be, acks 0 and 1 are answered as acks=all is, by what its
// followers say under this leader epoch.
type Doubted struct{ Doubt bool }

// Refused tells of a batch that was refused, for a reason that will pass, before there was
// this machine: what its producer has sent behind it is not to get in before.
type Refused struct{ Batch recordbatch.Info }

// AppendDone answers one or more adjacent AppendLog or CopyLog effects, which reached
// from Base to Last, together.
type AppendDone struct {
	Gen     Generation
	Base    int64
	Last    int64
	LEO     int64
	Machine bool // it survives the loss of power of the machine
	Durable int64
	Fault   Fault
	Err     error
}

// FlushDone answers Flush.
type FlushDone struct {
	Gen     Generation
	Durable int64
	Fault   Fault
	Err     error
}

// Trim asks that records below To go; -1 is the high watermark. (DeleteRecords)
type Trim struct {
	ID RequestID
	To int64
}

// TrimDone answers TrimLog.
type TrimDone struct {
	Gen      Generation
	ID       RequestID
	LogStart int64
	Fault    Fault
	Err      error
}

// Retained answers Retain.
type Retained struct {
	Gen      Generation
	LogStart int64
	Fault    Fault
	Err      error
}

// SnapshotDone answers PutSnapshot.
type SnapshotDone struct {
	Gen   Generation
	Fault Fault
	Err   error
}

// ReadFailed tells of a read that failed by the fault of the log, and not of
// the request, through the opening Gen.
type ReadFailed struct {
	Gen   Generation
	Fault Fault
	Err   error
}

// Corrupt tells of a read through the opening Gen that met damage at an offset of the log, or
// behind it. What lies below it could be read, or is to be.
type Corrupt struct {
	Gen    Generation
	Offset int64
}

// Restarted tells that the store's process was started again: what was opened
// before is gone, and an opening that failed may succeed now.
type Restarted struct{}

// Ailing tells whether the store serves. While it does not, a leader lets nobody leave the
// ISR for lagging, which may be of its own making: others are to lead. (KAFKA-7837)
type Ailing struct{ Ails bool }

// Acknowledged tells how far another replica's log reaches, as far as its own
// flush policy lets it count, by its word in a session under a leader epoch. Of
// sessions and epochs that are over it counts for nothing.
type Acknowledged struct {
	Node           model.NodeID
	Session        Session
	Epoch          model.LeaderEpoch
	PartitionEpoch model.PartitionEpoch // of the metadata by which it has that log
	LEO            int64
}

// Fired is a timer that the machine has set and that is due.
type Fired struct{ Timer Timer }

func (*Lead) input()         {}
func (*Resign) input()       {}
func (*Configure) input()    {}
func (*Stop) input()         {}
func (*Opened) input()       {}
func (*Scanned) input()      {}
func (*Append) input()       {}
func (*AppendDone) input()   {}
func (*FlushDone) input()    {}
func (*Trim) input()         {}
func (*TrimDone) input()     {}
func (*Retained) input()     {}
func (*SnapshotDone) input() {}
func (*ReadFailed) input()   {}
func (*Corrupt) input()      {}
func (*Restarted) input()    {}
func (*Ailing) input()       {}
func (*Refused) input()      {}
func (*Doubted) input()      {}
func (*Acknowledged) input() {}
func (*Fired) input()        {}
