package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/brokerd/brokerd/core/admin"
	"github.com/brokerd/brokerd/core/broker"
	"github.com/brokerd/brokerd/core/config"
	"github.com/brokerd/brokerd/core/pluginhost"
	"github.com/brokerd/brokerd/core/telemetry"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/transport"
)

// override sets a value over file and environment.
func (o *runOptions) override(flag, name, value string) {
	o.overrides = append(o.overrides, config.Override{Flag: flag, Name: name, Value: value})
}

// runBroker runs a broker until ctx ends.
func runBroker(ctx context.Context, c *console, opts runOptions) error {
	loaded, err := opts.load(os.Environ())
	if err != nil {
		return err
	}
	log, err := telemetry.NewLogger(c.err, loaded.Log.Level, loaded.Log.Format)
	if err != nil {
		return &configError{err}
	}
	for _, w := range loaded.Warnings {
		log.Warn(w)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(heapLimit(loaded.Memory))
	}
	if err := checkData(loaded); err != nil {
		return startError(&configError{fmt.Errorf("data: %w", err)})
	}
	b, err := broker.New(loaded, broker.Deps{Logger: log, Version: version(), Builtin: builtinArguments()})
	if err != nil {
		return err
	}
	run, ctx := errgroup.WithContext(ctx)
	ran := make(chan struct{})
	small, end := context.WithCancel(ctx)
	run.Go(func() error {
		defer close(ran)
		defer end()
		return startError(b.Run(ctx))
	})
	run.Go(func() error {
		keepSmall(small, waste(loaded.Memory))
		return nil
	})
	run.Go(func() error {
		select {
		case <-b.Ready():
		case <-ran:
			return nil
		}
		if opts.ready != nil {
			return opts.ready(b, loaded)
		}
		return nil
	})
	return run.Wait()
}

// startError adds what to do to errors that people meet when they start.
func startError(err error) error {
	switch {
	case errors.Is(err, pluginhost.ErrNotFound), errors.Is(err, storage.ErrInvalid): // a store's plugin, or its settings
		return &configError{err}
	case errors.Is(err, broker.ErrTransport) && errors.Is(err, transport.ErrInvalid):
		return &configError{err}
	case errors.Is(err, broker.ErrTransport) && errors.Is(err, transport.ErrRetry):
		return fmt.Errorf("%w: where another program has that port, maybe another brokerd, stop it, or choose a port in `transport.config`", err)
	case errors.Is(err, syscall.EADDRINUSE) && errors.Is(err, admin.ErrListen):
		return fmt.Errorf("%w: another program has that port, maybe another brokerd; stop it, or choose a port with --admin-port (dev) or `admin.listen`", err)
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w: another program has that port, maybe another brokerd; stop it, or choose a port with --port (dev) or `listeners`", err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: the file system is mounted read-only, and a broker writes; mount it for writing, or choose a directory on another with --data (dev) or `data`", err)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%w: this user may not; choose another directory or port", err)
	}
	return err
}
