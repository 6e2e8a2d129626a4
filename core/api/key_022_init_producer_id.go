package api

// InitProducerId (22), versions 0 to 5, for idempotent producers: always a fresh
// ID and epoch 0. (KIP-98, KIP-730)
//
// Left out: transactional IDs (UNSUPPORTED_VERSION: final for clients, where
// COORDINATOR_NOT_AVAILABLE would have them ask for ever).

import (
	"context"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// producerIDWait is how long a request waits for a block of producer IDs.
const producerIDWait = 5 * time.Second

func (h *Handler) initProducerID(ctx context.Context, from caller, req *kmsg.InitProducerIDRequest) *kmsg.InitProducerIDResponse {
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.ProducerID, resp.ProducerEpoch = model.NoProducerID, -1
	if err := h.mayInitProducerID(ctx, from, req); err != nil {
		resp.ErrorCode = h.code(err)
		return resp
	}
	ctx, cancel := context.WithTimeout(ctx, producerIDWait)
	defer cancel()
	id, err := h.producerIDs.next(ctx)
	if err != nil {
		h.log.Warn("allocate producer IDs", "err", err)
		// The one code that every client takes as passing without looking for
		// a coordinator, which an idempotent producer does not have.
		resp.ErrorCode = h.code(model.ErrCoordinatorLoading)
		return resp
	}
	resp.ProducerID, resp.ProducerEpoch = id, 0
	return resp
}

func (h *Handler) mayInitProducerID(ctx context.Context, from caller, req *kmsg.InitProducerIDRequest) error {
	if id := req.TransactionalID; id != nil {
		switch {
		case *id == "":
			return model.ErrInvalidRequest
		case !h.may(ctx, from, security.OpWrite, security.TransactionalID, *id):
			return model.ErrTransactionalIDAuth
		}
		return errTransactions
	}
	if h.mayCluster(ctx, from, security.OpIdempotentWrite) {
		return nil
	}
	for t := range h.deps.Metadata.Image().Topics() {
		if h.mayTopic(ctx, from, security.OpWrite, t.Name) {
			return nil
		}
	}
	return model.ErrClusterAuthorization
}

// producerIDs hands out the IDs of a block, and asks the controller for another
// when it is used up.
type producerIDs struct {
	controller Controller
	// block holds the rest of the block. Whoever took it out puts it back, so
	// that one caller asks the controller and others wait for that.
	block chan model.ProducerIDBlock
}

func newProducerIDs(c Controller) *producerIDs {
	p := &producerIDs{controller: c, block: make(chan model.ProducerIDBlock, 1)}
	p.block <- model.ProducerIDBlock{}
	return p
}

func (p *producerIDs) next(ctx context.Context) (int64, error) {
	var b model.ProducerIDBlock
	select {
	case b = <-p.block:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { p.block <- b }()
	if b.Count <= 0 {
		fresh, err := p.controller.AllocateProducerIDs(ctx)
		if err != nil {
			return 0, err
		}
		if fresh.Count <= 0 || fresh.First < 0 {
			return 0, fmt.Errorf("allocate producer IDs: got an empty block")
		}
		b = fresh
	}
	id := b.First
	b.First++
	b.Count--
	return id, nil
}
