package storagetest

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
	"github.com/brokerd/brokerd/sdk/storage/memstore/memfiles"
)

// Memory is the target of the reference store, called directly. It is able to
// do everything, except damage what is derived, of which a Disk has nothing.
// Besides being checked, it shows how another store's target is
// put together.
func Memory(opt memstore.Options) Target {
	provider := memstore.NewProvider(opt)
	return Direct(provider, FreshMemory(), MemoryHooks(provider))
}

// FreshMemory returns a function that names another disk of a memstore.Provider
// each time.
func FreshMemory() func() (storage.Config, error) {
	var disks atomic.Int64
	return func() (storage.Config, error) {
		return storage.Config{
			Settings:            memstore.Settings(fmt.Sprintf("disk-%d", disks.Add(1))),
			Identity:            storage.Identity{ClusterID: "storagetest", NodeID: 1},
			ProposedDirectoryID: storage.DirectoryID{1, 2, 3},
		}, nil
	}
}

// MemoryHooks are the hooks of a provider's disks.
func MemoryHooks(provider *memstore.Provider) Hooks {
	disk := func(cfg storage.Config) (*memstore.Disk, error) { return provider.DiskOf(cfg.Settings) }
	return Hooks{
		Kill: func(_ context.Context, cfg storage.Config, _ []storage.Store) error {
			d, err := disk(cfg)
			if err == nil {
				d.Kill()
			}
			return err
		},
		LosePower: func(_ context.Context, cfg storage.Config, _ []storage.Store, seed uint64) error {
			d, err := disk(cfg)
			if err == nil {
				d.LosePower(seed)
			}
			return err
		},
		Overwrite: func(_ context.Context, cfg storage.Config, id storage.LogID, batch []byte, at int, with []byte) error {
			d, err := disk(cfg)
			if err != nil {
				return err
			}
			return d.Overwrite(id, batch, at, with)
		},
		Tear: func(_ context.Context, cfg storage.Config, id storage.LogID, batch []byte, keep int) error {
			d, err := disk(cfg)
			if err != nil {
				return err
			}
			return d.Tear(id, batch, keep)
		},
		SetFree: func(_ context.Context, cfg storage.Config, bytes int64) error {
			d, err := disk(cfg)
			if err == nil {
				d.SetFree(bytes)
			}
			return err
		},
	}
}

// Files is the target of the reference of stores that lend their files, called
// directly, with its files below root. It is able to do what Memory is.
func Files(root string, opt memstore.Options) Target {
	provider := memfiles.NewProvider(root, opt)
	return Direct(provider, FreshMemory(), FilesHooks(provider))
}

// FilesHooks are the hooks of a provider's disks.
func FilesHooks(provider *memfiles.Provider) Hooks {
	on := func(cfg storage.Config, do func(*memfiles.Disk) error) error {
		disk, err := provider.DiskOf(cfg.Settings)
		if err != nil {
			return err
		}
		return do(disk)
	}
	return Hooks{
		Kill: func(_ context.Context, cfg storage.Config, _ []storage.Store) error {
			return on(cfg, func(d *memfiles.Disk) error { d.Kill(); return nil })
		},
		LosePower: func(_ context.Context, cfg storage.Config, _ []storage.Store, seed uint64) error {
			return on(cfg, func(d *memfiles.Disk) error { d.LosePower(seed); return nil })
		},
		Overwrite: func(_ context.Context, cfg storage.Config, id storage.LogID, batch []byte, at int, with []byte) error {
			return on(cfg, func(d *memfiles.Disk) error { return d.Overwrite(id, batch, at, with) })
		},
		Tear: func(_ context.Context, cfg storage.Config, id storage.LogID, batch []byte, keep int) error {
			return on(cfg, func(d *memfiles.Disk) error { return d.Tear(id, batch, keep) })
		},
		SetFree: func(_ context.Context, cfg storage.Config, bytes int64) error {
			return on(cfg, func(d *memfiles.Disk) error { d.SetFree(bytes); return nil })
		},
	}
}
