package quorum

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/brokerd/brokerd/core/image"
)

const (
	// snapshotBytes of log, too, are worth a snapshot: all of it is in memory.
	snapshotBytes = 64 << 20
	// snapshotRetry entries after one that had no room, another is tried.
	snapshotRetry = 100
	// snapshotTail is how many of its last entries a node that has taken a snapshot keeps in
	// memory, as a part of those between two: who lags by less is sent them alone.
	snapshotTail = 8
)

// maybeSnapshot saves the image once the log is long, and drops that much of the log.
// Where there is no room for one, the log goes on.
func (n *Node) maybeSnapshot() error {
	if n.applied-n.snapped < uint64(n.cfg.SnapshotEntries) && n.logBytes < snapshotBytes || n.applied < n.snapAfter {
		return nil
	}
	err := n.store.snapshot(n.applied, n.conf, n.snapshotData(), uint64(n.cfg.SnapshotEntries/snapshotTail))
	if isFull(err) { // the log goes on without
		n.snapAfter = n.applied + snapshotRetry
		n.log.Warn("no room for a snapshot of the metadata", "dir", n.cfg.Dir, "err", err)
		return nil
	}
	if err != nil {
		return err
	}
	n.snapped, n.logBytes = n.applied, 0
	n.log.Debug("snapshot of the metadata", "offset", n.applied)
	return nil
}

func (n *Node) snapshotData() []byte {
	var records []image.Record
	for r := range n.Image().Records() {
		records = append(records, r)
	}
	return encodeEntry(session{}, 0, records)
}

// raftStorage is what Raft reads the log from. It has a snapshot of now for a member that
// is far behind: the one on disk may be of before that member was one, and Raft takes over
// none that does not name it.
type raftStorage struct {
	*raft.MemoryStorage
	node *Node
}

// Snapshot implements raft.Storage.
func (s raftStorage) Snapshot() (*raftpb.Snapshot, error) {
	n := s.node
	if n.applying { // the image and the membership are not of one offset
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	if n.latest.GetMetadata().GetIndex() == n.applied {
		return n.latest, nil
	}
	term, err := s.Term(n.applied)
	if err != nil {
		return nil, err
	}
	n.latest = &raftpb.Snapshot{
		Data:     n.snapshotData(),
		Metadata: &raftpb.SnapshotMetadata{Index: proto.Uint64(n.applied), Term: proto.Uint64(term), ConfState: n.conf},
	}
	return n.latest, nil
}

// decodeSnapshot is the image in a snapshot, if it is one of this cluster.
func (n *Node) decodeSnapshot(snap *raftpb.Snapshot) (*image.Image, error) {
	index := snap.GetMetadata().GetIndex()
	if index == 0 || snap.GetMetadata().GetConfState() == nil {
		return nil, errors.New("it is empty")
	}
	_, _, records, err := decodeEntry(snap.GetData())
	if err != nil {
		return nil, fmt.Errorf("snapshot %d: %w", index, err)
	}
	img, err := replay(&image.Image{}, index, records)
	if err != nil {
		return nil, fmt.Errorf("snapshot %d: %w", index, err)
	}
	if img.Cluster.ID != n.identity.ClusterID {
		return nil, fmt.Errorf("snapshot %d is of cluster %q, the directory of cluster %q: %w", index, img.Cluster.ID, n.identity.ClusterID, ErrDamaged)
	}
	return img, nil
}

// install takes over a snapshot of the leader's, which is saved.
func (n *Node) install(snap *raftpb.Snapshot) error {
	img, err := n.decodeSnapshot(snap)
	if err != nil {
		return err
	}
	n.conf = snap.GetMetadata().GetConfState()
	n.applied, n.term = snap.GetMetadata().GetIndex(), snap.GetMetadata().GetTerm()
	n.snapped, n.logBytes = n.applied, 0
	n.publish(img)
	n.log.Info("took over a snapshot of the metadata", "offset", n.applied)
	return nil
}
