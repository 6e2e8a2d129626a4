package plugin

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/transport"
)

// ErrNotLaunched says that the process was started by hand.
var ErrNotLaunched = errors.New("this is a plugin of brokerd: the broker starts it; " +
	"put it into the broker's plugin directory and name it in the configuration")

const (
	// drainTimeout bounds the drain after SIGTERM; the broker's own drain has a
	// deadline of the broker's.
	drainTimeout = 10 * time.Second
	// answerGrace is how long the answer to Drain may take to leave. A broker
	// that has it closes standard input, which ends the process sooner.
	answerGrace = 250 * time.Millisecond
)

// ServeStorage serves p to the broker that started this process, and returns
// when the broker no longer needs it. It is all that a plugin's main has to do.
//
// It takes over the process: standard output (what is printed there afterwards
// goes to the broker's log), slog's default logger (NewLogger's, which the store
// gets in its Config), SIGINT, which is ignored, and SIGTERM, which shuts the
// store down and ends. When the broker dies the process exits at once,
// without a word to p: a store must stand that as it stands kill -9.
func ServeStorage(p storage.Provider) error {
	return serve(func(logger *slog.Logger, onDrained func()) server { return NewStorageServer(p, logger, onDrained) })
}

// ServeTransport serves p to the broker that started this process, as ServeStorage does with
// a store. Where p is a streams.Provider, the broker is passed its connections, and runs the
// links itself.
func ServeTransport(p transport.Provider) error {
	return serve(func(logger *slog.Logger, onDrained func()) server { return NewTransportServer(p, logger, onDrained) })
}

// server serves what a plugin is.
type server interface {
	Register(g grpc.ServiceRegistrar)
	AddSocket(conn *net.UnixConn)
	RunSocket(ctx context.Context, conn *net.UnixConn) error
	Shut(ctx context.Context) error
}

// serve serves what is made to the broker that started this process.
func serve(newServer func(logger *slog.Logger, onDrained func()) server) error {
	if os.Getenv(cookieKey) != cookieValue {
		return ErrNotLaunched
	}
	if os.Getenv(stdinWatchKey) == "1" {
		go exitWithBroker(os.Stdin)
	}
	logger := NewLogger(os.Stderr, nil) // before go-plugin puts a pipe in its place
	slog.SetDefault(logger)
	var served atomic.Pointer[grpc.Server]
	stop := func() {
		if g := served.Load(); g != nil {
			g.Stop()
		}
	}
	drained := make(chan struct{}, 1)
	server := newServer(logger, func() { nudge(drained) })
	go stopOnSignal(server, logger, drained, stop)
	if conn := inheritedSocket(); conn != nil {
		server.AddSocket(conn)
		go func() {
			if err := server.RunSocket(context.Background(), conn); err != nil {
				logger.Debug("the fast lane ended", "err", err)
			}
		}()
	}

	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: handshake(),
		VersionedPlugins: map[int]goplugin.PluginSet{
			ProtocolVersion: {kindAny: &contract{register: server.Register}},
		},
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			g := grpc.NewServer(append(opts, ServerOptions()...)...)
			served.Store(g)
			return g
		},
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr, JSONFormat: true}),
	})
	return nil
}

// exitWithBroker ends the process when the pipe that the broker holds ends.
func exitWithBroker(stdin io.Reader) {
	_, _ = io.Copy(io.Discard, stdin)
	os.Exit(0)
}

// stopOnSignal waits for SIGTERM or a drain by the broker, and ends serving.
func stopOnSignal(server server, logger *slog.Logger, drained <-chan struct{}, stop func()) {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	select {
	case <-drained:
		select {
		case <-time.After(answerGrace):
		case <-term:
		}
	case <-term:
		ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
		defer cancel()
		if err := server.Shut(ctx); err != nil {
			logger.Error("shut down after SIGTERM", "err", err)
		}
	}
	stop()
}

// contract is version 1 of the contract, as go-plugin wants to be told of it.
type contract struct {
	goplugin.NetRPCUnsupportedPlugin
	register func(grpc.ServiceRegistrar)
}

// GRPCServer implements go-plugin's GRPCPlugin.
func (c *contract) GRPCServer(_ *goplugin.GRPCBroker, g *grpc.Server) error {
	c.register(g)
	return nil
}

// GRPCClient implements go-plugin's GRPCPlugin. The launcher uses the connection
// itself.
func (c *contract) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (interface{}, error) {
	return nil, errors.New("not used")
}
