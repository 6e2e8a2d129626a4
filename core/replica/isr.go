package replica

import (
	"errors"
	"fmt"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
)

// alteration is what one machine has asked of the controller, and its answer.
type alteration struct {
	replica *replica
	in      partition.Altered
}

// alter remembers what a machine asks of the controller.
func (s *Shard) alter(r *replica, a *partition.AlterISR) {
	s.changes = append(s.changes, model.ISRChange{Partition: r.id, LeaderEpoch: a.Epoch, PartitionEpoch: a.PartitionEpoch, ISR: a.ISR, Lost: a.Lost})
	s.changing = append(s.changing, alteration{r, partition.Altered{Epoch: a.Epoch, PartitionEpoch: a.PartitionEpoch, Lost: a.Lost}})
}

var errUnanswered = errors.New("the controller has not answered for every partition")

// sendChanges asks the controller for all changes of this turn.
func (s *Shard) sendChanges() {
	if len(s.changes) == 0 {
		return
	}
	changes, asked := s.changes, s.changing
	s.changes, s.changing = nil, nil
	s.controller.AlterISR(changes, func(results []model.ISRResult, err error) {
		for i := range asked {
			in := &asked[i].in
			switch {
			case err != nil:
				in.Outcome, in.Err = partition.OutcomeUnknown, fmt.Errorf("ask the controller: %w", err)
			case len(results) != len(asked):
				in.Outcome, in.Err = partition.OutcomeUnknown, errUnanswered
			default:
				in.Outcome, in.Err = outcomeOf(results[i].Err), results[i].Err
				in.NewPartitionEpoch, in.ISR = results[i].PartitionEpoch, results[i].ISR
			}
		}
		s.loop.Complete(Input{kind: inputAltered, rare: &rare{altered: asked}})
	})
}

// outcomeOf is what the controller's error promises, for a machine. (KIP-497, KIP-841)
func outcomeOf(err error) partition.Outcome {
	switch {
	case err == nil:
		return partition.OutcomeDone
	case errors.Is(err, model.ErrIneligibleReplica):
		return partition.OutcomeIneligible
	case errors.Is(err, model.ErrFencedLeaderEpoch), errors.Is(err, model.ErrInvalidUpdateVersion), errors.Is(err, model.ErrNewLeaderElected),
		errors.Is(err, model.ErrUnknownTopicID), errors.Is(err, model.ErrInvalidRequest):
		return partition.OutcomeStale
	}
	return partition.OutcomeUnknown
}

// noController is used where there is no other broker.
type noController struct{}

func (noController) AlterISR(_ []model.ISRChange, done func([]model.ISRResult, error)) {
	done(nil, model.ErrNotController)
}
