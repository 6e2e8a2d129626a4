package pluginhost

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/transport"
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
	Kind  EventKind
	Store string // the name that the configuration gives to the store
	// Transport says that it is the transport's plugin, and no store's.
	Transport bool
	Plugin    string
	Pid       int // of Started and Ended
	Restarts  int // how often it has been started again
	Err       error
	Retry     time.Duration // until the next attempt, of Ended, Failed and Quarantined
}

// Host runs plugins. Stores and the transport are added before Run is called.
type Host struct {
	cfg    Config
	logger *slog.Logger
	events func(Event)

	mu      sync.Mutex
	keepers []*keeper
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
	s := &Store{cfg: sc}
	s.init(h, s, "store", name, pluginName)
	h.add(&s.keeper)
	return s
}

// Transport adds the transport: pluginName is the plugin that serves it, tc what that is
// configured with. The process is started by Run; see WaitReady.
func (h *Host) Transport(pluginName string, tc transport.Config) *Transport {
	t := newTransport(tc)
	t.init(h, t, plugin.KindTransport, "", pluginName)
	h.add(&t.keeper)
	return t
}

func (h *Host) add(k *keeper) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keepers = append(h.keepers, k)
}

// Run runs every plugin until ctx ends, then drains them, kills those
// that take longer than the drain timeout, and returns when all have ended.
func (h *Host) Run(ctx context.Context) error {
	h.mu.Lock()
	keepers := h.keepers
	h.mu.Unlock()
	var wg sync.WaitGroup
	for _, k := range keepers {
		wg.Go(func() { k.supervise(ctx) })
	}
	wg.Wait()
	<-ctx.Done()
	return nil
}
