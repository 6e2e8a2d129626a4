package storagetest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/brokerd/brokerd/sdk/storage"
)

// Hooks are what a direct target can do to the place that a configuration
// names. Each may be nil, which is the lack of that ability; Overwrite and Tear
// make Damage together. What each must do is told at the method of Backing with
// its name.
type Hooks struct {
	// Kill ends stores, which are all that are open on cfg, without closing
	// them, and lets go of what they held.
	Kill          func(ctx context.Context, cfg storage.Config, stores []storage.Store) error
	LosePower     func(ctx context.Context, cfg storage.Config, stores []storage.Store, seed uint64) error
	Overwrite     func(ctx context.Context, cfg storage.Config, id storage.LogID, batch []byte, at int, with []byte) error
	Tear          func(ctx context.Context, cfg storage.Config, id storage.LogID, batch []byte, keep int) error
	DamageDerived func(ctx context.Context, cfg storage.Config, seed uint64) error
	SetFree       func(ctx context.Context, cfg storage.Config, bytes int64) error
	// Remove gives back what cfg names; the stores have been shut down.
	Remove func(ctx context.Context, cfg storage.Config) error
}

// Direct is a target that calls the provider in this process. fresh returns a
// configuration that names an empty place, another one each time.
func Direct(provider storage.Provider, fresh func() (storage.Config, error), hooks Hooks) Target {
	return &direct{provider: provider, fresh: fresh, hooks: hooks}
}

type direct struct {
	provider storage.Provider
	fresh    func() (storage.Config, error)
	hooks    Hooks
}

func (d *direct) Name() string { return d.provider.Info().Name }

func (d *direct) Abilities() Abilities {
	return Abilities{
		Kill:      d.hooks.Kill != nil,
		LosePower: d.hooks.LosePower != nil,
		Damage:    d.hooks.Overwrite != nil && d.hooks.Tear != nil,
		Derived:   d.hooks.DamageDerived != nil,
		Fill:      d.hooks.SetFree != nil,
	}
}

func (d *direct) Fresh(context.Context) (Backing, error) {
	cfg, err := d.fresh()
	if err != nil {
		return nil, err
	}
	return &directBacking{target: d, cfg: cfg}, nil
}

type directBacking struct {
	target *direct
	cfg    storage.Config

	mu   sync.Mutex
	open []storage.Store
}

func (b *directBacking) Config() storage.Config { return b.cfg }

func (b *directBacking) Open(ctx context.Context, cfg storage.Config) (storage.Store, storage.DirectoryID, error) {
	store, dir, err := b.target.provider.Open(ctx, cfg)
	if err != nil {
		return nil, dir, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = append(b.open, store)
	return store, dir, nil
}

// take returns the stores that are open and forgets them.
func (b *directBacking) take() []storage.Store {
	b.mu.Lock()
	defer b.mu.Unlock()
	open := slices.Clone(b.open)
	b.open = nil
	return open
}

func (b *directBacking) Kill(ctx context.Context) error {
	if b.target.hooks.Kill == nil {
		return ErrNotAble
	}
	return b.target.hooks.Kill(ctx, b.cfg, b.take())
}

func (b *directBacking) LosePower(ctx context.Context, seed uint64) error {
	if b.target.hooks.LosePower == nil {
		return ErrNotAble
	}
	return b.target.hooks.LosePower(ctx, b.cfg, b.take(), seed)
}

func (b *directBacking) Overwrite(ctx context.Context, id storage.LogID, batch []byte, at int, with []byte) error {
	if b.target.hooks.Overwrite == nil {
		return ErrNotAble
	}
	return b.target.hooks.Overwrite(ctx, b.cfg, id, batch, at, with)
}

func (b *directBacking) Tear(ctx context.Context, id storage.LogID, batch []byte, keep int) error {
	if b.target.hooks.Tear == nil {
		return ErrNotAble
	}
	return b.target.hooks.Tear(ctx, b.cfg, id, batch, keep)
}

func (b *directBacking) DamageDerived(ctx context.Context, seed uint64) error {
	if b.target.hooks.DamageDerived == nil {
		return ErrNotAble
	}
	return b.target.hooks.DamageDerived(ctx, b.cfg, seed)
}

func (b *directBacking) SetFree(ctx context.Context, bytes int64) error {
	if b.target.hooks.SetFree == nil {
		return ErrNotAble
	}
	return b.target.hooks.SetFree(ctx, b.cfg, bytes)
}

func (b *directBacking) Remove(ctx context.Context) error {
	var errs []error
	for _, store := range b.take() {
		if err := store.Shutdown(ctx); err != nil && !errors.Is(err, storage.ErrGone) {
			errs = append(errs, err)
		}
	}
	if b.target.hooks.Remove != nil {
		errs = append(errs, b.target.hooks.Remove(ctx, b.cfg))
	}
	return errors.Join(errs...)
}
