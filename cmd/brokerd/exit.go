package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/brokerd/brokerd/cmd/brokerd/internal/processes"
	"github.com/brokerd/brokerd/core/broker"
	"github.com/brokerd/brokerd/core/quorum"
	"github.com/brokerd/brokerd/sdk/transport"
)

// The exit codes, for scripts.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitUnreachable = 4
	exitRefused     = 5
	exitInUse       = 6
	exitInterrupted = 130
)

const exitCodesText = `The exit code says what kind of end a command came to:

  0    it did what it was asked
  1    it failed for a reason that is none of those below
  2    the command line or the configuration is wrong; nothing was done (a broker:
       also a node.id that is not the data directory's, or no cluster to join
       where cluster.bootstrap is false)
  3    what was named does not exist (a topic, a partition, a group, a file)
  4    no broker could be reached
  5    the cluster was reached and refused (it exists already, is not allowed,
       or is not valid)
  6    a broker did not start, because another program has its data directory or
       one of its ports
  130  it was interrupted before its end

"brokerd doctor" has its own: 0 nothing was found, 1 something was, 2 it could not
ask.`

func newExitCodes() *cobra.Command {
	return &cobra.Command{
		Use:     "exit-codes",
		Short:   "What the exit codes mean",
		Long:    exitCodesText,
		Example: "  brokerd help exit-codes",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}

// usageError is a mistake in what was typed.
type usageError struct{ msg string }

func (e *usageError) Error() string { return e.msg }

func usagef(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...) + fmt.Sprintf(" (%s --help tells more)", cmd.CommandPath())}
}

// configError is a configuration that cannot be used.
type configError struct{ err error }

func (e *configError) Error() string { return e.err.Error() }
func (e *configError) Unwrap() error { return e.err }

// unreachableError is a cluster that does not answer.
type unreachableError struct {
	address string
	err     error
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf("no broker answers at %s (%s): start one with `brokerd dev`, or name another with -b host:port", e.address, e.err)
}
func (e *unreachableError) Unwrap() error { return e.err }

// notFoundError is something that was named and is not there.
type notFoundError struct{ msg string }

func (e *notFoundError) Error() string { return e.msg }

func exitCode(err error) int {
	var (
		usage       *usageError
		config      *configError
		unreachable *unreachableError
		notFound    *notFoundError
		kafka       *kerr.Error
		network     *net.OpError
		ended       *processes.EndedError
	)
	var code *codeError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return code.code
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &unreachable), errors.As(err, &network) && network.Op == "dial": // it was there before
		return exitUnreachable
	case errors.Is(err, fs.ErrNotExist), errors.As(err, &notFound),
		errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.GroupIDNotFound):
		return exitNotFound
	case errors.As(err, &config):
		return exitUsage
	case errors.Is(err, quorum.ErrForeign), errors.Is(err, quorum.ErrNoCluster):
		return exitUsage
	case errors.Is(err, broker.ErrLocked), errors.Is(err, quorum.ErrInUse), errors.Is(err, syscall.EADDRINUSE),
		errors.Is(err, broker.ErrTransport) && errors.Is(err, transport.ErrRetry):
		return exitInUse
	case errors.As(err, &ended) && ended.Code > 0:
		return ended.Code
	case errors.As(err, &kafka):
		return exitRefused
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	}
	return exitFailed
}

// explain is the sentence for a person.
func explain(err error) string {
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	return err.Error()
}
