package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/storage"
)

// A handle that the core sees: above, which life of the process it comes from;
// below, the plugin's own handle (at most plugin.MaxHandle).
//
//	bit 63            40 39                    0
//	   +----------------+-----------------------+
//	   |  life (24 bit) | plugin's handle (40)  |
//	   +----------------+-----------------------+
//
// Lives are counted from 1, and begin at 1 again after 2^24-1.
const (
	handleBits = 40
	livesMax   = 1<<24 - 1
)

// life is one process of a plugin, with its store.
type life struct {
	tag     storage.Handle // the upper bits of its handles
	process *plugin.Process
	store   *plugin.Store
}

// Store is one store of the broker, over every life of its plugin's process. It
// implements storage.Store, with these additions:
//
//   - While no process serves, calls without a handle give ErrRetry at once, or
//     ErrGone with the reason when the plugin is in quarantine.
//   - When a process dies, appends in flight give ErrUnknown and other calls
//     ErrGone, at once.
//   - Handles end with the process that gave them: afterwards they give ErrGone.
//     The log is to be opened again.
type Store struct {
	host   *Host
	name   string
	plugin string
	cfg    storage.Config

	current  atomic.Pointer[life] // nil while no process serves
	counters plugin.Counters      // of every life

	// settled is closed when the first start has succeeded, or failed for good.
	settled    chan struct{}
	settleOnce sync.Once
	// shutting is closed by Shutdown, ended when the plugin is not supervised any
	// more.
	shutting, ended chan struct{}

	mu           sync.Mutex
	lives        int
	served       bool
	dir          storage.DirectoryID
	capabilities storage.Capabilities
	lastErr      error // of the latest failure
	quarantined  bool
	isShut       bool
}

var _ storage.Store = (*Store)(nil)

// Name returns what the configuration calls the store.
func (s *Store) Name() string { return s.name }

// Plugin returns the name of the plugin that serves the store.
func (s *Store) Plugin() string { return s.plugin }

// DirectoryID returns the store's identity: zero before it first served, and
// always the same afterwards.
func (s *Store) DirectoryID() storage.DirectoryID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dir
}

// Restarts returns how often the plugin came to serve again after the first
// time.
func (s *Store) Restarts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.lives-1)
}

// Path is how a store's records go to its plugin and come from it.
type Path struct {
	plugin.Traffic // of every process so far
	plugin.Held    // now; nothing while no process serves
	// Carrier is in use, "" while no process serves; Allowed is the most that the
	// configuration lets it be.
	Carrier, Allowed string
}

// Path looks at the way of the store's records.
func (s *Store) Path() Path {
	allowed, _ := plugin.CarrierNamed(s.host.cfg.Carriers[s.name]) // all of them are known, see Validate
	p := Path{Traffic: s.counters.Traffic(), Allowed: allowed.String()}
	if l, err := s.live(); err == nil {
		p.Carrier, p.Held = l.store.Carrier().String(), l.store.Held()
	}
	return p
}

// WaitReady returns nil once the store has served for the first time. It returns
// an error, one sentence for an operator, when the plugin refuses its settings,
// when it cannot be found or verified, when it went into quarantine before it
// ever served, and, with the latest failure, when ctx ends. Run must be running.
func (s *Store) WaitReady(ctx context.Context) error {
	select {
	case <-s.settled:
	case <-s.ended:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.served:
		return nil
	case s.lastErr != nil:
		return s.lastErr
	case ctx.Err() != nil:
		return fmt.Errorf("wait for plugin %s: %w", s.plugin, ctx.Err())
	}
	return fmt.Errorf("plugin %s was not started", s.plugin)
}

// begin makes l the life that serves. A store that comes back with another
// directory ID is not the one that the core knows.
func (s *Store) begin(l *life, dir storage.DirectoryID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served && dir != s.dir {
		return fmt.Errorf("%w: directory ID %x instead of %x", errChanged, dir, s.dir)
	}
	s.lives++
	s.served, s.dir, s.capabilities = true, dir, l.store.Capabilities()
	s.lastErr, s.quarantined = nil, false
	l.tag = storage.Handle((s.lives-1)%livesMax+1) << handleBits
	s.current.Store(l)
	s.settle()
	return nil
}

// down says that no process serves.
func (s *Store) down() { s.current.Store(nil) }

// failed notes why the plugin does not serve.
func (s *Store) failed(err error, quarantined bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastErr, s.quarantined = err, quarantined
	if quarantined || final(err) {
		s.settle()
	}
}

// final says that trying again will not help: an operator must act.
func final(err error) bool {
	return errors.Is(err, storage.ErrInvalid) || errors.Is(err, plugin.ErrChecksum) || errors.Is(err, ErrNotFound)
}

func (s *Store) settle() { s.settleOnce.Do(func() { close(s.settled) }) }

// end says that the plugin is not supervised any more.
func (s *Store) end() {
	s.down()
	close(s.ended)
}

// unavailable says why no process serves.
func (s *Store) unavailable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.isShut:
		return storage.Errorf(storage.ErrGone, "store %s was shut down", s.name)
	case s.quarantined:
		return storage.Errorf(storage.ErrGone, "plugin %s is in quarantine: %v", s.plugin, s.lastErr)
	}
	return storage.Errorf(storage.ErrRetry, "plugin %s does not serve at the moment", s.plugin)
}

// live returns the life that serves.
func (s *Store) live() (*life, error) {
	l := s.current.Load()
	if l == nil {
		return nil, s.unavailable()
	}
	select {
	case <-l.store.Lost():
		return nil, s.unavailable()
	default:
		return l, nil
	}
}

// resolve finds the life that a handle belongs to, and the plugin's handle.
func (s *Store) resolve(h storage.Handle) (*life, storage.Handle, error) {
	l := s.current.Load()
	if l == nil || h&^plugin.MaxHandle != l.tag {
		return nil, 0, storage.Errorf(storage.ErrGone, "the process of plugin %s that gave handle %d has ended", s.plugin, h&plugin.MaxHandle)
	}
	return l, h & plugin.MaxHandle, nil
}

// Shutdown implements storage.Store. It also ends the plugin's process, and
// returns when that has ended. Run must be running.
func (s *Store) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.host.cfg.CallTimeout+s.host.cfg.DrainTimeout)
	defer cancel()
	s.mu.Lock()
	already := s.isShut
	s.isShut = true
	s.mu.Unlock()
	if already {
		return storage.Errorf(storage.ErrGone, "store %s was shut down", s.name)
	}
	l, err := s.live()
	if err == nil {
		err = l.store.Shutdown(ctx)
	}
	close(s.shutting)
	select {
	case <-s.ended:
	case <-ctx.Done():
		return fmt.Errorf("wait for plugin %s to end: %w: %w", s.plugin, storage.ErrUnknown, ctx.Err())
	}
	return err
}
