package main

import (
	storagefile "github.com/brokerd/brokerd/plugins/storage-file"
	"github.com/brokerd/brokerd/sdk/storage"
)

// builtinPlugins are those that this program can be, by name.
func builtinPlugins() map[string]storage.Provider {
	out := make(map[string]storage.Provider)
	for _, p := range []storage.Provider{storagefile.Provider()} {
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
