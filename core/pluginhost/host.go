package pluginhost

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/brokerd/brokerd/sdk/storage"
)

// EventKind is what happened to a plugin.
type EventKind int

const (
	// Started says that it serves, for the first time or again.
	Started EventKind = iota + 1
	// Ended says that it served and does not any more; Err says why.
	Ended
	// Failed says that it did not come to serve; Err says why.
	Failed
	// Quarantined says that it failed so often in a row that it is tried slowly now.
	Quarantined
)

// Event is one thing that happened to one plugin.
type Event struct {
	Kind     EventKind
	Store    string // the name that the configuration gives to the store
	Plugin   string
	Pid      int // of Started and Ended
	Restarts int // how often it has been started again
	Err      error
	Retry    time.Duration // until the next attempt, of Ended, Failed and Quarantined
}

// Host runs plugins. Stores are added before Run is called.
type Host struct {
	cfg    Config
	logger *slog.Logger
	events func(Event)

	mu     sync.Mutex
	stores []*Store
}

// New makes a host of a valid configuration. events, which may be nil, is called
// from the goroutines of Run and must not block.
func New(cfg Config, logger *slog.Logger, events func(Event)) *Host {
	if events == nil {
		events = func(Event) {}
	}
	return &Host{cfg: cfg.withDefaults(), logger: logger, events: events}
}

// Store adds a store: name is what the configuration calls it, pluginName the
// plugin that serves it, sc what the plugin is configured with. The process is
// started by Run; see WaitReady.
func (h *Host) Store(name, pluginName string, sc storage.Config) *Store {
	s := &Store{
		host:     h,
		name:     name,
		plugin:   pluginName,
		cfg:      sc,
		settled:  make(chan struct{}),
		shutting: make(chan struct{}),
		ended:    make(chan struct{}),
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stores = append(h.stores, s)
	return s
}

// Run runs every store's plugin until ctx ends, then drains them, kills those
// that take longer than the drain timeout, and returns when all have ended.
func (h *Host) Run(ctx context.Context) error {
	h.mu.Lock()
	stores := h.stores
	h.mu.Unlock()
	var wg sync.WaitGroup
	for _, s := range stores {
		wg.Go(func() { s.supervise(ctx) })
	}
	wg.Wait()
	<-ctx.Done()
	return nil
}
