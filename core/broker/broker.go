package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/core/admin"
	"github.com/brokerd/brokerd/core/config"
	"github.com/brokerd/brokerd/core/coordinator"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/loop"
	"github.com/brokerd/brokerd/core/membership"
	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/peer"
	"github.com/brokerd/brokerd/core/quorum"
	"github.com/brokerd/brokerd/core/replica"
	"github.com/brokerd/brokerd/core/server"
	"github.com/brokerd/brokerd/core/telemetry"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/transport"
)

// How long each part may take to stop. Together they stay below the minute that
// operators are asked to give.
const (
	adminStop      = time.Second
	transportStop  = 2 * time.Second
	linksStop      = 500 * time.Millisecond
	pluginsStop    = 10500 * time.Millisecond
	replicasStop   = 21 * time.Second
	quorumStop     = 5 * time.Second
	upkeepStop     = time.Second
	serverStop     = 10500 * time.Millisecond
	membershipStop = 500 * time.Millisecond
	groupsStop     = 3 * time.Second
	leaveStop      = 4 * time.Second
	// transportDrain is for the transport's plugin itself, of transportStop.
	transportDrain = transportStop / 2
)

// registerTimeout bounds the registration of a broker that has no other to wait for.
const registerTimeout = 30 * time.Second

// Deps is what a Broker is given.
type Deps struct {
	Logger  *slog.Logger
	Version string
	// Builtin are the plugins that this executable can be: by name, the arguments
	// that make it so.
	Builtin map[string][]string
	// Inside are stores that this process opens itself, by the name of the plugin that
	// they stand in for: nothing is launched for them, and nothing started again. For
	// programs around a broker, as those that measure what the plugins' processes cost.
	Inside map[string]storage.Provider
	// Transports are likewise transports, by the name of the plugin that they stand in for.
	Transports map[string]transport.Provider
	// Clock is what all parts tell the time by, but for those that only measure how long
	// something took; nil: loop.System. Its wall clock may be set while the broker runs: no
	// lease, lag or timeout follows it. Plugins have their own.
	Clock loop.Clock
}

// Broker is one broker. New makes it, Run runs it once; the other methods may be
// called concurrently with Run.
type Broker struct {
	cfg      config.Loaded
	deps     Deps
	log      *slog.Logger
	metrics  *telemetry.Metrics
	hostname string
	parts    *stages
	plugins  *plugins
	troubles *troubles
	telling  *telling
	life     *lives          // of Run, from its start on
	buffers  *memory.Buffers // of connections and replicas
	endpoint string          // at which other brokers reach this one; "" before that is known. It is start's

	ready chan struct{}
	// now is what Run has put together so far.
	now atomic.Pointer[assembly]
}

// assembly is the parts that are there. It is replaced as a whole.
type assembly struct {
	admin     *admin.Server
	quorum    *quorum.Node
	replicas  *replica.Manager
	groups    *coordinator.Manager
	links     *peer.Links // to other brokers; nil without a transport
	stores    []store
	listeners []admin.ListenerStatus
	// directories are the stores' own.
	directories []model.DirectoryID
	waiting     string // what the start waits for; "" once clients are served
}

// New makes a broker. It touches nothing yet.
func New(cfg config.Loaded, deps Deps) (*Broker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	dir, err := filepath.Abs(cfg.Data)
	if err != nil {
		return nil, fmt.Errorf("find the data directory: %w", err)
	}
	cfg.Data = dir
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "localhost"
	}
	if deps.Clock == nil {
		deps.Clock = loop.System{}
	}
	b := &Broker{
		cfg: cfg, deps: deps, log: deps.Logger, hostname: hostname,
		metrics: telemetry.NewMetrics(), parts: newStages(deps.Logger), ready: make(chan struct{}),
		buffers: memory.NewBuffers(cfg.Memory / memoryParts * memoryIdle),
		telling: &telling{node: model.NodeID(cfg.NodeID), static: cfg.TopicDefaults()},
	}
	b.metrics.Stores(b.paths)
	b.metrics.Cluster(b.cluster)
	b.plugins = newPlugins(b.log, b.metrics.Plugins())
	b.troubles = newTroubles(b.metrics.Replica(), b.log, deps.Clock.Now)
	b.now.Store(&assembly{waiting: "the broker has not begun to start"})
	return b, nil
}

// Ready is closed when clients are served.
func (b *Broker) Ready() <-chan struct{} { return b.ready }

// Addresses are what the listeners tell clients to dial, in the order of the
// configuration. There are none before Ready.
func (b *Broker) Addresses() []string {
	listeners := b.now.Load().listeners
	out := make([]string, 0, len(listeners))
	for _, l := range listeners {
		out = append(out, l.Advertised)
	}
	return out
}

// AdminAddress is where the admin listener is bound, or "".
func (b *Broker) AdminAddress() string {
	if a := b.now.Load().admin; a != nil {
		return a.Addr().String()
	}
	return ""
}

// Run starts the broker, serves until ctx ends or a part fails, and stops it.
// The end of ctx is no error. Errors are sentences for an operator.
func (b *Broker) Run(ctx context.Context) error {
	held, err := LockDirectory(b.cfg.Data)
	if err != nil {
		return err
	}
	err = b.run(ctx)
	b.metrics.Broker().Ready(false)
	return errors.Join(err, held.Release())
}

func (b *Broker) run(ctx context.Context) error {
	err := b.start(ctx)
	if err == nil {
		select {
		case <-ctx.Done():
			b.log.Info("stopping")
		case err = <-b.parts.ended:
			b.log.Error("stopping, because a part failed", "err", err)
		}
	} else if ctx.Err() != nil {
		err = nil // it was stopped while it started
	}
	b.progress(func(a *assembly) { a.waiting = "the broker stops" })
	stopped := b.parts.stop(err)
	now := b.now.Load()
	if now.quorum != nil {
		stopped = errors.Join(stopped, now.quorum.Close())
	}
	if b.life != nil && stopped == nil && (now.replicas == nil || now.replicas.ClosedAll()) {
		if err := b.life.stopped(); err != nil {
			b.log.Warn("should the machine lose its power now, this broker's logs count as if they had lost their ends", "err", err)
		}
	}
	if err = errors.Join(err, stopped); err == nil {
		b.log.Info("stopped")
	}
	return err
}

// progress changes what Run has put together.
func (b *Broker) progress(change func(*assembly)) {
	next := *b.now.Load()
	change(&next)
	b.now.Store(&next)
}

// start brings up every part in order. What it started is stopped by its caller.
func (b *Broker) start(ctx context.Context) error {
	if err := b.startAdmin(ctx); err != nil {
		return err
	}
	if err := b.checkPorts(ctx); err != nil {
		return err
	}
	life, err := beginLife(b.cfg.Data, bootID(), b.cfg.Flush)
	if err != nil {
		return err
	}
	b.life = life
	if err := life.write(); err != nil {
		b.log.Warn("should the machine lose its power now, this broker's logs count as if they had lost their ends", "err", err)
	}
	peers := &latePeers{}
	node, stores, err := b.startStores(ctx, peers)
	if err != nil {
		return err
	}
	b.progress(func(a *assembly) { a.waiting = "the replicas" })
	var incarnation [16]byte
	if _, err := rand.Read(incarnation[:]); err != nil {
		return fmt.Errorf("draw an incarnation: %w", err)
	}
	purged := newPurges(node, b.log)
	var others *network
	if b.cfg.Transport.Used() {
		if others, err = b.connect(ctx, node, peers); err != nil {
			return err
		}
		b.progress(func(a *assembly) { a.links = others.links })
	}
	manager, err := b.newManager(stores, incarnation, purged.told, node, others)
	if err != nil {
		return err
	}
	restarted := manager.Restarted
	b.plugins.restarted.Store(&restarted)
	groups, err := b.newCoordinator(node, manager, incarnation)
	if err != nil {
		return err
	}
	node.OnImage(manager.Apply)
	node.OnImage(groups.Apply) // after the replicas, which it reads and writes through
	var member atomic.Pointer[membership.Member]
	node.OnImage(func(img *image.Image) {
		if m := member.Load(); m != nil {
			m.Apply(img) // last: when the controller hears of an image, all that is here has it
		}
	})
	b.parts.start(ctx, "replicas", replicasStop, manager.Run)
	decided, undecided := context.WithCancel(context.WithoutCancel(ctx)) // until nobody is asked any more
	b.parts.start(ctx, "quorum", quorumStop, func(ctx context.Context) error {
		defer undecided()
		return node.Run(ctx)
	})
	b.parts.start(ctx, "upkeep", upkeepStop, purged.run)

	front, err := b.newServer(node, manager, groups)
	if err != nil {
		return err
	}
	if err := front.Listen(); err != nil {
		return fmt.Errorf("bind the listeners: %w", err)
	}
	listeners := b.bound(front)
	b.progress(func(a *assembly) {
		a.waiting, a.replicas, a.groups, a.directories = "its registration", manager, groups, directories(stores)
	})
	joined, err := b.join(ctx, node, incarnation, stores, listeners, member.Store)
	if err != nil {
		return errors.Join(err, unbind(ctx, front))
	}
	b.parts.start(ctx, "listeners", serverStop, front.Run)
	// Stopped first, since it answers members that may wait for minutes, for whom the
	// listeners would.
	b.parts.start(ctx, "groups", groupsStop, groups.Run)
	// Before all: what others can lead is theirs before anything here ends.
	b.parts.start(ctx, "leadership", leaveStop, func(ctx context.Context) error {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(decided, leaveTimeout)
		defer cancel()
		joined.Leave(ctx)
		return nil
	})
	b.progress(func(a *assembly) { a.waiting, a.listeners = "", listeners })
	b.metrics.Broker().Ready(true)
	for _, w := range b.lostStores() {
		b.log.Error(w)
	}
	for _, w := range b.warnings(node.Image()) {
		b.log.Warn(w)
	}
	for _, l := range listeners {
		b.log.Info("serving clients", "listener", l.Name, "bound", l.Bound, "advertised", l.Advertised)
	}
	close(b.ready)
	return nil
}

// startStores opens the quorum's log and then the stores. Where a cluster is to be
// created, the stores are opened first: one that belongs to a cluster refuses
// another, and then none is created.
func (b *Broker) startStores(ctx context.Context, peers *latePeers) (*quorum.Node, []store, error) {
	b.progress(func(a *assembly) { a.waiting = "the quorum's log" })
	first, err := b.propose(ctx)
	if err != nil {
		return nil, nil, err
	}
	if first == nil {
		node, err := b.openQuorum(&founding{}, peers)
		if err != nil {
			return nil, nil, err
		}
		stores, err := b.startPlugins(ctx, node.Identity())
		return node, stores, err
	}
	opening, stop := context.WithCancelCause(ctx)
	b.plugins.onRefused(stop) // to try again would not make it another's
	stores, err := b.startPlugins(opening, quorum.Identity{ClusterID: first.cluster, NodeID: model.NodeID(b.cfg.NodeID)})
	if cause := context.Cause(opening); err != nil && cause != nil && ctx.Err() == nil {
		err = cause
	}
	b.plugins.onRefused(nil)
	stop(nil)
	if err != nil {
		return nil, nil, b.refused(first, stores, err)
	}
	node, err := b.openQuorum(first, peers)
	if err != nil {
		return nil, nil, err
	}
	return node, stores, first.done()
}

// unbind closes listeners that nobody was served on.
func unbind(ctx context.Context, front *server.Server) error {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return front.Run(ctx)
}

// openQuorum opens the quorum's log, or makes it for a cluster that is to be created or
// joined.
func (b *Broker) openQuorum(first *founding, peers *latePeers) (*quorum.Node, error) {
	cfg := b.quorumConfig()
	cfg.ClusterID, cfg.Verdict = first.cluster, first.verdict
	deps := quorum.Deps{Logger: b.log, Clock: b.deps.Clock}
	if b.cfg.Transport.Used() {
		deps.Peers = peers
	}
	node, err := quorum.Open(cfg, deps)
	if err != nil {
		return nil, err
	}
	identity := node.Identity()
	b.metrics.Broker().Is(b.deps.Version, string(identity.ClusterID), fmt.Sprint(identity.NodeID))
	b.progress(func(a *assembly) { a.quorum = node })
	return node, nil
}

func (b *Broker) quorumConfig() quorum.Config {
	return quorum.Config{
		Dir:                     b.quorumDir(),
		NodeID:                  model.NodeID(b.cfg.NodeID),
		Bootstrap:               b.cfg.Cluster.Bootstrap,
		ReplicationFactorTarget: b.cfg.Topics.ReplicationFactor,
		MinISRTarget:            b.cfg.Topics.MinISR(),
		Controller:              b.controllerConfig(),
		Endpoint:                b.endpoint,
		Seeds:                   b.cfg.Cluster.Seeds,
		VotersTarget:            b.cfg.Cluster.Voters,
	}
}

// join makes the broker known to the cluster with what it advertises, and returns when it
// may serve. member is told of who is to hear of images, before that.
func (b *Broker) join(ctx context.Context, node *quorum.Node, incarnation [16]byte, stores []store, listeners []admin.ListenerStatus, member func(*membership.Member)) (*membership.Member, error) {
	r, err := b.registration(node.Identity(), incarnation, stores, listeners)
	if err != nil {
		return nil, err
	}
	m, err := b.newMembership(node, b.now.Load().replicas, r)
	if err != nil {
		return nil, err
	}
	member(m)
	m.Apply(node.Image())
	// Stopped after the listeners, so that the broker is not fenced while they finish.
	b.parts.start(ctx, "membership", membershipStop, m.Run)
	if !b.cfg.Transport.Used() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, registerTimeout)
		defer cancel()
	}
	ctx, release := b.parts.whole(ctx)
	defer release()
	if err := m.Wait(ctx); err != nil {
		return nil, fmt.Errorf("register with the cluster: %w", err)
	}
	if len(r.MayHaveLost) > 0 {
		if err := b.life.told(); err != nil {
			b.log.Warn("the next start takes this broker's logs once more for such as may have lost their ends", "err", err)
		}
	}
	return m, nil
}

// registration is how this life of the broker makes itself known.
func (b *Broker) registration(identity quorum.Identity, incarnation [16]byte, stores []store, listeners []admin.ListenerStatus) (quorum.Registration, error) {
	r := quorum.Registration{
		ClusterID: identity.ClusterID, NodeID: identity.NodeID, Incarnation: incarnation, Rack: b.cfg.Rack, Listeners: make(map[string]image.Endpoint),
		FeatureLevelMin: 1, FeatureLevelMax: image.FeatureLevel, Directories: directories(stores),
	}
	if b.life.doubted() {
		r.MayHaveLost = r.Directories
	}
	for _, l := range listeners {
		e, err := endpoint(l.Advertised)
		if err != nil {
			return quorum.Registration{}, err
		}
		r.Listeners[l.Name] = e
	}
	return r, nil
}

func directories(stores []store) []model.DirectoryID {
	var out []model.DirectoryID
	for _, s := range stores {
		out = append(out, model.DirectoryID(s.DirectoryID()))
	}
	return out
}

// bound pairs what is listened on with what clients are told.
func (b *Broker) bound(front *server.Server) []admin.ListenerStatus {
	addrs := front.Addrs()
	out := make([]admin.ListenerStatus, 0, len(b.cfg.Listeners))
	for _, l := range b.cfg.Listeners {
		addr := addrs[l.Name]
		port := l.Port
		if tcp, ok := addr.(*net.TCPAddr); ok {
			port = tcp.Port
		}
		out = append(out, admin.ListenerStatus{Name: l.Name, Bound: addr.String(), Advertised: b.cfg.Advertise(l, port, b.hostname).Address()})
	}
	return out
}
