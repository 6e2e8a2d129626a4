package main

import "github.com/brokerd/brokerd/sdk/storage"

// builtinPlugins are those that this program can be, by name.
func builtinPlugins() map[string]storage.Provider {
	return map[string]storage.Provider{}
}

// builtinArguments are what makes this program each of them.
func builtinArguments() map[string][]string {
	out := make(map[string][]string)
	for name := range builtinPlugins() {
		out[name] = []string{"plugin", "serve", name}
	}
	return out
}
