package transporttest_test

import (
	"context"
	"slices"
	"testing"

	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
	"github.com/brokerd/brokerd/sdk/transport/transporttest"
)

// memory is the memory network, whose nodes have a secret. Half of its messages come in pieces,
// so that a Receive may be given up in the middle of them.
func memory() transporttest.Target {
	return on(memnet.NewNetwork(memnet.NetworkOptions{Seed: 1, RestChance: 0.5}))
}

// on is a target on the network.
func on(network *memnet.Network) transporttest.Target {
	open := func(secret string) func(context.Context, transport.Identity) (transport.Transport, error) {
		return func(ctx context.Context, id transport.Identity) (transport.Transport, error) {
			return network.Open(ctx, transport.Config{Settings: memnet.Settings("", secret), Identity: id})
		}
	}
	return transporttest.Target{
		Name:     "memnet",
		Open:     open("the cluster's"),
		Outsider: open("another one"),
		Provider: network,
		Settings: memnet.Settings("", "the cluster's"),
		Kill:     func(t transport.Transport) error { return network.Kill(t.Endpoint(), memnet.Reset) },
	}
}

// TestMemnetConforms runs the kit on the memory network.
func TestMemnetConforms(t *testing.T) {
	transporttest.Run(t, memory())
}

// notOfMemory are the cases that the memory network has nothing to be asked for: there are
// no strangers, and no certificates that name nodes.
var notOfMemory = []string{"stranger-garbage", "stranger-memory", "stranger-silent", "impostor"}

// TestOnlyWhatMemoryLacksIsNotApplicable: no case is left out of the run above by mistake.
func TestOnlyWhatMemoryLacksIsNotApplicable(t *testing.T) {
	report := transporttest.Check(t.Context(), memory(), transporttest.Options{
		Filter: func(name string) bool { return needs(t, name) != transporttest.Needs{} },
	})
	for _, result := range report.Results {
		if want := slices.Contains(notOfMemory, result.Name); want != (result.Status == transporttest.NotApplicable) {
			t.Errorf("%s is %v: %s", result.Name, result.Status, result.Message)
		}
	}
}

func needs(t *testing.T, name string) transporttest.Needs {
	t.Helper()
	for _, c := range transporttest.Cases() {
		if c.Name == name {
			return c.Needs
		}
	}
	t.Fatalf("there is no case %q", name)
	return transporttest.Needs{}
}
