package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	bootstrapDefault     = "127.0.0.1:9092"
	bootstrapEnvironment = "BROKERD_BOOTSTRAP_SERVER"
	dialTimeout          = 5 * time.Second
	reachTimeout         = 10 * time.Second
	portDefault          = "9092"
)

// cluster is where -b points.
type cluster struct{ bootstrap string }

// flag adds -b to a command that asks a cluster.
func (c *cluster) flag(cmd *cobra.Command) {
	def := bootstrapDefault
	if env := os.Getenv(bootstrapEnvironment); env != "" {
		def = env
	}
	cmd.Flags().StringVarP(&c.bootstrap, "bootstrap-server", "b", def, "brokers to ask first, host:port with commas between; or "+bootstrapEnvironment)
}

// connect returns a client of a cluster that has answered. The caller closes it.
func (c *cluster) connect(ctx context.Context, opts ...kgo.Opt) (*kgo.Client, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	opts = append([]kgo.Opt{
		kgo.SeedBrokers(c.seeds()...),
		kgo.ClientID("brokerd"),
		kgo.SoftwareNameAndVersion("brokerd", version()),
		kgo.DialTimeout(dialTimeout),
		kgo.MetadataMinAge(100 * time.Millisecond),
	}, opts...)
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	reach, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	if err := client.Ping(reach); err != nil {
		client.Close()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, &unreachableError{c.bootstrap, rootCause(err)}
	}
	return client, nil
}

// check says what is wrong with the addresses, before any is dialled.
func (c *cluster) check() error {
	seeds := c.seeds()
	if len(seeds) == 0 {
		return &usageError{"-b names no broker; write host:port"}
	}
	for _, s := range seeds {
		host, port, err := net.SplitHostPort(s)
		if err != nil || host == "" {
			return &usageError{fmt.Sprintf("-b %s is not host:port", s)}
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return &usageError{fmt.Sprintf("-b %s: the port %q is not a number from 1 to 65535", s, port)}
		}
	}
	return nil
}

func (c *cluster) seeds() []string {
	var out []string
	for s := range strings.SplitSeq(c.bootstrap, ",") {
		s = strings.TrimSpace(s)
		if s == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(s); err != nil {
			s = net.JoinHostPort(strings.Trim(s, "[]"), portDefault)
		}
		out = append(out, s)
	}
	return out
}

// rootCause is the part of a network error that means something to a person.
func rootCause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		var call *os.SyscallError
		if errors.As(op.Err, &call) {
			return call.Err
		}
		return op.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", reachTimeout)
	}
	return err
}
