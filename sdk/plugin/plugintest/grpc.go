package plugintest

import (
	"context"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/storagetest"
	"github.com/brokerd/brokerd/sdk/transport"
)

// pipeBytes is the buffer of the connection in memory.
const pipeBytes = 1 << 20

// By is inner behind a lane of that carrier, with everything but the process.
func By(carrier plugin.Carrier, inner storagetest.Target) storagetest.Target {
	return &laneTarget{Target: inner, carrier: carrier}
}

type laneTarget struct {
	storagetest.Target
	carrier plugin.Carrier
}

func (t *laneTarget) Name() string { return t.Target.Name() + " over " + t.carrier.String() }

func (t *laneTarget) Fresh(ctx context.Context) (storagetest.Backing, error) {
	inner, err := t.Target.Fresh(ctx)
	if err != nil {
		return nil, err
	}
	return &laneBacking{Backing: inner, name: t.Target.Name(), carrier: t.carrier}, nil
}

// laneBacking has a connection and a server for each opening.
type laneBacking struct {
	storagetest.Backing
	name    string
	carrier plugin.Carrier

	mu   sync.Mutex
	open []*Link
}

// Open opens the inner backing at the far end of a connection.
func (b *laneBacking) Open(ctx context.Context, cfg storage.Config) (storage.Store, storage.DirectoryID, error) {
	link, err := Connect(provider{name: b.name, open: b.Backing.Open}, b.carrier)
	if err != nil {
		return nil, storage.DirectoryID{}, err
	}
	store, dir, err := link.Store(ctx, cfg)
	if err != nil {
		link.Break()
		return nil, dir, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = append(b.open, link)
	return store, dir, nil
}

// cut breaks every connection.
func (b *laneBacking) cut() {
	b.mu.Lock()
	open := b.open
	b.open = nil
	b.mu.Unlock()
	for _, link := range open {
		link.Break()
	}
}

func (b *laneBacking) Kill(ctx context.Context) error {
	b.cut()
	return b.Backing.Kill(ctx)
}

func (b *laneBacking) LosePower(ctx context.Context, seed uint64) error {
	b.cut()
	return b.Backing.LosePower(ctx, seed)
}

func (b *laneBacking) Remove(ctx context.Context) error {
	b.cut()
	return b.Backing.Remove(ctx)
}

// provider opens by a function.
type provider struct {
	name string
	open func(context.Context, storage.Config) (storage.Store, storage.DirectoryID, error)
}

func (p provider) Info() storage.Info { return storage.Info{Name: p.name} }

func (p provider) Open(ctx context.Context, cfg storage.Config) (storage.Store, storage.DirectoryID, error) {
	return p.open(ctx, cfg)
}

// Link is a client and a server of one provider, connected within this process.
type Link struct {
	*plugin.Client
	conn    *grpc.ClientConn
	server  *grpc.Server
	serving sync.WaitGroup
	stop    context.CancelFunc // of the fast lane

	mu     sync.Mutex
	opened []interface{ Abandon() }
}

// server serves what a plugin is.
type server interface {
	Register(g grpc.ServiceRegistrar)
	AddSocket(conn *net.UnixConn)
	RunSocket(ctx context.Context, conn *net.UnixConn) error
}

// Connect serves p and connects to it, by no more than the carrier.
func Connect(p storage.Provider, carrier plugin.Carrier) (*Link, error) {
	return connect(plugin.NewStorageServer(p, nil, nil), carrier)
}

// ConnectTransport serves p and connects to it, by no more than the carrier.
func ConnectTransport(p transport.Provider, carrier plugin.Carrier) (*Link, error) {
	return connect(plugin.NewTransportServer(p, nil, nil), carrier)
}

func connect(server server, carrier plugin.Carrier) (*Link, error) {
	listener := bufconn.Listen(pipeBytes)
	conn, err := grpc.NewClient("passthrough:plugin", append(plugin.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return listener.DialContext(ctx)
		}))...)
	if err != nil {
		return nil, fmt.Errorf("connect in memory: %w", err)
	}
	l := &Link{
		Client: plugin.NewClient(conn, 0),
		conn:   conn,
		server: grpc.NewServer(plugin.ServerOptions()...),
	}
	server.Register(l.server)
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	if carrier != plugin.CarrierGRPC {
		host, far, err := plugin.SocketPair()
		if err != nil {
			stop()
			_ = conn.Close()
			return nil, err
		}
		l.AddSocket(host, carrier)
		server.AddSocket(far)
		l.serving.Go(func() { _ = server.RunSocket(ctx, far) }) // as Serve
	}
	l.serving.Go(func() { _ = l.server.Serve(listener) }) // ends with Break
	return l, nil
}

// Store opens the store at the far end.
func (l *Link) Store(ctx context.Context, cfg storage.Config) (*plugin.Store, storage.DirectoryID, error) {
	store, dir, err := l.Client.Store(ctx, cfg)
	if err != nil {
		return nil, dir, err
	}
	l.keep(store)
	return store, dir, nil
}

// OpenTransport opens the transport at the far end.
func (l *Link) OpenTransport(ctx context.Context, cfg transport.Config) (*plugin.TransportSession, error) {
	session, err := l.Client.OpenTransport(ctx, cfg)
	if err != nil {
		return nil, err
	}
	l.keep(session)
	return session, nil
}

// keep has Break end what was opened.
func (l *Link) keep(opened interface{ Abandon() }) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opened = append(l.opened, opened)
}

// Break ends the connection as the death of the plugin does, and returns when
// nothing of it runs any more. The provider's store or transport is not told.
func (l *Link) Break() {
	l.stop()
	l.server.Stop()
	_ = l.conn.Close()
	l.mu.Lock()
	opened := l.opened
	l.mu.Unlock()
	for _, o := range opened {
		o.Abandon()
	}
	l.serving.Wait()
}
