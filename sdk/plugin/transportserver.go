package plugin

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/brokerd/brokerd/sdk/proto/plugin/v1"
	transportv1 "github.com/brokerd/brokerd/sdk/proto/transport/v1"
	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/streams"
)

// openTransport is a transport that is open, or the network of one.
type openTransport struct {
	transport transport.Transport
	network   streams.Network
}

func (o openTransport) none() bool { return o.transport == nil && o.network == nil }

func (o openTransport) close() error {
	switch {
	case o.network != nil:
		return o.network.Close()
	case o.transport != nil:
		return o.transport.Close()
	}
	return nil
}

// describe says what is open.
func (o openTransport) describe() *pluginv1.TransportCapabilities {
	var has transport.Capabilities
	m := &pluginv1.TransportCapabilities{Descriptors: o.network != nil}
	if o.network != nil {
		has, m.Endpoint = o.network.Capabilities(), wireText(o.network.Endpoint())
	} else {
		has, m.Endpoint = o.transport.Capabilities(), wireText(o.transport.Endpoint())
	}
	m.Refuses, m.Resets, m.Proof = has.Refuses, has.Resets, int32(has.Proof)
	return m
}

// TransportServer serves one provider, and at most one transport of it at a time, over gRPC.
// Its methods may be called from many goroutines.
type TransportServer struct {
	pluginv1.UnimplementedPluginServer
	transportv1.UnimplementedTransportServer

	provider transport.Provider
	logger   *slog.Logger // for the transport; may be nil
	// onDrained is called after the answer to Drain was given to gRPC.
	onDrained func()
	// forSocket hands the first transport that is opened to RunSocket.
	forSocket chan openTransport

	mu       sync.Mutex
	socket   *net.UnixConn // until a transport has it
	busy     bool          // Configure or Shutdown is at work
	open     openTransport
	draining bool
}

// NewTransportServer makes a server, whose transports log to logger, if that is not nil.
// onDrained, if not nil, is told that a drain that was asked for by the broker is over.
func NewTransportServer(p transport.Provider, logger *slog.Logger, onDrained func()) *TransportServer {
	if onDrained == nil {
		onDrained = func() {}
	}
	return &TransportServer{provider: p, logger: logger, onDrained: onDrained, forSocket: make(chan openTransport, 1)}
}

// AddSocket makes the server offer the fast lane over conn, the other end of which a client
// has, to the first transport that is configured after it. The lane is served by RunSocket.
// conn stays the caller's.
func (s *TransportServer) AddSocket(conn *net.UnixConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.socket = conn
}

// RunSocket serves the fast lane over conn, which AddSocket was given, until the client
// closes it or ctx ends. It then closes conn.
func (s *TransportServer) RunSocket(ctx context.Context, conn *net.UnixConn) error {
	defer func() { _ = conn.Close() }()
	unwatch := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer unwatch()
	select {
	case open := <-s.forSocket:
		return newTransportServerLane(open, newSocketLink(conn)).run(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Register adds the server's services to g, which is made with ServerOptions.
func (s *TransportServer) Register(g grpc.ServiceRegistrar) {
	pluginv1.RegisterPluginServer(g, s)
	transportv1.RegisterTransportServer(g, s)
}

// Shut closes the transport, if one is open, and refuses every later call. It is Drain for
// whoever holds the server itself.
func (s *TransportServer) Shut(context.Context) error {
	s.mu.Lock()
	s.draining = true
	open := s.open
	s.open = openTransport{}
	s.mu.Unlock()
	return open.close()
}

// current returns what is open.
func (s *TransportServer) current() (openTransport, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.draining:
		return openTransport{}, transport.Errorf(transport.ErrClosed, "the plugin is ending")
	case s.open.none():
		return openTransport{}, transport.Errorf(transport.ErrClosed, "the transport is not open")
	}
	return s.open, nil
}

// Info implements the service Plugin.
func (s *TransportServer) Info(context.Context, *pluginv1.InfoRequest) (*pluginv1.InfoResponse, error) {
	return infoToProto(TransportInfo(s.provider.Info())), nil
}

// Health implements the service Plugin.
func (s *TransportServer) Health(context.Context, *pluginv1.HealthRequest) (*pluginv1.HealthResponse, error) {
	return &pluginv1.HealthResponse{}, nil
}

// begin reserves the change from one transport to another, and says whether there is a
// socket for it.
func (s *TransportServer) begin() (socket bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.draining:
		return false, transport.Errorf(transport.ErrClosed, "the plugin is ending")
	case s.busy:
		return false, transport.Errorf(transport.ErrRetry, "the transport is being opened or closed")
	case !s.open.none():
		return false, transport.Errorf(transport.ErrInvalid, "the plugin is configured already")
	}
	s.busy = true
	return s.socket != nil, nil
}

// Configure implements the service Plugin: it opens the transport, or its network where the
// broker can be given the connections.
func (s *TransportServer) Configure(ctx context.Context, m *pluginv1.ConfigureRequest) (*pluginv1.ConfigureResponse, error) {
	refuse := func(err error) (*pluginv1.ConfigureResponse, error) {
		return &pluginv1.ConfigureResponse{Error: transportErrorToProto(err)}, nil
	}
	cfg := transport.Config{Settings: m.GetSettings(), Logger: s.logger, Endpoint: m.GetTransport().GetEndpoint()}
	var err error
	if cfg.Identity, err = transportIdentity(m.GetIdentity()); err != nil {
		return refuse(err)
	}
	socket, err := s.begin()
	if err != nil {
		return refuse(err)
	}
	var open openTransport
	if p, ok := s.provider.(streams.Provider); ok && socket && m.GetTransport().GetDescriptors() {
		open.network, err = p.OpenNetwork(ctx, cfg)
	} else {
		open.transport, err = s.provider.Open(ctx, cfg)
	}
	s.mu.Lock()
	s.busy = false
	late := s.draining && err == nil
	var lanes []string
	if err == nil && !late {
		s.open = open
		if s.socket != nil {
			s.socket, lanes = nil, []string{laneSocket}
			s.forSocket <- open // the only one
		}
	}
	s.mu.Unlock()
	if late { // a drain came while it opened
		if err = open.close(); err == nil {
			err = transport.Errorf(transport.ErrClosed, "the plugin is ending")
		}
	}
	if err != nil {
		return refuse(err)
	}
	return &pluginv1.ConfigureResponse{Capabilities: &pluginv1.Capabilities{Lanes: lanes, Transport: open.describe()}}, nil
}

// Data implements the service Transport. It returns when the client ends the stream, or when
// the stream breaks.
func (s *TransportServer) Data(stream grpc.BidiStreamingServer[transportv1.Frame, transportv1.Frame]) error {
	open, err := s.current()
	if err == nil && open.transport == nil {
		err = errors.New("the connections of a network go over a socket")
	}
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	err = newTransportServerLane(open, streamLink{stream}).run(stream.Context())
	if errors.Is(err, errUnit) {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return err
}

// Material implements the service Transport.
func (s *TransportServer) Material(ctx context.Context, _ *transportv1.MaterialRequest) (*transportv1.MaterialResponse, error) {
	open, err := s.current()
	if err == nil && open.network == nil {
		err = transport.Errorf(transport.ErrInvalid, "the plugin runs the links itself")
	}
	var own *streams.Material
	if err == nil {
		own, err = open.network.Material(ctx)
	}
	if err != nil || own == nil {
		return &transportv1.MaterialResponse{Error: transportErrorToProto(err)}, nil
	}
	key, err := x509.MarshalPKCS8PrivateKey(own.Certificate.PrivateKey)
	if err != nil {
		err = transport.Errorf(transport.ErrInvalid, "the certificate's key cannot be passed: %v", err)
		return &transportv1.MaterialResponse{Error: transportErrorToProto(err)}, nil
	}
	r := &transportv1.MaterialResponse{Certificates: own.Certificate.Certificate, Key: key}
	for _, root := range own.Roots {
		r.Roots = append(r.Roots, root.Raw)
	}
	return r, nil
}

// Drain implements the service Plugin.
func (s *TransportServer) Drain(ctx context.Context, _ *pluginv1.DrainRequest) (*pluginv1.DrainResponse, error) {
	err := s.Shut(ctx)
	defer s.onDrained()
	return &pluginv1.DrainResponse{Error: transportErrorToProto(err)}, nil
}

// Shutdown implements the service Transport. Another transport may be configured after it.
func (s *TransportServer) Shutdown(context.Context, *transportv1.ShutdownRequest) (*transportv1.ShutdownResponse, error) {
	s.mu.Lock()
	open := s.open
	s.open = openTransport{}
	s.busy = s.busy || !open.none()
	s.mu.Unlock()
	if open.none() {
		return &transportv1.ShutdownResponse{}, nil
	}
	err := open.close()
	s.mu.Lock()
	s.busy = false
	s.mu.Unlock()
	return &transportv1.ShutdownResponse{Error: transportErrorToProto(err)}, nil
}

// transportIdentity reads who the node is.
func transportIdentity(m *pluginv1.Identity) (transport.Identity, error) {
	id := transport.Identity{ClusterID: m.GetClusterId(), NodeID: m.GetNodeId()}
	if len(m.GetDirectoryId()) != len(id.DirectoryID) {
		return id, transport.Errorf(transport.ErrInvalid, "a directory ID has %d bytes, not %d", len(id.DirectoryID), len(m.GetDirectoryId()))
	}
	copy(id.DirectoryID[:], m.GetDirectoryId())
	return id, nil
}
