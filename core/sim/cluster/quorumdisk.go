package cluster

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/brokerd/brokerd/core/quorum"
)

// quorumDisk is what a node's part in the quorum must not forget. What Save has returned is
// there after a loss of power; a node can die inside a Save, which is then there or not.
type quorumDisk struct {
	n      *node
	stored *quorum.Stored // nil: nothing was ever created
	saves  int
}

var _ quorum.Disk = (*openDisk)(nil)

// openDisk is a quorumDisk as one process has it.
type openDisk struct {
	d    *quorumDisk
	life *life
}

// saveKillOneIn: a node dies in one of so many saves, while faults are on.
const saveKillOneIn = 400

var errPower = errors.New("the process died in the midst of a save")

// Load implements quorum.Disk.
func (o *openDisk) Load() (*quorum.Stored, error) {
	if o.d.stored == nil {
		return nil, nil //nolint:nilnil // as the contract has it
	}
	s := *o.d.stored
	s.Entries = slices.Clone(s.Entries)
	return &s, nil
}

// Create implements quorum.Disk.
func (o *openDisk) Create(first *quorum.Stored) error {
	s := *first
	o.d.stored = &s
	return nil
}

// Save implements quorum.Disk.
func (o *openDisk) Save(ch quorum.Change) error {
	if o.life.over {
		return errPower // nothing that a dead process does reaches the disk
	}
	c := o.d.n.c
	o.d.saves++
	oneIn := saveKillOneIn
	if ch.Hard != nil && votes(o.d.stored.Hard, ch.Hard) {
		oneIn = voteKillOneIn
	}
	if !c.faulty || !c.w.Chance(oneIn) {
		return o.d.apply(ch)
	}
	if c.w.Chance(2) {
		if err := o.d.apply(ch); err != nil {
			return err
		}
	}
	if c.w.Chance(2) {
		o.d.n.links.Turn(o.d.n.Now()) // what was said before has left
	}
	c.report.SaveDeaths++
	c.w.Note("node %d dies in a save", o.d.n.id)
	c.kill(o.d.n)
	return errPower
}

// apply makes a change.
func (d *quorumDisk) apply(ch quorum.Change) error {
	s := *d.stored
	if ch.Hard != nil {
		s.Hard = proto.CloneOf(ch.Hard)
	}
	if ch.Snapshot != nil {
		s.Snapshot = proto.CloneOf(ch.Snapshot)
		upTo := ch.Snapshot.GetMetadata().GetIndex()
		s.Entries = slices.DeleteFunc(slices.Clone(s.Entries), func(e *raftpb.Entry) bool { return ch.Reset || e.GetIndex() <= upTo })
	}
	if len(ch.Entries) > 0 {
		first := ch.Entries[0].GetIndex()
		kept := slices.DeleteFunc(slices.Clone(s.Entries), func(e *raftpb.Entry) bool { return e.GetIndex() >= first })
		if n := len(kept); n > 0 && kept[n-1].GetIndex()+1 != first {
			return fmt.Errorf("entry %d follows entry %d", first, kept[n-1].GetIndex())
		}
		for _, e := range ch.Entries {
			kept = append(kept, proto.CloneOf(e))
		}
		s.Entries = kept
	}
	d.stored = &s
	return nil
}

// Room implements quorum.Disk.
func (*openDisk) Room() error { return nil }

// Close implements quorum.Disk.
func (*openDisk) Close() error { return nil }
