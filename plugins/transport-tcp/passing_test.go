package transporttcp

import (
	"context"
	"net"
	"testing"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/plugin/plugintest"
	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/transporttest"
)

// behind is the transport behind a lane.
func behind(settings map[string]any) plugintest.TransportConfig {
	return plugintest.TransportConfig{
		Name:     "transport-tcp",
		Provider: Provider(),
		Settings: func(transport.Identity) ([]byte, error) { return section(settings) },
		Stranger: func(ctx context.Context, endpoint string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", endpoint)
		},
	}
}

// TestConformsWithDescriptors runs the kit where the plugin's connections are passed.
func TestConformsWithDescriptors(t *testing.T) {
	of := behind(map[string]any{"secret": testSecret})
	of.Outsider = func(transport.Identity) ([]byte, error) {
		return section(map[string]any{"secret": "another secret, which is as long as the first"})
	}
	transporttest.Run(t, plugintest.Transport(plugin.CarrierFiles, of))
}
