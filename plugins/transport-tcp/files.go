package transporttcp

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/brokerd/brokerd/sdk/transport/streams"
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
	last *streams.Material
}

func newFiles(certificate, key, roots string, node int32, log *slog.Logger) (*files, error) {
	f := &files{certificate: certificate, key: key, roots: roots, node: node, log: log}
	if err := f.load(); err != nil {
		return nil, wrong("%v", err)
	}
	return f, nil
}

// own implements source. Files that cannot be used do not replace those that could.
func (f *files) own() (*streams.Material, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.read) > filesAge {
		if err := f.load(); err != nil {
			f.log.Error("the certificates cannot be read again, and those of before stay in use", "err", err)
		}
	}
	return f.last, nil
}

// load reads the files, and checks that peers would believe what is in them.
func (f *files) load() error {
	f.read = time.Now()
	cert, err := tls.LoadX509KeyPair(f.certificate, f.key)
	if err != nil {
		return fmt.Errorf("certificate %s with key %s: %w", f.certificate, f.key, err)
	}
	roots, err := os.ReadFile(f.roots)
	if err != nil {
		return fmt.Errorf("roots: %w", err)
	}
	authorities, err := parseRoots(roots)
	if err != nil {
		return fmt.Errorf("roots: %s: %w", f.roots, err)
	}
	last := streams.NewMaterial(&cert, authorities)
	if err := last.Check(f.node); err != nil {
		return fmt.Errorf("certificate %s, with the roots %s: %w", f.certificate, f.roots, err)
	}
	f.last = last
	return nil
}

// parseRoots reads the certificates in a file of them. As for x509.CertPool, what is none is
// passed over.
func parseRoots(b []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) != 0 {
			continue
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no certificate is in it")
	}
	return out, nil
}
