package server

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/brokerd/brokerd/core/memory"
)

// Listener is an address to listen on, under a name.
type Listener struct {
	Name    string
	Address string // host:port; port 0 takes a free one
}

// Config is the package's configuration; start from DefaultConfig.
type Config struct {
	Listeners []Listener
	// MaxRequestBytes is the greatest request; a greater one closes its
	// connection.
	MaxRequestBytes int32
	// MaxConnections is how many there may be at once; further ones are closed.
	// The memory budget may allow fewer: a third of it is for connections.
	MaxConnections int
	// MaxInFlight is how many requests of one connection may be without reply.
	MaxInFlight int
	// SocketBytes is the kernel's buffer of what each connection sends; the kernel may
	// fill twice as much. What it takes of a reply counts as sent, and is memory that is
	// in no budget, so that it is kept small; 0 leaves it to the kernel, for long fat
	// networks. The buffer of what comes is the kernel's affair: it grows
	// where much comes and is read at once.
	SocketBytes int
	// LocalSocketBytes is that of connections to a listener on a loopback address, whose
	// clients take it from the same memory anyway: enough that a consumer is not woken
	// for every few packets.
	LocalSocketBytes int
	// IdleTimeout closes a connection without requests.
	IdleTimeout time.Duration
	// FrameTimeout and WriteTimeout close a connection that moved less than 16
	// KiB in that time though a request is half here, or a reply half sent. A
	// consumer that works on its last records before it reads the next is slow
	// for a good reason, so that the latter is long.
	FrameTimeout time.Duration
	WriteTimeout time.Duration
	// StallTimeout takes their place while memory is short.
	StallTimeout time.Duration
	// DrainTimeout is how long begun requests may take after a stop.
	DrainTimeout time.Duration
	// Buffers lends the memory of large requests, and is trimmed by the server. Nil: the
	// server's own.
	Buffers *memory.Buffers
}

// buffersShare is the part of the budget that a server's own buffers keep idle at most,
// beside it.
const buffersShare = 16

// DefaultConfig has every default, and no listeners.
func DefaultConfig() Config {
	return Config{
		MaxRequestBytes:  100 << 20,
		MaxConnections:   8192,
		MaxInFlight:      16,
		SocketBytes:      128 << 10,
		LocalSocketBytes: 512 << 10,
		IdleTimeout:      10 * time.Minute,
		FrameTimeout:     30 * time.Second,
		WriteTimeout:     10 * time.Minute,
		StallTimeout:     time.Second,
		DrainTimeout:     10 * time.Second,
	}
}

// Validate reports every fault of the configuration.
func (c Config) Validate() error {
	var errs []error
	if len(c.Listeners) == 0 {
		errs = append(errs, errors.New("listeners: none given"))
	}
	names := map[string]bool{}
	for _, l := range c.Listeners {
		if l.Name == "" || names[l.Name] {
			errs = append(errs, fmt.Errorf("listeners: name %q of %s is empty or taken", l.Name, l.Address))
		}
		names[l.Name] = true
		if _, _, err := net.SplitHostPort(l.Address); err != nil {
			errs = append(errs, fmt.Errorf("listener %s: address %q is not host:port", l.Name, l.Address))
		}
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"maximum request bytes", int64(c.MaxRequestBytes)},
		{"maximum connections", int64(c.MaxConnections)},
		{"maximum in flight", int64(c.MaxInFlight)},
		{"idle timeout", int64(c.IdleTimeout)},
		{"frame timeout", int64(c.FrameTimeout)},
		{"write timeout", int64(c.WriteTimeout)},
		{"stall timeout", int64(c.StallTimeout)},
		{"drain timeout", int64(c.DrainTimeout)},
	} {
		if n.value <= 0 {
			errs = append(errs, fmt.Errorf("%s: %d is not above 0", n.name, n.value))
		}
	}
	if c.SocketBytes < 0 || c.LocalSocketBytes < 0 {
		errs = append(errs, fmt.Errorf("socket bytes: %d, and %d over loopback, are not both at least 0", c.SocketBytes, c.LocalSocketBytes))
	}
	return errors.Join(errs...)
}
