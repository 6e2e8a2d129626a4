package transporttcp

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brokerd/brokerd/sdk/transport"
)

func TestSettings(t *testing.T) {
	dir := t.TempDir()
	long := filepath.Join(dir, "secret")
	short := filepath.Join(dir, "short")
	for path, secret := range map[string]string{long: testSecret + "\n", short: "swordfish\n"} {
		if err := os.WriteFile(path, []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const secret = `"secret": "` + testSecret + `"`
	for _, c := range []struct {
		section string
		want    string // of the error; empty: there is none
	}{
		{`{"listen": "127.0.0.1:0", ` + secret + `}`, ""},
		{`{"listen": "127.0.0.1:0", "secret_file": "` + long + `"}`, ""},
		{`{"listen": "0.0.0.0:9190", "advertise": "broker-1", ` + secret + `}`, ""},
		{`{"listen": ":9190", "advertise": "[::1]:9191", ` + secret + `}`, ""},
		{`{"listen": "127.0.0.1:0", "security": "plaintext"}`, ""},
		{``, "listen is missing"},
		{`{"listen": "127.0.0.1:0"}`, "nothing says how peers prove who they are"},
		{`{"listen": "127.0.0.1:0", "sekret": "x"}`, `unknown field "sekret"`},
		{`{"listen": 9190}`, "listen"},
		{`{"listen": "127.0.0.1:0", ` + secret + `} {}`, "something follows"},
		{`{"listen": "127.0.0.1", ` + secret + `}`, "no host and port"},
		{`{"listen": "127.0.0.1:http", ` + secret + `}`, "no host and port"},
		{`{"listen": "127.0.0.1:70000", ` + secret + `}`, "no host and port"},
		{`{"listen": "0.0.0.0:9190", ` + secret + `}`, "advertise is missing"},
		{`{"listen": ":9190", ` + secret + `}`, "advertise is missing"},
		{`{"listen": ":9190", "advertise": "a host", ` + secret + `}`, "advertise is"},
		{`{"listen": "127.0.0.1:0", "secret": "swordfish"}`, "shorter than 32"},
		{`{"listen": "127.0.0.1:0", "secret_file": "` + short + `"}`, "shorter than 32"},
		{`{"listen": "127.0.0.1:0", "secret_file": "/nowhere"}`, "secret_file: open /nowhere"},
		{`{"listen": "127.0.0.1:0", "secret_file": "` + long + `", ` + secret + `}`, "both given"},
		{`{"listen": "127.0.0.1:0", "security": "none"}`, "security is"},
		{`{"listen": "127.0.0.1:0", "security": "secret"}`, "shorter than 32"},
		{`{"listen": "127.0.0.1:0", "security": "plaintext", ` + secret + `}`, "a secret is given"},
		{`{"listen": "127.0.0.1:0", "security": "plaintext", "roots": "x"}`, "certificate, key or roots are given"},
		{`{"listen": "127.0.0.1:0", "certificate": "x"}`, "needs certificate, key and roots"},
		{`{"listen": "127.0.0.1:0", "certificate": "x", "key": "y", "roots": "z"}`, ""},
		{`{"listen": "127.0.0.1:0", "require_node_names": true, ` + secret + `}`, "require_node_names"},
	} {
		_, err := parseSettings([]byte(c.section))
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.section, err)
			}
			continue
		}
		if !errors.Is(err, transport.ErrInvalid) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "swordfish") {
			t.Errorf("%s: got %v, want %q", c.section, err, c.want)
		}
	}
}

func TestEndpoint(t *testing.T) {
	for _, c := range []struct{ listen, advertise, want string }{
		{"127.0.0.1:0", "", "127.0.0.1:4000"},
		{"localhost:9190", "", "localhost:9190"},
		{"0.0.0.0:0", "broker-1", "broker-1:4000"},
		{"0.0.0.0:0", "broker-1:0", "broker-1:4000"},
		{"0.0.0.0:0", "broker-1:7", "broker-1:7"},
		{"[::]:0", "::1", "[::1]:4000"},
		{"[::]:0", "[::1]", "[::1]:4000"},
	} {
		s := settings{Listen: c.listen, Advertise: c.advertise}
		if err := s.checkAddresses(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		if got := s.endpoint("127.0.0.1:4000"); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
}

// TestSettingsAreDescribed: what the plugin says of its settings is what it reads.
func TestSettingsAreDescribed(t *testing.T) {
	for _, s := range describe() {
		_, err := parseSettings([]byte(`{"` + s.Name + `": {}}`))
		if err == nil || strings.Contains(err.Error(), "unknown field") {
			t.Errorf("%s: got %v", s.Name, err)
		}
		if s.Secret != (s.Name == "secret") {
			t.Errorf("%s: that it is secret is said to be %v", s.Name, s.Secret)
		}
	}
}
