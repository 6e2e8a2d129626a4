package server

import "time"

// Events is told what happens, for metrics. Its methods are called from many
// goroutines and must not block.
type Events interface {
	ConnectionOpened(listener string)
	ConnectionClosed(listener string, reason CloseReason)
	RequestServed(Served)
}

// Served is one request whose reply was sent, or that wanted none.
type Served struct {
	Listener string
	Key      int16
	Version  int16
	Duration time.Duration // from the last byte of the request to the last of the reply
	BytesIn  int
	BytesOut int
}

// CloseReason says why a connection ended; there are few, so that they can be
// labels.
type CloseReason string

// Reasons.
const (
	ClosedByClient   CloseReason = "client"   // it went away, or its network did
	ClosedIdle       CloseReason = "idle"     // no request for the idle timeout
	ClosedSlow       CloseReason = "slow"     // a request or a reply that did not move on
	ClosedMemory     CloseReason = "memory"   // it stalled while memory was short
	ClosedProtocol   CloseReason = "protocol" // what came is not a request
	ClosedByHandler  CloseReason = "handler"  // the reply asked for it
	ClosedByPanic    CloseReason = "panic"    // a defect of the broker's
	ClosedByStore    CloseReason = "store"    // records that were being sent can't be read
	ClosedByShutdown CloseReason = "shutdown"
	ClosedByLimit    CloseReason = "limit" // too many connections
)

type noEvents struct{}

func (noEvents) ConnectionOpened(string)              {}
func (noEvents) ConnectionClosed(string, CloseReason) {}
func (noEvents) RequestServed(Served)                 {}
