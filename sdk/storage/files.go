package storage

import (
	"context"
	"os"
)

// Files is what a store offers beside Store whose logs lie in regular files of
// this machine: its host then writes and reads them itself, and records never
// cross from one process to the other. Everything else stays the store's: which
// files there are, what is in the log, its indexes, its syncs, its recovery.
//
// # Granted writes
//
// A grant lends the host the end of one log. While it holds, the host is the only
// writer of the file from Grant.Pos on: it writes batches back to back, the first
// at Pos, each write where the one before it ended, and tells the store of each
// in order, by an Append with AppendRequest.Granted, after the write has returned.
// A batch that was written survives the process of the store and that of the host
// as any write of a file does (SurvivesProcess), also when it was not told, so that
// a host may acknowledge it before it tells: the next Open finds it.
//
//   - The host checks what it writes as Append would: whole batches, intact by
//     CRC, offsets that rise from the LEO on, without gaps unless the grant allows
//     them, all of the grant's leader epoch and within the limits that it names.
//     What does not fit it appends without the grant.
//   - The host ends a grant by not using it any more: before it calls any method
//     that opens, closes, truncates, trims, retains, replaces or deletes in that
//     log, before an Append without the grant, and after a write that failed or
//     was short. It has then told of every write that succeeded. The log takes
//     back the end of the file with that call; a new grant is to be asked for.
//   - The host may give a grant back with End, when it has told of its writes. One
//     that it has not used for a while it should: a grant costs a descriptor on both
//     sides, and keeps a flush from noting that nothing is left to be synced.
//   - The store ends a grant by answering an Append under it with
//     AppendResult.GrantOver: what was written before the host heard of it is
//     still good. An error as the answer to such an Append, of whatever class, leaves
//     open what is in the log: it is to be opened again, which finds what was written.
//   - Open finds every whole batch that was written under a grant of the log,
//     told or not, also one of an earlier life of the store's process.
//
// # Leases
//
// A lease lends the host a stretch of one file that holds whole batches. These
// bytes never change again, and stay readable through the file, whatever happens to the
// log: a truncation into them goes on in another file, and a trim or a deletion leaves
// them as long as the file is open. That holds after the lease was returned too, and
// after the store was opened again: the host may have handed the bytes to a socket by
// reference (sendfile), from where a slow peer reads them long after. So a file of
// which something was ever leased is never used for other batches, and one that was there
// when the log was opened counts as leased, wholly. A lease is over when the store is
// opened again. What the host reads it checks, once, against its CRC and against the
// offsets that it expects, and never serves bytes of a short read.
//
// # Lock
//
// The store is locked as long as a host holds the file that Lock returns, also
// when the process of the store has died: no other opener can come between a host
// that is still writing, or reading, and the log. The host closes it when no write
// under a grant and no read under a lease is under way, and none will be. What it sends
// from a file without looking at it, having checked it before, does not count: that never
// changes.
//
// Methods may be called from many goroutines. Every *os.File that a method returns
// is the caller's own, to be closed by it, and regular but for Lock's.
type Files interface {
	// Grant lends the end of a log for batches of one leader epoch. It waits for
	// appends of the handle that were queued before. An earlier grant of the log is
	// over with it; the host has told of its writes. ErrRetry: not now (no room, no
	// descriptors, or the log is better appended to); the host appends without.
	//
	// require is the least that appends under the grant ask for: with
	// SurvivesMachine the host acknowledges none before the store has answered it,
	// so that a loss of power leaves no doubt about the end of the log. With less,
	// as with SurvivesUnset, the store notes that there may be some.
	Grant(ctx context.Context, h Handle, leaderEpoch int32, require Survives) (Grant, error)

	// End gives a grant back. The host has told of its writes. One that is not the
	// log's is passed over. It waits for appends of the handle that were queued before.
	End(ctx context.Context, h Handle, id GrantID) error

	// Lease lends the stretch that begins with the batch that contains offset, or
	// with the first after it, up to the end of what that file holds now. Its
	// errors are Read's; ErrRetry: read without. A lease at the LEO is ErrRetry.
	Lease(ctx context.Context, h Handle, offset int64) (Lease, error)

	// Return gives leases back. One that is not known is passed over.
	Return(leases []LeaseID)

	// Lock returns the lock of the store.
	Lock() (*os.File, error)
}

// GrantID names a grant; zero names none. A store never uses one twice in one life
// of its process.
type GrantID uint64

// Grant is the end of a log, lent.
type Grant struct {
	ID GrantID
	// File is opened for writing, and reading.
	File *os.File
	// FileID is that of leases of the same file (Lease.FileID); zero where it is not
	// known.
	FileID uint64
	// Pos is where the first write begins, in bytes. Limit is where the last one
	// ends at the latest; EndMark included.
	Pos, Limit int64
	// LEO is the base offset that the first batch must not be below.
	LEO int64
	// LeaderEpoch is that of every batch.
	LeaderEpoch int32
	// MaxTimestamp and MaxOffset bound the batches: no max timestamp and no last
	// offset is above.
	MaxTimestamp, MaxOffset int64
	// Gaps: offsets may be missing between the batches, and before the first. Without
	// it each begins where the one before it ends, the first at LEO.
	Gaps bool
	// EndMark is how many bytes of zeros end each write, behind its batches, in the
	// same system call; the next write begins on top of them. It is not zero where
	// the file held other batches before: what is left of them behind the last
	// batch must not be taken for one of the log.
	EndMark int
}

// LeaseID names a lease; zero names none. A store never uses one twice in one life
// of its process.
type LeaseID uint64

// Lease is a stretch of a file, lent.
type Lease struct {
	ID LeaseID
	// File is opened for reading only.
	File *os.File
	// FileID is the same for leases of the same file, as long as the log is open, and of
	// no other in one life of the store's process, nor of what this one held before it
	// was used again; not zero.
	FileID uint64
	// Pos is where the batch begins that was asked for, and Limit where the last
	// batch ends, in bytes.
	Pos, Limit int64
	// First is the least offset that the batch at Pos may have, and End the offset
	// behind the last batch before Limit, or the base offset of the next file where
	// the stretch ends with its file.
	First, End int64
	// Gaps: offsets may be missing between the batches.
	Gaps bool
}
