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

// Quorum is the metadata quorum as this node sees it.
type Quorum interface {
	// Status never blocks. Where another node leads, the error is
	// ErrNotLeaderOrFollower.
	Status() (model.QuorumStatus, error)
	// UnregisterBroker forgets a broker that has this epoch. It returns as a
	// Controller's methods do.
	UnregisterBroker(ctx context.Context, id model.NodeID, epoch model.BrokerEpoch) error
}

// Metadata gives the broker's current view of the cluster. Image never blocks
// and never returns nil.
type Metadata interface {
	Image() *image.Image
}
