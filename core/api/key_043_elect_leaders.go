package api

// ElectLeaders (43), versions 0 to 2. (KIP-183, KIP-460)
//
// Left out: elections. A partition that is led as it should be is
// ELECTION_NOT_NEEDED; any other is told that nobody can be elected now.

import (
	"context"
	"fmt"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The kinds of election, in Kafka's numbers. Version 0 knows the first alone.
const (
	electPreferred int8 = 0
	electUnclean   int8 = 1
)

func (h *Handler) electLeaders(ctx context.Context, from caller, req *kmsg.ElectLeadersRequest) *kmsg.ElectLeadersResponse {
	img := h.deps.Metadata.Image()
	resp := kmsg.NewPtrElectLeadersResponse()
	var refused error
	switch {
	case !h.mayCluster(ctx, from, security.OpAlter):
		refused = model.ErrClusterAuthorization
	case req.ElectionType != electPreferred && req.ElectionType != electUnclean:
		refused = fmt.Errorf("election type %d is not known: %w", req.ElectionType, model.ErrInvalidRequest)
	}
	resp.ErrorCode = h.code(refused)
	if req.Topics == nil && refused == nil {
		resp.Topics = h.electEverywhere(img, req.ElectionType)
	}
	for _, t := range req.Topics {
		out := kmsg.NewElectLeadersResponseTopic()
		out.Topic = t.Topic
		topic, exists := img.TopicByName(t.Topic)
		for _, index := range t.Partitions {
			part := kmsg.NewElectLeadersResponseTopicPartition()
			part.Partition = index
			if refused != nil {
				part.ErrorCode, part.ErrorMessage = h.code(refused), h.message(refused)
				out.Partitions = append(out.Partitions, part)
				continue
			}
			var p image.Partition
			found := false
			if exists {
				p, found = partition(topic, index)
			}
			part.ErrorCode, part.ErrorMessage = h.elected(img, p, found, req.ElectionType)
			out.Partitions = append(out.Partitions, part)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// electEverywhere names all topics, and of their partitions those that are not
// led as they should be, as Kafka does.
func (h *Handler) electEverywhere(img *image.Image, kind int8) []kmsg.ElectLeadersResponseTopic {
	var all []kmsg.ElectLeadersResponseTopic
	for t := range img.Topics() {
		out := kmsg.NewElectLeadersResponseTopic()
		out.Topic = t.Name
		for i, p := range t.Partitions {
			part := kmsg.NewElectLeadersResponseTopicPartition()
			part.Partition = int32(i)
			part.ErrorCode, part.ErrorMessage = h.elected(img, p, true, kind)
			if part.ErrorCode != h.code(model.ErrElectionNotNeeded) {
				out.Partitions = append(out.Partitions, part)
			}
		}
		all = append(all, out)
	}
	return all
}

// elected says why no election takes place.
func (h *Handler) elected(img *image.Image, p image.Partition, found bool, kind int8) (wire.Code, *string) {
	answer := func(code wire.Code, why string) (wire.Code, *string) { return code, &why }
	_, led := alive(img, p.Leader)
	switch {
	case !found:
		return answer(h.code(model.ErrUnknownTopicOrPartition), "there is no such partition")
	case kind == electUnclean && led:
		return answer(h.code(model.ErrElectionNotNeeded), "the partition has a leader")
	case kind == electUnclean:
		return answer(h.code(model.ErrEligibleLeadersNotAvailable), "no replica can lead now")
	case led && p.Leader == p.Replicas[0]:
		return answer(h.code(model.ErrElectionNotNeeded), "the preferred replica leads")
	}
	return answer(h.code(model.ErrPreferredLeaderNotAvailable), "the preferred replica cannot lead now")
}
