package api

import (
	"context"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// Controller is the active controller as seen from a broker. Every method
// returns after what it decided is committed and is in this broker's image, or
// with an error that wraps a sentinel of model. The error result is about the
// whole command (ErrNotController, a deadline); each answer has its own too.
type Controller interface {
	CreateTopics(ctx context.Context, topics []model.NewTopic, validateOnly bool) ([]model.TopicResult, error)
	DeleteTopics(ctx context.Context, topics []model.TopicRef) ([]model.TopicResult, error)
	CreatePartitions(ctx context.Context, more []model.MorePartitions, validateOnly bool) ([]error, error)
	AlterConfigs(ctx context.Context, changes []model.ConfigChange, validateOnly bool) ([]error, error)
	// AllocateProducerIDs gives a block that no other caller gets. (KIP-730)
	AllocateProducerIDs(ctx context.Context) (model.ProducerIDBlock, error)
}

// Operations are what operators ask of the active controller. They return as a
// Controller's methods do, each item with an error of its own.
type Operations interface {
	// ElectLeaders has partitions led by their preferred replicas; with unclean, by any
	// that is up, where nobody leads. (KIP-460)
	ElectLeaders(ctx context.Context, partitions []model.Partition, unclean bool) ([]error, error)
	// AlterReassignments begins to give partitions other replicas, or ends it. (KIP-455)
	AlterReassignments(ctx context.Context, changes []model.Reassignment) ([]error, error)
	// UnregisterBroker forgets a broker that has this epoch.
	UnregisterBroker(ctx context.Context, id model.NodeID, epoch model.BrokerEpoch) error
}

// Quorum is the metadata quorum. What is asked of it goes to whoever leads it.
type Quorum interface {
	// Describe is the quorum as its leader sees it.
	Describe(ctx context.Context) (model.QuorumStatus, error)
	// AddVoter makes a member vote that has caught up, and RemoveVoter takes its vote.
	// (KIP-853)
	AddVoter(ctx context.Context, id model.NodeID, dir model.DirectoryID) error
	RemoveVoter(ctx context.Context, id model.NodeID, dir model.DirectoryID) error
	// RemoveMember forgets a member that does not vote.
	RemoveMember(ctx context.Context, id model.NodeID, dir model.DirectoryID) error
}

// Metadata gives the broker's current view of the cluster. Image never blocks
// and never returns nil.
type Metadata interface {
	Image() *image.Image
}
