package api

import (
	"context"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
)

// internalName reports whether a topic of this name is Kafka's own, whoever
// makes it.
func internalName(name string) bool {
	return name == model.OffsetsTopic || name == "__transaction_state"
}

// internal reports whether a topic is shown as internal, and kept from producers.
func internal(t *image.Topic) bool { return t.Internal || internalName(t.Name) }

// askedPartition is one partition of a request that names topics: with err, or
// with where its answer goes.
type askedPartition struct {
	topic, partition int // places in the request
	id               model.Partition
}

// asked sorts out the partitions of a request: those to ask about, and an error
// for each of the others.
type asked struct {
	ask  []askedPartition
	errs [][]error // by topic and partition, nil where it is asked
}

// repetition says what becomes of a partition that a request names twice.
type repetition bool

const (
	repetitionRefused  repetition = false // both times
	repetitionAnswered repetition = true  // each time
)

// sortOut authorizes topics by name before they are looked up, and finds
// partitions.
func (h *Handler) sortOut(ctx context.Context, from caller, img *image.Image, op security.Operation, names []string, partitions [][]int32, r repetition) asked {
	a := asked{errs: make([][]error, len(names))}
	var twice map[namedPartition]bool
	if r == repetitionRefused {
		twice = repeated(names, partitions)
	}
	for i, name := range names {
		a.errs[i] = make([]error, len(partitions[i]))
		allowed := h.mayTopic(ctx, from, op, name)
		t, exists := img.TopicByName(name)
		for j, index := range partitions[i] {
			switch {
			case !allowed:
				a.errs[i][j] = model.ErrTopicAuthorization
			case twice[namedPartition{name, index}]:
				a.errs[i][j] = model.ErrInvalidRequest
			case !exists || index < 0 || int(index) >= len(t.Partitions):
				a.errs[i][j] = model.ErrUnknownTopicOrPartition
			default:
				a.ask = append(a.ask, askedPartition{topic: i, partition: j, id: model.Partition{Topic: t.ID, Index: index}})
			}
		}
	}
	return a
}

type namedPartition struct {
	topic string
	index int32
}

func repeated(names []string, partitions [][]int32) map[namedPartition]bool {
	seen := make(map[namedPartition]bool)
	for i, name := range names {
		for _, index := range partitions[i] {
			k := namedPartition{name, index}
			_, again := seen[k]
			seen[k] = again
		}
	}
	return seen
}
