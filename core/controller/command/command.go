package command

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/model"
)

const (
	// Version is the first byte of what is written, and the only one that is read.
	Version = 1
	// BytesMax is the longest encoding that is written or read.
	BytesMax = 4 << 20
	// depthMax is how deep the objects and lists of an encoding may be nested.
	depthMax = 16
	// textBytesMax is how much of an error's sentence crosses.
	textBytesMax = 4 << 10
)

// ErrMalformed: the bytes are no encoding of an answer that can be read here. Whether the
// command was done is not known.
var ErrMalformed = errors.New("malformed answer of a controller")

// ops is every operation that can cross, by its zero value.
var ops = []controller.Op{
	controller.CreateTopics{},
	controller.DeleteTopics{},
	controller.CreatePartitions{},
	controller.AlterConfigs{},
	controller.AllocateProducerIDs{},
	controller.RegisterBroker{},
	controller.Heartbeat{},
	controller.AlterISR{},
	controller.ElectLeaders{},
	controller.AlterReassignments{},
	controller.ReportLogs{},
	controller.FenceBroker{},
	controller.UnregisterBroker{},
	controller.ConfirmRemoval{},
}

// EncodeOp writes an operation. ErrInvalidRequest: it is longer than BytesMax, or has text
// that is not UTF-8.
func EncodeOp(op controller.Op) ([]byte, error) {
	name := opName(op)
	w := writer{out: append([]byte{Version}, '{')}
	w.text(name)
	w.out = append(w.out, ':')
	w.value(reflect.ValueOf(op))
	w.out = append(w.out, '}')
	if err := w.err(); err != nil {
		return nil, fmt.Errorf("encode the command %s: %w: %w", name, err, model.ErrInvalidRequest)
	}
	return w.out, nil
}

// DecodeOp reads what EncodeOp writes. ErrUnsupportedVersion: its version, operation or one
// of its fields is not known here. ErrInvalidRequest: it is no operation.
func DecodeOp(data []byte) (controller.Op, error) {
	r, err := newReader(data)
	if err != nil {
		return nil, fmt.Errorf("decode a command: %w: %w", err, sentinelOf(err))
	}
	r.strict = true
	var op controller.Op
	r.object(func(name string) {
		t := opType(name)
		switch {
		case op != nil:
			r.fail(errors.New("there are two operations"))
			return
		case t == nil:
			r.fail(fmt.Errorf("the operation %.40q %w", name, errUnknown))
			return
		}
		v := reflect.New(t).Elem()
		r.value(v)
		op, _ = v.Interface().(controller.Op)
	})
	r.end()
	if r.err == nil && op == nil {
		r.fail(errors.New("there is no operation"))
	}
	if r.err != nil {
		return nil, fmt.Errorf("decode a command: %w: %w", r.err, sentinelOf(r.err))
	}
	return op, nil
}

// sentinelOf is what a command is answered with that cannot be read.
func sentinelOf(err error) error {
	if errors.Is(err, errUnknown) {
		return model.ErrUnsupportedVersion
	}
	return model.ErrInvalidRequest
}

// EncodeAnswer writes an answer. One that cannot be written, since it is longer than
// BytesMax, is an answer that says so.
func EncodeAnswer(a controller.Answer) []byte {
	w := writer{out: []byte{Version}}
	w.value(reflect.ValueOf(a))
	err := w.err()
	if err == nil {
		return w.out
	}
	w = writer{out: []byte{Version}}
	w.value(reflect.ValueOf(controller.Answer{
		Err: fmt.Errorf("the command was decided, and its answer cannot be sent: %w: %w", err, model.ErrRequestTimedOut),
	}))
	return w.out
}

// DecodeAnswer reads what EncodeAnswer writes. ErrMalformed: it is no answer, or of another
// version.
func DecodeAnswer(data []byte) (controller.Answer, error) {
	r, err := newReader(data)
	if err != nil {
		return controller.Answer{}, fmt.Errorf("decode an answer: %w: %w", err, ErrMalformed)
	}
	var a controller.Answer
	r.next()
	r.fill(reflect.ValueOf(&a).Elem())
	r.end()
	if r.err != nil {
		return controller.Answer{}, fmt.Errorf("decode an answer: %w: %w", r.err, ErrMalformed)
	}
	return a, nil
}

func opName(op controller.Op) string { return reflect.TypeOf(op).Name() }

// opType is nil where no operation has the name.
func opType(name string) reflect.Type {
	for _, op := range ops {
		if opName(op) == name {
			return reflect.TypeOf(op)
		}
	}
	return nil
}

// wireError is an error as it crosses.
type wireError struct {
	Text string
	Is   []string
}

// toWire is what crosses of an error.
func toWire(err error) wireError {
	e := wireError{Text: clip(err.Error())}
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			e.Is = append(e.Is, s.name)
		}
	}
	return e
}

// remote is an error that came from another node.
type remote struct {
	text string
	is   []error
}

// Error returns what it says.
func (e *remote) Error() string { return e.text }

// Unwrap returns the sentinels that it wraps.
func (e *remote) Unwrap() []error { return e.is }

// fromWire makes the error again. Sentinels that are not known here are left away.
func fromWire(e wireError) error {
	r := &remote{text: e.Text}
	for _, s := range sentinels {
		for _, name := range e.Is {
			if name == s.name {
				r.is = append(r.is, s.err)
				break
			}
		}
	}
	return r
}
