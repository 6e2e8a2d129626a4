package transporttcp

import (
	"context"
	"log/slog"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/streams"
)

// Provider makes transports over TCP, and the networks below them. It may be used from many
// goroutines.
func Provider() streams.Provider { return ProviderAt(time.Now) }

// ProviderAt makes transports whose certificates begin and end by now, which may be called
// concurrently.
func ProviderAt(now func() time.Time) streams.Provider { return provider{now} }

type provider struct{ now func() time.Time }

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
func (p provider) Open(ctx context.Context, cfg transport.Config) (transport.Transport, error) {
	network, err := p.OpenNetwork(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return streams.New(streams.Options{Network: network, Identity: cfg.Identity, Logger: cfg.Logger}), nil
}

// OpenNetwork implements streams.Provider.
func (p provider) OpenNetwork(ctx context.Context, cfg transport.Config) (streams.Network, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := parseSettings(cfg.Settings)
	if err == nil {
		err = streams.CheckIdentity(cfg.Identity)
	}
	if err != nil {
		return nil, err
	}
	if cfg.Endpoint != "" {
		s.listenAgain(cfg.Endpoint)
	}
	n := &network{source: nobody{}}
	switch s.Security {
	case securitySecret:
		n.proof = transport.ProofMember
		n.source, err = newAuthority(s.Secret, cfg.Identity.NodeID, p.now)
	case securityTLS:
		n.proof = transport.ProofMember
		if s.RequireNodeNames {
			n.proof = transport.ProofNode
		}
		n.source, err = newFiles(s.Certificate, s.Key, s.Roots, cfg.Identity.NodeID, cfg.Logger)
	}
	if err == nil {
		err = n.listen(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	return n, nil
}
