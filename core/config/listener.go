package config

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Listener is a name and an address: NAME://host:port in the configuration.
type Listener struct {
	Name string
	Host string // empty or a wildcard: every interface
	Port int    // 0: one that is free
}

// String is the form in which the configuration has it.
func (l Listener) String() string { return l.Name + "://" + l.Address() }

// Address is host:port, for net.Listen.
func (l Listener) Address() string { return net.JoinHostPort(l.Host, strconv.Itoa(l.Port)) }

// Wildcard reports whether the host means every interface, which nobody can
// dial.
func (l Listener) Wildcard() bool {
	if l.Host == "" {
		return true
	}
	ip, err := netip.ParseAddr(l.Host)
	return err == nil && ip.IsUnspecified()
}

// Loopback reports whether the host is this machine only.
func (l Listener) Loopback() bool {
	if strings.EqualFold(l.Host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(l.Host)
	return err == nil && ip.IsLoopback()
}

// parseListener reads NAME://host:port.
func parseListener(s string) (Listener, error) {
	name, address, ok := strings.Cut(strings.TrimSpace(s), "://")
	if !ok || name == "" {
		return Listener{}, fmt.Errorf("%q is not a listener; write it as PLAINTEXT://host:port", s)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return Listener{}, fmt.Errorf("%q has no host:port after the name; write it as %s://host:9092", s, name)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return Listener{}, fmt.Errorf("%q has the port %q; a port is a number from 0 to 65535", s, port)
	}
	return Listener{Name: strings.ToUpper(name), Host: host, Port: int(n)}, nil
}

// Advertise returns what clients are told of a listener that is bound to port.
// A listener that is advertised by hand says that; one bound to a host says its
// host; one bound to every interface says the machine's name, as Kafka's does.
// hostname is the machine's own.
func (c Config) Advertise(l Listener, port int, hostname string) Listener {
	out := l
	for _, a := range c.Advertised {
		if a.Name == l.Name {
			out = a
		}
	}
	if out.Port == 0 {
		out.Port = port
	}
	if out.Wildcard() {
		out.Host = hostname
	}
	return out
}

// ReachWarnings tells what clients on other machines will stumble over.
func (c Config) ReachWarnings(hostname string) []string {
	var out []string
	for _, l := range c.Listeners {
		a := c.Advertise(l, l.Port, hostname)
		switch {
		case l.Loopback():
		case a.Loopback():
			out = append(out, fmt.Sprintf("listener %s accepts connections from other machines but tells clients to come to %s, which is their own machine: set advertised.listeners to a name or address that clients can reach", l, a.Address()))
		case l.Wildcard() && a.Host == hostname && !strings.Contains(hostname, "."):
			out = append(out, fmt.Sprintf("listener %s tells clients to come to %s, the name of this machine: clients that cannot resolve it can fetch metadata and nothing else; set advertised.listeners if that is so", l, a.Address()))
		}
	}
	return out
}
