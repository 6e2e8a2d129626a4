package partition

import (
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// Effects is what a machine asks of its host. The host passes the same value to
// several steps if it likes, performs what it holds, and calls Reset. Within a
// kind the order is the order of asking. Effects of an earlier generation than
// the last OpenLog are harmless: their answers are ignored.
//
// Appends and Copies go to the store in one sequence, and before a Truncate of their
// generation. An Open goes to it after the answer to a Delete. A View is published before
// what is sent to clients and other brokers. What Ack points to is of the value itself.
type Effects struct {
	Open      *OpenLog // the last asked for
	Scan      *Scan
	Appends   []AppendLog
	Copies    []CopyLog // of a follower, which has no Appends
	Truncate  *TruncateLog
	Delete    *DeleteLog
	Flush     *Flush
	Trims     []TrimLog
	Retain    *Retain
	Snapshot  *PutSnapshot
	Close     *Close
	Responses []Response
	Releases  []RequestID // the payload is needed no more
	Timers    []SetTimer
	Notices   []Notice

	// Of a follower, to its leader.
	Subscription *Subscription
	Ack          *Ack // after whatever it rests on is stored
	// Of a leader, to its followers and to the controller.
	Answers    []Answer
	EndStreams []EndStream // after the Answers
	Alter      *AlterISR

	ack Ack // what Ack points to
}

// setAck asks for an Ack, in place of one before it.
func (e *Effects) setAck(a Ack) {
	e.ack = a
	e.Ack = &e.ack
}

// Reset empties e and keeps its room.
func (e *Effects) Reset() {
	clear(e.Responses)
	clear(e.Notices)
	*e = Effects{
		Appends:    e.Appends[:0],
		Copies:     e.Copies[:0],
		Trims:      e.Trims[:0],
		Responses:  e.Responses[:0],
		Releases:   e.Releases[:0],
		Timers:     e.Timers[:0],
		Notices:    e.Notices[:0],
		Answers:    e.Answers[:0],
		EndStreams: e.EndStreams[:0],
	}
}

// OpenLog asks that the log be opened, which fences every earlier opening, and
// that its producer snapshot be read; a snapshot that the store does not return
// is to be removed before Opened is answered, since it may be ahead of the log.
type OpenLog struct {
	Gen   Generation
	Epoch model.LeaderEpoch
}

// Scan asks for at most Max headers of batches from From on, below UpTo.
type Scan struct {
	Gen  Generation
	From int64
	UpTo int64
	Max  int
}

// AppendLog asks that the payload of request ID be stamped with Base and Epoch
// and appended. Adjacent ones may go to the store in one call.
type AppendLog struct {
	ID    RequestID
	Gen   Generation
	Base  int64
	Last  int64
	Bytes int32
	Epoch model.LeaderEpoch
	// Machine asks that it survive the loss of power of the machine before it
	// is answered.
	Machine bool
}

// Flush asks that all appended so far be made to survive loss of power.
type Flush struct{ Gen Generation }

// TrimLog asks that the log start be raised to To.
type TrimLog struct {
	Gen Generation
	ID  RequestID
	To  int64
}

// Retain asks the store to apply retention.
type Retain struct {
	Gen     Generation
	Ceiling int64
	Now     time.Time
	Age     time.Duration
	Bytes   int64
}

// PutSnapshot asks that producer state be kept beside the log.
type PutSnapshot struct {
	Gen    Generation
	Offset int64
	Data   []byte
}

// Close asks that the log be closed cleanly: the machine has ended, or does not
// lead any more.
type Close struct{ Gen Generation }

// Response answers an Append or a Trim.
type Response struct {
	ID            RequestID
	BaseOffset    int64 // of an append; -1 with an error
	LogAppendTime int64 // milliseconds, or -1
	LogStart      int64 // also the low watermark after a trim; -1 where not known
	Epoch         model.LeaderEpoch
	Err           error
	// Refused comes with the error of an append: nothing of it is in the log, nor
	// will be. Without it that is open.
	Refused bool
}

// Timer names a timer of a machine. There is one of each.
type Timer int8

// The timers.
const (
	TimerDeadline  Timer = iota // the earliest deadline of a waiting client
	TimerStall                  // the oldest append under way has had no answer
	TimerBackoff                // open, or append, again
	TimerFlush                  // flush
	TimerRetention              // look at retention
	TimerSnapshot               // store producer state
	TimerSubscribe              // subscribe, or do so again where no answer came
	TimerLag                    // look for followers that have been behind for too long
	TimerISR                    // ask for another ISR, again
	TimerCommit                 // look whether what waits is committed, while others may lead
	TimerExpiry                 // forget idle producers; the last
)

var timerNames = [...]string{"deadline", "stall", "backoff", "flush", "retention", "snapshot", "subscribe", "lag", "isr", "commit", "expiry"}

// String is for logs and stories.
func (t Timer) String() string {
	if t < 0 || int(t) >= len(timerNames) {
		return "timer"
	}
	return timerNames[t]
}

// SetTimer asks for Fired at the given time, in place of an earlier request for
// the same timer.
type SetTimer struct {
	Timer Timer
	At    time.Time
}

// NoticeKind says what a notice is about.
type NoticeKind int8

// The notices.
const (
	NoticeOpened      NoticeKind = iota // the log is open and served
	NoticeReopening                     // the log is being opened again
	NoticeMayHaveLost                   // the store may have lost a suffix before this opening
	NoticeLost                          // records that had been acknowledged are gone
	NoticeOffline                       // the replica does not serve
	NoticeRefused                       // the store refused appends that were given offsets
	NoticeFailed                        // a call in the background failed; it is repeated
	NoticeTruncated                     // a follower drops what its leader does not have
	NoticeResigning                     // a leader whose log is not whole has another replica lead
)

var noticeNames = [...]string{"opened", "reopening", "may-have-lost", "lost", "offline", "refused", "failed", "truncated", "resigning"}

// String is for logs and stories.
func (k NoticeKind) String() string {
	if k < 0 || int(k) >= len(noticeNames) {
		return "notice"
	}
	return noticeNames[k]
}

// Notice is something that an operator may want to know. From and To are
// offsets, where the kind has any.
type Notice struct {
	Kind NoticeKind
	From int64
	To   int64
	Text string
	Err  error
}
