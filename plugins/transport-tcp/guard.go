package transporttcp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/frame"
)

// strangerBytesMax is how much is read of a peer that has not proved who it is.
const strangerBytesMax = 64 << 10

// guard decides whom to believe.
type guard interface {
	// proof is what every peer proves.
	proof() transport.Proof
	// protect makes of a connection one on which frames can go. An error of class ErrDenied
	// says that either end does not believe the other. The connection's deadline bounds it.
	protect(raw net.Conn, dialled bool) (*protected, error)
}

// protected is a connection whose peer has proved what is demanded.
type protected struct {
	net.Conn
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

// plaintext believes everybody.
type plaintext struct{}

func (plaintext) proof() transport.Proof { return transport.ProofNone }

func (plaintext) protect(raw net.Conn, _ bool) (*protected, error) {
	return &protected{Conn: raw, sum: true, node: transport.AnyNode}, nil
}

// source has the certificates of a tlsGuard. It may be used from many goroutines.
type source interface {
	// own is this node's certificate, and those of whose authorities are believed.
	own() (*tls.Certificate, *x509.CertPool, error)
}

// tlsGuard believes who has a certificate of an authority.
type tlsGuard struct {
	source source
	named  bool // which names its node
}

func (g *tlsGuard) proof() transport.Proof {
	if g.named {
		return transport.ProofNode
	}
	return transport.ProofMember
}

// linkProtocol is what both ends name in their TLS handshake, so that no other protocol's
// certificates and connections serve here.
const linkProtocol = "brokerd-link/1"

func (g *tlsGuard) protect(raw net.Conn, dialled bool) (*protected, error) {
	cert, roots, err := g.source.own()
	if err != nil {
		return nil, err
	}
	p := &protected{below: frame.NewBelow(raw, strangerBytesMax), node: transport.AnyNode, proved: transport.ProofMember}
	usage := x509.ExtKeyUsageClientAuth
	if dialled {
		usage = x509.ExtKeyUsageServerAuth
	}
	cfg := &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		Certificates:                []tls.Certificate{*cert},
		NextProtos:                  []string{linkProtocol},
		ClientAuth:                  tls.RequireAnyClientCert,
		InsecureSkipVerify:          true, // of names of hosts; believe checks the rest
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			node, err := g.believe(state.PeerCertificates, roots, usage)
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
		g.explain(raw, err, dialled)
		return nil, classify(err)
	}
	return p, nil
}

// explain lets a peer know that it was not believed.
func (g *tlsGuard) explain(raw net.Conn, err error, dialled bool) {
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
func (g *tlsGuard) believe(certs []*x509.Certificate, roots *x509.CertPool, usage x509.ExtKeyUsage) (int32, error) {
	if len(certs) == 0 {
		return transport.AnyNode, transport.Errorf(transport.ErrDenied, "the peer has no certificate")
	}
	if err := verify(certs, roots, usage, time.Now()); err != nil {
		return transport.AnyNode, transport.Errorf(transport.ErrDenied, "the peer's certificate is not believed: %v", err)
	}
	node, err := nodeOf(certs[0])
	if err == nil && node == transport.AnyNode && g.named {
		err = errors.New("it names no node")
	}
	if err != nil {
		return transport.AnyNode, transport.Errorf(transport.ErrDenied, "the peer's certificate is not believed: %v", err)
	}
	return node, nil
}

func verify(certs []*x509.Certificate, roots *x509.CertPool, usage x509.ExtKeyUsage, now time.Time) error {
	between := x509.NewCertPool()
	for _, c := range certs[1:] {
		between.AddCert(c)
	}
	_, err := certs[0].Verify(x509.VerifyOptions{
		Roots:         roots,
		Intermediates: between,
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{usage},
	})
	return err
}

// nodeOf returns the node that a certificate names, or AnyNode if it names none.
func nodeOf(cert *x509.Certificate) (int32, error) {
	found := transport.AnyNode
	for _, uri := range cert.URIs {
		if uri.Scheme != "brokerd" {
			continue
		}
		n, err := strconv.ParseUint(trimSlash(uri.Path), 10, 31)
		if uri.Host != "node" || err != nil {
			return found, fmt.Errorf("its name %q is not of the form brokerd://node/3", uri)
		}
		if found != transport.AnyNode {
			return found, errors.New("it names two nodes")
		}
		found = int32(n)
	}
	return found, nil
}

func trimSlash(path string) string {
	if path != "" && path[0] == '/' {
		return path[1:]
	}
	return path
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
