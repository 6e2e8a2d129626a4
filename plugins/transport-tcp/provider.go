package transporttcp

import (
	"context"
	"log/slog"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/frame"
)

// Provider makes transports over TCP. It may be used from many goroutines.
func Provider() transport.Provider { return provider{} }

type provider struct{}

// Info implements transport.Provider.
func (provider) Info() transport.Info {
	return transport.Info{
		Name:     "transport-tcp",
		Version:  "1.0.0",
		About:    "Carries messages between brokers over TCP.",
		Settings: describe(),
	}
}

// Open implements transport.Provider. The transport's goroutines start here and end with
// its Close, which waits for them. An address at which somebody listens already is
// ErrRetry.
func (provider) Open(ctx context.Context, cfg transport.Config) (transport.Transport, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := parseSettings(cfg.Settings)
	if err != nil {
		return nil, err
	}
	if cfg.Identity.NodeID < 0 {
		return nil, transport.Errorf(transport.ErrInvalid, "a node's ID is %d; it cannot be negative", cfg.Identity.NodeID)
	}
	if len(cfg.Identity.ClusterID) > frame.ClusterBytesMax {
		return nil, transport.Errorf(transport.ErrInvalid, "the ID of the cluster is longer than %d bytes", frame.ClusterBytesMax)
	}
	guard, err := s.guard(cfg.Identity, cfg.Logger)
	if err != nil {
		return nil, err
	}
	return listen(ctx, s, guard, cfg)
}

// guard makes what the settings ask for.
func (s *settings) guard(id transport.Identity, log *slog.Logger) (guard, error) {
	switch s.Security {
	case securitySecret:
		a, err := newAuthority(s.Secret, id.NodeID, time.Now)
		if err != nil {
			return nil, err
		}
		return &tlsGuard{source: a}, nil
	case securityTLS:
		f, err := newFiles(s.Certificate, s.Key, s.Roots, id.NodeID, log)
		if err != nil {
			return nil, err
		}
		return &tlsGuard{source: f, named: s.RequireNodeNames}, nil
	default:
		return plaintext{}, nil
	}
}
