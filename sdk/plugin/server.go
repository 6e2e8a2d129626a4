package plugin

import (
	"context"
	"log/slog"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	pluginv1 "github.com/brokerd/brokerd/sdk/proto/plugin/v1"
	storagev1 "github.com/brokerd/brokerd/sdk/proto/storage/v1"
	"github.com/brokerd/brokerd/sdk/storage"
)

// lane sizes of the gRPC connection: buffers that let a coalesced frame pass in
// few system calls, and windows that never stop a sender whose peer reads.
const (
	socketBufferBytes = 256 << 10
	streamWindowBytes = 8 << 20
	connWindowBytes   = 16 << 20
)

// StorageServer serves one provider, and at most one store of it at a time, over
// gRPC. Its methods may be called from many goroutines.
type StorageServer struct {
	pluginv1.UnimplementedPluginServer
	storagev1.UnimplementedStorageServer

	provider storage.Provider
	logger   *slog.Logger // for the store; may be nil
	// onDrained is called after the answer to Drain was given to gRPC.
	onDrained func()
	// forSocket hands the first store that is opened to RunSocket.
	forSocket chan storage.Store

	mu       sync.Mutex
	socket   *net.UnixConn // until a store has it
	busy     bool          // Configure or Shutdown is at work
	store    storage.Store
	draining bool
}

// NewStorageServer makes a server, whose stores log to logger, if that is not
// nil. onDrained, if not nil, is told that a drain that was asked for by the
// broker is over.
func NewStorageServer(p storage.Provider, logger *slog.Logger, onDrained func()) *StorageServer {
	if onDrained == nil {
		onDrained = func() {}
	}
	return &StorageServer{provider: p, logger: logger, onDrained: onDrained, forSocket: make(chan storage.Store, 1)}
}

// AddSocket makes the server offer the fast lane over conn, the other end of which
// a client has, to the first store that is configured after it. The lane is served
// by RunSocket. conn stays the caller's.
func (s *StorageServer) AddSocket(conn *net.UnixConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.socket = conn
}

// RunSocket serves the fast lane over conn, which AddSocket was given, until the
// client closes it or ctx ends. It then closes conn.
func (s *StorageServer) RunSocket(ctx context.Context, conn *net.UnixConn) error {
	defer func() { _ = conn.Close() }()
	unwatch := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer unwatch()
	select {
	case store := <-s.forSocket:
		return newServerLane(store, newSocketLink(conn)).run(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ServerOptions are what the gRPC server of a StorageServer must be made with.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec(mem.DefaultBufferPool())),
		grpc.MaxRecvMsgSize(maxMessageBytes),
		grpc.MaxSendMsgSize(maxMessageBytes),
		grpc.ReadBufferSize(socketBufferBytes),
		grpc.WriteBufferSize(socketBufferBytes),
		grpc.InitialWindowSize(streamWindowBytes),
		grpc.InitialConnWindowSize(connWindowBytes),
	}
}

// Register adds the server's services to g.
func (s *StorageServer) Register(g grpc.ServiceRegistrar) {
	pluginv1.RegisterPluginServer(g, s)
	storagev1.RegisterStorageServer(g, s)
}

// Shut shuts down the store, if one is open, and refuses every later call. It
// is Drain for whoever holds the server itself.
func (s *StorageServer) Shut(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	store := s.store
	s.store = nil
	s.mu.Unlock()
	if store == nil {
		return nil
	}
	return store.Shutdown(ctx)
}

// current returns the store that is open.
func (s *StorageServer) current() (storage.Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.draining:
		return nil, storage.Errorf(storage.ErrGone, "the plugin is ending")
	case s.store == nil:
		return nil, storage.Errorf(storage.ErrGone, "the store is not open")
	}
	return s.store, nil
}

// begin reserves the change from one store to another.
func (s *StorageServer) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.draining:
		return storage.Errorf(storage.ErrGone, "the plugin is ending")
	case s.busy:
		return storage.Errorf(storage.ErrRetry, "the store is being opened or shut down")
	case s.store != nil:
		return storage.Errorf(storage.ErrInvalid, "the plugin is configured already")
	}
	s.busy = true
	return nil
}

// Info implements the service Plugin.
func (s *StorageServer) Info(context.Context, *pluginv1.InfoRequest) (*pluginv1.InfoResponse, error) {
	return infoToProto(StorageInfo(s.provider.Info())), nil
}

// Health implements the service Plugin.
func (s *StorageServer) Health(context.Context, *pluginv1.HealthRequest) (*pluginv1.HealthResponse, error) {
	return &pluginv1.HealthResponse{}, nil
}

// Configure implements the service Plugin: it opens the store.
func (s *StorageServer) Configure(ctx context.Context, m *pluginv1.ConfigureRequest) (*pluginv1.ConfigureResponse, error) {
	proposed, err := directoryIDFromProto(m.GetProposedDirectoryId())
	if err == nil {
		err = s.begin()
	}
	if err != nil {
		return &pluginv1.ConfigureResponse{Error: errorToProto(err)}, nil
	}
	store, dir, err := s.provider.Open(ctx, storage.Config{
		Settings: m.GetSettings(),
		Identity: storage.Identity{
			ClusterID: m.GetIdentity().GetClusterId(),
			NodeID:    m.GetIdentity().GetNodeId(),
		},
		ProposedDirectoryID: proposed,
		Logger:              s.logger,
	})
	s.mu.Lock()
	s.busy = false
	late := s.draining && err == nil
	var lanes []string
	if err == nil && !late {
		s.store = store
		if s.socket != nil {
			s.socket, lanes = nil, []string{laneSocket}
			s.forSocket <- store // the only one
		}
	}
	s.mu.Unlock()
	if late { // a drain came while it opened
		err = store.Shutdown(ctx)
		if err == nil {
			err = storage.Errorf(storage.ErrGone, "the plugin is ending")
		}
	}
	if err != nil {
		return &pluginv1.ConfigureResponse{Error: errorToProto(err)}, nil
	}
	return &pluginv1.ConfigureResponse{
		DirectoryId:  dir[:],
		Capabilities: capabilitiesToProto(store.Capabilities(), lanes),
	}, nil
}

// Drain implements the service Plugin.
func (s *StorageServer) Drain(ctx context.Context, _ *pluginv1.DrainRequest) (*pluginv1.DrainResponse, error) {
	err := s.Shut(ctx)
	defer s.onDrained()
	return &pluginv1.DrainResponse{Error: errorToProto(err)}, nil
}

// Shutdown implements the service Storage. Another store may be configured
// after it.
func (s *StorageServer) Shutdown(ctx context.Context, _ *storagev1.ShutdownRequest) (*storagev1.ShutdownResponse, error) {
	s.mu.Lock()
	store := s.store
	s.store = nil
	s.busy = s.busy || store != nil
	s.mu.Unlock()
	if store == nil {
		return &storagev1.ShutdownResponse{Error: errorToProto(storage.Errorf(storage.ErrGone, "the store is not open"))}, nil
	}
	err := store.Shutdown(ctx)
	s.mu.Lock()
	s.busy = false
	s.mu.Unlock()
	return &storagev1.ShutdownResponse{Error: errorToProto(err)}, nil
}
