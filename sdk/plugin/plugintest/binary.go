package plugintest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/storagetest"
)

// drainTimeout bounds the end of a process whose store the kit has shut down.
const drainTimeout = 10 * time.Second

// BinaryConfig says which executable to run, and where it may store.
type BinaryConfig struct {
	Name   string
	Launch plugin.LaunchConfig
	// Fresh returns a configuration that names an empty place, another one each
	// time.
	Fresh func() (storage.Config, error)
	// Volatile says that nothing outlives the process, so that it is never
	// killed.
	Volatile bool
	// Hooks reach what the plugin stores, while no process runs. Kill and
	// LosePower are not used: the process is really killed, and no machine is.
	Hooks storagetest.Hooks
}

// Binary is a plugin's executable as a target: each opening is a process.
func Binary(cfg BinaryConfig) storagetest.Target { return &binaryTarget{cfg} }

type binaryTarget struct{ cfg BinaryConfig }

func (t *binaryTarget) Name() string { return t.cfg.Name + " as a process" }

func (t *binaryTarget) Abilities() storagetest.Abilities {
	h := t.cfg.Hooks
	return storagetest.Abilities{
		Kill:    !t.cfg.Volatile,
		Damage:  h.Overwrite != nil && h.Tear != nil,
		Derived: h.DamageDerived != nil,
		Fill:    h.SetFree != nil,
	}
}

func (t *binaryTarget) Fresh(context.Context) (storagetest.Backing, error) {
	cfg, err := t.cfg.Fresh()
	if err != nil {
		return nil, err
	}
	return &binaryBacking{target: t, cfg: cfg}, nil
}

// binaryBacking is one place, and the processes that were started on it.
type binaryBacking struct {
	target *binaryTarget
	cfg    storage.Config

	mu     sync.Mutex
	stores []*processStore
}

func (b *binaryBacking) Config() storage.Config { return b.cfg }

// Open launches a process. One whose store was shut down is drained first, as it
// would be by a broker.
func (b *binaryBacking) Open(ctx context.Context, cfg storage.Config) (storage.Store, storage.DirectoryID, error) {
	process, err := plugin.Launch(ctx, b.target.cfg.Launch)
	if err != nil {
		return nil, storage.DirectoryID{}, err
	}
	store, dir, err := process.Store(ctx, cfg)
	if err != nil {
		process.Kill()
		return nil, dir, err
	}
	opened := &processStore{Store: store, process: process}
	b.mu.Lock()
	b.stores = append(b.stores, opened)
	b.mu.Unlock()
	return opened, dir, nil
}

// processStore ends its process with itself.
type processStore struct {
	*plugin.Store
	process *plugin.Process
}

// Shutdown shuts the store down and waits for the process's end.
func (s *processStore) Shutdown(ctx context.Context) error {
	if err := s.Store.Shutdown(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	err := s.process.Drain(ctx)
	s.process.Kill()
	return err
}

// kill ends every process on the place, and lets go of what they lent, as a broker
// does before it starts the next.
func (b *binaryBacking) kill() {
	b.mu.Lock()
	stores := slices.Clone(b.stores)
	b.stores = nil
	b.mu.Unlock()
	for _, s := range stores {
		s.process.Kill()
		s.Abandon()
	}
}

func (b *binaryBacking) Kill(context.Context) error {
	if b.target.cfg.Volatile {
		return storagetest.ErrNotAble
	}
	b.kill()
	return nil
}

func (b *binaryBacking) LosePower(context.Context, uint64) error { return storagetest.ErrNotAble }

func (b *binaryBacking) Overwrite(ctx context.Context, id storage.LogID, batch []byte, at int, with []byte) error {
	if b.target.cfg.Hooks.Overwrite == nil {
		return storagetest.ErrNotAble
	}
	return b.target.cfg.Hooks.Overwrite(ctx, b.cfg, id, batch, at, with)
}

func (b *binaryBacking) Tear(ctx context.Context, id storage.LogID, batch []byte, keep int) error {
	if b.target.cfg.Hooks.Tear == nil {
		return storagetest.ErrNotAble
	}
	return b.target.cfg.Hooks.Tear(ctx, b.cfg, id, batch, keep)
}

func (b *binaryBacking) DamageDerived(ctx context.Context, seed uint64) error {
	if b.target.cfg.Hooks.DamageDerived == nil {
		return storagetest.ErrNotAble
	}
	return b.target.cfg.Hooks.DamageDerived(ctx, b.cfg, seed)
}

func (b *binaryBacking) SetFree(ctx context.Context, bytes int64) error {
	if b.target.cfg.Hooks.SetFree == nil {
		return storagetest.ErrNotAble
	}
	return b.target.cfg.Hooks.SetFree(ctx, b.cfg, bytes)
}

func (b *binaryBacking) Remove(ctx context.Context) error {
	b.kill()
	if b.target.cfg.Hooks.Remove == nil {
		return nil
	}
	return errors.Join(b.target.cfg.Hooks.Remove(ctx, b.cfg))
}
