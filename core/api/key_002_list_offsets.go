package api

// ListOffsets (2), versions 1 to 11.
//
// Left out: tiered storage (KIP-405, KIP-1005): the earliest local offset is the
// earliest, and nothing is in a remote store, so that the answers to the latest
// tiered and the earliest pending upload are -1.

import (
	"context"
	"errors"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) listOffsets(ctx context.Context, from caller, req *kmsg.ListOffsetsRequest) *kmsg.ListOffsetsResponse {
	names, partitions := make([]string, len(req.Topics)), make([][]int32, len(req.Topics))
	for i, t := range req.Topics {
		names[i] = t.Topic
		for _, p := range t.Partitions {
			partitions[i] = append(partitions[i], p.Partition)
		}
	}
	a := h.sortOut(ctx, from, h.deps.Metadata.Image(), security.OpDescribe, names, partitions, repetitionRefused)
	var queries []model.OffsetQuery
	var kept []askedPartition
	for _, q := range a.ask {
		p := req.Topics[q.topic].Partitions[q.partition]
		if !servesTimestamp(req.Version, p.Timestamp) {
			a.errs[q.topic][q.partition] = model.ErrUnsupportedVersion
			continue
		}
		kept = append(kept, q)
		queries = append(queries, model.OffsetQuery{
			Partition: q.id, Timestamp: localTimestamp(p.Timestamp),
			CurrentEpoch: p.CurrentLeaderEpoch, Isolation: isolation(req.IsolationLevel),
		})
	}
	resp := kmsg.NewPtrListOffsetsResponse()
	for i, t := range req.Topics {
		out := kmsg.NewListOffsetsResponseTopic()
		out.Topic = t.Topic
		for j, p := range t.Partitions {
			part := kmsg.NewListOffsetsResponseTopicPartition()
			part.Partition, part.ErrorCode = p.Partition, h.code(a.errs[i][j])
			out.Partitions = append(out.Partitions, part)
		}
		resp.Topics = append(resp.Topics, out)
	}
	if len(queries) == 0 {
		return resp
	}
	for i, answer := range h.deps.Partitions.Offsets(ctx, queries) {
		q := kept[i]
		asked := req.Topics[q.topic].Partitions[q.partition].Timestamp
		h.putOffset(&resp.Topics[q.topic].Partitions[q.partition], req.Version, asked, answer)
	}
	return resp
}

func (h *Handler) putOffset(out *kmsg.ListOffsetsResponseTopicPartition, version int16, asked int64, a model.OffsetAnswer) {
	if errors.Is(a.Err, model.ErrOffsetNotAvailable) && version < 5 {
		a.Err = model.ErrLeaderNotAvailable // KIP-207
	}
	if out.ErrorCode = h.dataCode(a.Err); a.Err != nil || remoteTimestamp(asked) {
		return
	}
	out.Offset, out.Timestamp, out.LeaderEpoch = a.Offset, a.Timestamp, a.LeaderEpoch
}

// servesTimestamp: special timestamps came one by one. (KIP-734, 405, 1005)
func servesTimestamp(version int16, timestamp int64) bool {
	switch timestamp {
	case model.TimestampLatest, model.TimestampEarliest:
		return true
	case model.TimestampMax:
		return version >= 7
	case model.TimestampEarliestLocal:
		return version >= 8
	case model.TimestampLatestTiered:
		return version >= 9
	case model.TimestampEarliestRemote:
		return version >= 11
	}
	return timestamp >= 0
}

func remoteTimestamp(timestamp int64) bool {
	return timestamp == model.TimestampLatestTiered || timestamp == model.TimestampEarliestRemote
}

// localTimestamp asks for what there is without a remote store. Where there is
// no answer the earliest offset is asked for, to learn whether this broker leads.
func localTimestamp(timestamp int64) int64 {
	if timestamp == model.TimestampEarliestLocal || remoteTimestamp(timestamp) {
		return model.TimestampEarliest
	}
	return timestamp
}
