package memnet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

// chosenMax is how many endpoints that were chosen for nodes that have ended stay unused.
const chosenMax = 64

// Clock tells a Network the time, and wakes it. Its methods may be called concurrently.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f, on a goroutine of its own, after d, unless it is stopped before.
	// Stop says whether f will not be called.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// system is the machine's clock.
type system struct{}

func (system) Now() time.Time { return time.Now() }

func (system) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// NetworkOptions are what a Network is made from. The zero value will do.
type NetworkOptions struct {
	// Seed decides everything that faults draw.
	Seed uint64
	// Clock is the time. Nil: the real one.
	Clock Clock
	// DialTimeout is when a dial that nobody answers fails. Zero: 10 s.
	DialTimeout time.Duration
	// RestChance is how likely a message comes in two pieces, as over a network that cuts
	// them, and Rest is how long after the first the other comes. Room is asked before the
	// first: a Receive whose context ends before the other leaves the memory with the
	// link, and whoever uses it all the same finds its bytes overwritten, or the message.
	RestChance float64
	Rest       Range
}

// Network is a Machine that transports share, in the time of a clock: a provider of
// transports for one process. Its methods may be called from many goroutines.
//
// It has a timer while something is under way that takes time, also for each Receive that
// waits for the rest of a message, and no goroutine else.
type Network struct {
	clock      Clock
	restChance float64
	rest       Range

	mu      sync.Mutex
	machine *Machine
	local   []*endpoint    // by Node; nil where none is open
	open    int            // how many are
	links   map[Link]*link // that nobody has closed yet
	chosen  []Node         // whose endpoints were, in the order in which they were opened last
	stop    func() bool    // of the timer; nil: none is set
	due     time.Time      // when it fires
	timers  int            // that are set or running
	quiet   signal         // a timer has ended
}

var _ transport.Provider = (*Network)(nil)

// NewNetwork makes an empty network.
func NewNetwork(opt NetworkOptions) *Network {
	if opt.Clock == nil {
		opt.Clock = system{}
	}
	return &Network{
		clock:      opt.Clock,
		restChance: opt.RestChance,
		rest:       opt.Rest,
		machine:    New(Options{Seed: opt.Seed, DialTimeout: opt.DialTimeout}),
		links:      make(map[Link]*link),
	}
}

// settings is a transport's section of the configuration.
type settings struct {
	Endpoint string `json:"endpoint"`
	Secret   string `json:"secret"`
}

// Settings returns the settings that open an endpoint with a secret; either may be empty.
func Settings(endpoint, secret string) []byte {
	data, err := json.Marshal(settings{Endpoint: endpoint, Secret: secret})
	if err != nil {
		panic(err) // strings always marshal
	}
	return data
}

// Info implements transport.Provider.
func (n *Network) Info() transport.Info {
	return transport.Info{
		Name:    "memnet",
		Version: "1",
		About:   "Joins the nodes of one process, for tests.",
		Settings: []transport.Setting{
			{Name: "endpoint", About: "where the node can be dialled", Default: "one that is free"},
			{Name: "secret", About: "what all nodes of the cluster have alike", Default: "none: peers prove nothing", Secret: true},
		},
	}
}

// Open implements transport.Provider. An endpoint that was chosen, for want of one in the
// settings, is one day another node's, once the transport has ended: then its faults are
// forgotten.
func (n *Network) Open(_ context.Context, cfg transport.Config) (transport.Transport, error) {
	var s settings
	if len(bytes.TrimSpace(cfg.Settings)) > 0 {
		d := json.NewDecoder(bytes.NewReader(cfg.Settings))
		d.DisallowUnknownFields()
		if err := d.Decode(&s); err != nil {
			return nil, transport.Errorf(transport.ErrInvalid, "the settings of memnet are an object with endpoint and secret: %v", err)
		}
		if d.More() {
			return nil, transport.Errorf(transport.ErrInvalid, "the settings of memnet are one object, and something follows it")
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	id, err := n.place(s.Endpoint)
	if err != nil {
		return nil, err
	}
	now := n.clock.Now()
	if err := n.machine.Start(now, id, Process{Identity: cfg.Identity, Secret: s.Secret}); err != nil {
		return nil, err
	}
	t := &endpoint{net: n, node: id, name: n.machine.nodes[id].endpoint, proof: n.machine.nodes[id].peer().Proof}
	n.local[id] = t
	n.open++
	n.pump(now)
	return t, nil
}

// place finds or makes the node of an endpoint, and a free one where it is empty.
func (n *Network) place(name string) (Node, error) {
	if name == "" {
		return n.choose()
	}
	if id, found := n.machine.NodeAt(name); found {
		return id, nil
	}
	id, err := n.machine.AddNode(name)
	if err != nil {
		return 0, err
	}
	n.local = append(n.local, nil)
	return id, nil
}

// choose gives a node with an endpoint that nobody uses. It is one that was used before
// when there are many that are free, and then that which was longest not begun, so that
// who dials somebody who is gone does not soon find another there.
func (n *Network) choose() (Node, error) {
	oldest, free := 0, 0
	for i, id := range n.chosen {
		if !n.machine.idle(id) {
			continue
		}
		if free == 0 {
			oldest = i
		}
		free++
	}
	if free >= chosenMax {
		id := n.chosen[oldest]
		n.chosen = append(slices.Delete(n.chosen, oldest, oldest+1), id)
		n.machine.renew(id)
		return id, nil
	}
	for i := len(n.chosen) + 1; ; i++ {
		name := fmt.Sprintf("memory-%d", i)
		if _, taken := n.machine.NodeAt(name); taken {
			continue
		}
		id, err := n.place(name)
		if err == nil {
			n.chosen = append(n.chosen, id)
		}
		return id, err
	}
}

// Kill ends the transport that is open at an endpoint, if any, without a call of its
// owner: as kill -9 ends a process (Reset), or the end of its host (Silent).
func (n *Network) Kill(name string, how Death) error {
	return n.change(func(now time.Time, at []Node) {
		n.end(now, at[0], how)
	}, name)
}

// SetFaults says what is wrong, from now on, with the way from one endpoint to another.
func (n *Network) SetFaults(from, to string, f Faults) error {
	return n.change(func(now time.Time, at []Node) {
		n.machine.SetFaults(now, at[0], at[1], f)
	}, from, to)
}

// Pause lets what would reach an endpoint's node wait, until Resume. Calls of its own
// transport go on.
func (n *Network) Pause(name string) error {
	return n.change(func(_ time.Time, at []Node) { n.machine.Pause(at[0]) }, name)
}

// Resume ends a pause.
func (n *Network) Resume(name string) error {
	return n.change(func(now time.Time, at []Node) { n.machine.Resume(now, at[0]) }, name)
}

// Heal ends all faults and pauses.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.clock.Now()
	n.machine.Heal(now)
	n.pump(now)
}

// change does something to the machine, with the nodes of some endpoints.
func (n *Network) change(do func(now time.Time, at []Node), names ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := make([]Node, len(names))
	for i, name := range names {
		id, found := n.machine.NodeAt(name)
		if !found {
			return transport.Errorf(transport.ErrInvalid, "the network has no node at %s", name)
		}
		at[i] = id
	}
	now := n.clock.Now()
	do(now, at)
	n.pump(now)
	return nil
}

// end ends the transport at a node, if one is open. The caller holds the lock.
func (n *Network) end(now time.Time, at Node, how Death) {
	t := n.local[at]
	n.local[at] = nil
	n.machine.Stop(now, at, how)
	if t == nil {
		return
	}
	t.closed = true
	n.open--
	t.links.broadcast()
	for handle, l := range n.links {
		if l.from == t {
			delete(n.links, handle)
			l.finish()
		}
	}
}

// pump lets happen what is due, and sets the timer for what is to come. The caller holds
// the lock.
func (n *Network) pump(now time.Time) {
	for {
		ev, ok := n.machine.Due(now)
		if !ok {
			break
		}
		n.tell(ev)
	}
	next, more := n.machine.Next()
	if n.stop != nil && (!more || !next.Equal(n.due)) {
		if n.stop() {
			n.timers--
		}
		n.stop = nil
	}
	if more && n.stop == nil {
		n.due = next
		n.timers++
		n.stop = n.clock.AfterFunc(max(next.Sub(now), 0), n.fire)
	}
}

// fire is what the timer does.
func (n *Network) fire() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.due = time.Time{} // whatever is set is set anew
	n.pump(n.clock.Now())
	n.timers--
	n.quiet.broadcast()
}

// tell wakes those whom an event concerns.
func (n *Network) tell(ev Event) {
	if ev.Kind == Incoming {
		if t := n.local[ev.Node]; t != nil {
			t.links.broadcast()
		}
		return
	}
	l := n.links[ev.Link]
	if l == nil {
		return
	}
	switch ev.Kind {
	case Dialled:
		l.made = true
		l.peer, _, _ = n.machine.Peer(ev.Link)
		l.changed.broadcast()
	case Failed:
		l.err = ev.Err
		delete(n.links, ev.Link)
		l.finish()
	case Arrived:
		l.changed.broadcast()
	case MaySend:
		l.room.broadcast()
	default:
		l.finish()
	}
}
