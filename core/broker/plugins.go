package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/brokerd/brokerd/core/pluginhost"
	"github.com/brokerd/brokerd/core/telemetry"
	"github.com/brokerd/brokerd/sdk/storage"
)

// plugins remembers how the plugin of each store is, from what the host tells.
type plugins struct {
	log    *slog.Logger
	counts telemetry.Plugins

	// restarted is told of a store that was started again; it is set once there is
	// somebody to tell, and must not block.
	restarted atomic.Pointer[func(store string)]

	mu     sync.Mutex
	states map[string]pluginState // by store
	// refused is told when a store says that it belongs to somebody else; or nil.
	refused func(error)
}

// transportStore stands for the transport where stores are named; no store has such a name.
const transportStore = "(transport)"

// pluginState is how one plugin is now.
type pluginState struct {
	pid      int // 0: no process serves
	restarts int
	err      error // why not
}

func newPlugins(log *slog.Logger, counts telemetry.Plugins) *plugins {
	return &plugins{log: log, counts: counts, states: make(map[string]pluginState)}
}

// happened is the host's listener.
func (p *plugins) happened(e pluginhost.Event) {
	if e.Transport {
		e.Store = transportStore
	}
	p.counts.Happened(e.Store, e.Plugin, e.Kind == pluginhost.Started, e.Kind == pluginhost.Ended)
	p.note(e)
	if tell := p.restarted.Load(); tell != nil && e.Kind == pluginhost.Started && !e.Transport {
		(*tell)(e.Store)
	}
}

func (p *plugins) note(e pluginhost.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.states[e.Store]
	s.restarts = e.Restarts
	s.pid, s.err = 0, e.Err
	if e.Kind == pluginhost.Started {
		s.pid = e.Pid
	}
	p.states[e.Store] = s
	if p.refused != nil && errors.Is(e.Err, storage.ErrFenced) {
		p.refused(fmt.Errorf("store %s: %w", e.Store, e.Err))
	}
}

// onRefused has f told of stores that belong to somebody else. It must not block.
func (p *plugins) onRefused(f func(error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = f
}

func (p *plugins) state(store string) pluginState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.states[store]
}
