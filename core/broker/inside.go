package broker

import (
	"context"
	"fmt"
	"os"

	"github.com/brokerd/brokerd/core/pluginhost"
	"github.com/brokerd/brokerd/sdk/storage"
)

// store is a store of the broker, whoever serves it.
type store interface {
	storage.Store
	Name() string
	Plugin() string
	DirectoryID() storage.DirectoryID
}

// inside is a store without a process of its own.
type inside struct {
	storage.Store
	name, plugin string
	id           storage.DirectoryID
}

func (s *inside) Name() string                     { return s.name }
func (s *inside) Plugin() string                   { return s.plugin }
func (s *inside) DirectoryID() storage.DirectoryID { return s.id }

// openInside opens a store in this process. It is shut down where its plugin would be
// stopped.
func (b *Broker) openInside(ctx context.Context, p storage.Provider, name, plugin string, sc storage.Config) (store, error) {
	sc.Logger = b.log.With("store", name)
	opened, id, err := p.Open(ctx, sc)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", name, err)
	}
	b.plugins.happened(pluginhost.Event{Kind: pluginhost.Started, Store: name, Plugin: plugin, Pid: os.Getpid()})
	b.parts.start(ctx, "store "+name, pluginsStop, func(ctx context.Context) error {
		<-ctx.Done()
		return opened.Shutdown(context.WithoutCancel(ctx)) // its time is the part's
	})
	return &inside{Store: opened, name: name, plugin: plugin, id: id}, nil
}
