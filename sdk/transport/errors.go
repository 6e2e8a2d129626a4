package transport

import (
	"errors"
	"fmt"
)

// The classes of error. Test for them with errors.Is; make them with Errorf, or wrap one
// with %w.
var (
	// ErrRetry: the peer was not reached (its network is away, its host does not answer, it
	// is starting or has too many links). The same call may succeed later.
	ErrRetry = errors.New("retry")
	// ErrRefused: the endpoint's host has answered that nobody listens there, which is
	// evidence that the node's process is gone. Only transports that can tell (see
	// Capabilities.Refuses) give it, and never because they themselves are busy.
	ErrRefused = errors.New("refused")
	// ErrDenied: one of both has not proved to belong to the cluster, as the
	// configuration of the other demands. Retrying is useless until somebody changes one.
	ErrDenied = errors.New("denied")
	// ErrOther: who answers at the endpoint is not the node that was dialled. Retrying is
	// useless until the node is found elsewhere.
	ErrOther = errors.New("another node")
	// ErrClosed: the link, or the transport, has ended.
	ErrClosed = errors.New("closed")
	// ErrInvalid: the caller broke the contract (an endpoint that is none, a message that is
	// too large). Nothing was done.
	ErrInvalid = errors.New("invalid")
)

// classes is every error class, in the order in which Class looks for them.
var classes = []error{ErrRetry, ErrRefused, ErrDenied, ErrOther, ErrClosed, ErrInvalid}

// Error is an error of a transport: a class, and a sentence for a person.
type Error struct {
	Class   error // one of the Err values above
	Message string
}

// Error returns the message, led by its class.
func (e *Error) Error() string { return e.Class.Error() + ": " + e.Message }

// Unwrap returns the class, so that errors.Is finds it.
func (e *Error) Unwrap() error { return e.Class }

// Errorf makes an error of the given class.
func Errorf(class error, format string, args ...any) error {
	return &Error{Class: class, Message: fmt.Sprintf(format, args...)}
}

// Class returns the class of err: nil for nil, and ErrRetry for an error that carries
// none, since what is not known to be for good may be tried again.
func Class(err error) error {
	if err == nil {
		return nil
	}
	for _, c := range classes {
		if errors.Is(err, c) {
			return c
		}
	}
	return ErrRetry
}
