package clients

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/brokerd/brokerd/test/rig"
)

// startTimeout is how long a broker, or its plugins, may take to answer again.
const startTimeout = rig.StartTimeout

// broker is a brokerd that is started as a user starts it, and may be killed and
// started again on the same data and port. It belongs to one goroutine.
type broker struct {
	rig.Broker
	port int
}

// addr is where clients reach it.
func (b *broker) addr() string { return loopback(b.port) }

// start starts the process, unless it runs, and waits until it answers.
func (b *broker) start() error {
	if err := b.Launch(); err != nil {
		return err
	}
	return b.waitReady(1)
}

// waitReady waits until the broker answers a client and knows so many brokers; a broker
// that ended is not waited for.
func (b *broker) waitReady(brokers int) error {
	return b.Ready(context.Background(), []string{b.addr()}, brokers)
}

// killPlugins kills the broker's plugins with SIGKILL and waits until it has others.
func (b *broker) killPlugins(ctx context.Context) error {
	old := rig.Children(b.Pid())
	if len(old) == 0 {
		return errors.New("the broker has no plugin processes")
	}
	for _, pid := range old {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return eventually(ctx, func() error {
		now := rig.Children(b.Pid())
		if len(now) < len(old) || slices.ContainsFunc(now, func(pid int) bool { return slices.Contains(old, pid) }) {
			return fmt.Errorf("its plugins are %v, after %v were killed", now, old)
		}
		return nil
	})
}
