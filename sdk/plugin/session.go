package plugin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	pluginv1 "github.com/brokerd/brokerd/sdk/proto/plugin/v1"
	transportv1 "github.com/brokerd/brokerd/sdk/proto/transport/v1"
	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/streams"
)

// materialAge is when the plugin is asked again for what the node proves with.
const materialAge = time.Minute

// TransportSession is a transport that one process of a plugin has opened, until that ends.
// Its methods may be called from many goroutines.
type TransportSession struct {
	client   *Client
	rpc      transportv1.TransportClient
	lane     *transportLane
	has      transport.Capabilities
	endpoint string
	carrier  Carrier // that is in use
	cancel   context.CancelFunc
	running  sync.WaitGroup
	identity transport.Identity

	closeOnce sync.Once
	closeErr  error
	closing   context.Context // ends when Close begins
	close     context.CancelFunc

	mu       sync.Mutex
	material *streams.Material
	asked    time.Time // for material
}

// OpenTransport configures the plugin and returns what it has opened. The plugin's refusals
// keep their class and sentence. Without a deadline in ctx, DefaultConfigureTimeout holds. The
// session uses goroutines until it is closed or lost. The logger of cfg is not used: the
// plugin's log comes by its process.
func (c *Client) OpenTransport(ctx context.Context, cfg transport.Config) (*TransportSession, error) {
	ctx, cancel := withDefault(ctx, DefaultConfigureTimeout)
	defer cancel()
	wrong, err := c.expect(ctx, KindTransport)
	if err != nil {
		return nil, transportCallError(ctx, "ask the plugin what it is", err)
	}
	if wrong != "" {
		return nil, transport.Errorf(transport.ErrInvalid, "%s", wrong)
	}
	if err := streams.CheckIdentity(cfg.Identity); err != nil {
		return nil, err
	}
	m, err := c.plugin.Configure(ctx, &pluginv1.ConfigureRequest{
		Settings: cfg.Settings,
		Identity: &pluginv1.Identity{
			ClusterId:   cfg.Identity.ClusterID,
			NodeId:      cfg.Identity.NodeID,
			DirectoryId: cfg.Identity.DirectoryID[:],
		},
		Transport: &pluginv1.TransportOptions{Descriptors: c.wantsDescriptors(), Endpoint: cfg.Endpoint},
	})
	if err != nil {
		return nil, transportCallError(ctx, "configure the plugin", err)
	}
	if err := transportErrorFromProto(m.GetError()); err != nil {
		return nil, err
	}
	has := m.GetCapabilities().GetTransport()
	s := &TransportSession{
		client:   c,
		rpc:      transportv1.NewTransportClient(c.conn),
		has:      transport.Capabilities{Refuses: has.GetRefuses(), Resets: has.GetResets(), Proof: transport.Proof(has.GetProof())},
		endpoint: has.GetEndpoint(),
		identity: cfg.Identity,
	}
	s.closing, s.close = context.WithCancel(context.Background())
	if err := s.start(slices.Contains(m.GetCapabilities().GetLanes(), laneSocket), has.GetDescriptors()); err != nil {
		return nil, err
	}
	if has.GetDescriptors() && s.has.Proof != transport.ProofNone {
		if _, err := s.ownMaterial(ctx); err != nil {
			s.Abandon()
			return nil, err
		}
	}
	return s, nil
}

// wantsDescriptors says whether connections can be passed here.
func (c *Client) wantsDescriptors() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.socket != nil && c.carrier == CarrierFiles
}

// start begins the lane, which lives until the session's or the plugin's end.
func (s *TransportSession) start(socket, descriptors bool) error {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	var to link
	switch {
	case socket:
		conn, _ := s.client.takeSocket()
		if conn == nil {
			cancel()
			return transport.Errorf(transport.ErrRetry, "the plugin serves a socket that it was not given")
		}
		context.AfterFunc(ctx, func() { _ = conn.Close() })
		to, s.carrier = newSocketLink(conn), CarrierSocket
		if descriptors {
			s.carrier = CarrierDescriptors
		}
	case descriptors:
		cancel()
		return transport.Errorf(transport.ErrRetry, "the plugin passes connections, and there is no socket for them")
	default:
		stream, err := s.client.conn.NewStream(ctx, &transportv1.Transport_ServiceDesc.Streams[0],
			transportv1.Transport_Data_FullMethodName, grpc.ForceCodecV2(newCodec(mem.DefaultBufferPool())))
		if err != nil {
			cancel()
			return transportCallError(ctx, "open the data stream", err)
		}
		to, s.carrier = streamLink{stream}, CarrierGRPC
	}
	s.lane = newTransportLane(to, descriptors)
	s.running.Go(func() { s.lane.run(ctx, to) })
	return nil
}

// Lost is closed when the session can not be used any more: its process or its connection
// ended, or it was closed.
func (s *TransportSession) Lost() <-chan struct{} { return s.lane.gone }

// Answers counts what came from the plugin. While it moves the plugin is alive.
func (s *TransportSession) Answers() int64 { return s.lane.answered.Load() }

// Carrier says what carries links: CarrierDescriptors, or what their messages go over.
func (s *TransportSession) Carrier() Carrier { return s.carrier }

// Capabilities is what the plugin says that its links offer.
func (s *TransportSession) Capabilities() transport.Capabilities { return s.has }

// Endpoint is where the plugin says that this node can be dialled.
func (s *TransportSession) Endpoint() string { return s.endpoint }

// Abandon ends the use of the plugin, which is not told: what waits ends, and with it the
// links whose messages go through the plugin. Connections that it has passed go on. It returns
// when nothing of the session runs any more.
func (s *TransportSession) Abandon() { s.end(errors.New("the plugin was abandoned")) }

func (s *TransportSession) end(cause error) {
	s.lane.fail(cause)
	s.cancel()
	s.running.Wait()
	s.lane.closeLinks()
}

// Close closes the transport, and returns when nothing of it is left.
func (s *TransportSession) Close() error {
	s.closeOnce.Do(func() {
		s.close()
		s.lane.closeLinks()
		select {
		case <-s.lane.gone: // and with it the transport
			s.end(errSessionClosed)
			return
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), s.client.callTimeout)
		defer cancel()
		m, err := s.rpc.Shutdown(ctx, &transportv1.ShutdownRequest{})
		if err == nil {
			s.closeErr = transportErrorFromProto(m.GetError())
		} else {
			s.closeErr = transportCallError(ctx, "close the transport", err)
		}
		s.end(errSessionClosed)
	})
	return s.closeErr
}

var errSessionClosed = transport.Errorf(transport.ErrClosed, "the transport is closed")

// Transport returns the transport of the session, which closes the session when it is closed.
// It is called once. Where connections are passed, their links are run here, and logger takes
// what there is to say of those.
func (s *TransportSession) Transport(logger *slog.Logger) transport.Transport {
	if s.carrier == CarrierDescriptors {
		return streams.New(streams.Options{Network: s.Network(), Identity: s.identity, Logger: logger})
	}
	return &messageTransport{s}
}

// Network is what passes the plugin's connections, where the carrier is CarrierDescriptors.
func (s *TransportSession) Network() streams.Network { return passing{s} }

// passing is the network of a plugin that passes its connections. It implements
// streams.Network.
type passing struct{ *TransportSession }

// Dial implements streams.Network.
func (p passing) Dial(ctx context.Context, endpoint string) (net.Conn, error) {
	if len(endpoint) > endpointMax {
		return nil, transport.Errorf(transport.ErrInvalid, "the endpoint is longer than %d bytes", endpointMax)
	}
	return p.connect(ctx, kindDial, dialBody(transport.Target{NodeID: transport.AnyNode, Endpoint: endpoint}))
}

// Accept implements streams.Network.
func (p passing) Accept(ctx context.Context) (net.Conn, error) {
	return p.connect(ctx, kindAccept, nil)
}

// connect makes a connection of a descriptor that is passed.
func (p passing) connect(ctx context.Context, kind byte, body []byte) (net.Conn, error) {
	if p.isClosed() {
		return nil, errSessionClosed
	}
	a, err := p.lane.call(ctx, kind, body)
	if err != nil {
		return nil, p.failed(err)
	}
	return adopt(a.file)
}

// adopt makes a connection of a passed file, which it closes.
func adopt(file *os.File) (net.Conn, error) {
	defer closeFile(file)
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, transport.Errorf(transport.ErrRetry, "use a connection that was passed: %v", err)
	}
	switch conn.(type) {
	case *net.TCPConn, *net.UnixConn:
		return conn, nil
	}
	_ = conn.Close()
	return nil, transport.Errorf(transport.ErrRetry, "what was passed is no connected stream")
}

// Material implements streams.Network.
func (p passing) Material(ctx context.Context) (*streams.Material, error) { return p.ownMaterial(ctx) }

// ownMaterial asks the plugin what the node proves with, unless that was a moment ago. What it
// said before stays in use when it does not answer.
func (s *TransportSession) ownMaterial(ctx context.Context) (*streams.Material, error) {
	s.mu.Lock()
	last, fresh := s.material, time.Since(s.asked) < materialAge
	if !fresh {
		s.asked = time.Now() // others use what there is meanwhile
	}
	s.mu.Unlock()
	if last != nil && (fresh || s.lane.isGone()) {
		return last, nil
	}
	ctx, cancel := withDefault(ctx, s.client.callTimeout)
	defer cancel()
	own, err := s.askMaterial(ctx)
	switch {
	case err == nil:
		s.mu.Lock()
		s.material = own
		s.mu.Unlock()
		return own, nil
	case last != nil:
		return last, nil
	}
	return nil, err
}

func (s *TransportSession) askMaterial(ctx context.Context) (*streams.Material, error) {
	m, err := s.rpc.Material(ctx, &transportv1.MaterialRequest{})
	if err != nil {
		return nil, transportCallError(ctx, "ask the plugin for its certificate", err)
	}
	if err := transportErrorFromProto(m.GetError()); err != nil {
		return nil, err
	}
	own, err := materialFromProto(m)
	if err != nil {
		return nil, transport.Errorf(transport.ErrInvalid, "the certificate that the plugin gives cannot be used: %v", err)
	}
	return own, nil
}

// materialFromProto reads what a node proves with.
func materialFromProto(m *transportv1.MaterialResponse) (*streams.Material, error) {
	if len(m.GetCertificates()) == 0 {
		return nil, errors.New("there is none")
	}
	key, err := x509.ParsePKCS8PrivateKey(m.GetKey())
	if err != nil {
		return nil, fmt.Errorf("its key: %w", err)
	}
	roots := make([]*x509.Certificate, len(m.GetRoots()))
	for i, der := range m.GetRoots() {
		if roots[i], err = x509.ParseCertificate(der); err != nil {
			return nil, fmt.Errorf("a root: %w", err)
		}
	}
	return streams.NewMaterial(&tls.Certificate{Certificate: m.GetCertificates(), PrivateKey: key}, roots), nil
}
