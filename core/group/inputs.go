package group

import (
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// Input is what a machine can be stepped with: a pointer to one of the types of
// this file. The machine does not keep the pointer, but slices and strings in it.
type Input interface{ input() }

// RequestID names a request to its host. The machine gives it back as it was.
type RequestID uint64

// Generation counts the loadings that a machine has asked for. What comes back for an
// earlier one is ignored. (Not a group's generation, which is an int32.)
type Generation uint64

// Record is one record of the offsets partition. Value is nil of a tombstone.
type Record struct {
	Key       []byte
	Value     []byte
	Timestamp int64 // milliseconds
}

// Lead makes this broker the coordinator of the machine's groups under Epoch: the
// machine asks for the log, and answers nothing but ErrCoordinatorLoading until all of
// it has been replayed. An epoch that is not above the last one is ignored, except that a
// machine which has resigned takes the last one too.
type Lead struct{ Epoch model.LeaderEpoch }

// Resign ends that: whoever waits is told ErrNotCoordinator, and all state is dropped.
type Resign struct{}

// Configure gives new settings.
type Configure struct{ Settings Settings }

// Replay brings the next records of the log, in the order of their offsets. Records
// that cannot be read are passed over with a notice.
type Replay struct {
	Gen     Generation
	Records []Record
}

// Loaded ends a replay. With an error the machine goes on answering
// ErrCoordinatorLoading, and asks for the log again after a while.
type Loaded struct {
	Gen Generation
	Err error
}

// Written answers Write effects, in the order of asking: the one named, alone. With an
// error nothing of it is in the log, nor will be: whoever cannot know that resigns the
// machine and leads it again instead, so that it replays what there is.
type Written struct {
	Gen Generation
	ID  WriteID
	Err error // nil: durable, as acks=all promises
}

// TopicsDeleted removes the offsets of topics from all groups.
type TopicsDeleted struct{ Topics []string }

// Fired tells that the time of the last Timer has come.
type Fired struct{}

// Requests, each with the name that its answer will have. Now comes with the step.
type (
	// Join is model.JoinGroup. Deadlines of the group answer it, no other.
	Join struct {
		ID RequestID
		model.JoinGroup
	}
	// Sync is model.SyncGroup.
	Sync struct {
		ID RequestID
		model.SyncGroup
	}
	// Heartbeat is model.GroupHeartbeat.
	Heartbeat struct {
		ID RequestID
		model.GroupHeartbeat
	}
	// Leave is model.LeaveGroup.
	Leave struct {
		ID RequestID
		model.LeaveGroup
	}
	// Commit is model.CommitOffsets.
	Commit struct {
		ID RequestID
		model.CommitOffsets
	}
	// FetchOffsets is model.FetchOffsets.
	FetchOffsets struct {
		ID RequestID
		model.FetchOffsets
	}
	// DeleteOffsets is model.DeleteOffsets.
	DeleteOffsets struct {
		ID RequestID
		model.DeleteOffsets
	}
	// Describe asks about one group.
	Describe struct {
		ID    RequestID
		Group string
	}
	// Delete removes a group that has no members, with its offsets.
	Delete struct {
		ID    RequestID
		Group string
	}
	// List asks about all groups.
	List struct{ ID RequestID }
)

// Settings are the operator's.
type Settings struct {
	// The bounds of a member's session timeout (group.min.session.timeout.ms,
	// group.max.session.timeout.ms).
	SessionMin, SessionMax time.Duration
	// InitialDelay is how long the first rebalance of an empty group waits for more
	// members (group.initial.rebalance.delay.ms).
	InitialDelay time.Duration
	// SizeMax bounds the members of a group (group.max.size).
	SizeMax int
	// MetadataMax bounds the metadata of one commit in bytes (offset.metadata.max.bytes).
	MetadataMax int
	// Retention is how long the offsets of a group without members are kept
	// (offsets.retention.minutes).
	Retention time.Duration
	// ExpiryEvery is how often that is looked at (offsets.retention.check.interval.ms).
	ExpiryEvery time.Duration
	// CommitTimeout is how long a client waits for its write
	// (offsets.commit.timeout.ms); the write goes on.
	CommitTimeout time.Duration
}

// DefaultSettings are Kafka's.
func DefaultSettings() Settings {
	return Settings{
		SessionMin:    6 * time.Second,
		SessionMax:    30 * time.Minute,
		InitialDelay:  3 * time.Second,
		SizeMax:       1<<31 - 1,
		MetadataMax:   4096,
		Retention:     7 * 24 * time.Hour,
		ExpiryEvery:   10 * time.Minute,
		CommitTimeout: 5 * time.Second,
	}
}

func (*Lead) input()          {}
func (*Resign) input()        {}
func (*Configure) input()     {}
func (*Replay) input()        {}
func (*Loaded) input()        {}
func (*Written) input()       {}
func (*TopicsDeleted) input() {}
func (*Fired) input()         {}
func (*Join) input()          {}
func (*Sync) input()          {}
func (*Heartbeat) input()     {}
func (*Leave) input()         {}
func (*Commit) input()        {}
func (*FetchOffsets) input()  {}
func (*DeleteOffsets) input() {}
func (*Describe) input()      {}
func (*Delete) input()        {}
func (*List) input()          {}
