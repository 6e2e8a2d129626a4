package broker

import (
	"context"
	"log/slog"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/quorum"
)

const (
	// purgesQueued bounds confirmations that wait. More are dropped: the replicas
	// tell again at the next start.
	purgesQueued = 1024
	// confirmTimeout bounds one confirmation.
	confirmTimeout = 10 * time.Second
)

// purges tells the controller which removed topics a directory holds no logs of
// any more.
type purges struct {
	node  *quorum.Node
	log   *slog.Logger
	queue chan purge
}

type purge struct {
	topic model.TopicID
	dir   model.DirectoryID
}

func newPurges(node *quorum.Node, log *slog.Logger) *purges {
	return &purges{node: node, log: log, queue: make(chan purge, purgesQueued)}
}

// told notes a purge. It does not block.
func (p *purges) told(topic model.TopicID, dir model.DirectoryID) {
	select {
	case p.queue <- purge{topic, dir}:
	default:
		p.log.Debug("a purge is confirmed at the next start", "topic", topic)
	}
}

// run confirms purges until ctx ends, those that have gathered together.
func (p *purges) run(ctx context.Context) error {
	for {
		gathered := make(map[model.DirectoryID][]model.TopicID)
		select {
		case <-ctx.Done():
			return nil
		case one := <-p.queue:
			gathered[one.dir] = append(gathered[one.dir], one.topic)
		}
		for range len(p.queue) {
			one := <-p.queue
			gathered[one.dir] = append(gathered[one.dir], one.topic)
		}
		for dir, topics := range gathered {
			p.confirm(ctx, dir, topics)
		}
	}
}

func (p *purges) confirm(ctx context.Context, dir model.DirectoryID, topics []model.TopicID) {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	if err := p.node.ConfirmRemoval(ctx, dir, topics); err != nil && ctx.Err() == nil {
		p.log.Warn("removed topics stay noted until the next start", "topics", len(topics), "err", err)
	}
}
