package replica

import (
	"testing"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
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

// TestAChangeOfOnePartitionConcernsItAlone, and one of its topic's settings, or of the
// broker's registration, all of them.
func TestAChangeOfOnePartitionConcernsItAlone(t *testing.T) {
	s := newStepped(t)
	m, err := New(testConfig(), Deps{Directories: []Directory{{ID: testDir, Name: "main", Store: s.store}}, Logger: discard(), Clock: s.clock, Executor: s.exec})
	if err != nil {
		t.Fatal(err)
	}
	s.m = m
	c := newCluster(t, topicRecords(testTopic, "orders", 10)...)
	for _, test := range []struct {
		record image.Record
		inputs int
	}{
		{&image.TopicRecord{ID: model.TopicID{9}, Name: "other", ReplicationFactorTarget: 1}, 10}, // the first image
		{&image.TopicRecord{ID: model.TopicID{8}, Name: "another", ReplicationFactorTarget: 1}, 0},
		{&image.PartitionChangeRecord{Partition: part(3), LeaderChange: true, Leader: 1}, 1},
		{&image.BrokerRecord{ID: 1, Directories: []model.DirectoryID{testDir}, Incarnation: [16]byte{7}}, 10},
		{&image.ConfigRecord{Resource: model.Resource{Type: model.ResourceTopic, Name: "orders"}, Key: "segment.bytes", Value: "2097152"}, 10},
	} {
		s.m.Apply(c.apply(test.record))
		n := 0
		for _, l := range s.m.Loops() {
			n += l.Pending()
		}
		if n != test.inputs {
			t.Errorf("%T: %d replicas hear of it, want %d", test.record, n, test.inputs)
		}
		s.settle()
	}
}

// TestAReplicaInAnotherDirectoryBeginsAnew: the one that the metadata had before is not this
// broker's, or is given up with the log that is in it.
func TestAReplicaInAnotherDirectoryBeginsAnew(t *testing.T) {
	s, c, _ := byHand(t)
	s.settle()
	gone := model.DirectoryID{0xee}
	place := func(dir model.DirectoryID) {
		s.m.Apply(c.apply(&image.PartitionChangeRecord{Partition: part(0), Directories: []model.DirectoryID{dir}}))
		s.settle()
	}
	logs := func() int {
		all, err := s.store.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	status := func() partition.Status { return (*s.m.replicas.Load())[part(0)].view.Load().Status }
	before := logs()
	if before == 0 || status() != partition.StatusServing {
		t.Fatalf("%d logs, status %d", before, status())
	}
	place(gone)
	if status() != partition.StatusOffline || logs() != before-1 {
		t.Fatalf("in a directory that is not this broker's: status %d, %d logs of %d", status(), logs(), before)
	}
	place(testDir)
	if status() != partition.StatusServing || logs() != before {
		t.Fatalf("in a directory of this broker's again: status %d, %d logs of %d", status(), logs(), before)
	}
}
