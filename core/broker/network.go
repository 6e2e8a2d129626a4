package broker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/membership"
	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/peer"
	"github.com/brokerd/brokerd/core/pluginhost"
	"github.com/brokerd/brokerd/core/quorum"
	"github.com/brokerd/brokerd/core/replica"
	"github.com/brokerd/brokerd/sdk/transport"
)

var (
	_ quorum.Peers       = (*latePeers)(nil)
	_ peer.Streams       = (*replica.Manager)(nil)
	_ replica.Streams    = (*peer.Links)(nil)
	_ replica.Controller = (*isrQuestions)(nil)
)

// ErrTransport says that there is no transport: what is to carry messages between
// brokers did not begin to.
var ErrTransport = errors.New("no way to the other brokers")

// latePeers are the ways to other nodes, before there are any.
type latePeers struct{ links atomic.Pointer[peer.Links] }

// Post implements quorum.Peers.
func (l *latePeers) Post(to model.Address, message []byte, bulk bool) {
	if x := l.links.Load(); x != nil {
		x.Post(to, message, bulk)
	}
}

// Ask implements quorum.Peers.
func (l *latePeers) Ask(to model.Address, question []byte, timeout time.Duration, done func([]byte, error)) {
	if x := l.links.Load(); x != nil {
		x.Ask(to, question, timeout, done)
		return
	}
	done(nil, ErrTransport)
}

// questions is who answers what other nodes ask of the quorum.
type questions interface {
	Question(question []byte, reply func(answer []byte))
}

// quorumOwner is the quorum as its links have it.
type quorumOwner struct {
	questions
	receive func(message []byte) error // nil: there is nobody to receive any
	broken  func(from transport.Peer, err error)
}

// Posted implements peer.Quorum.
func (o quorumOwner) Posted(from transport.Peer, message []byte) {
	if o.receive == nil {
		return
	}
	if err := o.receive(message); err != nil {
		o.broken(from, err)
	}
}

// Asked implements peer.Quorum.
func (o quorumOwner) Asked(_ transport.Peer, question []byte, answer func([]byte)) {
	o.Question(question, answer)
}

// network is a transport that is open, and the links over it.
type network struct {
	transport transport.Transport
	links     *peer.Links
}

// openNetwork opens the transport for a node, with which Links.Run is to follow.
func (b *Broker) openNetwork(ctx context.Context, id transport.Identity, watch func(peer.Event)) (*network, error) {
	section, err := b.cfg.ResolveReferences(b.cfg.Transport.Config)
	if err != nil {
		return nil, fmt.Errorf("%w: transport.config: %w", ErrTransport, err)
	}
	tc := transport.Config{Settings: section, Identity: id, Endpoint: b.endpoint, Logger: b.log.With("plugin", b.cfg.Transport.Plugin)}
	t, err := b.openTransport(ctx, tc)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTransport, err)
	}
	b.endpoint = t.Endpoint()
	cfg := peer.Defaults()
	cfg.Identity, cfg.Proof = id, t.Capabilities().Proof
	links, err := peer.NewLinks(cfg, peer.Deps{
		Transport: t, Clock: b.deps.Clock, Rand: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), Logger: b.log, Watch: watch,
		Memory: memory.New(transport.MessageBytesMax), // for one snapshot of the metadata, if it has to be
	})
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return &network{transport: t, links: links}, nil
}

// hosted is a transport whose plugin is a process of its own.
type hosted struct {
	*pluginhost.Transport
	stop context.CancelFunc // of the process
	ran  chan struct{}
}

// Close implements transport.Transport. It returns when the process has ended.
func (h *hosted) Close() error {
	err := h.Transport.Close()
	h.stop()
	<-h.ran
	return err
}

// openTransport opens the transport in this process, where that was asked for, or by its
// plugin's.
func (b *Broker) openTransport(ctx context.Context, tc transport.Config) (transport.Transport, error) {
	name := b.cfg.Transport.Plugin
	if p := b.deps.Transports[name]; p != nil {
		return p.Open(ctx, tc)
	}
	cfg := b.hostConfig()
	cfg.DrainTimeout = transportDrain
	cfg.TransportCarrier = string(b.cfg.Transport.Carrier)
	host := pluginhost.New(cfg, b.log, b.plugins.happened)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	h := &hosted{Transport: host.Transport(name, tc), stop: stop, ran: make(chan struct{})}
	go func() {
		defer close(h.ran)
		_ = host.Run(running) // its end is asked for
	}()
	if err := h.WaitReady(ctx); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// find asks the seeds whether there is a cluster. It returns when there is a verdict, which
// without other seeds is at once.
func (b *Broker) find(ctx context.Context) (verdict quorum.Verdict, err error) {
	b.progress(func(a *assembly) { a.waiting = "a seed that knows the cluster" })
	n, err := b.openNetwork(ctx, transport.Identity{NodeID: b.cfg.NodeID}, nil)
	if err != nil {
		return verdict, err
	}
	defer func() { err = errors.Join(err, n.transport.Close()) }()
	finder, err := quorum.NewFinder(b.quorumConfig(), quorum.Deps{Logger: b.log, Peers: n.links})
	if err != nil {
		return verdict, err
	}
	n.links.ServeQuorum(quorumOwner{questions: finder})
	asking, stop := context.WithCancel(ctx)
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		_ = n.links.Run(asking) // its end is asked for, or the finder's questions fail
	}()
	verdict, err = finder.Run(ctx)
	stop()
	<-ran
	return verdict, err
}

// connect opens the transport for this node of the quorum, and keeps links to the others
// until it is stopped.
func (b *Broker) connect(ctx context.Context, node *quorum.Node, peers *latePeers) (*network, error) {
	id := node.Identity()
	fencing := &deaths{node: node}
	n, err := b.openNetwork(ctx, transport.Identity{
		ClusterID: string(id.ClusterID), NodeID: int32(id.NodeID), DirectoryID: transport.DirectoryID(id.DirectoryID),
	}, func(e peer.Event) {
		countLinks(b.metrics.Peers(), e)
		fencing.happened(e)
	})
	if err != nil {
		return nil, err
	}
	node.ReachedAt(b.endpoint)
	n.links.ServeQuorum(quorumOwner{questions: node, receive: node.Receive, broken: func(from transport.Peer, err error) {
		b.log.Debug("a message of the quorum cannot be read", "broker", int(from.NodeID), "err", err)
	}})
	peers.links.Store(n.links)
	node.OnImage(newBook(n.links).apply)
	b.parts.start(ctx, "transport", transportStop, func(ctx context.Context) error {
		<-ctx.Done()
		return n.transport.Close()
	})
	b.parts.start(ctx, "links", linksStop, n.links.Run)
	b.log.Info("listening to other brokers", "endpoint", b.endpoint, "plugin", b.cfg.Transport.Plugin)
	return n, nil
}

// book tells the links where the members of the quorum are, of which each broker is one.
type book struct {
	links interface {
		Locate(node model.NodeID, endpoint string)
	}
	known map[model.NodeID]string
}

func newBook(links *peer.Links) *book { return &book{links: links, known: map[model.NodeID]string{}} }

// apply takes what an image says. Of two members of one node, as after a directory was lost,
// the one that is reached where another was not counts.
func (k *book) apply(img *image.Image) {
	now := make(map[model.NodeID]string, len(k.known))
	for m := range img.Members() {
		if _, twice := now[m.Node]; m.Endpoint != "" && (!twice || m.Endpoint != k.known[m.Node]) {
			now[m.Node] = m.Endpoint
		}
	}
	for node := range k.known {
		if _, still := now[node]; !still {
			k.links.Locate(node, "")
		}
	}
	for node, endpoint := range now {
		if k.known[node] != endpoint {
			k.links.Locate(node, endpoint)
		}
	}
	k.known = now
}

// isrQuestions asks the controller for other ISRs, in the name of this broker's registration.
type isrQuestions struct {
	node        *quorum.Node
	incarnation [16]byte
}

// AlterISR implements replica.Controller.
func (q *isrQuestions) AlterISR(changes []model.ISRChange, done func([]model.ISRResult, error)) {
	id := q.node.Identity().NodeID
	self, ok := q.node.Image().Broker(id)
	if !ok || self.Incarnation != q.incarnation {
		done(nil, model.ErrStaleBrokerEpoch)
		return
	}
	q.node.Start(controller.AlterISR{Broker: id, BrokerEpoch: self.Epoch, Changes: changes}, nil, func(a controller.Answer) {
		done(a.ISR, a.Err)
	})
}

// deaths fences brokers whose process is gone, where this node is the active controller and
// the network tells of it: nobody listens where the broker did. A link that was lost is no
// more than a reason to dial again. Whoever is fenced wrongly, since its transport alone had
// died, is unfenced by its next heartbeat.
type deaths struct{ node controllerNode }

// controllerNode is a node of the quorum that may be the active controller.
type controllerNode interface {
	membership.Commander
	Leading() bool
	Image() *image.Image
}

// happened takes what was found out about a peer. It does not block.
func (d *deaths) happened(e peer.Event) {
	if e.Kind != peer.Refused || e.Address.Node == model.NoNode || !d.node.Leading() {
		return
	}
	img := d.node.Image()
	for m := range img.Members() {
		if m.Node == e.Address.Node && m.Endpoint != e.Address.Endpoint {
			return // it may have moved
		}
	}
	if b, ok := img.Broker(e.Address.Node); ok && !b.Fenced {
		d.node.Start(controller.FenceBroker{ID: b.ID, Epoch: b.Epoch}, nil, func(controller.Answer) {}) // or its lease ends
	}
}
