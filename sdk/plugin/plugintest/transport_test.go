package plugintest_test

import (
	"testing"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/plugin/plugintest"
	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
	"github.com/brokerd/brokerd/sdk/transport/transporttest"
)

// memory is the memory network behind a lane.
func memory() plugintest.TransportConfig {
	network := memnet.NewNetwork(memnet.NetworkOptions{Seed: 1, RestChance: 0.5})
	with := func(secret string) func(transport.Identity) ([]byte, error) {
		return func(transport.Identity) ([]byte, error) { return memnet.Settings("", secret), nil }
	}
	return plugintest.TransportConfig{
		Name:     "memnet",
		Provider: network,
		Settings: with("the cluster's"),
		Outsider: with("another one"),
		Kill:     func(t transport.Transport) error { return network.Kill(t.Endpoint(), memnet.Reset) },
	}
}

// TestTransportKitOverMessages runs the kit against a plugin that runs the links.
func TestTransportKitOverMessages(t *testing.T) {
	for _, carrier := range []plugin.Carrier{plugin.CarrierGRPC, plugin.CarrierSocket} {
		t.Run(carrier.String(), func(t *testing.T) {
			transporttest.Run(t, plugintest.Transport(carrier, memory()))
		})
	}
}
