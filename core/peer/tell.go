package peer

import (
	"errors"
	"time"
)

const (
	// tellAgain is how long the same is not logged again of a node.
	tellAgain = time.Minute
	// toldMax is of how many nodes that is remembered.
	toldMax = 64
)

// told is of which nodes something was logged, and when.
type told map[int32]time.Time

// tell logs what was found out about a peer, and tells who watches.
func (x *Links) tell(e *Event) {
	log := x.deps.Logger.With("node", e.Peer.NodeID, "endpoint", e.Address.Endpoint)
	switch e.Kind {
	case Rejected:
		switch {
		case errors.Is(e.Err, ErrSelf):
		case x.worthTelling(e.Peer.NodeID):
			log.Warn("a link with a node was ended, since it is not what it should be", "err", e.Err)
		default:
			log.Debug("a link with a node was ended, since it is not what it should be", "err", e.Err)
		}
	case Reached:
		log.Debug("a node was reached")
	case Lost:
		log.Debug("a link with a node was lost", "err", e.Err)
	case Refused, Unreached:
		log.Debug("a node was not reached", "dialled", e.Address.Node, "err", e.Err)
	}
	if x.deps.Watch != nil {
		x.deps.Watch(*e)
	}
}

// worthTelling says whether a node's fault was not logged for a while.
func (x *Links) worthTelling(node int32) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.deps.Clock.Now()
	if last, ok := x.told[node]; ok && now.Sub(last) < tellAgain {
		return false
	}
	if x.told == nil || len(x.told) >= toldMax {
		x.told = make(told)
	}
	x.told[node] = now
	return true
}
