package transporttcp

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"sync"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/streams"
)

const (
	// leafAge is when a node issues itself another certificate.
	leafAge = 24 * time.Hour
	// leafValid is for how long one is good, before and after it is issued: the clocks of
	// nodes may be days apart.
	leafValid = 7 * 24 * time.Hour

	// authorityInfo is what the authority's key is derived for. Another one here is
	// another cluster.
	authorityInfo = "brokerd transport-tcp authority 1"
)

// authority issues certificates to this node, by a key that follows from a secret. It
// implements source.
type authority struct {
	node int32
	now  func() time.Time
	key  ed25519.PrivateKey
	cert *x509.Certificate

	mu     sync.Mutex
	leaf   *streams.Material
	issued time.Time
}

func newAuthority(secret string, node int32, now func() time.Time) (*authority, error) {
	seed, err := hkdf.Key(sha256.New, []byte(secret), nil, authorityInfo, ed25519.SeedSize)
	if err != nil {
		return nil, transport.Errorf(transport.ErrInvalid, "derive a key from the secret: %v", err)
	}
	a := &authority{node: node, now: now, key: ed25519.NewKeyFromSeed(seed)}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "brokerd shared secret"},
		NotBefore:             time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:              time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		return nil, transport.Errorf(transport.ErrInvalid, "make the authority of the secret: %v", err)
	}
	return a, nil
}

// own implements source.
func (a *authority) own() (*streams.Material, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now().Round(0) // by the wall clock alone, which goes on while the machine sleeps: so do peers
	if age := now.Sub(a.issued); a.leaf == nil || age > leafAge || age < -leafAge {
		leaf, err := a.issue(now)
		if err != nil {
			return nil, transport.Errorf(transport.ErrRetry, "issue a certificate: %v", err)
		}
		a.leaf, a.issued = streams.NewMaterial(leaf, []*x509.Certificate{a.cert}), now
	}
	return a.leaf, nil
}

// issue makes a certificate of a new key. The node in it is for people alone: whoever has
// the secret can write any.
func (a *authority) issue(now time.Time) (*tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: fmt.Sprintf("node %d", a.node)},
		NotBefore:    now.Add(-leafValid),
		NotAfter:     now.Add(leafValid),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, nil
}
