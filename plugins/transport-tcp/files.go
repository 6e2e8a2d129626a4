package transporttcp

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

// filesAge is when the files are read again.
const filesAge = time.Minute

// files are the operator's certificates. It implements source.
type files struct {
	certificate, key, roots string
	node                    int32
	log                     *slog.Logger

	mu   sync.Mutex
	read time.Time
	cert *tls.Certificate
	pool *x509.CertPool
}

func newFiles(certificate, key, roots string, node int32, log *slog.Logger) (*files, error) {
	f := &files{certificate: certificate, key: key, roots: roots, node: node, log: log}
	if err := f.load(); err != nil {
		return nil, wrong("%v", err)
	}
	return f, nil
}

// own implements source. Files that cannot be used do not replace those that could.
func (f *files) own() (*tls.Certificate, *x509.CertPool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.read) > filesAge {
		if err := f.load(); err != nil {
			f.log.Error("the certificates cannot be read again, and those of before stay in use", "err", err)
		}
	}
	return f.cert, f.pool, nil
}

// load reads the files, and checks that peers would believe what is in them.
func (f *files) load() error {
	f.read = time.Now()
	cert, err := tls.LoadX509KeyPair(f.certificate, f.key)
	if err != nil {
		return fmt.Errorf("certificate %s with key %s: %w", f.certificate, f.key, err)
	}
	pem, err := os.ReadFile(f.roots)
	if err != nil {
		return fmt.Errorf("roots: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("roots: no certificate is in %s", f.roots)
	}
	chain := make([]*x509.Certificate, len(cert.Certificate))
	for i, der := range cert.Certificate {
		if chain[i], err = x509.ParseCertificate(der); err != nil {
			return fmt.Errorf("certificate %s: %w", f.certificate, err)
		}
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if err := verify(chain, pool, usage, f.read); err != nil {
			return fmt.Errorf("certificate %s would not be believed by peers that have %s, as server and as client: %w", f.certificate, f.roots, err)
		}
	}
	named, err := nodeOf(chain[0])
	if err == nil && named != transport.AnyNode && named != f.node {
		err = fmt.Errorf("it names node %d, and this is node %d", named, f.node)
	}
	if err != nil {
		return fmt.Errorf("certificate %s: %w", f.certificate, err)
	}
	f.cert, f.pool = &cert, pool
	return nil
}
