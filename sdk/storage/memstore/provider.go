package memstore

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"

	"github.com/brokerd/brokerd/sdk/storage"
)

// Provider makes stores on Disks that it keeps, by name. It implements
// storage.Provider, and may be used from many goroutines.
type Provider struct {
	opt Options

	mu    sync.Mutex
	disks map[string]*Disk
}

var _ storage.Provider = (*Provider)(nil)

// NewProvider returns a provider whose stores have the options given.
func NewProvider(opt Options) *Provider {
	return &Provider{opt: opt, disks: make(map[string]*Disk)}
}

// Info implements storage.Provider.
func (p *Provider) Info() storage.Info {
	return storage.Info{
		Name:    "memstore",
		Version: "1",
		About:   "Keeps logs in memory, for tests: they end with the process.",
		Settings: []storage.Setting{
			{Name: "disk", About: "which of the process's disks to open"},
		},
	}
}

// Open implements storage.Provider.
func (p *Provider) Open(_ context.Context, cfg storage.Config) (storage.Store, storage.DirectoryID, error) {
	disk, err := p.DiskOf(cfg.Settings)
	if err != nil {
		return nil, storage.DirectoryID{}, err
	}
	store, dir, err := Open(disk, cfg, p.opt)
	if err != nil {
		return nil, storage.DirectoryID{}, err
	}
	return store, dir, nil
}

// Disk returns the disk of that name, making it if needed.
func (p *Provider) Disk(name string) *Disk {
	p.mu.Lock()
	defer p.mu.Unlock()
	disk := p.disks[name]
	if disk == nil {
		disk = &Disk{}
		p.disks[name] = disk
	}
	return disk
}

// DiskOf returns the disk that a store with these settings opens.
func (p *Provider) DiskOf(settings []byte) (*Disk, error) {
	name, err := diskName(settings)
	if err != nil {
		return nil, err
	}
	return p.Disk(name), nil
}

// Settings returns the settings that open the disk of that name.
func Settings(disk string) []byte {
	data, err := json.Marshal(map[string]string{"disk": disk})
	if err != nil {
		panic(err) // a map of strings always marshals
	}
	return data
}

// diskName reads the settings strictly.
func diskName(settings []byte) (string, error) {
	if len(settings) == 0 {
		return "", nil
	}
	var section struct {
		Disk string `json:"disk"`
	}
	decoder := json.NewDecoder(bytes.NewReader(settings))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&section); err != nil {
		return "", storage.Errorf(storage.ErrInvalid, "settings of memstore: %v", err)
	}
	return section.Disk, nil
}
