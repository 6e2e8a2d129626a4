package broker

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/brokerd/brokerd/core/admin"
	"github.com/brokerd/brokerd/core/api"
	"github.com/brokerd/brokerd/core/config"
	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/coordinator"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/core/pluginhost"
	"github.com/brokerd/brokerd/core/quorum"
	"github.com/brokerd/brokerd/core/replica"
	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/server"
	"github.com/brokerd/brokerd/sdk/storage"
)

// The parts of the memory budget, of memoryParts. What is left waits to be collected:
// see memory.Pace, to which a program's main says how much that is.
const (
	memoryParts = 32
	// memoryServer is for what connections hold: requests, records that were read
	// for fetches, replies.
	memoryServer = 18
	// memoryAppends is for batches on their way to the stores.
	memoryAppends = 3
	// memoryCopies is for batches that leaders have sent, where there is a transport: then it
	// is taken of memoryAppends.
	memoryCopies = 1
	// memoryGroupWrites is for what groups have under way to the log.
	memoryGroupWrites = 1
	// memoryTails is for the ends of logs.
	memoryTails = 2
	// memoryGroups is for groups: their members, assignments and offsets.
	memoryGroups = 4
	// memoryIdle is for buffers that nobody has borrowed for the moment.
	memoryIdle = 2
	// fetchShare is how many of the largest replies to a fetch memory holds: all
	// clients share it, so that none is to take much of it at once.
	fetchShare = 32
)

// idleNever is longer than anybody waits, and short enough to be added to a time.
const idleNever = 100 * 365 * 24 * time.Hour

// fetchBytesMax bounds the reply to a fetch.
func (b *Broker) fetchBytesMax() int {
	return int(min(b.cfg.Server.FetchBytesMax, b.cfg.Memory/fetchShare))
}

func (b *Broker) controllerConfig() controller.Config {
	c := controller.DefaultConfig()
	c.PartitionsDefault = b.cfg.Topics.Partitions
	c.Strict = b.cfg.Topics.Policy == config.ReplicationStrict
	c.TopicDefaults = b.cfg.TopicDefaults()
	c.BrokerLease = b.cfg.Cluster.SessionTimeout
	c.ShutdownMax = leaveKnown
	return c
}

func (b *Broker) startAdmin(ctx context.Context) error {
	if b.cfg.Admin.Listen == "" {
		return nil
	}
	a := admin.New(b.cfg.Admin.Listen, admin.Deps{
		Status: b.status, Ready: b.readiness, Metrics: b.scrape(), Logger: b.log,
	})
	if err := a.Listen(); err != nil {
		return err
	}
	b.parts.start(ctx, "admin", adminStop, a.Run)
	b.progress(func(next *assembly) { next.admin = a })
	return nil
}

// startPlugins launches the plugin of each store, the default one first, and
// waits until all of them serve; those that this process serves itself are opened. With
// an error, too, it returns those launched.
func (b *Broker) startPlugins(ctx context.Context, identity quorum.Identity) ([]store, error) {
	cfg := b.hostConfig()
	cfg.Carriers = make(map[string]string)
	for name, s := range b.cfg.Storage.Stores {
		cfg.Carriers[name] = string(s.Carrier)
	}
	host := pluginhost.New(cfg, b.log, b.plugins.happened)
	var launched []*pluginhost.Store
	var stores []store
	for _, name := range b.cfg.Storage.Names() {
		s := b.cfg.Storage.Stores[name]
		settings, err := b.cfg.ResolveReferences(s.Config)
		if err != nil {
			return nil, fmt.Errorf("store %s: config: %w", name, err)
		}
		sc := storage.Config{Settings: settings, Identity: storage.Identity{ClusterID: string(identity.ClusterID), NodeID: int32(identity.NodeID)}}
		if _, err := rand.Read(sc.ProposedDirectoryID[:]); err != nil {
			return nil, fmt.Errorf("draw a directory ID: %w", err)
		}
		if p := b.deps.Inside[s.Plugin]; p != nil {
			opened, err := b.openInside(ctx, p, name, s.Plugin, sc)
			if err != nil {
				return stores, err
			}
			b.metrics.Replica().Begin(name)
			stores = append(stores, opened)
			continue
		}
		launched = append(launched, host.Store(name, s.Plugin, sc))
		stores = append(stores, launched[len(launched)-1])
	}
	b.parts.start(ctx, "plugins", pluginsStop, host.Run)
	b.progress(func(a *assembly) { a.stores = stores })
	for _, s := range launched {
		b.progress(func(a *assembly) { a.waiting = "store " + s.Name() })
		if err := s.WaitReady(ctx); err != nil {
			return stores, fmt.Errorf("store %s: %w", s.Name(), err)
		}
		b.metrics.Replica().Begin(s.Name())
	}
	return stores, nil
}

// hostConfig is where plugins are found and what is known of them.
func (b *Broker) hostConfig() pluginhost.Config {
	return pluginhost.Config{
		Dir: b.cfg.Plugins.Dir, Checksums: b.cfg.Plugins.Checksums, Env: b.cfg.Plugins.Environment, Builtin: b.deps.Builtin,
	}
}

func (b *Broker) newManager(stores []store, incarnation [16]byte, purged func(model.TopicID, model.DirectoryID), node *quorum.Node, others *network) (*replica.Manager, error) {
	cfg := replica.DefaultConfig()
	cfg.NodeID = model.NodeID(b.cfg.NodeID)
	cfg.AppendBytes = b.cfg.Memory / memoryParts * memoryAppends
	cfg.TailBytes = b.cfg.Memory / memoryParts * memoryTails
	cfg.FetchBytes = b.fetchBytesMax()
	cfg.Limits.LagMax = b.cfg.Replicas.LagMax
	settings := replica.DefaultBroker()
	settings.Static = b.cfg.TopicDefaults()
	settings.Flush = map[config.FlushPolicy]partition.FlushPolicy{
		config.FlushReplicated: partition.FlushReplicated,
		config.FlushAlways:     partition.FlushAlways,
		config.FlushInterval:   partition.FlushInterval,
	}[b.cfg.Flush]
	settings.FlushEvery = b.cfg.Replicas.FlushInterval
	settings.ProducerExpiry = b.cfg.Replicas.ProducerExpiration
	settings.RetentionEvery = b.cfg.Replicas.RetentionInterval
	deps := replica.Deps{
		Logger: b.log, Clock: b.deps.Clock, Events: b.troubles, Settings: replica.SettingsOf(cfg.NodeID, settings),
		Incarnation: incarnation, Doubts: b.life, Purged: purged, Buffers: b.buffers,
	}
	if others != nil {
		cfg.CopyBytes = b.cfg.Memory / memoryParts * memoryCopies
		cfg.AppendBytes -= cfg.CopyBytes
		deps.Streams, deps.Controller = others.links, &isrQuestions{node, incarnation}
	}
	for _, s := range stores {
		deps.Directories = append(deps.Directories, replica.Directory{
			ID: model.DirectoryID(s.DirectoryID()), Name: s.Name(), Plugin: s.Plugin(), Store: s,
		})
	}
	m, err := replica.New(cfg, deps)
	if err != nil {
		return nil, fmt.Errorf("make the replicas: %w", err)
	}
	if others != nil {
		others.links.ServeStreams(m)
	}
	return m, nil
}

func (b *Broker) newServer(node *quorum.Node, manager *replica.Manager, groups *coordinator.Manager) (*server.Server, error) {
	properties := make(map[string]api.Property, len(b.cfg.Values))
	for _, v := range b.cfg.Values {
		properties[v.Name] = api.Property{Value: v.Value, Default: v.Default(), Doc: v.About}
	}
	edge := api.Config{
		NodeID:           model.NodeID(b.cfg.NodeID),
		AutoCreateTopics: b.cfg.Topics.AutoCreate,
		FetchBytesMax:    b.fetchBytesMax(),
		FetchSessionsMax: b.cfg.Server.FetchSessionsMax,
		Properties:       properties,
	}
	if err := edge.Validate(); err != nil {
		return nil, fmt.Errorf("edge: %w", err)
	}
	handler := api.New(edge, api.Deps{
		Partitions: manager, Controller: b.commands(node), Metadata: node, Operations: node, Quorum: node, Groups: groups, Authorizer: security.AllowAll{},
		Events: b.metrics.API(), Logger: b.log, Now: b.deps.Clock.Now,
	})
	cfg := server.DefaultConfig()
	cfg.Buffers = b.buffers
	cfg.MaxRequestBytes = int32(b.cfg.Server.RequestBytesMax)
	cfg.MaxConnections = b.cfg.Server.ConnectionsMax
	if cfg.IdleTimeout = b.cfg.Server.IdleMax; cfg.IdleTimeout < 0 {
		cfg.IdleTimeout = idleNever
	}
	for _, l := range b.cfg.Listeners {
		cfg.Listeners = append(cfg.Listeners, server.Listener{Name: l.Name, Address: l.Address()})
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	budget := memory.New(b.cfg.Memory / memoryParts * memoryServer)
	return server.New(cfg, handler, budget, b.log, serverEvents{b.metrics.Server()}), nil
}

// commands is the controller as the edge may use it.
func (b *Broker) commands(node *quorum.Node) api.Controller {
	var c api.Controller = offsetsTopic{Controller: node, topic: b.offsetsTopic()}
	if !b.cfg.Topics.Delete {
		c = noDeletes{c}
	}
	return c
}

// noDeletes is a controller under delete.topic.enable: false.
type noDeletes struct{ api.Controller }

func (noDeletes) DeleteTopics(_ context.Context, topics []model.TopicRef) ([]model.TopicResult, error) {
	out := make([]model.TopicResult, len(topics))
	for i, t := range topics {
		out[i] = model.TopicResult{Name: t.Name, ID: t.ID, Err: fmt.Errorf("topics cannot be deleted here (delete.topic.enable): %w", model.ErrPolicyViolation)}
	}
	return out, nil
}

func endpoint(address string) (image.Endpoint, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return image.Endpoint{}, fmt.Errorf("advertise %s: %w", address, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return image.Endpoint{}, fmt.Errorf("advertise %s: %w", address, err)
	}
	return image.Endpoint{Host: host, Port: int32(n)}, nil
}
