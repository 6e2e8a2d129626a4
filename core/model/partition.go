package model

import (
	"context"
	"os"
	"time"

	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// Acks is what a producer waits for.
type Acks int16

// The values that a producer may ask for.
const (
	AcksNone   Acks = 0
	AcksLeader Acks = 1
	AcksAll    Acks = -1
)

// Append is one producer's batch for one partition, already validated by
// core/batch. Data is the batch; whoever appends it stamps base offset and
// leader epoch into it, and has it until Appended.Spent, also after the answer, since an
// append whose client has been told that time is up may still be under way; and for as
// long as it keeps Frame.
type Append struct {
	Partition Partition
	Batch     recordbatch.Info
	Data      []byte
	// Frame is what Data is a part of; nil: anything, so that nobody keeps Data for
	// long.
	Frame   *Frame
	Acks    Acks
	Timeout time.Duration // for AcksAll: how long to wait for the high watermark
	// LogAppendTime is the time stamped into the batch in milliseconds, or -1.
	LogAppendTime int64
	// Under, unless nil, is the only leader epoch under which the batch is to be
	// appended: under another one it is refused (ErrNotLeaderOrFollower).
	Under *LeaderEpoch
}

// Appended answers an Append.
type Appended struct {
	BaseOffset    int64 // -1 with an error that appended nothing
	LogAppendTime int64 // milliseconds, or -1
	LogStart      int64 // -1 where it is not known
	LeaderEpoch   LeaderEpoch
	Err           error // nil, or one that wraps a sentinel
	// Refused comes with an error: nothing of the batch is in the log, nor will be.
	// An error without it leaves that open.
	Refused bool
	// Spent: nobody looks at the batch's bytes any more, but for whoever keeps their
	// Frame. Without it they may be on their way to a store for as long as they like.
	Spent bool
}

// IsolationLevel is what a consumer may see.
type IsolationLevel int8

// A consumer reads below the high watermark, or below the last stable offset.
const (
	ReadUncommitted IsolationLevel = 0
	ReadCommitted   IsolationLevel = 1
)

// Fetch asks for records of several partitions. It waits until MinBytes are
// there, an error is to be told, or MaxWait has passed.
type Fetch struct {
	Partitions []FetchPartition
	MinBytes   int
	MaxBytes   int // of the whole answer; the first batch comes whatever its size (KIP-74)
	MaxWait    time.Duration
	Isolation  IsolationLevel
	// Room is memory for the answer, which is lent until Release: see FetchAnswer.
	// Without one MaxBytes are there, and what is read is the caller's for good.
	Room Room
	// Sections: the answer may have batches that lie in files, and take no memory.
	Sections bool
}

// Room is memory for the records of one fetch. One goroutine uses it. What it
// holds when the fetch is answered belongs to the answer.
type Room interface {
	// Reserve makes the room at least `least` bytes, and up to `most` if they are
	// there, and says how large it is now. It waits only where the room is smaller
	// than `least`; then it gives up all of it first, so that nothing may have been
	// read into it. The error is the context's.
	Reserve(ctx context.Context, least, most int) (int, error)
	// Short is closed when others wait for memory: a fetch that has records and
	// waits for more is to be answered with what it has.
	Short() <-chan struct{}
}

// FetchPartition asks for records of one partition from Offset on.
type FetchPartition struct {
	Partition        Partition
	Offset           int64
	LogStart         int64 // the follower's, or -1
	MaxBytes         int
	CurrentEpoch     LeaderEpoch // or NoEpoch: not checked (KIP-320)
	LastFetchedEpoch LeaderEpoch // or NoEpoch: not checked (KIP-595)
	// Nearby: the client is in this broker's rack, so that a follower may answer too, as
	// far as its own high watermark. (KIP-392)
	Nearby bool
	// Elsewhere: another replica in sync is in the client's rack. A leader sends the
	// client there instead of reading. (KIP-392)
	Elsewhere bool
}

// FetchAnswer answers a Fetch. It is not changed, and the memory of its records not
// used for anything else, before Release.
type FetchAnswer struct {
	Partitions []Fetched // in the order of the question
	// Memory is what the records take, in bytes: at least as much as they are.
	Memory int
	// Owner is told of the end, unless it is nil.
	Owner interface{ Release() }
}

// Release ends the use of the answer and of all that is in it. It is called at most
// once; an answer for which there was no Room need not be released.
func (a *FetchAnswer) Release() {
	if a.Owner != nil {
		a.Owner.Release()
	}
}

// Fetched answers a FetchPartition.
type Fetched struct {
	Partition Partition
	// Section is whole batches in a file, which come before those of Data; no File:
	// there are none.
	Section Section
	// Data is whole batches, in one part or several that follow each other.
	Data          [][]byte
	HighWatermark int64 // -1 where it is not known
	LastStable    int64
	LogStart      int64
	LeaderEpoch   LeaderEpoch
	Diverging     *EpochEnd // set instead of Data when the logs diverge (KIP-595)
	// Elsewhere: nothing was read, since the replica has it that FetchPartition.Elsewhere
	// was of. (KIP-392)
	Elsewhere bool
	Err       error
}

// Bytes is how much Section and Data are.
func (f *Fetched) Bytes() int { return f.Section.Bytes + recordbatch.TotalBytes(f.Data) }

// Section is whole batches, back to back, as they lie in a file, to be sent from there.
// They take no memory.
type Section struct {
	// File is read by many: its own offset is nobody's.
	File  *os.File
	Pos   int64 // of the first byte
	Bytes int
	// Owner is told, before the answer is released, when the file does not have
	// these bytes or cannot be read.
	Owner interface{ Damaged() }
}

// EpochEnd is a leader epoch and the offset at which it ends.
type EpochEnd struct {
	Epoch     LeaderEpoch
	EndOffset int64
}

// Special timestamps of a ListOffsets request.
const (
	TimestampLatest         int64 = -1
	TimestampEarliest       int64 = -2
	TimestampMax            int64 = -3
	TimestampEarliestLocal  int64 = -4
	TimestampLatestTiered   int64 = -5
	TimestampEarliestRemote int64 = -6
)

// OffsetQuery asks one partition for an offset by time. (KIP-79)
type OffsetQuery struct {
	Partition    Partition
	Timestamp    int64 // milliseconds, or one of the special values
	CurrentEpoch LeaderEpoch
	Isolation    IsolationLevel
}

// OffsetAnswer is the first record at or after the time asked for, or -1, -1.
type OffsetAnswer struct {
	Offset      int64
	Timestamp   int64
	LeaderEpoch LeaderEpoch
	Err         error
}

// EpochQuery asks where a leader epoch ends. (KIP-101, KIP-279)
type EpochQuery struct {
	Partition    Partition
	CurrentEpoch LeaderEpoch
	Epoch        LeaderEpoch
}

// EpochAnswer is the largest epoch at or below the one asked for, and its end;
// -1, -1 when there is none.
type EpochAnswer struct {
	EpochEnd
	Err error
}

// TrimQuery asks that records below Offset go (DeleteRecords); Offset -1 is the
// high watermark.
type TrimQuery struct {
	Partition Partition
	Offset    int64
}

// TrimAnswer is the low watermark after a TrimQuery.
type TrimAnswer struct {
	LowWatermark int64
	Err          error
}

// ProducerState is what a partition knows of one idempotent producer. (KIP-664)
type ProducerState struct {
	ID            int64
	Epoch         int16
	LastSequence  int32
	LastTimestamp int64 // the greatest of its last batch in milliseconds, or -1
}

// ProducersAnswer is the idempotent producers that one partition knows.
type ProducersAnswer struct {
	Producers []ProducerState
	Err       error
}

// ReplicaStatus describes one replica on this broker.
type ReplicaStatus struct {
	Partition     Partition
	Leader        bool
	LeaderEpoch   LeaderEpoch
	LogStart      int64
	HighWatermark int64
	LEO           int64
	Bytes         int64
	Offline       error // why the replica does not serve, or nil
}

// Directory describes a store of this broker.
type Directory struct {
	ID         DirectoryID
	Name       string // the store's name in the configuration; the ID, when it is none of this broker's
	Plugin     string
	TotalBytes int64 // 0 or less: not known
	FreeBytes  int64
	Replicas   []ReplicaStatus
	Err        error // why the store does not serve, or nil
}

// Partitions is what the data path asks of the replicas on this broker. The
// replica manager implements it; callers are at the edge. All methods may be
// called concurrently.
//
// It is here, and not with one caller, because the edge and internal
// coordinators call it alike.
type Partitions interface {
	// Append queues a batch and returns. Batches for one partition are appended
	// in the order of the calls. done is called exactly once, from any goroutine
	// and possibly before Append returns; it must not block. With AcksNone and
	// AcksLeader it is called after the store took the batch; with AcksAll when
	// the high watermark has passed it.
	Append(ctx context.Context, a Append, done func(Appended))
	// Fetch keeps nothing of f.
	Fetch(ctx context.Context, f Fetch) *FetchAnswer
	// Offsets answers in the order of the queries, as EpochEnds and Trim do.
	Offsets(ctx context.Context, qs []OffsetQuery) []OffsetAnswer
	EpochEnds(ctx context.Context, qs []EpochQuery) []EpochAnswer
	// Trim returns after the trims are durable.
	Trim(ctx context.Context, qs []TrimQuery) []TrimAnswer
	// Producers answers in the order of the partitions.
	Producers(ctx context.Context, ps []Partition) []ProducersAnswer
	// Directories describes the stores and all replicas in them.
	Directories(ctx context.Context) []Directory
}
