package controller

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// Registration is how a broker names itself when it starts.
type Registration struct {
	// ClusterID is the cluster that the broker belongs to.
	ClusterID model.ClusterID
	NodeID    model.NodeID
	// Incarnation is random for each start of the process.
	Incarnation [16]byte
	Rack        string
	Listeners   map[string]image.Endpoint
	// Directories are the broker's stores, the default one first.
	Directories []model.DirectoryID
	// MayHaveLost are those of Directories of which some log may lack what it had when the
	// broker was here last. (KIP-966)
	MayHaveLost []model.DirectoryID
	// FeatureLevelMin and FeatureLevelMax are the levels of metadata that the broker can
	// go by.
	FeatureLevelMin, FeatureLevelMax int16
}

// registerBroker makes a broker known. It is fenced until a heartbeat says that it has
// the metadata up to its own registration. What its earlier life led and was in sync with
// is given to others, since that life may have acknowledged what this one lost. (KIP-631)
func (d *decision) registerBroker(r Registration) Answer {
	if err := d.checkRegistration(r); err != nil {
		return Answer{Err: err}
	}
	old, known := d.img.Broker(r.NodeID)
	if known && old.Incarnation == r.Incarnation && old.Rack == r.Rack &&
		maps.Equal(old.Listeners, r.Listeners) && slices.Equal(old.Directories, r.Directories) {
		return Answer{Epoch: old.Epoch} // asked twice
	}
	if l := d.soft.lives[r.NodeID]; known && old.Incarnation != r.Incarnation && !old.ShuttingDown &&
		l != nil && l.epoch == old.Epoch && l.heard && l.until-d.cfg.BrokerLease+d.earlierLife() > d.soft.awake {
		return Answer{Err: fmt.Errorf("another process is broker %d, and was heard of just now: if it is this broker's earlier life, it is over in %v: %w",
			r.NodeID, d.earlierLife(), model.ErrDuplicateBroker)}
	}
	d.emit(&image.BrokerRecord{
		ID: r.NodeID, Incarnation: r.Incarnation, Rack: r.Rack,
		Listeners: maps.Clone(r.Listeners), Directories: slices.Clone(r.Directories), Fenced: true,
	})
	d.bornAgain(r)
	return Answer{} // the epoch is known after the commit
}

// earlierLife is for how long a broker that was heard of keeps another process of its ID out. One
// that is there is heard again before: a process that starts at once after its end is not to be
// kept waiting for all of the lease. What an earlier life says is refused by its epoch in any case.
func (d *decision) earlierLife() time.Duration { return d.cfg.BrokerLease / 2 }

// bornAgain judges each replica of a broker that begins another life.
func (d *decision) bornAgain(r Registration) {
	id := r.NodeID
	d.eachPartition(func(t *image.Topic, n int32, p *image.Partition) *edit {
		at := slices.Index(p.Replicas, id)
		if at < 0 {
			return nil
		}
		e := d.edit(t, n)
		dir := p.Directories[at]
		missing := !dir.IsZero() && !slices.Contains(r.Directories, dir)
		whole := slices.Contains(p.ISR, id) || slices.Contains(p.ELR, id)
		if !whole && !missing && p.Leader != id {
			return nil
		}
		switch {
		case missing:
			e.gone = []model.NodeID{id}
		case whole && slices.Contains(r.MayHaveLost, dir):
			e.lost = []model.NodeID{id}
		case whole:
			e.back = []model.NodeID{id}
		}
		// The broker is back: even where unclean election is on, its log is waited for
		// and nothing is lost.
		e.leave(func(n model.NodeID) bool { return n == id })
		return e
	})
}

func (d *decision) checkRegistration(r Registration) error {
	c := d.img.Cluster
	switch {
	case r.ClusterID != c.ID:
		return fmt.Errorf("broker %d belongs to cluster %q, and this is cluster %q: %w", r.NodeID, r.ClusterID, c.ID, model.ErrInconsistentClusterID)
	case r.NodeID < 0:
		return fmt.Errorf("node ID %d: it must be 0 or more: %w", r.NodeID, model.ErrInvalidRegistration)
	case r.Incarnation == [16]byte{}:
		return fmt.Errorf("broker %d names no incarnation: %w", r.NodeID, model.ErrInvalidRegistration)
	case c.FeatureLevel < r.FeatureLevelMin || c.FeatureLevel > r.FeatureLevelMax:
		return fmt.Errorf("broker %d can go by feature levels %d to %d, and the cluster is at level %d: start a release that knows it: %w",
			r.NodeID, r.FeatureLevelMin, r.FeatureLevelMax, c.FeatureLevel, model.ErrUnsupportedVersion)
	}
	for i, dir := range r.Directories {
		if dir.IsZero() || slices.Contains(r.Directories[:i], dir) {
			return fmt.Errorf("broker %d names directory %s twice or without an ID: %w", r.NodeID, dir, model.ErrInvalidRegistration)
		}
	}
	for b := range d.img.Brokers() {
		if b.ID == r.NodeID {
			continue
		}
		for _, dir := range b.Directories {
			if slices.Contains(r.Directories, dir) {
				return fmt.Errorf("directory %s belongs to broker %d, not to broker %d: %w", dir, b.ID, r.NodeID, model.ErrInvalidRegistration)
			}
		}
	}
	return nil
}

// fenceBroker fences a broker of which there is other evidence than its silence, as a
// connection that is refused. Its next heartbeat lets it serve again.
func (d *decision) fenceBroker(op FenceBroker) error {
	b, err := d.broker(op.ID, op.Epoch)
	if err != nil {
		return err
	}
	if l := d.soft.lives[op.ID]; l != nil {
		l.heard, l.until = false, d.soft.awake
	}
	if !b.Fenced {
		d.fence([]model.NodeID{op.ID})
	}
	return nil
}

func (d *decision) unregisterBroker(op UnregisterBroker) error {
	if _, err := d.broker(op.ID, op.Epoch); err != nil {
		return err
	}
	d.emit(&image.BrokerRemovalRecord{ID: op.ID, Epoch: op.Epoch})
	d.eachPartition(func(t *image.Topic, n int32, p *image.Partition) *edit {
		if !slices.Contains(p.Replicas, op.ID) {
			return nil
		}
		e := d.edit(t, n)
		e.mode, e.gone = asConfigured, []model.NodeID{op.ID}
		e.leave(func(n model.NodeID) bool { return n == op.ID })
		return e
	})
	return nil
}

// broker is a registered broker, by its epoch.
func (d *decision) broker(id model.NodeID, epoch model.BrokerEpoch) (*image.Broker, error) {
	b, ok := d.img.Broker(id)
	if !ok || b.Epoch != epoch {
		return nil, fmt.Errorf("broker %d is not registered with epoch %d: %w", id, epoch, model.ErrStaleBrokerEpoch)
	}
	return b, nil
}

// confirmRemoval is idempotent: a broker may say again what it said before.
func (d *decision) confirmRemoval(op ConfirmRemoval) {
	for _, id := range op.Topics {
		if t, ok := d.img.Removed(id); ok && slices.Contains(t.Directories, op.Directory) {
			d.emit(&image.TopicPurgeRecord{ID: id, Directory: op.Directory})
		}
	}
}
