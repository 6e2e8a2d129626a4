//go:build !unix

package transporttest

import (
	"errors"
	"time"
)

// processorTime is not known here.
func processorTime() (time.Duration, error) { return 0, errors.ErrUnsupported }
