package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/storage"
)

// errChanged is a store that came back as another.
var errChanged = errors.New("the plugin came back with another store")

// supervise keeps the plugin running until ctx ends or the store is shut down.
func (s *Store) supervise(ctx context.Context) {
	defer s.end()
	cfg := s.host.cfg
	backoff := cfg.BackoffMin
	failures := 0 // in a row, without serving
	for ctx.Err() == nil {
		l, err := s.launch(ctx)
		began := time.Now()
		if err == nil {
			failures = 0
			err = s.serve(ctx, l)
		} else {
			failures++
		}
		if err == nil {
			return
		}
		if failures == 0 && time.Since(began) >= cfg.HealthyAfter {
			backoff = cfg.BackoffMin
		}
		wait := backoff
		if failures >= cfg.QuarantineAfter {
			wait = cfg.QuarantineRetry
		}
		s.report(ctx, l, err, failures, wait)
		backoff = min(2*backoff, cfg.BackoffMax)
		select {
		case <-ctx.Done():
		case <-s.shutting:
			return
		case <-time.After(wait):
		}
	}
}

// launch starts a process and opens the store in it.
func (s *Store) launch(ctx context.Context) (*life, error) {
	cfg, err := s.host.find(s.plugin)
	if err != nil {
		return nil, err
	}
	cfg.Carrier, _ = plugin.CarrierNamed(s.host.cfg.Carriers[s.name]) // all of them are known, see Validate
	cfg.Counters = &s.counters
	process, err := plugin.Launch(ctx, cfg)
	if err != nil {
		return nil, err
	}
	openCtx, cancel := context.WithTimeout(ctx, s.host.cfg.ConfigureTimeout)
	defer cancel()
	store, dir, err := process.Store(openCtx, s.cfg)
	if err != nil {
		process.Kill()
		return nil, fmt.Errorf("open store %s with plugin %s: %w", s.name, s.plugin, err)
	}
	l := &life{process: process, store: store}
	if err := s.begin(l, dir); err != nil {
		process.Kill()
		store.Abandon()
		return nil, fmt.Errorf("open store %s with plugin %s: %w", s.name, s.plugin, err)
	}
	s.host.logger.Info("plugin serves", "plugin", s.plugin, "store", s.name, "pid", process.Pid())
	s.host.events(Event{Kind: Started, Store: s.name, Plugin: s.plugin, Pid: process.Pid(), Restarts: s.Restarts()})
	return l, nil
}

// serve watches a process until it has ended. Nil means that it was not needed
// any more.
func (s *Store) serve(ctx context.Context, l *life) error {
	err := s.watch(ctx, l)
	if err == nil {
		drainCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.host.cfg.DrainTimeout)
		defer cancel()
		if drainErr := l.process.Drain(drainCtx); drainErr != nil && !errors.Is(drainErr, storage.ErrGone) {
			s.host.logger.Warn("plugin was killed, it did not end in time", "plugin", s.plugin, "err", drainErr)
		}
	}
	s.down()
	l.process.Kill()
	l.store.Abandon() // from here on nobody writes what the process lent: the next may be started
	return err
}

// watch returns when the process has to be replaced, saying why, or is not
// needed any more.
func (s *Store) watch(ctx context.Context, l *life) error {
	health := time.NewTicker(s.host.cfg.HealthInterval)
	defer health.Stop()
	degraded := "" // as it was last told
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.shutting:
			return nil
		case <-l.process.Done():
			return fmt.Errorf("it ended: %s", l.process.Exit())
		case <-l.store.Lost():
			select { // the connection breaks a moment before the process is reaped
			case <-l.process.Done():
				return fmt.Errorf("it ended: %s", l.process.Exit())
			case <-s.shutting:
				return nil
			case <-time.After(s.host.cfg.BackoffMin):
				return errors.New("it closed its connection")
			}
		case <-health.C:
			now, err := s.checkHealth(ctx, l)
			if err != nil {
				return err
			}
			if now != degraded {
				degraded = now
				s.host.logger.Warn("plugin's health changed", "plugin", s.plugin, "store", s.name, "degraded", degraded)
			}
		}
	}
}

// checkHealth asks the plugin for a sign of life. An answer to any call over the
// data lane meanwhile is one, so that a busy plugin is not killed.
func (s *Store) checkHealth(ctx context.Context, l *life) (degraded string, err error) {
	answers := l.store.Answers()
	healthCtx, cancel := context.WithTimeout(ctx, s.host.cfg.HealthTimeout)
	defer cancel()
	degraded, err = l.process.Health(healthCtx)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && l.store.Answers() == answers {
		return "", fmt.Errorf("it did not answer its health check within %v", s.host.cfg.HealthTimeout)
	}
	return degraded, nil // watch sees what else may be wrong
}

// report says what went wrong, once, to the log, to whoever listens for events,
// and to WaitReady.
func (s *Store) report(ctx context.Context, l *life, err error, failures int, wait time.Duration) {
	if ctx.Err() != nil {
		return
	}
	e := Event{Store: s.name, Plugin: s.plugin, Restarts: s.Restarts(), Err: err, Retry: wait}
	logger := s.host.logger.With("plugin", s.plugin, "store", s.name, "retry_in", wait, "err", err)
	quarantined := failures >= s.host.cfg.QuarantineAfter
	switch {
	case l != nil:
		e.Kind, e.Pid = Ended, l.process.Pid()
		logger.Warn("plugin has to be started again")
	case quarantined:
		e.Kind = Quarantined
		logger.Error("plugin is in quarantine: it keeps failing before it serves", "failures", failures)
	default:
		e.Kind = Failed
		logger.Warn("plugin did not start", "failures", failures)
	}
	s.failed(err, quarantined)
	s.host.events(e)
}
