package broker

import (
	"github.com/brokerd/brokerd/core/server"
	"github.com/brokerd/brokerd/core/telemetry"
)

// serverEvents makes the server's events into numbers.
type serverEvents struct{ telemetry.Server }

func (e serverEvents) ConnectionClosed(listener string, reason server.CloseReason) {
	e.Server.ConnectionClosed(listener, string(reason))
}

func (e serverEvents) RequestServed(s server.Served) {
	e.Server.RequestServed(s.Listener, s.Key, s.Duration, s.BytesIn, s.BytesOut)
}
