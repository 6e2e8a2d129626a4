package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// stages runs the parts of a broker, each in a goroutine of its own, and stops
// them in reverse. It belongs to one goroutine.
type stages struct {
	log     *slog.Logger
	running []*stage
	// ended gets the first part that ends though nobody stopped it; it has room
	// for one, and later ones are not sent.
	ended chan error
	// failed ends with that part, and has why as its cause.
	failed context.Context
	fail   context.CancelCauseFunc
}

type stage struct {
	name    string
	timeout time.Duration
	stop    context.CancelFunc
	done    chan struct{}
	err     error // once done is closed
}

func newStages(log *slog.Logger) *stages {
	s := &stages{log: log, ended: make(chan error, 1)}
	s.failed, s.fail = context.WithCancelCause(context.Background())
	return s
}

// start runs a part. It goes on when ctx ends: only stop stops it, which waits
// at most timeout for it.
func (s *stages) start(ctx context.Context, name string, timeout time.Duration, run func(context.Context) error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	st := &stage{name: name, timeout: timeout, stop: stop, done: make(chan struct{})}
	s.running = append(s.running, st)
	go func() {
		defer close(st.done)
		st.err = run(ctx)
		if ctx.Err() != nil {
			return
		}
		err := fmt.Errorf("%s: %w", name, cmpError(st.err, errEnded))
		s.fail(err)
		select {
		case s.ended <- err:
		default: // the first one tells
		}
	}()
}

// whole is ctx for as long as every part runs: a wait that one of them would have ended
// ends with it. release is to be called once nobody waits.
func (s *stages) whole(ctx context.Context) (whole context.Context, release func()) {
	whole, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.failed, func() { cancel(context.Cause(s.failed)) })
	return whole, func() {
		stop()
		cancel(nil)
	}
}

// errEnded is said of a part that ends without saying why.
var errEnded = errors.New("it ended by itself")

func cmpError(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// stop stops every part, the last started first. A part that does not end in
// its time is left behind, and named in the error. What is part of told is left out.
func (s *stages) stop(told error) error {
	var errs []error
	for i := len(s.running) - 1; i >= 0; i-- {
		st := s.running[i]
		st.stop()
		late := time.NewTimer(st.timeout)
		select {
		case <-st.done:
			late.Stop()
			if st.err != nil && !errors.Is(st.err, context.Canceled) && !errors.Is(told, st.err) {
				errs = append(errs, fmt.Errorf("stop %s: %w", st.name, st.err))
			}
			s.log.Debug("stopped", "part", st.name)
		case <-late.C:
			errs = append(errs, fmt.Errorf("stop %s: it did not end within %s", st.name, st.timeout))
		}
	}
	s.running = nil
	return errors.Join(errs...)
}
