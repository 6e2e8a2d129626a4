package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/lifecycle"
	"github.com/brokerd/brokerd/core/loop"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/quorum"
	"github.com/brokerd/brokerd/core/replica"
)

const (
	// leaveTimeout is how long a broker that stops waits until others lead what it led.
	leaveTimeout = leaveStop - 500*time.Millisecond
	// leaveKnown is how long, of that, the controller waits for all others to have heard of it.
	leaveKnown = leaveTimeout - time.Second
	// waitLogEvery is how often a broker that cannot register says so.
	waitLogEvery = 10 * time.Second
)

// commander is whom the membership asks: the active controller, wherever it is.
type commander interface {
	// Start does not wait: done is called once, or never where gone is closed.
	Start(op controller.Op, gone <-chan struct{}, done func(controller.Answer))
}

// membership is this broker's part in the cluster: it is registered, says that it lives, and
// leaves. It is the host of a lifecycle.Machine.
type membership struct {
	node         model.NodeID
	registration controller.Registration
	commands     commander
	log          *slog.Logger
	loop         *loop.Loop[lifecycle.Input]

	// image and ends say which logs the controller wants to know the length of, and how
	// long they are.
	image func() *image.Image
	ends  func([]model.Partition) []model.LogEnd
	// offline is which directories do not serve. Nil: they all do.
	offline func() []model.DirectoryID
	// leased is told until when nobody else leads what this broker leads, lease after a
	// heartbeat was sent. May be nil.
	leased func(until time.Time)
	lease  time.Duration
	// beaten is told of each heartbeat that was answered, from any goroutine. May be nil.
	beaten func(took time.Duration, ok bool)
	clock  loop.Clock

	serving chan struct{} // closed when the broker is unfenced for the first time
	over    chan struct{} // closed when the machine has ended
	err     error         // why, once over is closed

	leaving atomic.Bool

	mu      sync.Mutex
	trouble error // of the last question, for whoever waits

	// What follows belongs to the loop.
	machine *lifecycle.Machine
	out     lifecycle.Effects
	waits   chan struct{} // closed when the last question needs no answer any longer
	fenced  bool          // as it was told last
	silent  bool          // the last heartbeat was not answered well
	told    time.Time
	heard   time.Time           // when the heartbeat was sent that the lease is by
	dead    []model.DirectoryID // as the machine was told last
	asked   []model.Partition   // by the image at askedAt
	askedAt int64
}

func newMembership(cfg lifecycle.Config, r controller.Registration, commands commander, clock loop.Clock, log *slog.Logger) (*membership, error) {
	machine, err := lifecycle.New(cfg)
	if err != nil {
		return nil, err
	}
	m := &membership{
		node: r.NodeID, registration: r, commands: commands, log: log, machine: machine, fenced: true, clock: clock,
		serving: make(chan struct{}), over: make(chan struct{}), waits: make(chan struct{}),
	}
	m.loop = loop.New[lifecycle.Input](m, clock, 0)
	return m, nil
}

// apply takes what an image says of this broker. It does not block.
func (m *membership) apply(img *image.Image) {
	seen := &lifecycle.Seen{Offset: img.Offset}
	if b, ok := img.Broker(m.node); ok {
		seen.Registered, seen.Incarnation, seen.Epoch, seen.Fenced = true, b.Incarnation, b.Epoch, b.Fenced
	}
	m.loop.Complete(seen)
}

// run keeps the broker registered until ctx ends. Its error is why it must not go on.
func (m *membership) run(ctx context.Context) error {
	err := m.loop.Run(ctx)
	select {
	case <-m.over:
		if m.err == nil { // it has left, and there is nothing to say until the end
			<-ctx.Done()
		}
		return m.err
	default:
		return err
	}
}

// wait returns when the broker is unfenced for the first time.
func (m *membership) wait(ctx context.Context) error {
	select {
	case <-m.serving:
		return nil
	case <-m.over:
		return m.err
	case <-ctx.Done():
		if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
			return cause // a part that failed says all
		}
		return errors.Join(ctx.Err(), m.lastTrouble())
	}
}

// leave gives up what this broker leads, until nobody counts on it any longer, or for as
// long as that may take.
func (m *membership) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	m.leaving.Store(true)
	if !m.loop.Complete(&lifecycle.Leave{}) {
		return
	}
	select {
	case <-m.over:
		m.tellAbandoned()
	case <-ctx.Done():
		m.log.Warn("this broker stops before the controller has let it go", "broker", int(m.node), "err", m.lastTrouble())
	}
}

// Step implements loop.Body.
func (m *membership) Step(now time.Time, burst []lifecycle.Input) {
	for _, in := range burst {
		m.machine.Step(now, in, &m.out)
		m.perform(now)
	}
	m.renew()
	m.look(now)
	if at, ok := m.machine.Deadline(); ok && !now.Before(at) {
		m.machine.Step(now, &lifecycle.Due{}, &m.out)
		m.perform(now)
	}
	m.tell()
}

// renew tells of a lease that is longer than the one before.
func (m *membership) renew() {
	if heard := m.machine.LastHeard(); m.leased != nil && heard.After(m.heard) {
		m.heard = heard
		m.leased(heard.Add(m.lease))
	}
}

// look asks which directories do not serve: at least as often as a heartbeat is sent. While no
// other broker serves there is nobody to lead what they hold.
func (m *membership) look(now time.Time) {
	if m.offline == nil {
		return
	}
	dead := m.offline()
	if len(dead) > 0 && alone(m.image(), m.node) {
		dead = nil
	}
	if slices.Equal(dead, m.dead) {
		return
	}
	m.dead = dead
	m.machine.Step(now, &lifecycle.Offline{Directories: dead}, &m.out)
	m.perform(now)
}

// Deadline implements loop.Body.
func (m *membership) Deadline() (time.Time, bool) { return m.machine.Deadline() }

// Done implements loop.Body.
func (m *membership) Done() bool {
	select {
	case <-m.over:
		return true
	default:
		return false
	}
}

// perform does what the machine asks for.
func (m *membership) perform(now time.Time) {
	if m.out.Register != nil || len(m.out.Heartbeats) > 0 {
		close(m.waits) // one that still waits for somebody to lead has nothing to say that this one does not
		m.waits = make(chan struct{})
	}
	if r := m.out.Register; r != nil {
		registration := m.registration
		registration.Incarnation = r.Incarnation
		m.commands.Start(controller.RegisterBroker{Registration: registration}, m.waits, func(a controller.Answer) {
			m.note(a.Err)
			m.loop.Complete(&lifecycle.Registered{Call: r.Call, Epoch: a.Epoch, Err: a.Err})
		})
	}
	for _, beat := range m.out.Heartbeats {
		op := controller.Heartbeat{Broker: m.node, Epoch: beat.Epoch, Offset: beat.Offset, WantShutdown: beat.Leave, Offline: beat.Offline}
		m.commands.Start(op, m.waits, func(a controller.Answer) {
			m.note(a.Err)
			if m.beaten != nil {
				m.beaten(m.clock.Now().Sub(now), a.Err == nil)
			}
			m.loop.Complete(&lifecycle.Beaten{Call: beat.Call, MayEnd: a.Heartbeat.MayShutDown, Fenced: a.Heartbeat.Fenced, Offset: a.Heartbeat.Offset, Err: a.Err})
		})
	}
	if n := len(m.out.Heartbeats); n > 0 {
		m.report(m.out.Heartbeats[n-1].Epoch)
	}
	if e := m.out.Ended; e != nil {
		m.err = e.Err
		close(m.waits)
		close(m.over)
	}
	m.out = lifecycle.Effects{Heartbeats: m.out.Heartbeats[:0]}
	m.warn(now)
}

// report says how long logs are, where nobody can be elected before that is known. (KIP-966)
func (m *membership) report(epoch model.BrokerEpoch) {
	img := m.image()
	if img.Offset != m.askedAt {
		m.asked, m.askedAt = lifecycle.Reports(img, m.node), img.Offset
	}
	if len(m.asked) == 0 {
		return
	}
	if ends := m.ends(m.asked); len(ends) > 0 {
		op := controller.ReportLogs{Broker: m.node, Epoch: epoch, Logs: ends}
		m.commands.Start(op, m.waits, func(a controller.Answer) { m.note(a.Err) })
	}
}

// note keeps what went wrong last, and forgets it with the next success.
func (m *membership) note(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trouble = err
}

func (m *membership) lastTrouble() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.trouble
}

// tell says what has changed for this broker.
func (m *membership) tell() {
	fenced := m.machine.Fenced()
	if fenced == m.fenced {
		return
	}
	m.fenced = fenced
	_, registered := m.machine.Epoch()
	select {
	case <-m.serving:
	default:
		close(m.serving)
		return
	}
	switch {
	case !fenced:
		m.log.Info("this broker is no longer fenced", "broker", int(m.node))
	case registered && !m.leaving.Load():
		m.log.Warn("this broker is fenced: others lead what it led, until the controller hears it again", "broker", int(m.node))
	}
}

// warn says, now and then, that the controller does not answer well.
func (m *membership) warn(now time.Time) {
	err := m.lastTrouble()
	if err == nil {
		if m.silent {
			m.log.Info("the controller answers this broker again", "broker", int(m.node))
		}
		m.silent = false
		return
	}
	if m.silent && now.Sub(m.told) < waitLogEvery {
		return
	}
	m.silent, m.told = true, now
	m.log.Warn("the controller does not answer this broker as it should", "broker", int(m.node), "err", err)
}

// newMembership makes this broker's, to be told of images and run.
func (b *Broker) newMembership(node *quorum.Node, manager *replica.Manager, r controller.Registration) (*membership, error) {
	cfg := lifecycle.Defaults()
	cfg.Incarnation = r.Incarnation
	cfg.Every = b.cfg.Cluster.HeartbeatEvery
	m, err := newMembership(cfg, r, node, b.deps.Clock, b.log)
	if err != nil {
		return nil, fmt.Errorf("make the broker's membership: %w", err)
	}
	m.image, m.ends, m.offline = node.Image, manager.LogEnds, manager.Offline
	m.leased, m.lease = manager.Leased, b.cfg.Cluster.SessionTimeout
	m.beaten = b.metrics.Broker().Beaten
	return m, nil
}

// alone says whether no other broker serves: then there is nobody to give anything up to.
func alone(img *image.Image, node model.NodeID) bool {
	for other := range img.Brokers() {
		if other.ID != node && !other.Fenced {
			return false
		}
	}
	return true
}
