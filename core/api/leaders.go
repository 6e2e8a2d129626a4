package api

import (
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// leaders collects the brokers that an answer sends the client to, so that it
// can move on without asking for metadata. (KIP-951)
type leaders struct {
	img      *image.Image
	listener string
	named    []node
	seen     map[model.NodeID]bool
}

func newLeaders(img *image.Image, listener string) *leaders {
	return &leaders{img: img, listener: listener, seen: make(map[model.NodeID]bool)}
}

// of returns a partition's leader and its epoch, or NoNode and NoEpoch, and
// remembers where it is reached.
func (l *leaders) of(t *image.Topic, index int32) (model.NodeID, model.LeaderEpoch) {
	if t == nil {
		return model.NoNode, model.NoEpoch
	}
	p, ok := partition(t, index)
	if !ok {
		return model.NoNode, model.NoEpoch
	}
	b, ok := alive(l.img, p.Leader)
	if !ok {
		return model.NoNode, model.NoEpoch
	}
	n, ok := nodeOf(b, l.listener)
	if !ok {
		return model.NoNode, model.NoEpoch
	}
	if !l.seen[n.id] {
		l.seen[n.id] = true
		l.named = append(l.named, n)
	}
	return p.Leader, p.LeaderEpoch
}
