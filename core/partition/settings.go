package partition

import (
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// FlushPolicy says when an append counts towards the high watermark.
type FlushPolicy int8

// The policies.
const (
	// FlushReplicated: the page cache may hold it while at least two replicas
	// are in sync; a leader alone syncs before it counts.
	FlushReplicated FlushPolicy = iota
	// FlushAlways: only what survives loss of power counts.
	FlushAlways
	// FlushInterval: what survives a killed process counts; a flush follows
	// every Settings.FlushEvery.
	FlushInterval
)

// Settings are the topic's and the broker's settings that concern a replica.
// They may change at any time. Values are taken as they are: whoever resolves
// settings has validated them.
type Settings struct {
	MinISR     int // as configured; see Lead for what is in effect
	Flush      FlushPolicy
	FlushEvery time.Duration // for FlushInterval

	ProducerExpiry time.Duration // idle producers are forgotten after this

	Delete         bool          // cleanup.policy has delete: retention applies
	Compact        bool          // cleanup.policy has compact
	RetentionAge   time.Duration // zero or less: no limit
	RetentionBytes int64         // negative: no limit
	RetentionEvery time.Duration // how often retention is looked at; zero or less: never
}

// DefaultSettings are Kafka's, but for the flush policy, which is ours.
func DefaultSettings() Settings {
	return Settings{
		MinISR:         1,
		Flush:          FlushReplicated,
		FlushEvery:     time.Second,
		ProducerExpiry: 24 * time.Hour,
		Delete:         true,
		RetentionAge:   7 * 24 * time.Hour,
		RetentionBytes: -1,
		RetentionEvery: 5 * time.Minute,
	}
}

// Limits bound what one machine holds.
type Limits struct {
	InFlightBatches int   // under way to the store; of a follower, messages of the leader
	InFlightBytes   int64 // likewise; one of any size always goes
	QueuedBatches   int   // waiting for their turn, or for the log to open; likewise for the high watermark
	QueuedBytes     int64
	Producers       int // idempotent producers remembered; the idlest go first

	AppendStall   time.Duration // an append without an answer for so long has an unknown outcome
	BackoffMin    time.Duration // before a failed open or append is tried again
	BackoffMax    time.Duration
	SnapshotEvery time.Duration // between snapshots of producer state
	SnapshotAfter int           // batches after which a snapshot does not wait for that
	ScanBatches   int           // headers asked for at once while recovering

	LagMax     time.Duration // a follower that is behind for longer leaves the ISR; zero: never
	AnswerWait time.Duration // a subscription without an answer for so long is made anew
	// CommitMax is how long clients wait for a leader that commits nothing, while others may
	// lead by now, before they are sent to look who does; zero: as long as they have asked for.
	CommitMax time.Duration
}

// DefaultLimits are the product's.
func DefaultLimits() Limits {
	return Limits{
		InFlightBatches: 1024,
		InFlightBytes:   16 << 20,
		QueuedBatches:   4096,
		QueuedBytes:     32 << 20,
		Producers:       50_000,
		AppendStall:     10 * time.Second,
		BackoffMin:      20 * time.Millisecond,
		BackoffMax:      2 * time.Second,
		SnapshotEvery:   5 * time.Minute,
		SnapshotAfter:   50_000,
		ScanBatches:     4096,
		LagMax:          5 * time.Second,
		AnswerWait:      2 * time.Second,
		CommitMax:       250 * time.Millisecond,
	}
}

// Config is what a machine is made with.
type Config struct {
	Partition model.Partition
	Node      model.NodeID
	Limits    Limits
	Settings  Settings
	// Session is below every one that is drawn, and no other machine of this replica
	// draws any above it: the broker epoch, shifted by 32, does for a life of the broker,
	// and where the replica has had another machine in this life, that one's LastSession.
	Session Session
}
