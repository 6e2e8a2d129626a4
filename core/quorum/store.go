package quorum

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// store is a node's disk and, since the log is short, all of it in memory too.
type store struct {
	disk     Disk
	identity Identity
	hard     *raftpb.HardState
	// saved is the hard state on disk: a commit index alone is not worth a sync.
	saved *raftpb.HardState
	mem   *raft.MemoryStorage
	// unsure: a change may be on disk or not.
	unsure bool
}

// openStore takes what a disk has loaded.
func openStore(disk Disk, stored *Stored) (*store, error) {
	s := &store{
		disk: disk, identity: stored.Identity, mem: raft.NewMemoryStorage(),
		hard: proto.Clone(stored.Hard).(*raftpb.HardState), saved: proto.Clone(stored.Hard).(*raftpb.HardState),
	}
	if stored.Snapshot != nil {
		if err := s.mem.ApplySnapshot(stored.Snapshot); err != nil {
			return nil, fmt.Errorf("read snapshot: %w", err)
		}
	}
	if err := s.mem.Append(stored.Entries); err != nil {
		return nil, err
	}
	return s, s.mem.SetHardState(s.hard)
}

// save makes the state, entries and snapshot of a Ready durable before it returns.
//
// A commit index alone is not worth a sync: a node that forgets it is like one that has not
// heard of it yet. But one that forgets that voters have gone goes on needing them, and
// they may be lost by then, so that it is saved before a change of the membership is applied.
func (s *store) save(rd raft.Ready) error {
	if !raft.IsEmptyHardState(rd.HardState) {
		s.hard = proto.Clone(rd.HardState).(*raftpb.HardState)
	}
	c := Change{Hard: s.hard, Entries: rd.Entries}
	if !raft.IsEmptySnap(rd.Snapshot) {
		c.Snapshot, c.Reset = rd.Snapshot, true
	}
	if rd.MustSync || c.Snapshot != nil || s.saved.GetCommit() < lastChange(rd.CommittedEntries) {
		if err := s.disk.Save(c); err != nil {
			s.unsure = true
			return fmt.Errorf("save %d entries of the metadata log: %w", len(rd.Entries), err)
		}
		s.saved = s.hard
	}
	if c.Snapshot != nil {
		if err := s.mem.ApplySnapshot(c.Snapshot); err != nil {
			return fmt.Errorf("take over snapshot %d: %w", c.Snapshot.GetMetadata().GetIndex(), err)
		}
	}
	if err := s.mem.SetHardState(s.hard); err != nil {
		return err
	}
	return s.mem.Append(rd.Entries)
}

// lastChange is the index of the last entry that changes the membership, or 0.
func lastChange(entries []*raftpb.Entry) uint64 {
	for i := len(entries) - 1; i >= 0; i-- {
		if entries[i].GetType() != raftpb.EntryNormal {
			return entries[i].GetIndex()
		}
	}
	return 0
}

// snapshot makes data the snapshot at index, and drops the log up to there, but for some
// entries in memory.
func (s *store) snapshot(index uint64, conf *raftpb.ConfState, data []byte, tail uint64) error {
	snap, err := s.mem.CreateSnapshot(index, conf, data)
	if err != nil {
		return fmt.Errorf("snapshot at %d: %w", index, err)
	}
	if err := s.disk.Save(Change{Hard: s.hard, Snapshot: snap}); err != nil {
		return fmt.Errorf("save snapshot at %d: %w", index, err)
	}
	s.saved = s.hard
	first, err := s.mem.FirstIndex()
	if err != nil || index < first+tail {
		return err
	}
	if err := s.mem.Compact(index - tail); err != nil {
		return fmt.Errorf("compact the metadata log to %d: %w", index-tail, err)
	}
	return nil
}

// close saves the commit index, if it is newer than what is on disk. After a change that
// failed it saves nothing: the commit index, term or vote might not fit the log that is there.
func (s *store) close() error {
	var err error
	if !s.unsure && !proto.Equal(s.hard, s.saved) {
		err = s.disk.Save(Change{Hard: s.hard})
	}
	return errors.Join(err, s.disk.Close())
}
