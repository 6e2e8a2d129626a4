package storage

import (
	"errors"
	"fmt"
)

// The classes of error. Test for them with errors.Is; make them with
// Errorf, or wrap one with %w.
var (
	// ErrRetry: nothing was done and the same call may succeed later (the store
	// is starting, busy, or its network is away).
	ErrRetry = errors.New("retry")
	// ErrFenced: the handle was superseded by a later Open, the leader epoch is
	// lower than one the log has seen, or the store belongs to somebody else.
	// Nothing was done. Retrying is useless.
	ErrFenced = errors.New("fenced")
	// ErrCorrupt: stored bytes that had been acknowledged are damaged. Nothing
	// was cut; the store never repairs this by forgetting records.
	ErrCorrupt = errors.New("corrupt")
	// ErrFull: there is no room. Nothing was done. Reads, trims, retention and
	// deletes still work, and free room.
	ErrFull = errors.New("full")
	// ErrGone: the log, or the device below it, cannot be used through this
	// handle any more (an I/O error, a closed or deleted log, a store that
	// died). Appends in flight have an unknown outcome. Opening again may help.
	ErrGone = errors.New("gone")
	// ErrInvalid: the caller broke the contract (an offset out of range, a base
	// offset that is not the LEO, a batch whose bytes are not a batch). Nothing
	// was done.
	ErrInvalid = errors.New("invalid")
	// ErrUnknown: the call may have taken effect, now or later. Whoever gets it
	// from an append opens the log again, which settles the outcome, before it
	// gives the offsets to other bytes.
	ErrUnknown = errors.New("unknown outcome")
)

// classes is every error class, in the order in which Class looks for them.
var classes = []error{ErrRetry, ErrFenced, ErrCorrupt, ErrFull, ErrGone, ErrInvalid, ErrUnknown}

// Error is an error of a store: a class, and a sentence for a person.
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

// Class returns the class of err: nil for nil, and ErrGone for an error that
// carries none, since nothing is known of what it did.
func Class(err error) error {
	if err == nil {
		return nil
	}
	for _, c := range classes {
		if errors.Is(err, c) {
			return c
		}
	}
	return ErrGone
}
