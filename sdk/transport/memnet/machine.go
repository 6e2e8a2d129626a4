package memnet

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

const (
	// AcceptMax is how many links of each lane may have been dialled to a node and not be
	// accepted. More dials of that lane wait for a place, as long as who dials does.
	AcceptMax = 64
	// messageBytesLeast is what a message counts at least of a link's LinkBytesMax, so that
	// empty ones are bounded too.
	messageBytesLeast = 64
	// endpointBytesMax is how long an endpoint may be.
	endpointBytesMax = 255
	// dialTimeout is when a dial without an answer fails, unless the Options say it.
	dialTimeout = 10 * time.Second
	// longest is how long anything takes at most, so that no time overflows.
	longest = 100 * 365 * 24 * time.Hour
)

// Options are what a Machine is made from.
type Options struct {
	// Seed decides everything that is drawn.
	Seed uint64
	// DialTimeout is when a dial that nobody has answered fails with ErrRetry. Zero: 10 s.
	// As every time of the network, it is at most a century.
	DialTimeout time.Duration
}

// Machine is a network as a value: nodes, the links between them, and what is under way.
// It does nothing but in calls, and they are to come from one goroutine at a time. It
// begins at the first time that is given to it. Times do not go back; one that does counts
// as the latest.
type Machine struct {
	opt    Options
	rand   *rand.Rand
	begun  bool      // a time was given
	start  time.Time // the first
	now    int64     // since then
	nodes  []node
	names  map[string]Node
	ways   [][]way // from, to
	pairs  []*pair
	unused []int32 // of pairs
	held   int64
	dying  []int32 // used by Stop

	alarms []alarm // a heap
	seq    uint64
}

// Node is a place in the network: an endpoint, and at most one process at a time.
type Node int32

// Process is what runs at a node.
type Process struct {
	Identity transport.Identity
	// Secret, where it is not empty, is what both must have alike for a link, and proves
	// that they are members. Who has one, and who has none, make no links.
	Secret string
}

// Death is how a node goes.
type Death uint8

const (
	// Reset: the process ends, and its host is there. Its links end at its peers, and who
	// dials it is refused.
	Reset Death = iota
	// Silent: the host is gone too. Nobody is told, and who dials it gets no answer, until it
	// is started again or stopped with Reset: then what arrives on links of its old life
	// ends them.
	Silent
)

// node is one place.
type node struct {
	Process
	endpoint string
	up       bool // a process runs here
	gone     bool // not even the host is there
	paused   bool
	// first and last are the ends of links here, also those that are dialled to it.
	first, last int32
	accepts     []int32 // ends that are agreed to and not accepted, the oldest first
	queued      [2]int  // how many of them are of each lane
	dials       []int32 // ends that wait for a place there
}

// New makes an empty network.
func New(opt Options) *Machine {
	if opt.DialTimeout <= 0 {
		opt.DialTimeout = dialTimeout
	}
	opt.DialTimeout = min(opt.DialTimeout, longest)
	return &Machine{
		opt:   opt,
		rand:  rand.New(rand.NewPCG(opt.Seed, 0x6e6574)),
		names: make(map[string]Node),
	}
}

// tick moves the time on.
func (m *Machine) tick(now time.Time) {
	if !m.begun {
		m.begun, m.start = true, now
	}
	m.now = max(m.now, int64(now.Sub(m.start)))
}

// AddNode makes a node of an endpoint that none has yet. It is down. ErrInvalid: the
// endpoint is taken, or is none (1 to 255 printable ASCII characters without a space).
func (m *Machine) AddNode(endpoint string) (Node, error) {
	if err := checkEndpoint(endpoint); err != nil {
		return 0, err
	}
	if _, taken := m.names[endpoint]; taken {
		return 0, transport.Errorf(transport.ErrInvalid, "the network has a node at %s already", endpoint)
	}
	id := Node(len(m.nodes))
	m.nodes = append(m.nodes, node{endpoint: endpoint, first: unset, last: unset})
	m.names[endpoint] = id
	for from := range m.ways {
		m.ways[from] = append(m.ways[from], way{})
	}
	m.ways = append(m.ways, make([]way, len(m.nodes)))
	return id, nil
}

func checkEndpoint(endpoint string) error {
	if endpoint == "" || len(endpoint) > endpointBytesMax {
		return transport.Errorf(transport.ErrInvalid, "an endpoint has 1 to %d characters, not %d", endpointBytesMax, len(endpoint))
	}
	for i := range len(endpoint) {
		if c := endpoint[i]; c <= ' ' || c > '~' {
			return transport.Errorf(transport.ErrInvalid, "%q cannot be an endpoint: it has a character that is not printable", endpoint)
		}
	}
	return nil
}

// NodeAt returns the node of an endpoint.
func (m *Machine) NodeAt(endpoint string) (Node, bool) {
	id, found := m.names[endpoint]
	return id, found
}

// Start begins a process at a node, which is down.
func (m *Machine) Start(now time.Time, id Node, p Process) error {
	m.tick(now)
	n := &m.nodes[id]
	if n.up {
		return transport.Errorf(transport.ErrInvalid, "somebody listens at %s already", n.endpoint)
	}
	n.up, n.gone, n.Process = true, false, p
	return nil
}

// Stop ends the process at a node, and every link as the node has it: nothing that was
// under way to it arrives. What it has sent may arrive, all of it or not. A pause ends.
func (m *Machine) Stop(now time.Time, id Node, how Death) {
	m.tick(now)
	n := &m.nodes[id]
	n.up, n.gone, n.paused = false, how == Silent, false
	n.accepts, n.dials, n.queued = n.accepts[:0], n.dials[:0], [2]int{}
	m.dying = m.dying[:0]
	for e := n.first; e >= 0; e = m.end(e).next {
		m.dying = append(m.dying, e)
	}
	for _, e := range m.dying {
		m.die(e, how)
	}
	m.revive(id)
}

// idle says whether a node is down and nothing is left of it, neither under way nor at its
// peers.
func (m *Machine) idle(id Node) bool { return !m.nodes[id].up && m.nodes[id].first < 0 }

// renew makes the ways to and from an idle node as those of a new one.
func (m *Machine) renew(id Node) {
	for other := range m.ways {
		m.ways[id][other], m.ways[other][id] = way{}, way{}
	}
	m.nodes[id].paused = false
}

// Up says whether a process runs at a node.
func (m *Machine) Up(id Node) bool { return m.nodes[id].up }

// Next returns when Due has something to give at the earliest.
func (m *Machine) Next() (time.Time, bool) {
	if len(m.alarms) == 0 {
		return time.Time{}, false
	}
	return m.start.Add(time.Duration(max(m.alarms[0].at, m.now))), true
}

// Held is how many bytes of messages the network holds: under way, or arrived and not
// received.
func (m *Machine) Held() int64 { return m.held }

// take removes one of a list of ends.
func take(list *[]int32, e int32) bool {
	i := slices.Index(*list, e)
	if i < 0 {
		return false
	}
	*list = slices.Delete(*list, i, i+1)
	return true
}
