package clients

import (
	"slices"
	"testing"
)

// program is how a driver is started.
type program struct {
	argv []string
	env  []string // NAME=value, beside the environment
}

// client is a client library or tool that has a driver.
type client struct {
	name string
	// install makes sure that all is there that the driver needs.
	install func() (program, error)
	// lacks tells what the client does not have, by its own documentation, and why.
	lacks map[feature]string
}

// feature is something that not every client has.
type feature string

// What clients may lack. The codecs are features by their names.
const (
	headers     feature = "headers"     // sending headers of each record's own
	timestamps  feature = "timestamps"  // setting a record's timestamp
	partitions  feature = "partitions"  // choosing a record's partition
	idempotent  feature = "idempotent"  // the idempotent producer
	cooperative feature = "cooperative" // incremental rebalancing (KIP-429)
	static      feature = "static"      // static members (KIP-345)
	commits     feature = "commits"     // telling of commits: it commits by itself
	admin       feature = "admin"       // any administration
	deletion    feature = "deletion"    // deleting topics
)

// has reports whether the client has something.
func (c *client) has(f feature) bool {
	_, lacking := c.lacks[f]
	return !lacking
}

// clients are all of them.
func clients() []client {
	return slices.Concat(goClients(), javaClients(), pythonClients(), nodeClients())
}

func TestClients(t *testing.T) {
	t.Parallel()
	for _, c := range clients() {
		suite.client(t, c.name, func(t *testing.T) { runClient(t, c) })
	}
}

// runClient puts one client through all cases.
func runClient(t *testing.T, c client) {
	p, err := c.install()
	version := ""
	if err == nil {
		version, err = askVersion(t.Context(), p)
	}
	for _, k := range cases() {
		suite.runCase(t, c.name, version, k.name, func(r *run) {
			if err != nil {
				r.Fatalf("cannot be had: %v", err)
			}
			for _, f := range k.needs {
				if why, lacking := c.lacks[f]; lacking {
					r.none(why)
				}
			}
			k.run(r, &c, p)
		})
	}
}
