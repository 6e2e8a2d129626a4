package quorum

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

var errDisk = errors.New("the disk has died")

// memDisk is a disk that keeps what a Save has made durable, and may die inside one.
type memDisk struct {
	stored *Stored
	die    bool // inside the next Save
	dieAt  int  // inside the Save of this number; 0: in none
	keep   bool // what that was to write
	saves  int
}

func (d *memDisk) Load() (*Stored, error) {
	if d.stored == nil {
		return nil, nil
	}
	s := *d.stored
	index, term := s.Snapshot.GetMetadata().GetIndex(), s.Snapshot.GetMetadata().GetTerm()
	for _, e := range s.Entries {
		if index++; e.GetIndex() != index || e.GetTerm() < term {
			return nil, fmt.Errorf("entry %d of term %d stands at %d, after term %d", e.GetIndex(), e.GetTerm(), index, term)
		}
		term = e.GetTerm()
	}
	return &s, s.check()
}

func (d *memDisk) Create(first *Stored) error {
	s := *first
	d.stored = &s
	return nil
}

func (d *memDisk) Save(c Change) error {
	d.saves++
	d.die = d.die || d.saves == d.dieAt
	if d.die && !d.keep {
		d.die = false
		return errDisk
	}
	s := *d.stored
	s.Hard = proto.Clone(c.Hard).(*raftpb.HardState)
	s.Entries = slices.Clone(s.Entries)
	if c.Snapshot != nil {
		s.Snapshot = proto.Clone(c.Snapshot).(*raftpb.Snapshot)
		s.Entries = slices.DeleteFunc(s.Entries, func(e *raftpb.Entry) bool {
			return c.Reset || e.GetIndex() <= c.Snapshot.GetMetadata().GetIndex()
		})
	}
	if len(c.Entries) > 0 {
		first := c.Entries[0].GetIndex()
		s.Entries = slices.DeleteFunc(s.Entries, func(e *raftpb.Entry) bool { return e.GetIndex() >= first })
		for _, e := range c.Entries {
			s.Entries = append(s.Entries, proto.Clone(e).(*raftpb.Entry))
		}
	}
	d.stored = &s
	if d.die {
		d.die = false
		return errDisk
	}
	return nil
}

func (d *memDisk) Room() error  { return nil }
func (d *memDisk) Close() error { return nil }

// last is where the durable log ends.
func (d *memDisk) last() uint64 {
	if n := len(d.stored.Entries); n > 0 {
		return d.stored.Entries[n-1].GetIndex()
	}
	return d.stored.Snapshot.GetMetadata().GetIndex()
}
