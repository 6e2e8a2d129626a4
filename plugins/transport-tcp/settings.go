package transporttcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/brokerd/brokerd/sdk/transport"
)

// settings is the plugin's section of the configuration.
type settings struct {
	Listen           string `json:"listen"`
	Advertise        string `json:"advertise"`
	Security         string `json:"security"`
	Secret           string `json:"secret"`
	SecretFile       string `json:"secret_file"`
	Certificate      string `json:"certificate"`
	Key              string `json:"key"`
	Roots            string `json:"roots"`
	RequireNodeNames bool   `json:"require_node_names"`
}

// The ways of security.
const (
	securitySecret    = "secret"
	securityTLS       = "tls"
	securityPlaintext = "plaintext"
)

// secretBytesLeast is the shortest secret: who connects can check guesses of it.
const secretBytesLeast = 32

// describe is what the plugin says of its settings.
func describe() []transport.Setting {
	return []transport.Setting{
		{Name: "listen", About: "the address and port on which peers are listened to; port 0 is a free one. Required"},
		{Name: "advertise", About: "the host, or host and port, at which peers dial this node", Default: "listen"},
		{Name: "security", About: "secret, tls or plaintext", Default: "what secret or certificate say"},
		{Name: "secret", About: "the secret that all nodes share, of 32 characters at least", Secret: true},
		{Name: "secret_file", About: "a file with the secret"},
		{Name: "certificate", About: "a PEM file with this node's certificate, and those between it and its authority"},
		{Name: "key", About: "a PEM file with the certificate's private key"},
		{Name: "roots", About: "a PEM file with the authorities whose certificates are believed"},
		{Name: "require_node_names", About: "with tls: peers need a certificate that names their node, as brokerd://node/3 does", Default: "false"},
	}
}

func wrong(format string, args ...any) error {
	return transport.Errorf(transport.ErrInvalid, "settings of transport-tcp: "+format, args...)
}

// parseSettings reads the section strictly. It returns the secret in Secret, also where a
// file has it.
func parseSettings(data []byte) (settings, error) {
	var s settings
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil && !errors.Is(err, io.EOF) {
		return s, wrong("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return s, wrong("something follows the section")
	}
	if err := s.checkAddresses(); err != nil {
		return s, err
	}
	return s, s.checkSecurity()
}

// checkAddresses checks what can be said of them before there is a listener.
func (s *settings) checkAddresses() error {
	if s.Listen == "" {
		return wrong("listen is missing; name the address and port for peers, such as 10.0.0.1:9190")
	}
	host, _, err := splitEndpoint(s.Listen)
	if err != nil {
		return wrong("listen: %v", err)
	}
	if s.Advertise == "" {
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			return wrong("advertise is missing; listen is %s, and peers need the name of a host", s.Listen)
		}
		return nil
	}
	if host, _, err = splitEndpoint(s.Advertise); err != nil {
		host, _, err = splitEndpoint(net.JoinHostPort(strings.Trim(s.Advertise, "[]"), "0"))
	}
	if err != nil || host == "" {
		return wrong("advertise is %q; write a host, or a host and a port, such as broker-1:9190", s.Advertise)
	}
	return nil
}

// splitEndpoint splits host:port strictly.
func splitEndpoint(endpoint string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(endpoint)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || strings.ContainsAny(host, " /\t\r\n") {
		return "", "", transport.Errorf(transport.ErrInvalid, "%q is no host and port, such as broker-1:9190", endpoint)
	}
	return host, port, nil
}

// endpoint is where peers dial this node, which listens at an address.
func (s *settings) endpoint(bound string) string {
	_, port, _ := net.SplitHostPort(bound) // the system has made it
	advertise := s.Advertise
	if advertise == "" {
		advertise = s.Listen
	}
	host, given, err := splitEndpoint(advertise)
	if err != nil {
		host, given = strings.Trim(advertise, "[]"), "0"
	}
	if n, _ := strconv.Atoi(given); n == 0 {
		given = port
	}
	return net.JoinHostPort(host, given)
}

// listenAgain has the port that was chosen before chosen again, of which endpoint tells,
// where the settings leave it open.
func (s *settings) listenAgain(endpoint string) {
	host, port, err := splitEndpoint(s.Listen)
	_, before, failed := splitEndpoint(endpoint)
	_, advertised, _ := splitEndpoint(s.Advertise) // it may be a host alone, or nothing
	if n, _ := strconv.Atoi(port); err != nil || failed != nil || n != 0 {
		return
	}
	if n, _ := strconv.Atoi(advertised); n == 0 {
		s.Listen = net.JoinHostPort(host, before)
	}
}

// checkSecurity decides the security, and checks that nothing is given in vain.
func (s *settings) checkSecurity() error {
	secret := s.Secret != "" || s.SecretFile != ""
	files := s.Certificate != "" || s.Key != "" || s.Roots != ""
	if s.Security == "" {
		switch {
		case secret:
			s.Security = securitySecret
		case files:
			s.Security = securityTLS
		default:
			return wrong("nothing says how peers prove who they are; set secret (openssl rand -base64 32 makes one), or certificate, key and roots")
		}
	}
	switch {
	case s.Security != securitySecret && s.Security != securityTLS && s.Security != securityPlaintext:
		return wrong("security is %q; it can be secret, tls or plaintext", s.Security)
	case secret && s.Security != securitySecret:
		return wrong("a secret is given, and security is %s; take one of them out", s.Security)
	case files && s.Security != securityTLS:
		return wrong("certificate, key or roots are given, and security is %s; take one of them out", s.Security)
	case s.RequireNodeNames && s.Security != securityTLS:
		return wrong("require_node_names needs security: tls")
	case s.Security == securityTLS && (s.Certificate == "" || s.Key == "" || s.Roots == ""):
		return wrong("security tls needs certificate, key and roots")
	case s.Security == securitySecret:
		return s.readSecret()
	}
	return nil
}

func (s *settings) readSecret() error {
	if s.Secret != "" && s.SecretFile != "" {
		return wrong("secret and secret_file are both given; take one of them out")
	}
	if s.SecretFile != "" {
		b, err := os.ReadFile(s.SecretFile)
		if err != nil {
			return wrong("secret_file: %v", err)
		}
		s.Secret = strings.TrimSpace(string(b))
	}
	if len(s.Secret) < secretBytesLeast {
		return wrong("the secret is shorter than %d characters; make one with openssl rand -base64 32", secretBytesLeast)
	}
	return nil
}
