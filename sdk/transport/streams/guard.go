package streams

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/frame"
)

// strangerBytesMax is how much is read of a peer that has not proved who it is.
const strangerBytesMax = 64 << 10

// protected is a connection whose peer has proved what is demanded.
type protected struct {
	net.Conn
	raw   net.Conn     // what the network gave
	below *frame.Below // under TLS, otherwise nil
	sum   bool
	// node is the node that the peer's certificate names, or transport.AnyNode.
	node   int32
	proved transport.Proof
}

// check says what a peer that says who it is has proved.
func (p *protected) check(id transport.Identity) (transport.Proof, error) {
	if p.node == transport.AnyNode {
		return p.proved, nil
	}
	if p.node != id.NodeID {
		return transport.ProofNone, transport.Errorf(transport.ErrDenied, "it says that it is node %d, and its certificate is that of node %d", id.NodeID, p.node)
	}
	return transport.ProofNode, nil
}

// linkProtocol is what both ends name in their TLS handshake, so that no other protocol's
// certificates and connections serve here.
const linkProtocol = "brokerd-link/1"

// protect makes of a connection one on which frames can go, with a peer that has proved what
// the network demands. An error of class ErrDenied says that either end does not believe the
// other. The connection's deadline bounds it.
func (t *Transport) protect(ctx context.Context, raw net.Conn, dialled bool) (*protected, error) {
	demanded := t.has.Proof
	if demanded == transport.ProofNone {
		return &protected{Conn: raw, raw: raw, sum: true, node: transport.AnyNode}, nil
	}
	own, err := t.network.Material(ctx)
	if err != nil {
		return nil, err
	}
	p := &protected{raw: raw, below: frame.NewBelow(raw, strangerBytesMax), node: transport.AnyNode, proved: transport.ProofMember}
	usage := x509.ExtKeyUsageClientAuth
	if dialled {
		usage = x509.ExtKeyUsageServerAuth
	}
	cfg := &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		Certificates:                []tls.Certificate{*own.Certificate},
		NextProtos:                  []string{linkProtocol},
		ClientAuth:                  tls.RequireAnyClientCert,
		InsecureSkipVerify:          true, // of names of hosts; believe checks the rest
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			node, err := believe(state.PeerCertificates, own.pool, usage, demanded)
			p.node = node
			return err
		},
	}
	conn := tls.Server(p.below, cfg)
	if dialled {
		conn = tls.Client(p.below, cfg)
	}
	p.Conn = conn
	if err := conn.Handshake(); err != nil {
		explain(raw, err, dialled)
		return nil, classify(err)
	}
	return p, nil
}

// explain lets a peer know that it was not believed.
func explain(raw net.Conn, err error, dialled bool) {
	var plain tls.RecordHeaderError
	switch {
	case dialled:
	case errors.As(err, &plain):
		frame.Refuse(raw, transport.Errorf(transport.ErrDenied, "TLS is demanded where plaintext was spoken"))
	case errors.Is(classify(err), transport.ErrDenied):
		frame.Linger(raw) // TLS has told it
	}
}

// believe checks a peer's certificates, and returns the node that they name.
func believe(certs []*x509.Certificate, roots *x509.CertPool, usage x509.ExtKeyUsage, demanded transport.Proof) (int32, error) {
	if len(certs) == 0 {
		return transport.AnyNode, transport.Errorf(transport.ErrDenied, "the peer has no certificate")
	}
	if err := Verify(certs, roots, usage, time.Now()); err != nil {
		return transport.AnyNode, transport.Errorf(transport.ErrDenied, "the peer's certificate is not believed: %v", err)
	}
	node, err := NodeOf(certs[0])
	if err == nil && node == transport.AnyNode && demanded == transport.ProofNode {
		err = errors.New("it names no node")
	}
	if err != nil {
		return transport.AnyNode, transport.Errorf(transport.ErrDenied, "the peer's certificate is not believed: %v", err)
	}
	return node, nil
}

// classify gives an error of a handshake its class. What is neither the network's nor
// classified already is TLS's: one end does not believe the other.
func classify(err error) error {
	var own *transport.Error
	var plain tls.RecordHeaderError
	var op *net.OpError
	var network net.Error
	switch {
	case errors.As(err, &own):
		return err
	case errors.As(err, &plain):
		return transport.Errorf(transport.ErrDenied, "plaintext was spoken where TLS is demanded")
	case errors.As(err, &op) && op.Op == "remote error":
		return transport.Errorf(transport.ErrDenied, "the peer does not believe this node: %v", op.Err)
	case errors.As(err, &network), hungUp(err):
		return transport.Errorf(transport.ErrRetry, "%v", err)
	default:
		return transport.Errorf(transport.ErrDenied, "%v", err)
	}
}
