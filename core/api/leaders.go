package api

import (
	"errors"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// leaders collects the brokers that an answer sends the client to, so that it
// can move on without asking for metadata. They are by the newest metadata: a request may
// have waited until its leader was replaced. (KIP-951)
type leaders struct {
	img      *image.Image
	self     model.NodeID
	listener string
	named    []node
	seen     map[model.NodeID]bool
}

func (h *Handler) newLeaders(listener string) *leaders {
	return &leaders{img: h.deps.Metadata.Image(), self: h.cfg.NodeID, listener: listener, seen: make(map[model.NodeID]bool)}
}

// of returns a partition's leader and its epoch, or NoNode and NoEpoch, and
// remembers where it is reached. Where this broker's error is that it does not lead, it is
// none, whatever its metadata say.
func (l *leaders) of(t *image.Topic, index int32, err error) (model.NodeID, model.LeaderEpoch) {
	if t == nil {
		return model.NoNode, model.NoEpoch
	}
	p, _, ok := l.img.Partition(model.Partition{Topic: t.ID, Index: index})
	if !ok || p.Leader == l.self && errors.Is(err, model.ErrNotLeaderOrFollower) {
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
