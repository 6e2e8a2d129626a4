package api

// DescribeLogDirs (35), versions 1 to 4. (KIP-113, KIP-827)
//
// A log directory is a store here, and its path is the store's name. Left out:
// replicas on their way to another store (IsFuture is always false).

import (
	"cmp"
	"context"
	"slices"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) describeLogDirs(ctx context.Context, from caller, req *kmsg.DescribeLogDirsRequest) *kmsg.DescribeLogDirsResponse {
	resp := kmsg.NewPtrDescribeLogDirsResponse()
	resp.Dirs = []kmsg.DescribeLogDirsResponseDir{}
	if !h.mayCluster(ctx, from, security.OpDescribe) {
		resp.ErrorCode = h.code(model.ErrClusterAuthorization)
		return resp
	}
	img := h.deps.Metadata.Image()
	wanted := wantedReplicas(req)
	for _, d := range h.deps.Partitions.Directories(ctx) {
		out := kmsg.NewDescribeLogDirsResponseDir()
		out.Dir = d.Name
		if d.Err != nil {
			out.ErrorCode = h.code(model.ErrStorage)
		}
		out.TotalBytes, out.UsableBytes = -1, -1
		if d.TotalBytes > 0 {
			out.TotalBytes, out.UsableBytes = d.TotalBytes, d.FreeBytes
		}
		out.Topics = describedReplicas(img, d.Replicas, wanted)
		resp.Dirs = append(resp.Dirs, out)
	}
	return resp
}

// wantedReplicas says whether a replica was asked for. No list asks for all.
func wantedReplicas(req *kmsg.DescribeLogDirsRequest) func(topic string, index int32) bool {
	if req.Topics == nil {
		return func(string, int32) bool { return true }
	}
	named := make(map[namedPartition]bool)
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			named[namedPartition{t.Topic, p}] = true
		}
	}
	return func(topic string, index int32) bool { return named[namedPartition{topic, index}] }
}

// describedReplicas groups the replicas by topic, sorted. Logs of topics that
// the metadata does not know have no name to show.
func describedReplicas(img *image.Image, replicas []model.ReplicaStatus, wanted func(string, int32) bool) []kmsg.DescribeLogDirsResponseDirTopic {
	byName := make(map[string]*kmsg.DescribeLogDirsResponseDirTopic)
	for _, r := range replicas {
		t, ok := img.Topic(r.Partition.Topic)
		if !ok || !wanted(t.Name, r.Partition.Index) {
			continue
		}
		p := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		p.Partition, p.Size = r.Partition.Index, r.Bytes
		p.OffsetLag = max(0, r.HighWatermark-r.LEO)
		out, ok := byName[t.Name]
		if !ok {
			topic := kmsg.NewDescribeLogDirsResponseDirTopic()
			topic.Topic = t.Name
			out = &topic
			byName[t.Name] = out
		}
		out.Partitions = append(out.Partitions, p)
	}
	out := make([]kmsg.DescribeLogDirsResponseDirTopic, 0, len(byName))
	for _, t := range byName {
		slices.SortFunc(t.Partitions, func(a, b kmsg.DescribeLogDirsResponseDirTopicPartition) int {
			return cmp.Compare(a.Partition, b.Partition)
		})
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b kmsg.DescribeLogDirsResponseDirTopic) int { return cmp.Compare(a.Topic, b.Topic) })
	return out
}
