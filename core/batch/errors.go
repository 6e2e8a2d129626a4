package batch

import (
	"errors"
	"fmt"

	"github.com/brokerd/brokerd/core/model"
)

// maxRecordErrors bounds how many records of one batch are named in an error.
// The batch is refused as a whole, so that the first ones suffice.
const maxRecordErrors = 100

// RecordError says why one record is refused. (KIP-467)
type RecordError struct {
	Index   int32 // the record's place in its batch, from 0
	Message string
}

// RecordsError refuses a batch because of some of its records. It wraps
// model.ErrInvalidTimestamp if a timestamp is among the reasons, as in Kafka,
// and model.ErrInvalidRecord otherwise. At most the first 100 records are named.
type RecordsError struct {
	Records []RecordError
	Message string

	reason error
}

// Error is the message for the whole batch.
func (e *RecordsError) Error() string { return e.Message }

// Unwrap gives the sentinel.
func (e *RecordsError) Unwrap() error { return e.reason }

// add notes a record, unless enough are noted. It allocates only for refusals.
func (e *RecordsError) add(index int32, reason error, format string, args ...any) *RecordsError {
	if e == nil {
		e = &RecordsError{reason: reason}
	}
	if errors.Is(reason, model.ErrInvalidTimestamp) {
		e.reason = reason
	}
	if len(e.Records) < maxRecordErrors {
		e.Records = append(e.Records, RecordError{Index: index, Message: fmt.Sprintf(format, args...)})
	}
	return e
}

// result makes the error's message, and an error that is nil when e is.
func (e *RecordsError) result() error {
	if e == nil {
		return nil
	}
	first := e.Records[0]
	e.Message = fmt.Sprintf("%v: record %d: %s", e.reason, first.Index, first.Message)
	if n := len(e.Records) - 1; n > 0 {
		e.Message += fmt.Sprintf(" (and %d more records)", n)
	}
	return e
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", model.ErrInvalidRecord, fmt.Sprintf(format, args...))
}
