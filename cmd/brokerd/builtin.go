package main

import (
	storagefile "github.com/brokerd/brokerd/plugins/storage-file"
	transporttcp "github.com/brokerd/brokerd/plugins/transport-tcp"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/transport"
)

// builtinPlugins are those that this program can be, by name.
func builtinPlugins() map[string]storage.Provider {
	out := make(map[string]storage.Provider)
	for _, p := range []storage.Provider{storagefile.Provider()} {
		out[p.Info().Name] = p
	}
	return out
}

// builtinTransports are the transports that this program can be, by name.
func builtinTransports() map[string]transport.Provider {
	out := make(map[string]transport.Provider)
	for _, p := range []transport.Provider{transporttcp.Provider()} {
		out[p.Info().Name] = p
	}
	return out
}

// builtinArguments are what makes this program each of them.
func builtinArguments() map[string][]string {
	out := make(map[string][]string)
	for name := range builtinPlugins() {
		out[name] = []string{"plugin", "serve", name}
	}
	return out
}
