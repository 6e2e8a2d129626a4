package main

import (
	storagefile "github.com/brokerd/brokerd/plugins/storage-file"
	transporttcp "github.com/brokerd/brokerd/plugins/transport-tcp"
	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/transport"
)

// builtinPlugins are the stores' plugins that this program can be, by name.
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
	for name := range builtins() {
		out[name] = []string{"plugin", "serve", name}
	}
	return out
}

// builtin is a plugin of any kind that this program can be.
type builtin struct {
	info  plugin.Info
	serve func() error
}

// builtins are all of them, by name.
func builtins() map[string]builtin {
	out := make(map[string]builtin)
	for name, p := range builtinPlugins() {
		out[name] = builtin{plugin.StorageInfo(p.Info()), func() error { return plugin.ServeStorage(p) }}
	}
	for name, p := range builtinTransports() {
		out[name] = builtin{plugin.TransportInfo(p.Info()), func() error { return plugin.ServeTransport(p) }}
	}
	return out
}
