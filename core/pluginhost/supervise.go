package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/transport"
)

// errChanged is a plugin that came back as something else.
var errChanged = errors.New("the plugin came back with another one")

// role is what a plugin is to the broker.
type role interface {
	// prepare completes how its process is launched.
	prepare(cfg *plugin.LaunchConfig)
	// open opens in a process what that is to serve, and has it serve.
	open(ctx context.Context, process *plugin.Process) (served, error)
	// down says that no process serves.
	down()
}

// served is what one process serves.
type served interface {
	Lost() <-chan struct{}
	Answers() int64
	Abandon()
}

// life is one process of a plugin, with what it serves.
type life struct {
	process *plugin.Process
	served
}

// keeper keeps one plugin running, and knows how it is.
type keeper struct {
	host   *Host
	role   role
	kind   string // "store" or "transport"
	name   string // of the store
	plugin string
	log    *slog.Logger

	// settled is closed when the first start has succeeded, or failed for good.
	settled    chan struct{}
	settleOnce sync.Once
	// shutting is closed when the plugin is not needed any more, ended when it is not
	// supervised any more.
	shutting, ended chan struct{}

	mu          sync.Mutex
	lives       int
	hasServed   bool
	lastErr     error // of the latest failure
	quarantined bool
	isShut      bool
}

// init makes a keeper ready. It is part of what implements the role.
func (k *keeper) init(h *Host, r role, kind, name, pluginName string) {
	k.host, k.role, k.kind, k.name, k.plugin = h, r, kind, name, pluginName
	k.log = h.logger.With("plugin", pluginName)
	if name != "" {
		k.log = k.log.With(kind, name)
	}
	k.settled, k.shutting, k.ended = make(chan struct{}), make(chan struct{}), make(chan struct{})
}

// Plugin returns the name of the plugin.
func (k *keeper) Plugin() string { return k.plugin }

// Restarts returns how often the plugin came to serve again after the first
// time.
func (k *keeper) Restarts() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return max(0, k.lives-1)
}

// WaitReady returns nil once the plugin has served for the first time. It returns
// an error, one sentence for an operator, when the plugin refuses its settings,
// when it cannot be found or verified, when it went into quarantine before it
// ever served, and, with the latest failure, when ctx ends. Run must be running.
func (k *keeper) WaitReady(ctx context.Context) error {
	select {
	case <-k.settled:
	case <-k.ended:
	case <-ctx.Done():
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.hasServed:
		return nil
	case k.lastErr != nil:
		return k.lastErr
	case ctx.Err() != nil:
		return fmt.Errorf("wait for plugin %s: %w", k.plugin, ctx.Err())
	}
	return fmt.Errorf("plugin %s was not started", k.plugin)
}

// began notes that a process has come to serve. The caller holds mu.
func (k *keeper) began() {
	k.lives++
	k.hasServed, k.lastErr, k.quarantined = true, nil, false
	k.settleOnce.Do(func() { close(k.settled) })
}

// failed notes why the plugin does not serve.
func (k *keeper) failed(err error, quarantined bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lastErr, k.quarantined = err, quarantined
	if quarantined || final(err) {
		k.settleOnce.Do(func() { close(k.settled) })
	}
}

// final says that trying again will not help: an operator must act.
func final(err error) bool {
	for _, class := range []error{storage.ErrInvalid, transport.ErrInvalid, plugin.ErrChecksum, ErrNotFound} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

// shut says that the plugin is not needed any more, and whether that is news.
func (k *keeper) shut() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	news := !k.isShut
	k.isShut = true
	return news
}

// end says that the plugin is not supervised any more.
func (k *keeper) end() {
	k.role.down()
	close(k.ended)
}

// supervise keeps the plugin running until ctx ends or the store is shut down.
func (k *keeper) supervise(ctx context.Context) {
	defer k.end()
	cfg := k.host.cfg
	backoff := cfg.BackoffMin
	failures := 0 // in a row, without serving
	for ctx.Err() == nil {
		l, err := k.launch(ctx)
		began := time.Now()
		if err == nil {
			failures = 0
			err = k.serve(ctx, l)
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
		k.report(ctx, l, err, failures, wait)
		backoff = min(2*backoff, cfg.BackoffMax)
		select {
		case <-ctx.Done():
		case <-k.shutting:
			return
		case <-time.After(wait):
		}
	}
}

// launch starts a process and has it serve.
func (k *keeper) launch(ctx context.Context) (*life, error) {
	cfg, err := k.host.find(k.plugin)
	if err != nil {
		return nil, err
	}
	k.role.prepare(&cfg)
	process, err := plugin.Launch(ctx, cfg)
	if err != nil {
		return nil, err
	}
	openCtx, cancel := context.WithTimeout(ctx, k.host.cfg.ConfigureTimeout)
	defer cancel()
	serves, err := k.role.open(openCtx, process)
	if err != nil {
		process.Kill()
		return nil, fmt.Errorf("open %s with plugin %s: %w", k.called(), k.plugin, err)
	}
	k.log.Info("plugin serves", "pid", process.Pid())
	e := k.event(Started)
	e.Pid = process.Pid()
	k.host.events(e)
	return &life{process: process, served: serves}, nil
}

// called is what the plugin serves, in a sentence.
func (k *keeper) called() string {
	if k.name == "" {
		return "the " + k.kind
	}
	return k.kind + " " + k.name
}

// event makes an event of the plugin.
func (k *keeper) event(kind EventKind) Event {
	return Event{Kind: kind, Store: k.name, Transport: k.kind == plugin.KindTransport, Plugin: k.plugin, Restarts: k.Restarts()}
}

// isGone says whether a drain failed because the process has ended.
func isGone(err error) bool { return errors.Is(err, storage.ErrGone) }

// serve watches a process until it has ended. Nil means that it was not needed
// any more.
func (k *keeper) serve(ctx context.Context, l *life) error {
	err := k.watch(ctx, l)
	if err == nil {
		drainCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.host.cfg.DrainTimeout)
		defer cancel()
		if drainErr := l.process.Drain(drainCtx); drainErr != nil && !isGone(drainErr) {
			k.log.Warn("plugin was killed, it did not end in time", "err", drainErr)
		}
	}
	k.role.down()
	l.process.Kill()
	l.Abandon() // from here on nobody writes what the process lent: the next may be started
	return err
}

// watch returns when the process has to be replaced, saying why, or is not
// needed any more.
func (k *keeper) watch(ctx context.Context, l *life) error {
	health := time.NewTicker(k.host.cfg.HealthInterval)
	defer health.Stop()
	degraded := "" // as it was last told
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.shutting:
			return nil
		case <-l.process.Done():
			return fmt.Errorf("it ended: %s", l.process.Exit())
		case <-l.Lost():
			select { // the connection breaks a moment before the process is reaped
			case <-l.process.Done():
				return fmt.Errorf("it ended: %s", l.process.Exit())
			case <-k.shutting:
				return nil
			case <-time.After(k.host.cfg.BackoffMin):
				return errors.New("it closed its connection")
			}
		case <-health.C:
			now, err := k.checkHealth(ctx, l)
			if err != nil {
				return err
			}
			if now != degraded {
				degraded = now
				k.log.Warn("plugin's health changed", "degraded", degraded)
			}
		}
	}
}

// checkHealth asks the plugin for a sign of life. An answer to any call over the
// data lane meanwhile is one, so that a busy plugin is not killed.
func (k *keeper) checkHealth(ctx context.Context, l *life) (degraded string, err error) {
	answers := l.Answers()
	healthCtx, cancel := context.WithTimeout(ctx, k.host.cfg.HealthTimeout)
	defer cancel()
	degraded, err = l.process.Health(healthCtx)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && l.Answers() == answers {
		return "", fmt.Errorf("it did not answer its health check within %v", k.host.cfg.HealthTimeout)
	}
	return degraded, nil // watch sees what else may be wrong
}

// report says what went wrong, once, to the log, to whoever listens for events,
// and to WaitReady.
func (k *keeper) report(ctx context.Context, l *life, err error, failures int, wait time.Duration) {
	if ctx.Err() != nil {
		return
	}
	e := k.event(Failed)
	e.Err, e.Retry = err, wait
	logger := k.log.With("retry_in", wait, "err", err)
	quarantined := failures >= k.host.cfg.QuarantineAfter
	switch {
	case l != nil:
		e.Kind, e.Pid = Ended, l.process.Pid()
		logger.Warn("plugin has to be started again")
	case quarantined:
		e.Kind = Quarantined
		logger.Error("plugin is in quarantine: it keeps failing before it serves", "failures", failures)
	default:
		logger.Warn("plugin did not start", "failures", failures)
	}
	k.failed(err, quarantined)
	k.host.events(e)
}
