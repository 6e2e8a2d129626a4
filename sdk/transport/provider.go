package transport

import (
	"context"
	"log/slog"
)

// Provider is what a plugin of kind transport serves: it makes a Transport from its
// configuration. Its methods before Open do no I/O.
type Provider interface {
	// Info names the plugin.
	Info() Info
	// Open checks the configuration strictly (an unknown key is an error that names it),
	// begins to listen, and returns a transport that can be dialled. What it refuses is
	// ErrInvalid, in a sentence that says what an operator should do.
	Open(ctx context.Context, cfg Config) (Transport, error)
}

// Info describes a plugin to people and to the broker.
type Info struct {
	Name    string // as in the configuration: transport-tcp
	Version string
	About   string // one sentence
	// Settings are the keys that its section of the configuration may have.
	Settings []Setting
}

// Setting describes one key of a plugin's configuration.
type Setting struct {
	Name    string
	About   string
	Default string
	// Secret values are never logged nor shown.
	Secret bool
}

// Config is what a broker gives a transport to start with.
type Config struct {
	// Settings is the plugin's own section of the configuration, as JSON.
	Settings []byte
	// Identity is who this node says it is.
	Identity Identity
	// Endpoint is what Transport.Endpoint said of an earlier transport of this node that has
	// ended, as with its process: peers know it, so that this one listens there too, also where
	// the settings leave it to choose. Where that is not free any more it is ErrRetry. Empty:
	// there was none.
	Endpoint string
	// Logger takes what the transport has to say to an operator. Nil: nothing is said.
	Logger *slog.Logger
}
