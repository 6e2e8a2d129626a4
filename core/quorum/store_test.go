package quorum

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/brokerd/brokerd/core/model"
)

// A follower hears of entries and that they are committed in one message. Where the disk took
// neither, as one that is full, the end must not write that they are committed: a log that
// ends before its commit index counts as damaged, and never opens again.
func TestEndAfterASaveThatFailed(t *testing.T) {
	disk := &memDisk{stored: &Stored{
		Identity: Identity{ClusterID: "c", NodeID: 1, DirectoryID: model.DirectoryID{1}},
		Hard:     &raftpb.HardState{Term: proto.Uint64(1), Commit: proto.Uint64(1)},
		Snapshot: drawnSnapshot(1, 1),
	}}
	stored, err := disk.Load()
	if err != nil {
		t.Fatal(err)
	}
	s, err := openStore(disk, stored)
	if err != nil {
		t.Fatal(err)
	}
	disk.die = true
	err = s.save(raft.Ready{
		HardState: &raftpb.HardState{Term: proto.Uint64(1), Commit: proto.Uint64(2)},
		Entries:   []*raftpb.Entry{{Index: proto.Uint64(2), Term: proto.Uint64(1)}},
		MustSync:  true,
	})
	if !errors.Is(err, errDisk) {
		t.Fatalf("save on a disk that dies: %v", err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := disk.Load(); err != nil {
		t.Errorf("after a save that failed, and the end: %v", err)
	}
}
