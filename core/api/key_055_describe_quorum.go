package api

// DescribeQuorum (55), versions 0 to 2. (KIP-595, KIP-853)
//
// A node of the quorum is shown where clients reach its broker: the listener that
// they asked through. Whichever broker is asked, the quorum's leader answers.

import (
	"context"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metadataTopic is Kafka's name of the metadata log. It is no topic here.
const metadataTopic = "__cluster_metadata"

func (h *Handler) describeQuorum(ctx context.Context, from caller, req *kmsg.DescribeQuorumRequest) *kmsg.DescribeQuorumResponse {
	resp := kmsg.NewPtrDescribeQuorumResponse()
	if !h.mayCluster(ctx, from, security.OpDescribe) {
		resp.ErrorCode = h.code(model.ErrClusterAuthorization)
		return resp
	}
	whole := len(req.Topics) == 1 && req.Topics[0].Topic == metadataTopic &&
		len(req.Topics[0].Partitions) == 1 && req.Topics[0].Partitions[0].Partition == 0
	for _, t := range req.Topics {
		out := kmsg.NewDescribeQuorumResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			part := kmsg.NewDescribeQuorumResponseTopicPartition()
			part.Partition = p.Partition
			err := fmt.Errorf("the quorum is partition 0 of %s alone: %w", metadataTopic, model.ErrUnknownTopicOrPartition)
			if whole {
				err = h.quorumPartition(ctx, &part)
			}
			if err == nil {
				resp.Nodes = h.quorumNodes(from.Listener, part.CurrentVoters)
			}
			part.ErrorCode, part.ErrorMessage = h.code(err), h.message(err)
			out.Partitions = append(out.Partitions, part)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (h *Handler) quorumPartition(ctx context.Context, out *kmsg.DescribeQuorumResponseTopicPartition) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeoutDefault)
	defer cancel()
	s, err := h.deps.Quorum.Describe(ctx)
	if err != nil {
		out.LeaderID, out.LeaderEpoch, out.HighWatermark = int32(model.NoNode), model.NoEpoch, -1
		return err
	}
	out.LeaderID, out.LeaderEpoch, out.HighWatermark = int32(s.Leader), s.Epoch, s.HighWatermark
	for _, v := range s.Voters {
		out.CurrentVoters = append(out.CurrentVoters, h.quorumMember(s.Leader, v))
	}
	for _, v := range s.Observers {
		out.Observers = append(out.Observers, h.quorumMember(s.Leader, v))
	}
	return nil
}

func (h *Handler) quorumMember(leader model.NodeID, v model.QuorumVoter) kmsg.DescribeQuorumResponseTopicPartitionReplicaState {
	r := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
	r.ReplicaID, r.ReplicaDirectoryID, r.LogEndOffset = int32(v.ID), v.Directory, v.LEO
	if v.ID == leader { // of itself it knows everything now
		v.LastContact = h.now()
		v.LastCaughtUp = v.LastContact
	}
	r.LastFetchTimestamp, r.LastCaughtUpTimestamp = millis(v.LastContact), millis(v.LastCaughtUp)
	return r
}

// millis is a time as Kafka's protocol has it; -1 for one that is not known.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return -1
	}
	return t.UnixMilli()
}

func (h *Handler) quorumNodes(listener string, voters []kmsg.DescribeQuorumResponseTopicPartitionReplicaState) []kmsg.DescribeQuorumResponseNode {
	img := h.deps.Metadata.Image()
	var out []kmsg.DescribeQuorumResponseNode
	for _, v := range voters {
		b, ok := img.Broker(model.NodeID(v.ReplicaID))
		if !ok {
			continue
		}
		n := kmsg.NewDescribeQuorumResponseNode()
		n.NodeID = v.ReplicaID
		if shown, ok := nodeOf(b, listener); ok {
			l := kmsg.NewDescribeQuorumResponseNodeListener()
			l.Name, l.Host, l.Port = listener, shown.host, uint16(shown.port)
			n.Listeners = append(n.Listeners, l)
		}
		out = append(out, n)
	}
	return out
}
