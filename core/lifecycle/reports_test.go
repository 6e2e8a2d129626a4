package lifecycle

import (
	"slices"
	"testing"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

func TestReports(t *testing.T) {
	id, dirs := model.TopicID{7}, []model.DirectoryID{{1}, {2}}
	replicas, first := []model.NodeID{1, 2}, []model.NodeID{1}
	records := []image.Record{
		&image.ClusterRecord{Cluster: image.Cluster{ID: "test", FeatureLevel: 1}},
		&image.TopicRecord{ID: id, Name: "orders", ReplicationFactorTarget: 2},
	}
	for i, p := range []image.Partition{
		{Leader: 1, ISR: first, LastKnownELR: []model.NodeID{2}},
		{Leader: model.NoNode, LastKnownELR: first},
		{Leader: model.NoNode, ISR: first, LastKnownELR: first},
		{Leader: model.NoNode, ELR: first, LastKnownELR: first},
		{Leader: model.NoNode, LastKnownELR: replicas},
	} {
		p.Replicas, p.Directories = replicas, dirs
		records = append(records, &image.PartitionRecord{Partition: model.Partition{Topic: id, Index: int32(i)}, Registration: p})
	}
	img, err := image.FromRecords(5, records...)
	if err != nil {
		t.Fatal(err)
	}
	for node, want := range map[model.NodeID][]model.Partition{1: {{Topic: id, Index: 1}, {Topic: id, Index: 4}}, 2: {{Topic: id, Index: 4}}, 3: nil} {
		if got := Reports(img, node); !slices.Equal(got, want) {
			t.Errorf("broker %d reports %v, want %v", node, got, want)
		}
	}
}
