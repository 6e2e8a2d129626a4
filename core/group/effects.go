package group

import (
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// Effects is what a machine asks of its host. The host passes the same value to
// several steps if it likes, performs what it holds, and calls Reset. Within a kind
// the order is the order of asking.
type Effects struct {
	Load      *Load // the last asked for
	Writes    []Write
	Responses []Response
	// Timer is when Fired is to come, in place of every earlier one; nil: unchanged,
	// zero: never.
	Timer   *time.Time
	Notices []Notice

	at time.Time // Timer's
}

// Reset empties e and keeps its room.
func (e *Effects) Reset() {
	clear(e.Writes)
	clear(e.Responses)
	clear(e.Notices)
	*e = Effects{Writes: e.Writes[:0], Responses: e.Responses[:0], Notices: e.Notices[:0]}
}

// Load asks for the whole log of the offsets partition, by Replay and Loaded.
type Load struct{ Gen Generation }

// WriteID names a write of a machine, counted from 1.
type WriteID uint64

// Write asks that records be appended with acks=all under the epoch of the last Lead,
// all of them or none. Adjacent ones may go in one batch.
type Write struct {
	Gen     Generation
	ID      WriteID
	Epoch   model.LeaderEpoch
	Records []Record
}

// Response answers one request. Answer is what model has for it: a
// model.JoinedGroup, SyncedGroup, LeftGroup, CommittedOffsets, FetchedOffsets,
// DeletedOffsets, DescribedGroup or ListedGroups in their wrappers below; Done answers
// Heartbeat and Delete.
type Response struct {
	ID     RequestID
	Answer Answer
}

// Answer is one of the types below.
type Answer interface{ answer() }

// The answers.
type (
	// Joined answers Join.
	Joined struct{ model.JoinedGroup }
	// Synced answers Sync.
	Synced struct{ model.SyncedGroup }
	// Left answers Leave.
	Left struct{ model.LeftGroup }
	// Committed answers Commit.
	Committed struct{ model.CommittedOffsets }
	// Fetched answers FetchOffsets.
	Fetched struct{ model.FetchedOffsets }
	// Deleted answers DeleteOffsets.
	Deleted struct{ model.DeletedOffsets }
	// Described answers Describe.
	Described struct{ model.DescribedGroup }
	// Listed answers List.
	Listed struct{ model.ListedGroups }
	// Done answers Heartbeat and Delete.
	Done struct{ Err error }
)

func (Joined) answer()    {}
func (Synced) answer()    {}
func (Left) answer()      {}
func (Committed) answer() {}
func (Fetched) answer()   {}
func (Deleted) answer()   {}
func (Described) answer() {}
func (Listed) answer()    {}
func (Done) answer()      {}

// NoticeKind says what a notice is about.
type NoticeKind int8

// The notices.
const (
	NoticeLoaded      NoticeKind = iota // all groups are served
	NoticeRebalancing                   // a group prepares a rebalance; Text says why
	NoticeStable                        // a group has a new generation and its assignment
	NoticeRemoved                       // a member was removed; Text says why
	NoticeEmpty                         // a group has no members any more
	NoticeExpired                       // offsets, or a group, have expired
	NoticeRefused                       // a write failed; Err says why
	NoticePassedOver                    // a record of the log cannot be read
	NoticeMemory                        // a request was refused for want of memory; Count is its bytes
)

var noticeNames = [...]string{"loaded", "rebalancing", "stable", "removed", "empty", "expired", "refused", "passed-over", "memory"}

// String is for logs and stories.
func (k NoticeKind) String() string {
	if k < 0 || int(k) >= len(noticeNames) {
		return "notice"
	}
	return noticeNames[k]
}

// Notice is something that an operator may want to know, or that is counted.
type Notice struct {
	Kind       NoticeKind
	Group      string
	Member     string
	Generation int32 // the group's
	Count      int   // members, or offsets
	Text       string
	Err        error
}
