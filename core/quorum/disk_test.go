package quorum

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/brokerd/brokerd/core/model"
)

// Whatever is saved, quorum.db has it after it was opened again, and nothing else: the same
// as the disk of the simulated cluster.
func TestDatabaseIsADisk(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := testConfig(t)
		id := Identity{ClusterID: "c", NodeID: 1, DirectoryID: model.DirectoryID{1}}
		want := &memDisk{}
		var got Disk = newDatabase(cfg.withDefaults(), nil)
		defer func() { _ = got.Close() }()
		first := &Stored{Identity: id, Hard: &raftpb.HardState{}}
		for _, d := range []Disk{want, got} {
			if stored, err := d.Load(); stored != nil || err != nil {
				rt.Fatalf("before it was created: %+v, %v", stored, err)
			}
			if err := d.Create(first); err != nil {
				rt.Fatal(err)
			}
			if _, err := d.Load(); err != nil {
				rt.Fatal(err)
			}
		}
		term, commit := uint64(1), uint64(0)
		for range rapid.IntRange(1, 8).Draw(rt, "changes") {
			term += uint64(rapid.IntRange(0, 1).Draw(rt, "term"))
			c := drawChange(rt, want, term, &commit)
			for _, d := range []Disk{want, got} {
				if err := d.Save(c); err != nil {
					rt.Fatal(err)
				}
			}
			if rapid.Bool().Draw(rt, "open again") {
				if err := got.Close(); err != nil {
					rt.Fatal(err)
				}
				got = newDatabase(cfg.withDefaults(), nil)
				same(rt, want, got)
			}
		}
		if err := got.Close(); err != nil {
			rt.Fatal(err)
		}
		got = newDatabase(cfg.withDefaults(), nil)
		same(rt, want, got)
	})
}

// drawChange is a change such as a node makes.
func drawChange(rt *rapid.T, d *memDisk, term uint64, commit *uint64) Change {
	c := Change{}
	last := d.last()
	snapped := d.stored.Snapshot.GetMetadata().GetIndex()
	switch rapid.IntRange(0, 2).Draw(rt, "kind") {
	case 0: // entries, which may take the place of some that are not committed
		if snapped == 0 {
			break // they follow a snapshot
		}
		first := *commit + 1 + uint64(rapid.IntRange(0, int(last-*commit)).Draw(rt, "first"))
		for i := range rapid.IntRange(1, 4).Draw(rt, "entries") {
			c.Entries = append(c.Entries, &raftpb.Entry{Index: proto.Uint64(first + uint64(i)), Term: proto.Uint64(term), Data: []byte{byte(term)}})
		}
		last = first + uint64(len(c.Entries)) - 1
	case 1: // a snapshot of its own
		if *commit > snapped {
			c.Snapshot = drawnSnapshot(*commit, termAt(d, *commit))
		}
	case 2: // of a leader's
		*commit += uint64(rapid.IntRange(1, 5).Draw(rt, "ahead"))
		c.Snapshot, c.Reset, last = drawnSnapshot(*commit, term), true, *commit
	}
	if last > *commit {
		*commit += uint64(rapid.IntRange(0, int(last-*commit)).Draw(rt, "commit"))
	}
	c.Hard = &raftpb.HardState{Term: proto.Uint64(term), Vote: proto.Uint64(7), Commit: proto.Uint64(*commit)}
	return c
}

func drawnSnapshot(index, term uint64) *raftpb.Snapshot {
	return &raftpb.Snapshot{Data: []byte("image"), Metadata: &raftpb.SnapshotMetadata{
		Index: proto.Uint64(index), Term: proto.Uint64(term), ConfState: &raftpb.ConfState{Voters: []uint64{1}},
	}}
}

func termAt(d *memDisk, index uint64) uint64 {
	for _, e := range d.stored.Entries {
		if e.GetIndex() == index {
			return e.GetTerm()
		}
	}
	return d.stored.Snapshot.GetMetadata().GetTerm()
}

func same(rt *rapid.T, want, got Disk) {
	w, err := want.Load()
	g, err2 := got.Load()
	if err != nil || err2 != nil {
		rt.Fatal(err, err2)
	}
	if w.Identity != g.Identity || !proto.Equal(w.Hard, g.Hard) || !proto.Equal(w.Snapshot, g.Snapshot) || len(w.Entries) != len(g.Entries) {
		rt.Fatalf("saved %+v, found %+v", w, g)
	}
	for i := range w.Entries {
		if !proto.Equal(w.Entries[i], g.Entries[i]) {
			rt.Fatalf("entry %v, found %v", w.Entries[i], g.Entries[i])
		}
	}
}
