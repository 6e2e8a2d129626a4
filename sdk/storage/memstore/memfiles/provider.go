package memfiles

import (
	"context"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// Provider makes stores on Disks that it keeps, by name, with their files in
// directories below one. It implements storage.Provider, and may be used from many
// goroutines.
type Provider struct {
	inner *memstore.Provider
	opt   memstore.Options
	root  string

	mu    sync.Mutex
	disks map[*memstore.Disk]*Disk
}

var _ storage.Provider = (*Provider)(nil)

// NewProvider returns a provider whose stores have the options given and whose
// files lie below root, a directory that is there and belongs to the caller.
// Options.Defer is not used: a batch lies in its file when its append ends.
func NewProvider(root string, opt memstore.Options) *Provider {
	opt.Defer = nil
	if opt.SegmentBytes <= 0 {
		opt.SegmentBytes = memstore.DefaultSegmentBytes
	}
	return &Provider{
		inner: memstore.NewProvider(opt),
		opt:   opt,
		root:  root,
		disks: make(map[*memstore.Disk]*Disk),
	}
}

// Info implements storage.Provider.
func (p *Provider) Info() storage.Info {
	info := p.inner.Info()
	info.Name = "memfiles"
	info.About = "Keeps logs in memory and lends them as files, for tests."
	return info
}

// Open implements storage.Provider. The settings are memstore's.
func (p *Provider) Open(ctx context.Context, cfg storage.Config) (storage.Store, storage.DirectoryID, error) {
	disk, err := p.DiskOf(cfg.Settings)
	if err != nil {
		return nil, storage.DirectoryID{}, err
	}
	return disk.open(ctx, cfg, p.opt)
}

// DiskOf returns the disk that a store with these settings opens.
func (p *Provider) DiskOf(settings []byte) (*Disk, error) {
	inner, err := p.inner.DiskOf(settings)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	disk := p.disks[inner]
	if disk == nil {
		disk = newDisk(inner, filepath.Join(p.root, strconv.Itoa(len(p.disks))))
		p.disks[inner] = disk
	}
	return disk, nil
}
