package model

import "time"

// Values of the group coordinator: what the edge asks, and what it is answered. A
// slice in a question belongs to whoever is asked; one in an answer must not be
// changed. "" stands for a field that a client left out.

// OffsetsTopic is the internal topic that holds what groups commit, and the groups
// themselves.
const OffsetsTopic = "__consumer_offsets"

// GroupState is where a group is in its life.
type GroupState int8

// The states of a group of the classic protocol, in the order of their life.
const (
	GroupDead GroupState = iota
	GroupEmpty
	GroupPreparingRebalance
	GroupCompletingRebalance
	GroupStable
)

// String is Kafka's name of the state.
func (s GroupState) String() string {
	switch s {
	case GroupEmpty:
		return "Empty"
	case GroupPreparingRebalance:
		return "PreparingRebalance"
	case GroupCompletingRebalance:
		return "CompletingRebalance"
	case GroupStable:
		return "Stable"
	}
	return "Dead"
}

// GroupProtocol is one way of assigning partitions that a member offers; the
// metadata is the client's own.
type GroupProtocol struct {
	Name     string
	Metadata []byte
}

// JoinGroup asks to become, or to stay, a member. It is answered when the group
// has its next generation.
type JoinGroup struct {
	Group            string
	MemberID         string // "" of one that has none yet
	InstanceID       string // of a static member (KIP-345)
	ClientID         string
	ClientHost       string
	ProtocolType     string
	Protocols        []GroupProtocol // in the member's order of preference
	SessionTimeout   time.Duration
	RebalanceTimeout time.Duration
	// AsksForID: a member without an ID is given one first, and told to join with it
	// (ErrMemberIDRequired, KIP-394).
	AsksForID bool
	// SkipsAssignment: a leader that returns may be told to keep what was assigned
	// (KIP-814).
	SkipsAssignment bool
	Reason          string
}

// JoinedMember is one member, as the leader of the group is told.
type JoinedMember struct {
	MemberID   string
	InstanceID string
	Metadata   []byte // for the protocol that was chosen
}

// JoinedGroup answers JoinGroup. MemberID is set with ErrMemberIDRequired too.
type JoinedGroup struct {
	Generation     int32 // -1 with an error
	ProtocolType   string
	Protocol       string
	Leader         string
	MemberID       string
	SkipAssignment bool
	Members        []JoinedMember // for the leader only
	Err            error
}

// MemberAssignment is what the leader gives one member.
type MemberAssignment struct {
	MemberID   string
	Assignment []byte
}

// SyncGroup asks for the member's assignment; the leader brings all of them.
type SyncGroup struct {
	Group        string
	Generation   int32
	MemberID     string
	InstanceID   string
	ProtocolType string // "": not checked
	Protocol     string // "": not checked
	Assignments  []MemberAssignment
}

// SyncedGroup answers SyncGroup, after the assignment is durable.
type SyncedGroup struct {
	ProtocolType string
	Protocol     string
	Assignment   []byte
	Err          error
}

// GroupHeartbeat says that a member lives.
type GroupHeartbeat struct {
	Group      string
	Generation int32
	MemberID   string
	InstanceID string
}

// LeavingMember is one member that goes: by its ID, its instance ID, or both.
type LeavingMember struct {
	MemberID   string
	InstanceID string
	Reason     string
}

// LeaveGroup removes members.
type LeaveGroup struct {
	Group   string
	Members []LeavingMember
}

// LeftGroup answers LeaveGroup; Members are the errors of each, in order.
type LeftGroup struct {
	Members []error
	Err     error
}

// TopicPartition names a partition by its topic's name, as groups keep it.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// GroupOffset is a committed offset.
type GroupOffset struct {
	TopicPartition
	TopicID     TopicID // zero where it was not known
	Offset      int64   // -1: there is none
	LeaderEpoch LeaderEpoch
	Metadata    string
}

// CommitOffsets stores the offsets of a group. Generation -1 without a member is
// a commit from outside, which a group with members refuses.
type CommitOffsets struct {
	Group      string
	Generation int32
	MemberID   string
	InstanceID string
	// Retention is how long the offsets are to be kept, where an old client says so;
	// negative: as the broker has it.
	Retention time.Duration
	// Offsets belongs to whoever asks again when the question was answered.
	Offsets []GroupOffset
}

// CommittedOffsets answers CommitOffsets, after they are durable: one error for each
// offset, in order; with Err, which is about the group, none of them.
type CommittedOffsets struct {
	Offsets []error
	Err     error
}

// FetchOffsets asks for committed offsets of one group. MemberID and Epoch are "" and -1
// of who does not say them. Groups of the classic protocol, whose members have no epochs,
// do not look at them.
type FetchOffsets struct {
	Group      string
	MemberID   string
	Epoch      int32
	Partitions []TopicPartition
	All        bool // of all partitions there are; Partitions is empty then
}

// FetchedOffsets answers FetchOffsets; in the order asked, or by topic and partition.
type FetchedOffsets struct {
	Offsets []GroupOffset
	Err     error
}

// DeleteOffsets removes committed offsets.
type DeleteOffsets struct {
	Group      string
	Partitions []TopicPartition
}

// DeletedOffsets answers DeleteOffsets, after the removal is durable.
type DeletedOffsets struct {
	Partitions []error
	Err        error
}

// DescribedMember is one member of a described group.
type DescribedMember struct {
	MemberID   string
	InstanceID string
	ClientID   string
	ClientHost string
	Metadata   []byte // for the group's protocol; empty unless Stable
	Assignment []byte
}

// DescribedGroup answers for one group; one that is not there has ErrGroupIDNotFound
// and is Dead.
type DescribedGroup struct {
	Group        string
	State        GroupState
	ProtocolType string
	Protocol     string
	Members      []DescribedMember
	Err          error
}

// ListedGroup is one line of a list.
type ListedGroup struct {
	Group        string
	ProtocolType string
	State        GroupState
}

// ListedGroups answers a list; with ErrCoordinatorLoading some groups are missing.
type ListedGroups struct {
	Groups []ListedGroup
	Err    error
}
