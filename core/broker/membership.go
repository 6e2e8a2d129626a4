package broker

import (
	"time"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/lifecycle"
	"github.com/brokerd/brokerd/core/membership"
	"github.com/brokerd/brokerd/core/quorum"
	"github.com/brokerd/brokerd/core/replica"
)

const (
	// leaveTimeout is how long a broker that stops waits until others lead what it led.
	leaveTimeout = leaveStop - 500*time.Millisecond
	// leaveKnown is how long, of that, the controller waits for all others to have heard of it.
	leaveKnown = leaveTimeout - time.Second
)

// newMembership makes this broker's, to be told of images and run.
func (b *Broker) newMembership(node *quorum.Node, manager *replica.Manager, r controller.Registration) (*membership.Member, error) {
	cfg := membership.Config{Lifecycle: lifecycle.Defaults(), Registration: r, Lease: b.cfg.Cluster.SessionTimeout}
	cfg.Lifecycle.Incarnation = r.Incarnation
	cfg.Lifecycle.Every = b.cfg.Cluster.HeartbeatEvery
	return membership.New(cfg, membership.Deps{
		Commands: node, Clock: b.deps.Clock, Logger: b.log,
		Image: node.Image, Ends: manager.LogEnds, Offline: manager.Offline, Leased: manager.Leased,
		Beaten: b.metrics.Broker().Beaten,
	})
}
