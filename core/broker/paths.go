package broker

import (
	"github.com/brokerd/brokerd/core/pluginhost"
	"github.com/brokerd/brokerd/core/telemetry"
)

// path looks at the way of a store's records. False: nothing carries them, since this
// process serves the store, or there is no such store yet.
func (b *Broker) path(name string) (pluginhost.Path, bool) {
	for _, s := range b.now.Load().stores {
		if launched, ok := s.(*pluginhost.Store); ok && s.Name() == name {
			return launched.Path(), true
		}
	}
	return pluginhost.Path{}, false
}

// paths are those of every store, as metrics.
func (b *Broker) paths() []telemetry.StorePath {
	now := b.now.Load()
	var tails []int64
	if now.replicas != nil {
		tails = now.replicas.TailBytes()
	}
	out := make([]telemetry.StorePath, 0, len(now.stores))
	for i, s := range now.stores {
		p := telemetry.StorePath{Store: s.Name(), Plugin: s.Plugin()}
		if launched, ok := s.(*pluginhost.Store); ok {
			path := launched.Path()
			p = telemetry.StorePath{
				Store: s.Name(), Plugin: s.Plugin(), Carrier: path.Carrier, Allowed: path.Allowed,
				GrantsHeld: path.GrantsHeld(), GrantsBegun: path.GrantsBegun, GrantsRefused: path.GrantsRefused, GrantsEnded: path.Ended(),
				Granted: telemetry.Moved(path.Granted), Called: telemetry.Moved(path.Called), AppendsWaiting: path.Appends,
				LeasesHeld: path.Leases, LeasesFailed: path.Doubted(), LeasedBytes: path.LeasedBytes, SectionBytes: path.SectionBytes, CalledBytes: path.CalledBytes,
				Sent: telemetry.Carried(path.Sent), Received: telemetry.Carried(path.Received), Waits: path.Waits,
			}
		}
		if i < len(tails) {
			p.TailBytes = tails[i]
		}
		out = append(out, p)
	}
	return out
}
