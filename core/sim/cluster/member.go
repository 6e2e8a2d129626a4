package cluster

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/lifecycle"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/sim/world"
)

// member hosts a broker's lifecycle.Machine. It is a loop that the world turns.
type member struct {
	n       *node
	machine *lifecycle.Machine
	inbox   []lifecycle.Input
	out     lifecycle.Effects
	heard   time.Time           // when the heartbeat was sent that the lease is by
	offline []model.DirectoryID // as the machine was told last
	// altering, if there is one, is told of what the broker, as a leader, wants to be in sync,
	// and hands on the answers.
	altering func(changes []model.ISRChange, done func([]model.ISRResult, error)) func([]model.ISRResult, error)
}

var _ world.Loop = (*member)(nil)

func (n *node) startMember() error {
	cfg := lifecycle.Defaults()
	cfg.Incarnation = n.incarnation
	m, err := lifecycle.New(cfg)
	if err != nil {
		return err
	}
	n.member = &member{n: n, machine: m}
	n.loops.Add(n.member)
	return nil
}

// Pending implements world.Loop.
func (m *member) Pending() int { return len(m.inbox) }

// Deadline implements world.Loop.
func (m *member) Deadline() (time.Time, bool) { return m.machine.Deadline() }

// Turn implements world.Loop.
func (m *member) Turn(now time.Time) {
	for len(m.inbox) > 0 {
		in := m.inbox[0]
		m.inbox = m.inbox[1:]
		m.step(now, in)
	}
	if heard := m.machine.LastHeard(); heard.After(m.heard) {
		m.heard = heard
		m.n.manager.Leased(heard.Add(controller.DefaultConfig().BrokerLease))
	}
	if dead := m.n.manager.Offline(); !slices.Equal(dead, m.offline) {
		m.offline = dead
		m.n.c.w.Note("node %d: %d directories do not serve", m.n.id, len(dead))
		m.step(now, &lifecycle.Offline{Directories: dead})
	}
	if at, ok := m.machine.Deadline(); ok && !now.Before(at) {
		m.step(now, &lifecycle.Due{})
	}
}

func (m *member) put(in lifecycle.Input) { m.inbox = append(m.inbox, in) }

func (m *member) step(now time.Time, in lifecycle.Input) {
	m.machine.Step(now, in, &m.out)
	out := m.out
	m.out = lifecycle.Effects{}
	if r := out.Register; r != nil {
		m.register(r)
	}
	for i := range out.Heartbeats {
		m.beat(&out.Heartbeats[i])
	}
	switch {
	case out.Ended == nil:
	case out.Ended.Err == nil:
		m.n.left()
	default:
		m.n.c.check.Violate("node %d ends: %v", m.n.id, out.Ended.Err)
	}
}

func (m *member) register(r *lifecycle.Register) {
	n := m.n
	reg := controller.Registration{
		ClusterID: clusterID, NodeID: n.id, Incarnation: r.Incarnation, Directories: []model.DirectoryID{n.directory},
		FeatureLevelMin: 1, FeatureLevelMax: image.FeatureLevel,
	}
	if n.mayHaveLost {
		reg.MayHaveLost = reg.Directories
	}
	n.command(controller.RegisterBroker{Registration: reg}, func(a controller.Answer) {
		m.put(&lifecycle.Registered{Call: r.Call, Epoch: a.Epoch, Err: a.Err})
	})
}

func (m *member) beat(b *lifecycle.Heartbeat) {
	call := b.Call
	m.n.command(controller.Heartbeat{
		Broker: m.n.id, Epoch: b.Epoch, Offset: b.Offset, WantShutdown: b.Leave, Offline: b.Offline,
	}, func(a controller.Answer) {
		m.put(&lifecycle.Beaten{Call: call, MayEnd: a.Heartbeat.MayShutDown, Fenced: a.Heartbeat.Fenced, Offset: a.Heartbeat.Offset, Err: a.Err})
	})
	m.report(b.Epoch)
}

// report says how long logs are, where the controller waits for that.
func (m *member) report(epoch model.BrokerEpoch) {
	n := m.n
	if n.img == nil {
		return
	}
	if logs := n.manager.LogEnds(lifecycle.Reports(n.img, n.id)); len(logs) > 0 {
		n.command(controller.ReportLogs{Broker: n.id, Epoch: epoch, Logs: logs}, func(controller.Answer) {})
	}
}

// see tells of a new image.
func (m *member) see(img *image.Image) {
	in := &lifecycle.Seen{Offset: img.Offset}
	if b, ok := img.Broker(m.n.id); ok {
		in.Registered, in.Incarnation, in.Epoch, in.Fenced = true, b.Incarnation, b.Epoch, b.Fenced
		if b.Incarnation == m.n.incarnation {
			m.n.mayHaveLost, m.n.wiped = false, false // it was told
		}
	}
	m.put(in)
}

// alterer asks for changes of ISRs. It implements replica.Controller.
type alterer struct{ n *node }

// AlterISR implements replica.Controller.
func (a alterer) AlterISR(changes []model.ISRChange, done func([]model.ISRResult, error)) {
	n := a.n
	epoch, ok := n.member.machine.Epoch()
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
