package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/brokerd/brokerd/sdk/proto/plugin/v1"
	storagev1 "github.com/brokerd/brokerd/sdk/proto/storage/v1"
	"github.com/brokerd/brokerd/sdk/storage"
)

// Deadlines of calls whose context has none.
const (
	DefaultCallTimeout = 10 * time.Second
	// DefaultConfigureTimeout is longer, since a store may recover.
	DefaultConfigureTimeout = time.Minute
)

// Client speaks to one plugin over one connection. Its methods may be called
// from many goroutines.
type Client struct {
	conn        *grpc.ClientConn
	plugin      pluginv1.PluginClient
	callTimeout time.Duration
	counters    *Counters

	mu      sync.Mutex
	socket  *net.UnixConn // until a store has it
	carrier Carrier
}

// NewClient makes a client of a connection that was made with DialOptions. The
// connection stays the caller's. callTimeout bounds calls whose context has no
// deadline; zero means DefaultCallTimeout.
func NewClient(conn *grpc.ClientConn, callTimeout time.Duration) *Client {
	if callTimeout <= 0 {
		callTimeout = DefaultCallTimeout
	}
	c := &Client{callTimeout: callTimeout, counters: &Counters{}}
	c.connected(conn)
	return c
}

// connected sets the connection.
func (c *Client) connected(conn *grpc.ClientConn) {
	c.conn, c.plugin = conn, pluginv1.NewPluginClient(conn)
}

// CountWith has what the client's stores move counted by c, which must be done before
// Store is called.
func (c *Client) CountWith(counters *Counters) { c.counters = counters }

// AddSocket lets the first store whose plugin offers it use the fast lane over
// conn, the other end of which the plugin has, for as much as the carrier says. The
// connection becomes the client's.
func (c *Client) AddSocket(conn *net.UnixConn, carrier Carrier) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.socket, c.carrier = conn, carrier
}

// takeSocket returns the socket once, nil when there is none.
func (c *Client) takeSocket() (*net.UnixConn, Carrier) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.socket
	c.socket = nil
	return conn, c.carrier
}

// closeSocket closes the socket if no store took it.
func (c *Client) closeSocket() {
	if conn, _ := c.takeSocket(); conn != nil {
		_ = conn.Close()
	}
}

// DialOptions are what a connection to a plugin must be made with.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithReadBufferSize(socketBufferBytes),
		grpc.WithWriteBufferSize(socketBufferBytes),
		grpc.WithInitialWindowSize(streamWindowBytes),
		grpc.WithInitialConnWindowSize(connWindowBytes),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(maxMessageBytes),
			grpc.MaxCallSendMsgSize(maxMessageBytes),
		),
	}
}

// Health returns nil when the plugin answers, and what degrades it, if anything.
func (c *Client) Health(ctx context.Context) (degraded string, err error) {
	ctx, cancel := withDefault(ctx, c.callTimeout)
	defer cancel()
	m, err := c.plugin.Health(ctx, &pluginv1.HealthRequest{})
	if err != nil {
		return "", callError(ctx, "check the plugin's health", err)
	}
	return m.GetDegraded(), nil
}

// Drain tells the plugin to shut its store down and end. It returns when the
// store is shut down; the process ends a moment later.
func (c *Client) Drain(ctx context.Context) error {
	ctx, cancel := withDefault(ctx, c.callTimeout)
	defer cancel()
	m, err := c.plugin.Drain(ctx, &pluginv1.DrainRequest{})
	if err != nil {
		return callError(ctx, "drain the plugin", err)
	}
	return errorFromProto(m.GetError())
}

// Store configures the plugin and returns its store. The plugin's refusals keep
// their class and sentence. Without a deadline in ctx, DefaultConfigureTimeout
// holds. The store uses goroutines until it is shut down or lost.
func (c *Client) Store(ctx context.Context, cfg storage.Config) (*Store, storage.DirectoryID, error) {
	ctx, cancel := withDefault(ctx, DefaultConfigureTimeout)
	defer cancel()
	wrong, err := c.expect(ctx, KindStorage)
	if err == nil && wrong != "" {
		err = storage.Errorf(storage.ErrInvalid, "%s", wrong)
	}
	if err != nil {
		return nil, storage.DirectoryID{}, err
	}
	m, err := c.plugin.Configure(ctx, &pluginv1.ConfigureRequest{
		Settings: cfg.Settings,
		Identity: &pluginv1.Identity{
			ClusterId: cfg.Identity.ClusterID,
			NodeId:    cfg.Identity.NodeID,
		},
		ProposedDirectoryId: cfg.ProposedDirectoryID[:],
	})
	if err != nil {
		return nil, storage.DirectoryID{}, callError(ctx, "configure the plugin", err)
	}
	if err := errorFromProto(m.GetError()); err != nil {
		return nil, storage.DirectoryID{}, err
	}
	dir, err := directoryIDFromProto(m.GetDirectoryId())
	if err != nil {
		return nil, storage.DirectoryID{}, fmt.Errorf("configure the plugin: %w", err)
	}
	s := &Store{
		client:       c,
		rpc:          storagev1.NewStorageClient(c.conn),
		capabilities: capabilitiesFromProto(m.GetCapabilities()),
		lane:         newLane(c.counters),
		handles:      map[storage.LogID]storage.Handle{},
		opening:      map[storage.LogID]chan struct{}{},
	}
	if err := s.start(slices.Contains(m.GetCapabilities().GetLanes(), laneSocket)); err != nil {
		return nil, storage.DirectoryID{}, err
	}
	if canWriteVectors && s.carrier == CarrierFiles && (s.capabilities.Grants || s.capabilities.Leases) {
		if s.files, err = newHostFiles(ctx, s.lane, s.capabilities, c.callTimeout); err != nil {
			s.Abandon()
			return nil, storage.DirectoryID{}, err
		}
	}
	return s, dir, nil
}

// start begins the lane, which lives until Shutdown or the plugin's end.
func (s *Store) start(socket bool) error {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	if socket {
		conn, carrier := s.client.takeSocket()
		if conn == nil {
			cancel()
			return storage.Errorf(storage.ErrGone, "the plugin serves a socket that it was not given")
		}
		s.carrier = carrier
		context.AfterFunc(ctx, func() { _ = conn.Close() })
		s.running.Go(func() { _ = s.lane.run(ctx, newSocketLink(conn)) }) // the lane says why to each call
		return nil
	}
	s.carrier = CarrierGRPC
	stream, err := s.client.conn.NewStream(ctx, &storagev1.Storage_ServiceDesc.Streams[0],
		storagev1.Storage_Data_FullMethodName, grpc.ForceCodecV2(newCodec(mem.DefaultBufferPool())))
	if err != nil {
		cancel()
		return callError(ctx, "open the data stream", err)
	}
	s.running.Go(func() { _ = s.lane.run(ctx, streamLink{stream}) })
	return nil
}

// withDefault gives ctx a deadline if it has none.
func withDefault(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d)
}

// callError gives a failed call its class: unknown when its context ended,
// invalid when it was too large to be sent, gone otherwise.
func callError(ctx context.Context, act string, err error) error {
	if ctxErr := ctx.Err(); ctxErr != nil {
		return fmt.Errorf("%s: %w: %w", act, storage.ErrUnknown, ctxErr)
	}
	switch status.Code(err) {
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s: %w: %w", act, storage.ErrUnknown, context.DeadlineExceeded)
	case codes.Canceled:
		return fmt.Errorf("%s: %w: %w", act, storage.ErrUnknown, context.Canceled)
	case codes.ResourceExhausted:
		return fmt.Errorf("%s: %w: %w", act, storage.ErrInvalid, err)
	}
	return fmt.Errorf("%s: %w: %w", act, storage.ErrGone, err)
}

// Store is a plugin's store as it is seen from the broker: an implementation of
// storage.Store in which every call has a deadline.
//
// Bytes of an append or a replacement that ended with ErrUnknown may still be
// read for a moment by the connection. Whoever reuses buffers lets those go; if
// they change, what arrives does not pass the store's check of the CRC.
type Store struct {
	client       *Client
	rpc          storagev1.StorageClient
	capabilities storage.Capabilities
	lane         *lane
	carrier      Carrier    // that is in use
	files        *hostFiles // nil when the plugin lends none
	cancel       context.CancelFunc
	running      sync.WaitGroup

	mu      sync.Mutex
	handles map[storage.LogID]storage.Handle // the latest of each log
	// opening are the logs that are being opened or deleted, each with what is closed
	// afterwards.
	opening map[storage.LogID]chan struct{}
}

var _ storage.Store = (*Store)(nil)

// Lost is closed when the store can not be used any more: its process or its
// connection ended, or it was shut down.
func (s *Store) Lost() <-chan struct{} { return s.lane.gone }

// Answers counts the answers that came over the data stream. While it moves the
// plugin is alive.
func (s *Store) Answers() int64 { return s.lane.answered.Load() }

// Abandon ends the use of the store without the plugin: what is in flight ends
// as lost. It returns when nothing of the store runs any more, nothing that the
// plugin lent is written or read, and the store's lock is let go, so that another
// process may have the store.
func (s *Store) Abandon() { s.end(errors.New("the store was abandoned")) }

// end ends the lane, and lets go of everything.
func (s *Store) end(cause error) {
	s.lane.fail(cause)
	s.cancel()
	s.running.Wait()
	if s.files != nil {
		s.files.revoke()
	}
}

// Shutdown implements storage.Store.
func (s *Store) Shutdown(ctx context.Context) error {
	ctx, cancel := withDefault(ctx, s.client.callTimeout)
	defer cancel()
	if err := s.lane.died(); err != nil {
		return err
	}
	if s.files != nil {
		release, err := s.files.settleAll(ctx)
		defer release()
		if err != nil {
			return err
		}
	}
	if err := s.lane.barrier(ctx, s.lane.handles()); err != nil {
		return err
	}
	m, err := s.rpc.Shutdown(ctx, &storagev1.ShutdownRequest{})
	if err != nil {
		return callError(ctx, "shut down the store", err)
	}
	if err := errorFromProto(m.GetError()); err != nil {
		return err
	}
	s.end(errors.New("the store was shut down"))
	return nil
}
