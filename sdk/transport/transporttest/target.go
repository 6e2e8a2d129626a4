package transporttest

import (
	"context"
	"net"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

// Target is one kind of transport, configured in one way. Only Name and Open are needed: a
// case that needs what is nil is reported as not applicable. The functions may be called
// from several goroutines.
type Target struct {
	// Name is what reports call the target: "transport-tcp, plaintext".
	Name string

	// Open makes a transport of a node that is who identity says, which listens where
	// nothing else does. All that are opened, in whatever cluster, can reach each other; the
	// same identity may be opened again once its transport has ended.
	Open func(ctx context.Context, identity transport.Identity) (transport.Transport, error)

	// Kill ends a transport that Open has made as kill -9 of its process does: nothing is
	// said to peers but what the operating system says. It returns when the process is
	// gone, and the kit calls nothing of the transport after it.
	Kill func(t transport.Transport) error

	// Outsider makes a transport like Open, which cannot prove what those of Open demand of
	// their peers, nor believes them: it has another secret, or certificates of another
	// authority.
	Outsider func(ctx context.Context, identity transport.Identity) (transport.Transport, error)

	// Impostor makes a transport like Open that may belong to the cluster, but claims to be
	// another node than the one that its certificate names.
	Impostor func(ctx context.Context, claims transport.Identity) (transport.Transport, error)

	// Stranger connects to an endpoint as somebody would who knows nothing of the
	// transport, with whatever carries bytes there.
	Stranger func(ctx context.Context, endpoint string) (net.Conn, error)

	// Provider is what the plugin serves, and Settings is a section of the configuration that
	// it opens with, a JSON object.
	Provider transport.Provider
	Settings []byte

	// Usage says what the transports that Open has made use. Nil: they run in this process,
	// whose heap and processor time the kit measures.
	Usage func(ctx context.Context) (Usage, error)
}

// Usage is what transports use of their machine.
type Usage struct {
	// HeapBytes is the memory that is in use, after a collection of garbage.
	HeapBytes int64
	// Processor is all the processor time that was used so far.
	Processor time.Duration
}

// Needs is what a case needs of a target, or of its transport's Capabilities.
type Needs struct {
	Kill     bool // Target.Kill
	Outsider bool // Target.Outsider
	Impostor bool // Target.Impostor
	Stranger bool // Target.Stranger
	Provider bool // Target.Provider
	Refuses  bool // Capabilities.Refuses
	Resets   bool // Capabilities.Resets
	// Proof is what Capabilities.Proof must promise at least.
	Proof transport.Proof
}

// lacking says what is needed and not there, or returns "".
func (n Needs) lacking(target Target, has transport.Capabilities) string {
	switch {
	case n.Refuses && !has.Refuses:
		return "the transport does not promise to tell that a dial was refused (Capabilities.Refuses)"
	case n.Resets && !has.Resets:
		return "the transport does not promise that a process's end ends its links (Capabilities.Resets)"
	case n.Proof > has.Proof:
		return "the transport does not promise that peers prove more than " + has.Proof.String() + " (Capabilities.Proof)"
	case n.Kill && target.Kill == nil:
		return "the target cannot kill a transport (Target.Kill)"
	case n.Outsider && target.Outsider == nil:
		return "the target cannot make a transport that proves nothing (Target.Outsider)"
	case n.Impostor && target.Impostor == nil:
		return "the target cannot make a transport that claims to be another node (Target.Impostor)"
	case n.Stranger && target.Stranger == nil:
		return "the target cannot connect as a stranger (Target.Stranger)"
	case n.Provider && target.Provider == nil:
		return "the target does not say which plugin it is (Target.Provider)"
	}
	return ""
}
