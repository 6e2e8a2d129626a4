package pluginhost

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"regexp"
	"time"

	"github.com/brokerd/brokerd/sdk/plugin"
)

// Config says where plugins are and how long they may take. The zero value of
// each field means its default, which is said beside it.
type Config struct {
	// Dir is the plugin directory; empty: only built-in plugins are found.
	Dir string
	// Checksums pins plugins: the SHA-256, in hexadecimal, of the executable of
	// each name.
	Checksums map[string]string
	// Builtin are the plugins that the broker's own executable serves: by name,
	// the arguments that make it do so.
	Builtin map[string][]string
	// Env names what plugins may see of the broker's environment beside
	// plugin.DefaultEnv. A name that ends in * is a prefix.
	Env []string
	// Carriers are the most that is used of what a plugin offers, by store: what
	// plugin.CarrierNamed knows. Default: all.
	Carriers map[string]string
	// TransportCarrier is the most that is used of what the transport's plugin offers: files,
	// which is to have its connections passed, socket or grpc. Default: all.
	TransportCarrier string
	// SocketDir is where sockets' directories are made. Default: the system's
	// directory for temporary files.
	SocketDir string

	StartTimeout     time.Duration // from launch to handshake; 10s
	ConfigureTimeout time.Duration // for opening the store; 1m
	CallTimeout      time.Duration // of calls whose context has no deadline; 10s
	DrainTimeout     time.Duration // for a graceful end; 10s

	BackoffMin      time.Duration // before the first restart; 50ms
	BackoffMax      time.Duration // the most between restarts; 5s
	HealthyAfter    time.Duration // having served so long, the backoff begins anew; 1s
	QuarantineAfter int           // failures in a row without serving; 5
	QuarantineRetry time.Duration // between attempts in quarantine; 30s

	HealthInterval time.Duration // between health checks; 1s
	HealthTimeout  time.Duration // to the answer of one; 3s
}

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	c.StartTimeout = cmp.Or(c.StartTimeout, 10*time.Second)
	c.ConfigureTimeout = cmp.Or(c.ConfigureTimeout, time.Minute)
	c.CallTimeout = cmp.Or(c.CallTimeout, 10*time.Second)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 10*time.Second)
	c.BackoffMin = cmp.Or(c.BackoffMin, 50*time.Millisecond)
	c.BackoffMax = cmp.Or(c.BackoffMax, max(5*time.Second, c.BackoffMin))
	c.HealthyAfter = cmp.Or(c.HealthyAfter, time.Second)
	c.QuarantineAfter = cmp.Or(c.QuarantineAfter, 5)
	c.QuarantineRetry = cmp.Or(c.QuarantineRetry, 30*time.Second)
	c.HealthInterval = cmp.Or(c.HealthInterval, time.Second)
	c.HealthTimeout = cmp.Or(c.HealthTimeout, 3*time.Second)
	return c
}

// pluginName is what a plugin may be called; it is also a file's name.
var pluginName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)

// Validate checks what can be checked without looking at files.
func (c Config) Validate() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"start timeout", c.StartTimeout}, {"configure timeout", c.ConfigureTimeout},
		{"call timeout", c.CallTimeout}, {"drain timeout", c.DrainTimeout},
		{"least backoff", c.BackoffMin}, {"greatest backoff", c.BackoffMax},
		{"healthy-after time", c.HealthyAfter}, {"quarantine's retry time", c.QuarantineRetry},
		{"health interval", c.HealthInterval}, {"health timeout", c.HealthTimeout},
	} {
		if d.value < 0 {
			return fmt.Errorf("plugins: the %s is negative: %v", d.name, d.value)
		}
	}
	if c.QuarantineAfter < 0 {
		return fmt.Errorf("plugins: the number of failures before quarantine is negative: %d", c.QuarantineAfter)
	}
	if full := c.withDefaults(); full.BackoffMax < full.BackoffMin {
		return fmt.Errorf("plugins: the greatest backoff %v is below the least, %v", full.BackoffMax, full.BackoffMin)
	}
	for name, sum := range c.Checksums {
		if err := checkName(name); err != nil {
			return err
		}
		if b, err := hex.DecodeString(sum); err != nil || len(b) != 32 {
			return fmt.Errorf("plugins: the checksum of %s is not a SHA-256 in hexadecimal: %q", name, sum)
		}
	}
	for store, name := range c.Carriers {
		if _, known := plugin.CarrierNamed(name); !known {
			return fmt.Errorf("plugins: store %s: there is no carrier %q", store, name)
		}
	}
	if _, known := plugin.CarrierNamed(c.TransportCarrier); !known {
		return fmt.Errorf("plugins: transport: there is no carrier %q", c.TransportCarrier)
	}
	for name := range c.Builtin {
		if err := checkName(name); err != nil {
			return err
		}
	}
	return nil
}

func checkName(name string) error {
	if !pluginName.MatchString(name) {
		return fmt.Errorf("plugins: %q cannot be the name of a plugin: use a-z, 0-9 and -", name)
	}
	return nil
}
