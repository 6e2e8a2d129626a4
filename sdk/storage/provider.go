package storage

import (
	"context"
	"log/slog"
)

// Provider is what a plugin of kind storage serves: it makes a Store from
// its configuration. Its methods before Open do no I/O.
type Provider interface {
	// Info names the plugin.
	Info() Info
	// Open checks the configuration strictly (an unknown key is an error that
	// names it), takes hold of the store and returns it, ready.
	//
	// It refuses, ErrFenced, a store that another process holds, and one that
	// belongs to another cluster or node. An empty store takes the identity
	// given, with the directory ID proposed; a store that has one answers with
	// its own. Messages say what an operator should do.
	Open(ctx context.Context, cfg Config) (Store, DirectoryID, error)
}

// Info describes a plugin to people and to the broker.
type Info struct {
	Name    string // as in the configuration: storage-file
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

// Config is what a broker gives a store to start with.
type Config struct {
	// Settings is the plugin's own section of the configuration, as JSON.
	Settings []byte
	Identity Identity
	// ProposedDirectoryID is used if the store has none yet.
	ProposedDirectoryID DirectoryID
	// Logger takes what the store has to say to an operator. It stays in the
	// process: a plugin's store gets one whose lines reach the broker's log with
	// their level and attributes. Nil: nothing is said.
	Logger *slog.Logger
}

// Identity says whose store it is.
type Identity struct {
	ClusterID string
	NodeID    int32
}

// DirectoryID identifies one store of one node for ever.
type DirectoryID [16]byte
