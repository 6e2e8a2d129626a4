package storage

import (
	"context"
	"time"

	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// Store is a set of logs. See the package comment for what holds everywhere.
//
// Methods that take several logs do so because one round trip, one fsync or one
// object may serve them all; their results are in the order of the arguments,
// and one log's error does not touch another's.
type Store interface {
	// Capabilities says what this store offers beyond the contract. It does no
	// I/O and always gives the same answer.
	Capabilities() Capabilities

	// Open makes logs ready for use, creating those that do not exist when the
	// spec says so, and recovers each: after Open, what the log holds is a
	// whole number of intact batches with rising offsets.
	//
	// Open fences: when it returns, no append or change made through an earlier
	// handle of the log can take effect any more, and each one that did is
	// visible in the result. This is how an unknown outcome is settled.
	//
	// Recovery keeps every batch that was acknowledged, up to what its
	// acknowledgement survives (Survives). A torn or damaged batch past the
	// recovery point (the offset up to which the log is known to have been
	// durable) is cut, with all that follows it. Damage below the recovery
	// point is never cut: Open reports ErrCorrupt for that log, or opens it and
	// reports ErrCorrupt from reads that meet the damage.
	//
	// A log that ends below its recovery point is damaged there.
	//
	// Recovery removes blobs that are ahead of the recovered LEO for good, so
	// that they do not come to describe other records later.
	//
	// Indexes, caches and anything else that can be derived are rebuilt when
	// missing or damaged; they are never a reason to fail.
	//
	// An Open that fails does nothing: earlier handles stay as they were.
	Open(ctx context.Context, specs []OpenSpec) []OpenResult

	// Close releases handles, having flushed what they appended, and marks
	// the logs as cleanly closed. Appends in flight are completed first. A
	// closed handle gives ErrGone. Closing twice is not an error.
	Close(ctx context.Context, handles []Handle) []error

	// List reports every log in the store, open or not, in no order. It reads no
	// records.
	List(ctx context.Context) ([]LogInfo, error)

	// Delete removes a log, its blobs, and in time its bytes. Handles of it are
	// fenced. After Delete returns the log is not listed, also after a crash.
	// Deleting what does not exist is not an error.
	Delete(ctx context.Context, id LogID) error

	// Append adds whole batches at the end of a log. It queues the request and
	// returns at once; done is called exactly once, from any goroutine, maybe
	// before Append returns, and must not block. Appends of one handle take
	// effect in the order of the calls, and complete in that order. Append may
	// block while the store's own queue is full, until ctx ends.
	//
	// Checks, in this order, each leaving the log untouched: the handle is
	// current (ErrFenced, ErrGone); LeaderEpoch is at least the highest seen
	// (ErrFenced); Batches describes Data, at least one batch, whose batches are
	// intact by CRC, rise in offset from BaseOffset on without overlapping, and
	// have leader epochs that do not fall along the log nor exceed LeaderEpoch
	// (ErrInvalid); BaseOffset is the LEO counted over the appends queued before
	// (ErrInvalid), unless the same batches are already in the log at those
	// offsets, all of them, byte for byte, which is a repeat and succeeds without
	// a second copy.
	//
	// The first batch may begin above BaseOffset, and a later one above the end of
	// the one before it: this leaves a gap, as when a follower copies a log that
	// was compacted.
	//
	// After an append of a handle has failed, those queued behind it fail too, as
	// ErrInvalid (their base offset is not the LEO any more) or with its class.
	// After a failure as ErrUnknown or ErrGone, every later append of the handle
	// fails, until the log is opened again, since its LEO is not known.
	//
	// The request is acknowledged only when it survives at least Require.
	// The error ErrUnknown or ErrGone leaves the outcome open until Open. Some of
	// a request's batches, the first of them, may then be in the log without the
	// others.
	Append(ctx context.Context, req AppendRequest, done func(AppendResult, error))

	// Read returns whole batches of a log, from the one that contains
	// req.Offset, or the first after it where there is a gap. It returns batches
	// whose last offset is below req.UpTo only, at most req.MaxBytes, yet at
	// least one batch when req.AtLeastOne is set and one qualifies. Nothing to
	// return is an empty result, not an error. ErrInvalid: an offset below the
	// log start or above the LEO. Every batch returned passed its CRC when it
	// was appended or recovered; a store that cannot know that any more checks
	// again.
	Read(ctx context.Context, req ReadRequest) (ReadResult, error)

	// Scan returns headers of batches, in order, without their records. It
	// starts like Read, with the same errors, and returns at most req.MaxBatches
	// headers; fewer than that only at req.UpTo or the LEO.
	Scan(ctx context.Context, req ScanRequest) ([]BatchInfo, error)

	// Flush makes all that was appended through each handle before the call
	// survive a machine's loss of power (Survives Machine at least), and moves
	// the recovery point there. One flush may serve many logs.
	Flush(ctx context.Context, handles []Handle) []FlushResult

	// Truncate drops every batch that holds an offset of to or above, durably,
	// before it returns, and returns the new LEO: the end of the last batch that
	// stays, or the log start if that is greater or none stays. (Where offsets
	// are missing behind that, a store may give a greater LEO, at most `to` and
	// at most the first dropped batch's base offset, and then keeps to it.)
	// Batches are not split. Appends in flight on the handle are completed or fenced first.
	// Truncating at or above the LEO changes nothing. Blobs that describe more
	// than the new LEO are gone, also when the log grows again. ErrFenced: a
	// leader epoch lower than the highest seen. ErrInvalid: `to` is below the log
	// start, from where nothing can be taken back; to start lower, delete the log.
	Truncate(ctx context.Context, h Handle, leaderEpoch int32, to int64) (leo int64, err error)

	// Trim raises the log start offset to `to`, durably, before it returns; bytes
	// below may be kept for a while but are never read again, except those of the
	// batch that `to` is inside of. At or below the log start it changes nothing.
	// Above the LEO it empties the log and moves the LEO to `to` as well, in one
	// atomic step: a follower starts so where its leader's log starts. Appends in
	// flight on the handle are completed first.
	Trim(ctx context.Context, h Handle, to int64) (logStart int64, err error)

	// Retain drops from the log's start what the policy lets go, in the units
	// in which the store frees room (segments, objects), durably, and returns the
	// log start. Units that Trim left wholly below the log start go first. Once is
	// enough: the same call again drops nothing. The unit that is being appended
	// to may go or stay.
	Retain(ctx context.Context, h Handle, policy RetainPolicy) (RetainResult, error)

	// Replace puts other batches in place of those in [req.From, req.To), in one
	// atomic step: after a crash the log holds the old range or the new one,
	// never a mixture, and after it returned without error the new one (a kill -9
	// at least). Offsets of surviving records do not change; offsets may be
	// missing; the LEO does not fall, even when the range ends at it and its last
	// batches go. From and To do not lie inside a batch, To is at or below the
	// LEO, and the batches fit between them (ErrInvalid otherwise). What was
	// durable stays so: the new range is, if the old one was.
	Replace(ctx context.Context, req ReplaceRequest) error

	// FindTimestamp finds a batch by time; see TimestampQuery. found is false
	// when no batch qualifies.
	FindTimestamp(ctx context.Context, q TimestampQuery) (batch BatchInfo, found bool, err error)

	// PutBlob stores a small named value beside a log, durably and atomically,
	// replacing the earlier one. Offset is the LEO of the log that the value
	// describes. Empty data removes the blob. At most MaxBlobBytes; names match
	// [a-z][a-z0-9-]{0,31}.
	PutBlob(ctx context.Context, h Handle, name string, b Blob) error

	// GetBlob returns a blob. A blob whose Offset is above the LEO is ahead of
	// the log and is not returned: found is false. (PutBlob may refuse one, as
	// ErrInvalid.)
	GetBlob(ctx context.Context, h Handle, name string) (b Blob, found bool, err error)

	// Files is the part of the store for hosts that write and read its files
	// themselves, nil where there is none; always the same.
	Files() Files

	// Usage reports room, in bytes, of the device or quota below the store.
	Usage(ctx context.Context) (Usage, error)

	// Shutdown closes every handle as Close does, releases the store for
	// another opener, and ends it. Every later call gives ErrGone.
	Shutdown(ctx context.Context) error
}

// MaxBlobBytes bounds a blob.
const MaxBlobBytes = 16 << 20

// maxBlobName is how many characters a blob's name has at most.
const maxBlobName = 32

// ValidBlobName reports whether name matches [a-z][a-z0-9-]{0,31}.
func ValidBlobName(name string) bool {
	if name == "" || len(name) > maxBlobName {
		return false
	}
	for i := range len(name) {
		letter := 'a' <= name[i] && name[i] <= 'z'
		other := '0' <= name[i] && name[i] <= '9' || name[i] == '-'
		if !letter && (i == 0 || !other) {
			return false
		}
	}
	return true
}

// LogID names a log for ever: the topic's ID and the partition. A topic that is
// deleted and made again has another ID.
type LogID struct {
	Topic     [16]byte
	Partition int32
}

// Handle is one opening of one log. Zero is never a handle. A store never uses
// a handle twice in one life of its process.
type Handle uint64

// OpenSpec asks for one log.
type OpenSpec struct {
	ID LogID
	// Label is a name for people (the topic's name). It may be used in paths
	// and messages after cleaning, and has no meaning.
	Label string
	// Create makes the log when it is missing. Without it a missing log is
	// ErrGone.
	Create bool
	// LeaderEpoch fences: appends and truncations with a lower epoch fail from
	// now on. It also fails, ErrFenced, when the log has seen a higher one, in an
	// Open, an append or a truncation. The store remembers it while its process
	// lives; beyond that, the epochs of the batches in the log are enough.
	LeaderEpoch int32
	// Options are the log's settings. Opening again applies new ones.
	Options LogOptions
}

// LogOptions are the settings of one log that concern a store. Zero means the
// store's default.
type LogOptions struct {
	SegmentBytes       int64         // roll when the next append would exceed it
	SegmentAge         time.Duration // roll when the first batch's timestamp is older
	IndexIntervalBytes int64         // bytes between entries of sparse indexes
}

// Verdict is what Open found.
type Verdict int

const (
	// VerdictUnset is not a verdict.
	VerdictUnset Verdict = iota
	// VerdictIntact: everything ever acknowledged is there. It is the verdict
	// after kill -9 of the process, and after an orderly Close.
	VerdictIntact
	// VerdictMayHaveLostSuffix: records at the end that had been acknowledged
	// may be missing (the machine restarted and not all had been flushed, or
	// recovery cut a batch that had been written whole). Later Opens repeat it
	// until the log was closed in order: a caller that is killed before it acted
	// on the verdict must hear it again.
	VerdictMayHaveLostSuffix
)

// OpenResult is the state of a log as it was opened, or Err.
type OpenResult struct {
	Handle   Handle
	LogStart int64
	LEO      int64
	// Durable is the offset below which everything survives power loss.
	Durable int64
	// Epochs are the leader epochs of the batches in the log with the offset at
	// which each starts, rising in both. Where Replace or Trim took an epoch's
	// first batches, a store may give the offset where it once started or where
	// its first remaining batch does.
	Epochs  []EpochStart
	Verdict Verdict
	// Cut tells a person what recovery dropped, if anything.
	Cut string
	Err error
}

// EpochStart is the first offset written under a leader epoch.
type EpochStart struct {
	Epoch int32
	Start int64
}

// LogInfo describes a log without opening it.
type LogInfo struct {
	ID    LogID
	Label string
	Bytes int64 // what the log occupies in the store
}

// Survives is the loss that an acknowledged append outlives.
type Survives int

const (
	// SurvivesUnset is not a level.
	SurvivesUnset Survives = iota
	// SurvivesProcess: kill -9 of the store's process.
	SurvivesProcess
	// SurvivesMachine: loss of power of the machine.
	SurvivesMachine
	// SurvivesStore: the loss of this machine with its disks.
	SurvivesStore
)

// AppendRequest is one append of one or more whole batches.
type AppendRequest struct {
	Handle      Handle
	LeaderEpoch int32
	// BaseOffset is where the batches go: the LEO as the caller knows it.
	BaseOffset int64
	// Batches describes Data, in order.
	Batches []BatchInfo
	// Data is the batches: each element is one or more of them, whole, back to
	// back. Nothing of it is joined or copied by the caller for that.
	Data [][]byte
	// Checked: the caller has checked the CRC of every batch. A store that the bytes
	// reach without leaving the process may then trust them.
	Checked bool
	// Granted, if it is not zero, is the grant under which the host has written the
	// batches at Pos; Data is empty then. See Files.
	Granted GrantID
	Pos     int64
	// Require is what the append must survive before it is acknowledged.
	// SurvivesUnset means SurvivesProcess. A store that cannot give it (see
	// Capabilities.Survives) fails with ErrInvalid.
	Require Survives
}

// AppendResult acknowledges an append.
type AppendResult struct {
	LEO      int64 // after this append
	Survives Survives
	// Durable is the offset below which everything survives power loss, as far
	// as the store knows now.
	Durable int64
	// GrantOver answers an append under a grant: it is the last but for those that
	// are on their way. See Files.
	GrantOver bool
}

// Bytes is the length of all batches together, as they are described.
func (r *AppendRequest) Bytes() int64 {
	n := int64(0)
	for i := range r.Batches {
		n += int64(r.Batches[i].Bytes)
	}
	return n
}

// FlushResult answers for one handle.
type FlushResult struct {
	Durable int64
	Err     error
}

// BatchInfo is what is known of a batch without its records: its header's
// fields, and its length in bytes, header included.
type BatchInfo = recordbatch.Info

// ReadRequest asks for batches.
type ReadRequest struct {
	Handle     Handle
	Offset     int64
	UpTo       int64 // exclusive; batches that reach it are not returned
	MaxBytes   int
	AtLeastOne bool
	// Buf is room that the store may read into, from its start on. Data is then a
	// part of it, and the caller, who alone knows when it is done with Data, may use
	// Buf again. A store may pass it over.
	Buf []byte
}

// ReadResult is whole batches, back to back.
type ReadResult struct {
	Data []byte
	// Next is the offset after the last batch in Data, or the requested offset.
	Next int64
}

// ScanRequest asks for headers of batches.
type ScanRequest struct {
	Handle     Handle
	Offset     int64
	UpTo       int64 // exclusive
	MaxBatches int   // at most 10,000; zero means that
}

// RetainPolicy says what may go. A unit goes when it is wholly below Ceiling
// and one of the limits lets it; the oldest first, stopping at the first that
// stays.
type RetainPolicy struct {
	// Ceiling: nothing at or above this offset goes (the high watermark).
	Ceiling int64
	// Now is the broker's clock. A unit whose newest record is stamped later
	// than Now, or not at all, is judged by the time at which it was written
	// instead, so that one record from the future does not hold a log for ever.
	Now time.Time
	// MaxAge: units whose newest record is older go. Zero or less: no limit.
	MaxAge time.Duration
	// MaxBytes: the oldest units go while the rest still has at least this
	// much. Negative: no limit.
	MaxBytes int64
}

// RetainResult is the state after Retain.
type RetainResult struct {
	LogStart     int64
	FreedBytes   int64
	LogBytes     int64         // what is left
	OldestAge    time.Duration // of the oldest unit's newest record, as judged
	FutureStamps int           // units judged by their writing time since they are stamped later than Now
}

// ReplaceRequest is the new content of a range.
type ReplaceRequest struct {
	Handle   Handle
	From, To int64
	Batches  []BatchInfo // describes Data
	Data     []byte
}

// TimestampKind chooses what FindTimestamp looks for.
type TimestampKind int

const (
	// FirstAtOrAfter: the first batch, in offset order, that holds a record
	// with a timestamp of at least Timestamp.
	FirstAtOrAfter TimestampKind = iota
	// Latest: the first batch with the greatest MaxTimestamp.
	Latest
)

// TimestampQuery looks for a batch by time, among those whose last offset is
// below UpTo.
type TimestampQuery struct {
	Handle    Handle
	Kind      TimestampKind
	Timestamp int64 // milliseconds since 1970
	UpTo      int64
}

// Blob is a small named value beside a log.
type Blob struct {
	Offset int64 // the LEO that the value describes
	Data   []byte
}

// Usage is room in bytes; zero Total means that there is no limit to tell.
type Usage struct {
	Total int64
	Free  int64
}

// Capabilities is what a store offers beyond the contract.
type Capabilities struct {
	// Survives is the most that an append can be asked to survive.
	Survives Survives
	// Shared: the bytes outlive this machine, and another may open the logs.
	Shared bool
	// Grants and Leases: Files is there, with granted writes, and with leases.
	Grants, Leases bool
}
