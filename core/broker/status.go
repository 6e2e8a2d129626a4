package broker

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/admin"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// readiness is nil while clients are served.
func (b *Broker) readiness() error {
	if w := b.now.Load().waiting; w != "" {
		return fmt.Errorf("not ready: waiting for %s", w)
	}
	return nil
}

// scrape serves the metrics, those first that are only known when asked for.
func (b *Broker) scrape() http.Handler {
	metrics := b.metrics.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.status(r.Context())
		b.countGroups(r.Context())
		b.beginPeers()
		metrics.ServeHTTP(w, r)
	})
}

// status is what the admin listener shows.
func (b *Broker) status(ctx context.Context) admin.Status {
	now := b.now.Load()
	s := admin.Status{
		Version: b.deps.Version, Cluster: b.cfg.Cluster.Name, NodeID: b.cfg.NodeID, Ready: now.waiting == "",
		Listeners: now.listeners, Stores: []admin.StoreStatus{}, Warnings: []string{},
	}
	if s.Listeners == nil {
		s.Listeners = []admin.ListenerStatus{}
	}
	if now.quorum != nil {
		img := now.quorum.Image()
		s.ClusterID = string(now.quorum.Identity().ClusterID)
		s.Topics = img.TopicCount()
		s.Warnings = append(s.Warnings, b.warnings(img)...)
	}
	if now.replicas == nil {
		for _, name := range b.cfg.Storage.Names() {
			s.Stores = append(s.Stores, b.storeStatus(name))
		}
		return s
	}
	starts := make(map[model.Partition]int64)
	for _, d := range now.replicas.Directories(ctx) {
		store := b.storeStatus(d.Name)
		store.Directory = d.ID.String()
		store.TotalBytes, store.FreeBytes = max(d.TotalBytes, 0), max(d.FreeBytes, 0)
		store.Replicas = len(d.Replicas)
		if d.Err != nil && store.Error == "" {
			store.Healthy, store.Error = false, d.Err.Error()
		}
		if since, full := b.troubles.isFull(d.Name); full {
			text := fmt.Sprintf("it has no room, and has refused appends since %s", since.UTC().Format(time.RFC3339))
			store.Healthy, store.Error = false, cmp.Or(store.Error, text)
			s.Warnings = append(s.Warnings, fmt.Sprintf("store %s: %s; delete topics, shorten retention or enlarge the disk", d.Name, text))
		}
		s.Stores = append(s.Stores, store)
		s.Partitions += len(d.Replicas)
		for _, r := range d.Replicas {
			starts[r.Partition] = r.LogStart
			if r.Offline != nil {
				s.Offline++
			}
		}
	}
	s.Warnings = append(s.Warnings, b.lostStores()...)
	s.Warnings = append(s.Warnings, damageWarnings(b.troubles.damages(now.quorum.Image(), starts))...)
	if s.Offline > 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("%d replicas do not serve", s.Offline))
	}
	if q := len(now.replicas.Quarantine()); q > 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("%d logs in the stores are not in the metadata; they are left alone", q))
	}
	b.metrics.Broker().Holds(s.Partitions, len(s.Warnings))
	return s
}

func (b *Broker) storeStatus(name string) admin.StoreStatus {
	state := b.plugins.state(name)
	s := admin.StoreStatus{
		Name: name, Plugin: b.cfg.Storage.Stores[name].Plugin, PID: state.pid, Restarts: state.restarts, Healthy: state.pid != 0,
	}
	if state.err != nil {
		s.Error = state.err.Error()
	}
	if path, ok := b.path(name); ok {
		s.Carrier, s.Grants, s.Leases = path.Carrier, int(path.GrantsHeld()), path.Leases
	}
	return s
}

// lostStores are the sentences about stores that the metadata knows and this
// broker does not have.
func (b *Broker) lostStores() []string {
	now := b.now.Load()
	if now.replicas == nil {
		return nil
	}
	return lostStores(now.quorum.Image(), model.NodeID(b.cfg.NodeID), now.directories)
}

// warnings are those of the settings and of the metadata.
func (b *Broker) warnings(img *image.Image) []string {
	return slices.Concat(settingsWarnings(b.cfg.Config, b.hostname), descriptorWarnings(descriptorsMax(), b.cfg.Server.ConnectionsMax),
		replicationWarnings(img, b.cfg.Config), groupWarnings(img, model.NodeID(b.cfg.NodeID), b.cfg.TopicDefaults()))
}
