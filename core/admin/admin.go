package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// answerTimeout bounds every answer.
const answerTimeout = 10 * time.Second

// drainTimeout is how long answers may take when the broker stops.
const drainTimeout = time.Second

// headerBytesMax bounds a request's headers.
const headerBytesMax = 16 << 10

// ErrListen says that the address could not be bound.
var ErrListen = errors.New("listen for admin on")

// Deps is what the listener shows. The functions are called concurrently.
type Deps struct {
	// Status must return when its context ends.
	Status func(ctx context.Context) Status
	// Ready is nil while the broker serves clients, and says what is missing
	// otherwise.
	Ready func() error
	// Metrics must return when its request's context ends, too.
	Metrics http.Handler
	Logger  *slog.Logger
}

// Server is the listener. Listen and Run are called once each, in this order.
type Server struct {
	address  string
	deps     Deps
	listener net.Listener
}

// New makes a Server for address (host:port). It binds nothing.
func New(address string, deps Deps) *Server { return &Server{address: address, deps: deps} }

// Listen binds the address.
func (s *Server) Listen() error {
	l, err := net.Listen("tcp", s.address)
	if err != nil {
		return fmt.Errorf("%w %s: %w", ErrListen, s.address, err)
	}
	s.listener = l
	return nil
}

// Addr is what Listen bound.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run answers until ctx ends, then lets answers finish for a moment.
func (s *Server) Run(ctx context.Context) error {
	server := &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: answerTimeout,
		ReadTimeout:       answerTimeout,
		WriteTimeout:      2 * answerTimeout,
		MaxHeaderBytes:    headerBytesMax,
		ErrorLog:          slog.NewLogLogger(s.deps.Logger.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1) // one send, never blocks
	go func() { served <- server.Serve(s.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve admin: %w", err)
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if err := server.Shutdown(drain); err != nil {
		_ = server.Close() // answers are cut off; nothing is lost with them
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve admin: %w", err)
	}
	return nil
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.deps.Metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", s.ready)
	mux.HandleFunc("GET /v1/status", s.status)
	return bounded(mux)
}

// bounded ends the context of each request after answerTimeout.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func plain(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = fmt.Fprintln(w, text) // fails where the client went away
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	if err := s.deps.Ready(); err != nil {
		plain(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	plain(w, http.StatusOK, "ready")
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(s.deps.Status(r.Context())) // fails where the client went away
}
