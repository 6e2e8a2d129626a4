package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/brokerd/brokerd/core/loop"
	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/transport"
)

// acceptAgain is the pause after an Accept that has failed while the transport goes on.
const acceptAgain = 50 * time.Millisecond

// Quorum is the owner of posts, questions and answers. Its methods may be called
// concurrently, and do not wait.
type Quorum interface {
	// Posted gives a message that a peer has posted. Its bytes are the owner's.
	Posted(from transport.Peer, message []byte)
	// Asked gives a question. answer is called once at most, from any goroutine; the answer's
	// bytes do not change any more.
	Asked(from transport.Peer, question []byte, answer func(answer []byte))
}

// Streams is the owner of streams: Receiver of core/replica, which says more.
type Streams interface {
	StreamUp(s model.StreamID, node model.NodeID, dialled bool)
	StreamRoom(s model.StreamID, n int) []byte
	StreamMessage(s model.StreamID, message []byte)
	StreamDown(s model.StreamID)
}

// Deps are what Links works with.
type Deps struct {
	// Transport is its owner's to close, after Run.
	Transport transport.Transport
	Clock     loop.Clock
	// Rand spreads the times of dials.
	Rand *rand.Rand
	// Memory is what large messages of the quorum take while they arrive. Those of streams take
	// their owner's.
	Memory *memory.Budget
	// Watch is told what is found out about peers, from any goroutine. It does not wait. Nil:
	// nobody is.
	Watch  func(Event)
	Logger *slog.Logger
}

// Links drives a Machine over a transport. It implements Peers of core/quorum and Streams of
// core/replica. Its methods may be called concurrently, and none waits but Run.
//
// A lock guards the machine, rather than a loop: what is sent goes from its sender to the
// goroutine that writes, and what has come from the one that reads to its owner, without a
// third between them.
type Links struct {
	deps Deps

	mu      sync.Mutex
	machine *Machine
	effects Effects
	wires   map[LinkID]*wire
	last    LinkID  // of the links that were accepted
	dials   []*wire // that Run is to begin
	armed   time.Time
	told    told
	quorum  Quorum
	streams Streams
	owners  map[model.StreamID]Streams // of the streams that are up

	wake chan struct{} // Run has something to do
}

// NewLinks makes one that has no link. Nothing is started.
func NewLinks(cfg Config, deps Deps) (*Links, error) {
	m, err := New(cfg, deps.Rand)
	if err != nil {
		return nil, err
	}
	return &Links{
		deps:    deps,
		machine: m,
		wires:   make(map[LinkID]*wire),
		owners:  make(map[model.StreamID]Streams),
		wake:    make(chan struct{}, 1),
	}, nil
}

// ServeQuorum says who owns what peers post and ask. Before it, that is lost.
func (x *Links) ServeQuorum(q Quorum) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.quorum = q
}

// ServeStreams says who owns streams. Before it, those that peers make are ended.
func (x *Links) ServeStreams(s Streams) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.streams = s
}

// Locate says where a node can be dialled, as the metadata has it; empty where it has not.
func (x *Links) Locate(node model.NodeID, endpoint string) {
	x.step(&Locate{Node: node, Endpoint: endpoint})
}

// Post implements Peers of core/quorum. The message does not change any more.
func (x *Links) Post(to model.Address, message []byte, bulk bool) {
	x.step(&Post{To: to, Message: message, Bulk: bulk})
}

// Ask implements Peers of core/quorum. An error wraps a class of package transport,
// ErrRequestTimedOut, or one of this package.
func (x *Links) Ask(to model.Address, question []byte, timeout time.Duration, done func(answer []byte, err error)) {
	x.step(&Ask{To: to, Question: question, Timeout: timeout, Done: done})
}

// Want implements Streams of core/replica.
func (x *Links) Want(node model.NodeID, wanted bool) { x.step(&Want{Node: node, Wanted: wanted}) }

// End implements Streams of core/replica.
func (x *Links) End(s model.StreamID) { x.step(&End{Stream: s}) }

// Send implements Streams of core/replica.
func (x *Links) Send(s model.StreamID, parts [][]byte, sent func(taken bool)) bool {
	x.mu.Lock()
	ok := x.machine.Send(x.deps.Clock.Now(), s, parts, sent, &x.effects)
	x.unlock()
	return ok
}

// step gives the machine an input, and does what it asks.
func (x *Links) step(in Input) {
	x.mu.Lock()
	x.machine.Step(x.deps.Clock.Now(), in, &x.effects)
	x.unlock()
}

// call is an effect that is for somebody else, and for whom.
type call struct {
	Effect

	quorum  Quorum
	streams Streams
}

var calls = sync.Pool{New: func() any { return new([]call) }}

// unlock does what the machine has asked, gives the lock back, and tells the owners.
func (x *Links) unlock() {
	var later *[]call
	for i := 0; i < len(x.effects.List); i++ {
		e := &x.effects.List[i]
		switch e.Kind {
		case Write:
			if w := x.wires[e.Link]; w != nil {
				w.write(e.Parts)
			}
		case Dial:
			w := &wire{links: x, id: e.Link, target: e.Target, wrote: make(chan struct{}, 1)}
			x.wires[e.Link] = w
			x.dials = append(x.dials, w)
			x.nudge()
		case CloseLink:
			if w := x.wires[e.Link]; w != nil {
				w.giveUp()
			}
		default:
			if c, ok := x.callOf(e); ok {
				if later == nil {
					later, _ = calls.Get().(*[]call)
				}
				*later = append(*later, c)
			}
		}
	}
	x.effects.Reset()
	if at, ok := x.machine.Deadline(); ok && (x.armed.IsZero() || at.Before(x.armed)) {
		x.nudge()
	}
	x.mu.Unlock()
	if later == nil {
		return
	}
	for i := range *later {
		x.call(&(*later)[i])
	}
	clear(*later)
	*later = (*later)[:0]
	calls.Put(later)
}

// callOf finds out who is to be told. The caller holds the lock.
func (x *Links) callOf(e *Effect) (call, bool) {
	c := call{Effect: *e, quorum: x.quorum}
	switch e.Kind {
	case StreamUp:
		if x.streams == nil {
			x.machine.Step(x.deps.Clock.Now(), &End{Stream: e.Stream}, &x.effects)
			return c, false
		}
		c.streams, x.owners[e.Stream] = x.streams, x.streams
	case StreamMessage:
		c.streams = x.owners[e.Stream]
		return c, c.streams != nil
	case StreamDown:
		c.streams = x.owners[e.Stream]
		delete(x.owners, e.Stream)
		return c, c.streams != nil
	case Posted, Asked:
		return c, c.quorum != nil
	}
	return c, true
}

// call tells an owner.
func (x *Links) call(c *call) {
	switch c.Kind {
	case Posted:
		c.quorum.Posted(c.Peer, c.Message)
	case Asked:
		q := c.Question
		c.quorum.Asked(c.Peer, c.Message, func(answer []byte) { x.step(&Answer{Question: q, Answer: answer}) })
	case Answered:
		c.Done(c.Message, c.Err)
	case StreamUp:
		c.streams.StreamUp(c.Stream, model.NodeID(c.Peer.NodeID), c.Was)
	case StreamMessage:
		c.streams.StreamMessage(c.Stream, c.Message)
	case StreamDown:
		c.streams.StreamDown(c.Stream)
	case Settled:
		c.Sent(c.Was)
	case Told:
		x.tell(&c.Event)
	}
}

// nudge lets Run look at what there is to do. The caller holds the lock.
func (x *Links) nudge() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// Run dials and accepts, until ctx ends or the transport does. It returns when no link and no
// goroutine is left, every question has been ended, and every stream. It is called once.
func (x *Links) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var children sync.WaitGroup
	failure := make(chan error, 1)
	children.Go(func() {
		if err := x.accept(ctx, &children); err != nil {
			failure <- err
		}
	})
	err := x.run(ctx, &children, failure)
	x.step(&Stop{})
	cancel()
	children.Wait()
	for _, w := range x.takeDials() {
		x.drop(w)
		x.step(&Failed{Link: w.id, Err: errStopped})
	}
	return err
}

// run begins dials, and ticks.
func (x *Links) run(ctx context.Context, children *sync.WaitGroup, failure <-chan error) error {
	var fire <-chan time.Time
	stop := func() bool { return true }
	defer func() { stop() }()
	for {
		for _, w := range x.takeDials() {
			children.Go(func() { x.dial(ctx, w) })
		}
		if d, change := x.arm(); change {
			stop()
			fire, stop = x.deps.Clock.NewTimer(d)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("keep links to peers: %w", context.Cause(ctx))
		case err := <-failure:
			return err
		case <-x.wake:
		case <-fire:
			x.disarm()
			x.step(&Tick{})
		}
	}
}

// arm says whether a timer is to be set, and for when.
func (x *Links) arm() (time.Duration, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at, ok := x.machine.Deadline()
	if !ok || !x.armed.IsZero() && !at.Before(x.armed) {
		return 0, false
	}
	x.armed = at
	return max(at.Sub(x.deps.Clock.Now()), 0), true
}

func (x *Links) disarm() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.armed = time.Time{}
}

func (x *Links) takeDials() []*wire {
	x.mu.Lock()
	defer x.mu.Unlock()
	some := x.dials
	x.dials = nil
	return some
}

// dial makes a link, and serves it.
func (x *Links) dial(ctx context.Context, w *wire) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	x.begin(w, cancel)
	link, err := x.deps.Transport.Dial(ctx, w.target)
	if err != nil {
		x.drop(w)
		x.step(&Failed{Link: w.id, Err: err})
		return
	}
	w.link = link
	w.serve(ctx, &Dialled{Link: w.id, Peer: link.Peer()})
}

// accept takes the links that peers make.
func (x *Links) accept(ctx context.Context, children *sync.WaitGroup) error {
	for {
		link, err := x.deps.Transport.Accept(ctx)
		switch {
		case err == nil:
			children.Go(func() { x.serveAccepted(ctx, link) })
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, transport.ErrClosed):
			return fmt.Errorf("accept links of peers: %w", err)
		default:
			x.deps.Logger.Warn("a link of a peer was not accepted", "err", err)
			x.pause(ctx, acceptAgain)
		}
	}
}

func (x *Links) pause(ctx context.Context, d time.Duration) {
	fire, stop := x.deps.Clock.NewTimer(d)
	defer stop()
	select {
	case <-fire:
	case <-ctx.Done():
	}
}

func (x *Links) serveAccepted(ctx context.Context, link transport.Link) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &wire{links: x, link: link, wrote: make(chan struct{}, 1)}
	x.mu.Lock()
	x.last += 2
	w.id = x.last
	x.wires[w.id] = w
	x.mu.Unlock()
	x.begin(w, cancel)
	w.serve(ctx, &Accepted{Link: w.id, Peer: link.Peer(), Lane: link.Lane()})
}

// begin says how a link is given up; it may have been already.
func (x *Links) begin(w *wire, cancel func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	w.cancel = cancel
	if w.over {
		cancel()
	}
}

// drop forgets a link, to which nothing is written any more.
func (x *Links) drop(w *wire) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.wires, w.id)
}
