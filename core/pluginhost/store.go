package pluginhost

import (
	"context"
	"fmt"
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

// storeLife is the store of one process.
type storeLife struct {
	tag   storage.Handle // the upper bits of its handles
	store *plugin.Store
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
	keeper
	cfg storage.Config

	current  atomic.Pointer[storeLife] // nil while no process serves
	counters plugin.Counters           // of every life

	// Guarded by keeper.mu.
	dir          storage.DirectoryID
	capabilities storage.Capabilities
}

var _ storage.Store = (*Store)(nil)

// Name returns what the configuration calls the store.
func (s *Store) Name() string { return s.name }

// DirectoryID returns the store's identity: zero before it first served, and
// always the same afterwards.
func (s *Store) DirectoryID() storage.DirectoryID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dir
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

// prepare implements role.
func (s *Store) prepare(cfg *plugin.LaunchConfig) {
	cfg.Carrier, _ = plugin.CarrierNamed(s.host.cfg.Carriers[s.name]) // all of them are known, see Validate
	cfg.Counters = &s.counters
}

// open implements role.
func (s *Store) open(ctx context.Context, process *plugin.Process) (served, error) {
	store, dir, err := process.Store(ctx, s.cfg)
	if err != nil {
		return nil, err
	}
	if err := s.begin(store, dir); err != nil {
		process.Kill()
		store.Abandon()
		return nil, err
	}
	return store, nil
}

// begin makes a store the one that serves. One that comes back with another directory ID is
// not the one that the core knows.
func (s *Store) begin(store *plugin.Store, dir storage.DirectoryID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hasServed && dir != s.dir {
		return fmt.Errorf("%w: directory ID %x instead of %x", errChanged, dir, s.dir)
	}
	s.began()
	s.dir, s.capabilities = dir, store.Capabilities()
	s.current.Store(&storeLife{tag: storage.Handle((s.lives-1)%livesMax+1) << handleBits, store: store})
	return nil
}

// down implements role.
func (s *Store) down() { s.current.Store(nil) }

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
func (s *Store) live() (*storeLife, error) {
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
func (s *Store) resolve(h storage.Handle) (*storeLife, storage.Handle, error) {
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
	if !s.shut() {
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
