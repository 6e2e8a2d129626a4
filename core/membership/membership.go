package membership

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
)

// waitLogEvery is how often a broker that cannot register says so.
const waitLogEvery = 10 * time.Second

// Config is what a Member is made from.
type Config struct {
	Lifecycle lifecycle.Config
	// Registration is how the broker makes itself known, in this life of it.
	Registration controller.Registration
	// Lease is how long after a heartbeat was sent nobody else leads what this broker leads.
	Lease time.Duration
}

// Commander is whom a Member asks: the active controller, wherever it is.
type Commander interface {
	// Start does not wait: done is called once, or never where gone is closed.
	Start(op controller.Op, gone <-chan struct{}, done func(controller.Answer))
}

// Deps are what a Member needs of the broker. They are called on its loop, and must not block.
type Deps struct {
	Commands Commander
	Clock    loop.Clock
	Logger   *slog.Logger

	// Image and Ends say which logs the controller wants to know the length of, and how
	// long they are. Image is never nil.
	Image func() *image.Image
	Ends  func([]model.Partition) []model.LogEnd
	// Offline is which directories do not serve. Nil: they all do.
	Offline func() []model.DirectoryID
	// Leased is told until when nobody else leads what this broker leads. May be nil.
	Leased func(until time.Time)
	// Beaten is told of each heartbeat that was answered, from any goroutine. May be nil.
	Beaten func(took time.Duration, ok bool)
}

// Member is a broker's part in the cluster. Its methods may be called concurrently, except
// where one says otherwise.
type Member struct {
	cfg  Config
	deps Deps
	node model.NodeID
	log  *slog.Logger
	loop *loop.Loop[lifecycle.Input]

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

// New makes a member, to be told of images and run. Nothing is started.
func New(cfg Config, deps Deps) (*Member, error) {
	machine, err := lifecycle.New(cfg.Lifecycle)
	if err != nil {
		return nil, fmt.Errorf("make the broker's membership: %w", err)
	}
	m := &Member{
		cfg: cfg, deps: deps, node: cfg.Registration.NodeID, log: deps.Logger, machine: machine, fenced: true,
		serving: make(chan struct{}), over: make(chan struct{}), waits: make(chan struct{}),
	}
	m.loop = loop.New[lifecycle.Input](m, deps.Clock, 0)
	return m, nil
}

// Apply takes what an image says of this broker. It does not block.
func (m *Member) Apply(img *image.Image) {
	seen := &lifecycle.Seen{Offset: img.Offset}
	if b, ok := img.Broker(m.node); ok {
		seen.Registered, seen.Incarnation, seen.Epoch, seen.Fenced = true, b.Incarnation, b.Epoch, b.Fenced
	}
	m.loop.Complete(seen)
}

// Run keeps the broker registered until ctx ends. Its error is why it must not go on.
func (m *Member) Run(ctx context.Context) error {
	err := m.loop.Run(ctx)
	if over, why := m.Ended(); over {
		if why == nil { // it has left, and there is nothing to say until the end
			<-ctx.Done()
		}
		return why
	}
	return err
}

// Loop is the member's loop, for a simulator that turns it itself instead of calling Run. It
// has ended when Ended says so.
func (m *Member) Loop() *loop.Loop[lifecycle.Input] { return m.loop }

// Ended says whether the broker is no member any longer, and why it must end: nil where it has
// left.
func (m *Member) Ended() (bool, error) {
	select {
	case <-m.over:
		return true, m.err
	default:
		return false, nil
	}
}

// Epoch is the broker's epoch; false: it is not registered yet. For who turns the loop, between
// two turns.
func (m *Member) Epoch() (model.BrokerEpoch, bool) { return m.machine.Epoch() }

// Fenced reports whether the broker is fenced, as far as it knows. For who turns the loop,
// between two turns.
func (m *Member) Fenced() bool { return m.machine.Fenced() }

// Wait returns when the broker is unfenced for the first time.
func (m *Member) Wait(ctx context.Context) error {
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

// Leave gives up what this broker leads, until nobody counts on it any longer, or ctx ends.
// Where no other broker serves there is nobody to give it up to, and it returns at once.
func (m *Member) Leave(ctx context.Context) {
	if !m.StartLeave() {
		return
	}
	select {
	case <-m.over:
		m.tellAbandoned()
	case <-ctx.Done():
		m.log.Warn("this broker stops before the controller has let it go", "broker", int(m.node), "err", m.lastTrouble())
	}
}

// StartLeave begins what Leave waits for, of which Ended tells. False: there is nothing to wait
// for, since no other broker serves, or Run has ended.
func (m *Member) StartLeave() bool {
	if alone(m.deps.Image(), m.node) {
		return false
	}
	m.leaving.Store(true)
	return m.loop.Complete(&lifecycle.Leave{})
}

// Step implements loop.Body.
func (m *Member) Step(now time.Time, burst []lifecycle.Input) {
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
func (m *Member) renew() {
	if heard := m.machine.LastHeard(); m.deps.Leased != nil && heard.After(m.heard) {
		m.heard = heard
		m.deps.Leased(heard.Add(m.cfg.Lease))
	}
}

// look asks which directories do not serve: at least as often as a heartbeat is sent. While no
// other broker serves there is nobody to lead what they hold.
func (m *Member) look(now time.Time) {
	if m.deps.Offline == nil {
		return
	}
	dead := m.deps.Offline()
	if len(dead) > 0 && alone(m.deps.Image(), m.node) {
		dead = nil
	}
	if slices.Equal(dead, m.dead) {
		return
	}
	m.dead = dead
	m.machine.Step(now, &lifecycle.Offline{Directories: dead}, &m.out)
	m.perform(now)
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

// Deadline implements loop.Body.
func (m *Member) Deadline() (time.Time, bool) { return m.machine.Deadline() }

// Done implements loop.Body.
func (m *Member) Done() bool {
	over, _ := m.Ended()
	return over
}

// perform does what the machine asks for.
func (m *Member) perform(now time.Time) {
	if m.out.Register != nil || len(m.out.Heartbeats) > 0 {
		close(m.waits) // one that still waits for somebody to lead has nothing to say that this one does not
		m.waits = make(chan struct{})
	}
	if r := m.out.Register; r != nil {
		registration := m.cfg.Registration
		registration.Incarnation = r.Incarnation
		m.deps.Commands.Start(controller.RegisterBroker{Registration: registration}, m.waits, func(a controller.Answer) {
			m.note(a.Err)
			m.loop.Complete(&lifecycle.Registered{Call: r.Call, Epoch: a.Epoch, Err: a.Err})
		})
	}
	for _, beat := range m.out.Heartbeats {
		op := controller.Heartbeat{Broker: m.node, Epoch: beat.Epoch, Offset: beat.Offset, WantShutdown: beat.Leave, Offline: beat.Offline}
		m.deps.Commands.Start(op, m.waits, func(a controller.Answer) {
			m.note(a.Err)
			if m.deps.Beaten != nil {
				m.deps.Beaten(m.deps.Clock.Now().Sub(now), a.Err == nil)
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
func (m *Member) report(epoch model.BrokerEpoch) {
	img := m.deps.Image()
	if img.Offset != m.askedAt {
		m.asked, m.askedAt = lifecycle.Reports(img, m.node), img.Offset
	}
	if len(m.asked) == 0 {
		return
	}
	if ends := m.deps.Ends(m.asked); len(ends) > 0 {
		op := controller.ReportLogs{Broker: m.node, Epoch: epoch, Logs: ends}
		m.deps.Commands.Start(op, m.waits, func(a controller.Answer) { m.note(a.Err) })
	}
}

// note keeps what went wrong last, and forgets it with the next success.
func (m *Member) note(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trouble = err
}

func (m *Member) lastTrouble() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.trouble
}

// tell says what has changed for this broker.
func (m *Member) tell() {
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
func (m *Member) warn(now time.Time) {
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
