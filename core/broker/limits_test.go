package broker

import (
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
