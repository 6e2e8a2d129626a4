package transporttcp

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/streams"
)

// TestNobodyBelieved: nodes whose security differs make no link, and each dial says why.
func TestNobodyBelieved(t *testing.T) {
	ours, theirs := newTestAuthority(t), newTestAuthority(t)
	ways := map[string]map[string]any{
		"secret":         {"secret": testSecret},
		"another secret": {"secret": testSecret + "!"},
		"tls":            ours.leaf(t, "ours", nil),
		"another's tls":  theirs.leaf(t, "theirs", nil),
		"plaintext":      {"security": "plaintext"},
	}
	nodes := make(map[string]*node)
	for name, way := range ways {
		nodes[name] = open(t, identity(int32(len(nodes))), way)
	}
	for from, dialler := range nodes {
		for to, dialled := range nodes {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			_, err := dialler.Dial(ctx, transport.Target{Endpoint: dialled.Endpoint(), Lane: transport.Control, NodeID: transport.AnyNode})
			cancel()
			if from == to {
				if err != nil {
					t.Errorf("%s: %v", from, err)
				}
			} else if !errors.Is(err, transport.ErrDenied) {
				t.Errorf("%s dials %s: got %v", from, to, err)
			}
		}
	}
}

// mixed gives a certificate of one authority the roots of another.
func mixed(settings map[string]any, roots *testAuthority) map[string]any {
	settings["roots"] = roots.roots
	return settings
}

// TestCertificates: what peers would not believe is refused before anybody listens.
func TestCertificates(t *testing.T) {
	ours, theirs := newTestAuthority(t), newTestAuthority(t)
	usage := func(u ...x509.ExtKeyUsage) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.ExtKeyUsage = u }
	}
	for _, c := range []struct {
		name     string
		settings map[string]any
		want     string
	}{
		{"good", ours.leaf(t, "good", naming("brokerd://node/1")), ""},
		{"nameless", ours.leaf(t, "nameless", naming("spiffe://elsewhere/x")), ""},
		{"another's", mixed(ours.leaf(t, "anothers", nil), theirs), "would not be believed"},
		{"expired", ours.leaf(t, "expired", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), "expired"},
		{"of a server", ours.leaf(t, "server", usage(x509.ExtKeyUsageServerAuth)), "as server and as client"},
		{"of another node", ours.leaf(t, "other", naming("brokerd://node/2")), "names node 2"},
		{"of two nodes", ours.leaf(t, "two", naming("brokerd://node/1", "brokerd://node/2")), "two nodes"},
		{"of no node", ours.leaf(t, "none", naming("brokerd://node/-1")), "not of the form"},
		{"nowhere", map[string]any{"certificate": "/nowhere", "key": "/nowhere", "roots": "/nowhere"}, "/nowhere"},
	} {
		t1, err := tryOpen(t.Context(), identity(1), c.settings)
		if t1 != nil {
			_ = t1.Close()
		}
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, transport.ErrInvalid) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// TestProof: what a peer has proved is what its certificate says, and not what it says.
func TestProof(t *testing.T) {
	a := newTestAuthority(t)
	plain := open(t, identity(1), a.leaf(t, "plain", nil))
	named := open(t, identity(2), a.leaf(t, "named", naming("brokerd://node/2")))
	lies, err := impostor(t, identity(3), a.leaf(t, "liar", naming("brokerd://node/4")), 4)
	if err != nil {
		t.Fatal(err)
	}
	defer lies.Close()
	liar := &node{lies, identity(3)}
	strict := a.leaf(t, "strict", naming("brokerd://node/5"))
	strict["require_node_names"] = true
	demanding := open(t, identity(5), strict)

	toNamed, fromPlain := join(t, plain, named, transport.Control)
	if got := toNamed.Peer().Proof; got != transport.ProofNode {
		t.Errorf("a peer whose certificate names it has proved %v", got)
	}
	if got := fromPlain.Peer().Proof; got != transport.ProofMember {
		t.Errorf("a peer whose certificate names nobody has proved %v", got)
	}
	for _, c := range []struct{ from, to *node }{{liar, plain}, {plain, liar}, {plain, demanding}, {demanding, plain}} {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		_, err := c.from.Dial(ctx, transport.Target{Endpoint: c.to.Endpoint(), Lane: transport.Data, NodeID: transport.AnyNode})
		cancel()
		if !errors.Is(err, transport.ErrDenied) {
			t.Errorf("node %d dials node %d: got %v", c.from.identity.NodeID, c.to.identity.NodeID, err)
		}
	}
}

// TestAuthority: the same secret is the same authority at every node, also where clocks are
// days apart, and another secret is another.
func TestAuthority(t *testing.T) {
	now := time.Now()
	at := func(secret string, clock time.Time) *authority {
		a, err := newAuthority(secret, 1, func() time.Time { return clock })
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a, slow, other := at(testSecret, now), at(testSecret, now.Add(-5*24*time.Hour)), at(testSecret+"!", now)
	if !bytes.Equal(a.cert.Raw, slow.cert.Raw) || bytes.Equal(a.cert.Raw, other.cert.Raw) {
		t.Error("the authority is not what the secret says")
	}
	leaf := func(a *authority) *x509.Certificate {
		own, err := a.own()
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(own.Certificate.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		if err := streams.Verify([]*x509.Certificate{leaf(slow)}, roots, usage, now); err != nil {
			t.Error(err)
		}
		if streams.Verify([]*x509.Certificate{leaf(other)}, roots, usage, now) == nil {
			t.Error("the certificate of another secret is believed")
		}
		if streams.Verify([]*x509.Certificate{leaf(a)}, roots, usage, now.Add(30*24*time.Hour)) == nil {
			t.Error("a certificate is good for ever")
		}
	}
	clock := now
	a.now = func() time.Time { return clock }
	first := leaf(a)
	if !leaf(a).Equal(first) {
		t.Error("a certificate is issued for each link")
	}
	clock = clock.Add(leafAge + time.Hour)
	if leaf(a).Equal(first) {
		t.Error("a certificate is not issued again")
	}
	if strings.Contains(a.issued.String(), "m=") {
		t.Errorf("the age of a certificate follows a clock that stands while the machine sleeps: %v", a.issued)
	}
}

// TestRenewal: files that were changed are used, and files that cannot be used are not.
func TestRenewal(t *testing.T) {
	a := newTestAuthority(t)
	s := a.leaf(t, "node", nil)
	f, err := newFiles(s["certificate"].(string), s["key"].(string), a.roots, 1, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	own := func() []byte {
		own, err := f.own()
		if err != nil {
			t.Fatal(err)
		}
		return own.Certificate.Certificate[0]
	}
	first := own()
	a.leaf(t, "node", nil)
	if !bytes.Equal(own(), first) {
		t.Error("the files are read for each link")
	}
	f.read = time.Time{}
	second := own()
	if bytes.Equal(second, first) {
		t.Error("the files are not read again")
	}
	a.write(t, "node.pem", "CERTIFICATE", []byte("nonsense"))
	f.read = time.Time{}
	if !bytes.Equal(own(), second) {
		t.Error("files that cannot be used replace those that could")
	}
}
