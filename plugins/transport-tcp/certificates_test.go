package transporttcp

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/streams"
)

// testAuthority is an operator's authority.
type testAuthority struct {
	dir   string
	cert  *x509.Certificate
	key   ed25519.PrivateKey
	roots string
}

func newTestAuthority(tb testing.TB) *testAuthority {
	tb.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	a := &testAuthority{dir: tb.TempDir(), key: key}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		tb.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		tb.Fatal(err)
	}
	a.roots = a.write(tb, "roots.pem", "CERTIFICATE", der)
	return a
}

// leaf issues a certificate, that change may make an odd one, and returns the settings of
// who has it.
func (a *testAuthority) leaf(tb testing.TB, name string, change func(*x509.Certificate)) map[string]any {
	tb.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		tb.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return map[string]any{
		"certificate": a.write(tb, name+".pem", "CERTIFICATE", der),
		"key":         a.write(tb, name+".key", "PRIVATE KEY", private),
		"roots":       a.roots,
	}
}

// naming makes a certificate name a node.
func naming(uris ...string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		for _, uri := range uris {
			if u, err := url.Parse(uri); err == nil {
				c.URIs = append(c.URIs, u)
			}
		}
	}
}

func (a *testAuthority) write(tb testing.TB, name, kind string, der []byte) string {
	tb.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// impostor makes a transport of a node that says it is another one than its certificate
// names; the plugin itself refuses to.
func impostor(tb testing.TB, claims transport.Identity, settings map[string]any, named int32) (*streams.Transport, error) {
	tb.Helper()
	honest := claims
	honest.NodeID = named
	b, err := section(settings)
	if err != nil {
		return nil, err
	}
	network, err := Provider().OpenNetwork(tb.Context(), transport.Config{Settings: b, Identity: honest})
	if err != nil {
		return nil, err
	}
	return streams.New(streams.Options{Network: network, Identity: claims}), nil
}
