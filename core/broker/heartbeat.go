package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/quorum"
)

const (
	// heartbeatEvery is how often the controller hears of this broker: a few times
	// within a lease.
	heartbeatEvery = 200 * time.Millisecond
	// heartbeatTimeout bounds the wait for one answer.
	heartbeatTimeout = 400 * time.Millisecond
)

// heartbeats tells the controller that this broker is there, and what it has.
type heartbeats struct {
	node   *quorum.Node
	log    *slog.Logger
	id     model.NodeID
	epoch  model.BrokerEpoch
	fenced bool // as it was heard last
	silent bool // the last heartbeat failed
}

// begin returns when the broker is unfenced: it may serve.
func (h *heartbeats) begin(ctx context.Context) error {
	ticks := time.NewTicker(heartbeatEvery)
	defer ticks.Stop()
	for {
		answer, err := h.beat(ctx)
		if err == nil && !answer.Fenced {
			return nil
		}
		if err != nil && errors.Is(err, model.ErrStaleBrokerEpoch) {
			return fmt.Errorf("wait to be unfenced: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait to be unfenced: %w", errors.Join(ctx.Err(), err))
		case <-ticks.C:
		}
	}
}

// run sends heartbeats until ctx ends.
func (h *heartbeats) run(ctx context.Context) error {
	ticks := time.NewTicker(heartbeatEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
		answer, err := h.beat(ctx)
		if ctx.Err() != nil {
			return nil
		}
		h.note(answer, err)
	}
}

func (h *heartbeats) beat(ctx context.Context) (controller.HeartbeatAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	return h.node.Heartbeat(ctx, controller.Heartbeat{Broker: h.id, Epoch: h.epoch, Offset: h.node.Image().Offset})
}

// note logs what has changed.
func (h *heartbeats) note(answer controller.HeartbeatAnswer, err error) {
	switch {
	case err != nil && !h.silent:
		h.log.Warn("the controller does not answer this broker's heartbeats", "broker", h.id, "err", err)
	case err == nil && h.silent:
		h.log.Info("the controller answers this broker's heartbeats again", "broker", h.id)
	}
	h.silent = err != nil
	if err != nil {
		return
	}
	switch {
	case answer.Fenced && !h.fenced:
		h.log.Warn("this broker is fenced: others lead what it led, until it is heard again", "broker", h.id)
	case !answer.Fenced && h.fenced:
		h.log.Info("this broker is no longer fenced", "broker", h.id)
	}
	h.fenced = answer.Fenced
}
