package streams

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

// Material is what a node proves with who it is, and whom it believes. It is not changed
// once it is made, and may be used from many goroutines.
type Material struct {
	// Certificate is the node's own, with its key and what stands between it and its authority.
	Certificate *tls.Certificate
	// Roots are the authorities whose certificates are believed.
	Roots []*x509.Certificate

	pool *x509.CertPool
}

// NewMaterial makes the material of a certificate, which has its key, and of authorities.
func NewMaterial(certificate *tls.Certificate, roots []*x509.Certificate) *Material {
	m := &Material{Certificate: certificate, Roots: roots, pool: x509.NewCertPool()}
	for _, root := range roots {
		m.pool.AddCert(root)
	}
	return m
}

// Check says whether peers that have the same roots would believe the certificate now, as a
// server's and as a client's, and that it names no other node than this one.
func (m *Material) Check(node int32) error {
	chain := make([]*x509.Certificate, len(m.Certificate.Certificate))
	for i, der := range m.Certificate.Certificate {
		var err error
		if chain[i], err = x509.ParseCertificate(der); err != nil {
			return err
		}
	}
	if len(chain) == 0 {
		return errors.New("there is no certificate")
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if err := Verify(chain, m.pool, usage, time.Now()); err != nil {
			return fmt.Errorf("it would not be believed by peers with the same roots, as server and as client: %w", err)
		}
	}
	named, err := NodeOf(chain[0])
	if err == nil && named != transport.AnyNode && named != node {
		err = fmt.Errorf("it names node %d, and this is node %d", named, node)
	}
	return err
}

// Verify checks a chain of certificates, the peer's own first. Names of hosts do not matter.
func Verify(certs []*x509.Certificate, roots *x509.CertPool, usage x509.ExtKeyUsage, now time.Time) error {
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

// NodeOf returns the node that a certificate names, by a URI such as brokerd://node/3, or
// transport.AnyNode if it names none.
func NodeOf(cert *x509.Certificate) (int32, error) {
	found := transport.AnyNode
	for _, uri := range cert.URIs {
		if uri.Scheme != "brokerd" {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimPrefix(uri.Path, "/"), 10, 31)
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
