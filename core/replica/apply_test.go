package replica

import (
	"testing"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// TestRemovedTopicsAreForgotten: also those of which this broker had no replica.
func TestRemovedTopicsAreForgotten(t *testing.T) {
	s, c, _ := byHand(t)
	elsewhere := model.TopicID{9}
	s.m.Apply(c.apply(&image.TopicRecord{ID: elsewhere, Name: "other", ReplicationFactorTarget: 1},
		&image.PartitionRecord{Partition: model.Partition{Topic: elsewhere}, Registration: image.Partition{
			Replicas: []model.NodeID{2}, Directories: []model.DirectoryID{{0xd2}}, ISR: []model.NodeID{2}, Leader: 2,
		}}))
	s.settle()
	if len(s.m.topics) != 2 {
		t.Fatalf("%d topics are known, want 2", len(s.m.topics))
	}
	s.m.Apply(c.apply(&image.TopicRemovalRecord{ID: elsewhere, Name: "other"},
		&image.TopicRemovalRecord{ID: testTopic, Name: "orders", Directories: []model.DirectoryID{testDir}}))
	s.settle()
	if len(s.m.topics) != 0 || len(*s.m.replicas.Load()) != 0 {
		t.Fatalf("%d topics and %d replicas are known, want none", len(s.m.topics), len(*s.m.replicas.Load()))
	}
}
