package cluster

import (
	"context"
	"log/slog"
	"time"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/lifecycle"
	"github.com/brokerd/brokerd/core/membership"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/sim/world"
)

// member is the loop of a node's part in the cluster.
type member struct {
	*membership.Member
	n    *node
	over bool // it was told
	// altering, if there is one, is told of what the broker, as a leader, wants to be in sync,
	// and hands on the answers.
	altering func(changes []model.ISRChange, done func([]model.ISRResult, error)) func([]model.ISRResult, error)
}

var _ world.Loop = (*member)(nil)

func (n *node) startMember() error {
	cfg := membership.Config{Lifecycle: lifecycle.Defaults(), Registration: n.registration(), Lease: controller.DefaultConfig().BrokerLease}
	cfg.Lifecycle.Incarnation = n.incarnation
	m, err := membership.New(cfg, membership.Deps{
		Commands: n, Clock: n, Logger: n.logger(),
		Image: n.image, Ends: n.manager.LogEnds, Offline: n.manager.Offline, Leased: n.manager.Leased,
	})
	if err != nil {
		return err
	}
	n.member = &member{Member: m, n: n}
	n.loops.Add(n.member)
	return nil
}

// registration is how this life of the node makes itself known.
func (n *node) registration() controller.Registration {
	r := controller.Registration{
		ClusterID: clusterID, NodeID: n.id, Incarnation: n.incarnation, Directories: []model.DirectoryID{n.directory},
		FeatureLevelMin: 1, FeatureLevelMax: image.FeatureLevel,
	}
	if n.unheard || n.fallen {
		r.MayHaveLost = r.Directories
	}
	return r
}

// image is the metadata as the node knows it.
func (n *node) image() *image.Image {
	if n.img == nil {
		return &image.Image{}
	}
	return n.img
}

// Pending implements world.Loop.
func (m *member) Pending() int { return m.Loop().Pending() }

// Turn implements world.Loop.
func (m *member) Turn(now time.Time) {
	m.Loop().Turn(now)
	ended, err := m.Ended()
	switch {
	case !ended || m.over:
		return
	case err == nil:
		m.n.left()
	default:
		m.n.c.check.Violate("node %d ends: %v", m.n.id, err)
	}
	m.over = true
}

// see tells of a new image.
func (m *member) see(img *image.Image) {
	if b, ok := img.Broker(m.n.id); ok && b.Incarnation == m.n.incarnation {
		m.n.told()
	}
	m.Apply(img)
}

// alterer asks for changes of ISRs. It implements replica.Controller.
type alterer struct{ n *node }

// AlterISR implements replica.Controller.
func (a alterer) AlterISR(changes []model.ISRChange, done func([]model.ISRResult, error)) {
	n := a.n
	epoch, ok := n.member.Epoch()
	if !ok {
		done(nil, model.ErrNotController)
		return
	}
	if n.member.altering != nil {
		done = n.member.altering(changes, done)
	}
	n.c.overtaken(n, changes)
	n.command(controller.AlterISR{Broker: n.id, BrokerEpoch: epoch, Changes: changes}, func(a controller.Answer) {
		done(a.ISR, a.Err)
	})
	n.c.unheard(n)
}

// noter is a slog.Handler that notes.
type noter struct {
	n     *node
	attrs []slog.Attr
}

// Enabled implements slog.Handler.
func (*noter) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (h *noter) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	for _, a := range h.attrs {
		line += " " + a.String()
	}
	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.String()
		return true
	})
	h.n.c.w.Tell("node %d says: %s", h.n.id, line)
	return nil
}

// WithAttrs implements slog.Handler.
func (h *noter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &noter{n: h.n, attrs: append(append([]slog.Attr(nil), h.attrs...), attrs...)}
}

// WithGroup implements slog.Handler.
func (h *noter) WithGroup(string) slog.Handler { return h }
