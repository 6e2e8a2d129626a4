package plugin

import (
	"os"
	"slices"
)

// Carrier is how much of what a plugin offers a connection uses. Whatever the
// plugin or the platform lacks is not used in any case.
type Carrier int

const (
	// CarrierFiles is all: the fast lane, granted writes and leases; of a transport, the
	// connections that its plugin passes.
	CarrierFiles Carrier = iota
	// CarrierSocket is the fast lane, and no files.
	CarrierSocket
	// CarrierGRPC is gRPC alone.
	CarrierGRPC
	// CarrierLent is the fast lane, and what the plugin lends is the caller's to use
	// (Store.Files): so the conformance kit is itself the host.
	CarrierLent
	// CarrierDescriptors is what a transport's session uses that has its plugin's connections
	// passed; CarrierFiles is how that is allowed.
	CarrierDescriptors
)

// carriers is all of them, by name.
func carriers() [5]string { return [...]string{"files", "socket", "grpc", "lent", "descriptors"} }

// String names the carrier.
func (c Carrier) String() string {
	if names := carriers(); c >= 0 && int(c) < len(names) {
		return names[c]
	}
	return "unknown"
}

// CarrierNamed returns the carrier of that name. The empty name and "auto" mean all
// that a plugin offers.
func CarrierNamed(name string) (c Carrier, known bool) {
	if name == "" || name == "auto" {
		return CarrierFiles, true
	}
	names := carriers()
	i := slices.Index(names[:], name)
	return Carrier(max(i, 0)), i >= 0
}

// link moves units between the two ends of a lane, in order, whatever they are
// made of: a gRPC stream or a socket. Each of send and receive is called from one
// goroutine.
type link interface {
	// send sends units, as many at a time as may go together.
	send(units outgoing) error
	// receive gives each unit that comes to fn, with the memory that it is in and
	// the file that came with it, if one did, which is fn's to close. It ends with
	// fn's first error, or when the other end or the link does.
	receive(fn func(in incoming) error) error
	// filesPass says whether descriptors can be sent.
	filesPass() bool
}

// outgoing is units to be sent.
type outgoing interface {
	count() int
	// bytesMax bounds unit i as it is encoded, without its data.
	bytesMax(i int) int
	// encode appends unit i to dst, without its data, which follows it.
	encode(i int, dst []byte) (out []byte, data [][]byte)
	// file is what goes with unit i, nil if nothing does.
	file(i int) *os.File
}

// incoming is a unit that came.
type incoming struct {
	unit []byte
	// mem is what unit lies in, and is taken back when fn returns, unless fn takes
	// a reference.
	mem memory
	// size is about how much mem is.
	size int
	file *os.File
}
