package broker

import (
	"strings"
	"testing"

	"github.com/brokerd/brokerd/core/config"
	"github.com/brokerd/brokerd/core/controller"
)

// What the configuration admits is what the controller makes.
func TestPartitionsMax(t *testing.T) {
	if got := controller.DefaultConfig().RequestPartitionsMax; got != config.PartitionsMax {
		t.Errorf("the controller makes %d partitions for one request, the configuration admits %d", got, config.PartitionsMax)
	}
}

func TestFewDescriptorsAreWarnedOf(t *testing.T) {
	for _, tc := range []struct {
		limit       uint64
		connections int
		want        string
	}{
		{256, 8192, "256 files open, which is enough for about 128 connections"},
		{64, 8192, "about 0 connections"},
		{8192 + descriptorsOwn, 8192, ""},
		{0, 8192, ""},
	} {
		got := strings.Join(descriptorWarnings(tc.limit, tc.connections), "")
		if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
			t.Errorf("limit %d: %q, want %q", tc.limit, got, tc.want)
		}
	}
}

// connections.max.idle.ms: -1 is never, and a broker starts with it.
func TestNeverIdle(t *testing.T) {
	start(t, settings(t, t.TempDir(), config.Override{Name: "connections.max.idle.ms", Value: "-1"}))
}

// The parts of the memory are no more than it is, and the default holds the groups that
// docs/operators.md says it does (core/group's TestTheDefaultHolds).
func TestPartsOfTheMemory(t *testing.T) {
	const parts = memoryServer + memoryAppends + memoryGroupWrites + memoryTails + memoryGroups + memoryIdle
	if parts >= memoryParts {
		t.Errorf("%d parts of %d", parts, memoryParts)
	}
	if got := config.Default().Memory / memoryParts * memoryGroups; got < 64<<20 {
		t.Errorf("groups have %d bytes", got)
	}
}

// With the defaults as many connections fit the memory as are configured: nobody is warned
// of what he has not chosen.
func TestTheDefaultHoldsItsConnections(t *testing.T) {
	cfg := settings(t, t.TempDir())
	cfg.Memory = config.Default().Memory
	b := start(t, cfg)
	if log := b.log.String(); strings.Contains(log, "fewer connections") {
		t.Errorf("the default warns:\n%s", log)
	}
}
