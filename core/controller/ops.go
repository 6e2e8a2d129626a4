package controller

import (
	"github.com/brokerd/brokerd/core/model"
)

// Op is what a command asks for.
type Op interface{ op() }

// The operations.
type (
	// CreateTopics is answered by Answer.Topics.
	CreateTopics struct {
		Topics       []model.NewTopic
		ValidateOnly bool
	}
	// DeleteTopics is answered by Answer.Topics.
	DeleteTopics struct{ Topics []model.TopicRef }
	// CreatePartitions is answered by Answer.Errs.
	CreatePartitions struct {
		More         []model.MorePartitions
		ValidateOnly bool
	}
	// AlterConfigs is answered by Answer.Errs.
	AlterConfigs struct {
		Changes      []model.ConfigChange
		ValidateOnly bool
	}
	// AllocateProducerIDs is answered by Answer.ProducerIDs.
	AllocateProducerIDs struct{}
	// RegisterBroker is answered by Answer.Epoch. The broker is fenced until its first
	// heartbeat that has caught up.
	RegisterBroker struct{ Registration Registration }
	// Heartbeat says that a broker is there, and asks for what it may do. It is answered
	// by Answer.Heartbeat. (KIP-631)
	Heartbeat struct {
		Broker model.NodeID
		Epoch  model.BrokerEpoch
		// Offset is that of the metadata that the broker has.
		Offset int64
		// WantFence asks to be fenced, or to stay so; WantShutdown to be let go.
		WantFence, WantShutdown bool
		// Offline are the broker's directories that do not serve. (KIP-858)
		Offline []model.DirectoryID
	}
	// AlterISR is what a leader asks for. It is answered by Answer.ISR. (AlterPartition)
	AlterISR struct {
		Broker      model.NodeID
		BrokerEpoch model.BrokerEpoch
		Changes     []model.ISRChange
	}
	// ElectLeaders makes the preferred replicas leaders; with Unclean, any replica that is
	// up where nobody leads, though records may be lost. It is answered by Answer.Errs.
	// (KIP-460)
	ElectLeaders struct {
		Partitions []model.Partition
		Unclean    bool
	}
	// AlterReassignments gives partitions other replicas. It is answered by Answer.Errs.
	// (KIP-455)
	AlterReassignments struct{ Changes []model.Reassignment }
	// ReportLogs says how long logs are of which all replicas that were in sync may have
	// lost something: those partitions that nobody leads, with neither ISR nor ELR, and
	// this broker in the last known ELR. It is said again until somebody leads. What is said by
	// metadata of another partition epoch counts for nothing.
	ReportLogs struct {
		Broker model.NodeID
		Epoch  model.BrokerEpoch
		Logs   []model.LogEnd
	}
	// FenceBroker fences a broker, until its next heartbeat.
	FenceBroker struct {
		ID    model.NodeID
		Epoch model.BrokerEpoch
	}
	// UnregisterBroker forgets a broker.
	UnregisterBroker struct {
		ID    model.NodeID
		Epoch model.BrokerEpoch
	}
	// ConfirmRemoval says that a directory no longer holds logs of these removed
	// topics.
	ConfirmRemoval struct {
		Directory model.DirectoryID
		Topics    []model.TopicID
	}
)

func (CreateTopics) op()        {}
func (DeleteTopics) op()        {}
func (CreatePartitions) op()    {}
func (AlterConfigs) op()        {}
func (AllocateProducerIDs) op() {}
func (RegisterBroker) op()      {}
func (Heartbeat) op()           {}
func (AlterISR) op()            {}
func (ElectLeaders) op()        {}
func (AlterReassignments) op()  {}
func (ReportLogs) op()          {}
func (FenceBroker) op()         {}
func (UnregisterBroker) op()    {}
func (ConfirmRemoval) op()      {}

// Answer is what a command came to. Err is about the whole of it; the operation
// says which other field is filled.
type Answer struct {
	Topics      []model.TopicResult
	Errs        []error
	ProducerIDs model.ProducerIDBlock
	Epoch       model.BrokerEpoch
	Heartbeat   HeartbeatAnswer
	ISR         []model.ISRResult
	Err         error
}

// HeartbeatAnswer is what a broker may do, as it is committed.
type HeartbeatAnswer struct {
	// Fenced: it may not serve. It may once it has caught up with its registration.
	Fenced   bool
	CaughtUp bool
	// ShuttingDown: the controller knows that it wants to stop.
	ShuttingDown bool
	// MayShutDown: nobody counts on it any longer, as far as that can be.
	MayShutDown bool
	// Offset is of the metadata that this is by: what was committed before is in it.
	Offset int64
}
