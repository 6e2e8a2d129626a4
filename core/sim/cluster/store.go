package cluster

import (
	"fmt"
	"time"

	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// store is a node's store, whose process can die alone, and is started again a little
// later: until then every call says so.
type store struct {
	storage.Store // of the process that is up
	n             *node
	alive         bool
}

func (s *store) start() {
	if s.alive {
		return
	}
	n := s.n
	opened, err := n.openDisk(memstore.Options{
		Now: func() time.Time { return n.Now().Add(n.wall) },
		Defer: func(run func()) {
			n.c.w.After(n.faults.DiskDelay(), func() {
				n.touched = true
				run()
				n.faults.Stepped()
			})
		},
		Before: n.faults.Before,
		After: func(op memstore.Op) error {
			if op.Kind == memstore.OpTruncate {
				n.c.report.Truncations++
				n.c.together(n)
			}
			return n.faults.After(op)
		},
	})
	if err != nil {
		panic("cluster: the store does not open: " + err.Error())
	}
	s.alive, s.Store = true, opened
}

// die kills the process; what is under way fails, and so does every call until start.
func (s *store) die() {
	s.alive, s.n.touched = false, true
	s.n.disk.Kill()
}

// openDisk opens a store on the node's disk.
func (n *node) openDisk(opt memstore.Options) (*memstore.Store, error) {
	s, _, err := memstore.Open(n.disk, storage.Config{
		Identity: storage.Identity{ClusterID: string(clusterID), NodeID: int32(n.id)}, ProposedDirectoryID: storage.DirectoryID(n.directory),
	}, opt)
	if err != nil {
		return nil, fmt.Errorf("open the store of node %d: %w", n.id, err)
	}
	return s, nil
}
