package quorum

import (
	"fmt"

	"github.com/brokerd/brokerd/core/model"
)

// reached is how far the metadata log has come. It is replaced as a whole.
type reached struct {
	term uint64
	end  uint64 // of the last entry that is saved
	high uint64 // of the last entry that is committed
}

// noteReached shows Status what is saved and committed now.
func (n *Node) noteReached() error {
	last, err := n.store.mem.LastIndex()
	if err != nil {
		return fmt.Errorf("end of the metadata log: %w", err)
	}
	now := reached{term: n.store.hard.GetTerm(), end: last, high: n.store.hard.GetCommit()}
	if old := n.reached.Load(); old == nil || *old != now {
		n.reached.Store(&now)
	}
	return nil
}

// Status is the quorum as its leader sees it; from any other node the error is
// ErrNotLeaderOrFollower. It may be called concurrently and never blocks. Offsets
// are Raft's indexes, and ends are exclusive as Kafka's.
func (n *Node) Status() (model.QuorumStatus, error) {
	r := n.reached.Load()
	if r == nil || !n.leading.Load() {
		return model.QuorumStatus{}, fmt.Errorf("broker %d does not lead the quorum: %w", n.cfg.NodeID, model.ErrNotLeaderOrFollower)
	}
	return model.QuorumStatus{
		Leader:        n.cfg.NodeID,
		Epoch:         int32(min(r.term, 1<<31-1)),
		HighWatermark: int64(r.high) + 1,
		Voters:        []model.QuorumVoter{{ID: n.cfg.NodeID, Directory: n.identity.DirectoryID, LEO: int64(r.end) + 1}},
	}, nil
}
