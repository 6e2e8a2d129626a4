package replica

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when a goroutine outlives Run.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
