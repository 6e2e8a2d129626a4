package transporttcp

import "github.com/brokerd/brokerd/sdk/plugin"

// Serve serves the plugin to the broker that started this process, and returns
// when it is no longer needed.
func Serve() error { return plugin.ServeTransport(Provider()) }
