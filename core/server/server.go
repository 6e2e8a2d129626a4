package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/wire"
)

// Server serves client connections. Listen, then Run, once each.
type Server struct {
	cfg      Config
	handler  wire.Handler
	pool     *pool
	log      *slog.Logger
	events   Events
	flexible flexibility
	sparse   sparse
	workers  workers

	// What connections use while they need it.
	buffers sync.Pool // of *[readBufferBytes]byte
	replies replies
	senders sync.Pool // of *sender
	large   *memory.Buffers
	lents   sync.Pool   // of *lent
	copies  atomic.Bool // the kernel cannot send from the files that records lie in

	mu        sync.Mutex
	listeners []bound
	conns     map[*conn]struct{}
	stopping  bool
	refusing  bool // the last connection was refused, and it was said
}

type bound struct {
	name string
	net.Listener
}

// New returns a server that holds at most budget in memory for its clients.
// events may be nil. Nothing is started.
func New(cfg Config, handler wire.Handler, budget *memory.Budget, logger *slog.Logger, events Events) *Server {
	if events == nil {
		events = noEvents{}
	}
	large := cfg.Buffers
	if large == nil {
		large = memory.NewBuffers(budget.Total() / buffersShare)
	}
	return &Server{
		cfg: cfg, handler: handler, pool: newPool(budget, cfg), log: logger, events: events,
		flexible: newFlexibility(), conns: map[*conn]struct{}{},
		buffers: newBuffers(), senders: newSenders(), large: large,
		workers: workers{processors: runtime.GOMAXPROCS(0)},
	}
}

// Listen binds every listener, or none. Connections wait in the kernel until
// Run.
func (s *Server) Listen() error {
	if err := s.cfg.Validate(); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if got, want := s.pool.shared.Total(), peakBytes(s.cfg.MaxRequestBytes); got < want {
		return fmt.Errorf("listen: a request of %d bytes needs %d bytes of memory, the budget of %d leaves %d for requests: raise it or lower the maximum request bytes",
			s.cfg.MaxRequestBytes, want, s.pool.budget.Total(), got)
	}
	if s.pool.maxConns < s.cfg.MaxConnections {
		s.log.Warn("the memory budget allows fewer connections than are configured",
			"connections", s.pool.maxConns, "configured", s.cfg.MaxConnections)
	}
	config := net.ListenConfig{Control: unpaced, KeepAliveConfig: net.KeepAliveConfig{Enable: true}}
	var all []bound
	for _, l := range s.cfg.Listeners {
		ln, err := config.Listen(context.Background(), "tcp", l.Address)
		if err != nil {
			closeAll(all)
			return fmt.Errorf("listener %s: %w", l.Name, err)
		}
		all = append(all, bound{l.Name, ln})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = all
	return nil
}

// Addrs gives the bound addresses by listener name.
func (s *Server) Addrs() map[string]net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	addrs := make(map[string]net.Addr, len(s.listeners))
	for _, l := range s.listeners {
		addrs[l.name] = l.Addr()
	}
	return addrs
}

// Run serves until ctx ends; then it accepts nothing more, lets begun requests
// be answered for at most DrainTimeout, closes all connections and returns after
// every goroutine of its own. It needs answers to return soon after their
// context ends.
func (s *Server) Run(ctx context.Context) error {
	s.mu.Lock()
	listeners := s.listeners
	s.mu.Unlock()
	if len(listeners) == 0 {
		return errors.New("run server: Listen first")
	}
	// Begun requests outlive ctx: they end by themselves, or with serve.
	serve, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { s.relieve(serve) })
	wg.Go(func() { s.sweep(serve) })
	var accepting, serving sync.WaitGroup
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		accepting.Go(func() { failed <- s.accept(ctx, serve, l, &serving) })
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	closeAll(listeners)
	accepting.Wait()
	s.drain(&serving)
	s.workers.end()
	stop()
	wg.Wait()
	return err
}

func closeAll(listeners []bound) {
	for _, l := range listeners {
		_ = l.Close() // nothing is lost with a listener
	}
}

// accept serves one listener until it is closed or ctx ends.
func (s *Server) accept(ctx, serve context.Context, l bound, serving *sync.WaitGroup) error {
	const retry = 100 * time.Millisecond // out of descriptors, most likely
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			s.open(serve, l.name, nc, serving)
			continue
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("listener %s: %w", l.name, err)
		}
		s.log.Error("cannot accept a connection", "listener", l.name, "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retry):
		}
	}
}

// open starts a connection, or closes it where there are enough.
func (s *Server) open(serve context.Context, listener string, nc net.Conn, serving *sync.WaitGroup) {
	bytes := s.cfg.SocketBytes
	if local(nc.LocalAddr()) {
		bytes = s.cfg.LocalSocketBytes
	}
	if tcp, ok := nc.(*net.TCPConn); ok && bytes > 0 {
		_ = tcp.SetWriteBuffer(bytes) // a wish only
	}
	c := newConn(s, listener, nc)
	c.moved = -swallowed(bytes)
	if !s.register(c) {
		_ = nc.Close() // it was never used
		s.events.ConnectionClosed(listener, ClosedByLimit)
		return
	}
	s.events.ConnectionOpened(listener)
	serving.Go(func() {
		defer s.unregister(c)
		c.run(serve)
	})
}

// swallowed is how much a kernel with such a buffer for what is sent takes of replies that
// nobody reads: it has not moved.
func swallowed(socketBytes int) int64 { return 2 * int64(socketBytes) }

// local says whether an address is a loopback one. All connections of a listener on one
// have such a local address; so do those that come that way to a listener on all addresses.
func local(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

func (s *Server) register(c *conn) bool {
	s.mu.Lock()
	admit := !s.stopping && len(s.conns) < s.pool.maxConns && s.pool.budget.TryAcquire(connectionBytes)
	if admit {
		s.conns[c] = struct{}{}
	}
	first := !admit && !s.refusing && !s.stopping
	s.refusing = !admit
	s.mu.Unlock()
	if first {
		s.log.Warn("connections are refused: there are too many, or there is no memory for one more",
			"listener", c.from.Listener, "remote", c.remote, "connections", s.pool.maxConns)
	}
	return admit
}

func (s *Server) unregister(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.pool.budget.Release(connectionBytes)
}

func (s *Server) connections() []*conn { return s.appendConnections(nil) }

func (s *Server) appendConnections(all []*conn) []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		all = append(all, c)
	}
	return all
}

// drain lets connections finish, and ends those that don't.
func (s *Server) drain(serving *sync.WaitGroup) {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	for _, c := range s.connections() {
		c.drain()
	}
	deadline := time.AfterFunc(s.cfg.DrainTimeout, func() {
		for _, c := range s.connections() {
			c.fail(ClosedByShutdown, errors.New("it did not finish in time"))
		}
	})
	defer deadline.Stop()
	serving.Wait()
}
