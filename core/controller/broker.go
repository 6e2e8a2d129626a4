package controller

import (
	"fmt"
	"maps"
	"slices"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// Registration is how a broker names itself when it starts.
type Registration struct {
	NodeID model.NodeID
	// Incarnation is random for each start of the process.
	Incarnation [16]byte
	Rack        string
	Listeners   map[string]image.Endpoint
	// Directories are the broker's stores, the default one first.
	Directories []model.DirectoryID
}

// registerBroker lets a broker serve. The broker is alive by asking: whoever
// finds out that it is not fences it. What its earlier life led gets a new
// leader epoch, since that life may have acknowledged what this one lost.
func (d *decision) registerBroker(r Registration) Answer {
	if err := d.checkRegistration(r); err != nil {
		return Answer{Err: err}
	}
	if old, ok := d.img.Broker(r.NodeID); ok && old.Incarnation == r.Incarnation && old.Rack == r.Rack && !old.Fenced &&
		maps.Equal(old.Listeners, r.Listeners) && slices.Equal(old.Directories, r.Directories) {
		return Answer{Epoch: old.Epoch} // asked twice
	}
	// The broker is back: even where unclean election is on, its log is waited
	// for and nothing is lost.
	d.withoutBroker(r.NodeID, cleanOnly)
	d.emit(&image.BrokerRecord{
		ID: r.NodeID, Incarnation: r.Incarnation, Rack: r.Rack,
		Listeners: maps.Clone(r.Listeners), Directories: slices.Clone(r.Directories),
	})
	d.electLeaderless()
	return Answer{} // the epoch is known after the commit
}

func (d *decision) checkRegistration(r Registration) error {
	switch {
	case r.NodeID < 0:
		return fmt.Errorf("node ID %d: it must be 0 or more: %w", r.NodeID, model.ErrInvalidRequest)
	case r.Incarnation == [16]byte{}:
		return fmt.Errorf("broker %d names no incarnation: %w", r.NodeID, model.ErrInvalidRequest)
	}
	for i, dir := range r.Directories {
		if dir.IsZero() || slices.Contains(r.Directories[:i], dir) {
			return fmt.Errorf("broker %d names directory %s twice or without an ID: %w", r.NodeID, dir, model.ErrInvalidRequest)
		}
	}
	for b := range d.img.Brokers() {
		if b.ID == r.NodeID {
			continue
		}
		for _, dir := range b.Directories {
			if slices.Contains(r.Directories, dir) {
				return fmt.Errorf("directory %s belongs to broker %d, not to broker %d: %w", dir, b.ID, r.NodeID, model.ErrInvalidRequest)
			}
		}
	}
	return nil
}

func (d *decision) fenceBroker(op FenceBroker) error {
	b, err := d.broker(op.ID, op.Epoch)
	if err != nil {
		return err
	}
	if b.Fenced == op.Fenced {
		return nil
	}
	if op.Fenced {
		d.withoutBroker(op.ID, asConfigured)
	}
	d.emit(&image.BrokerFenceRecord{ID: op.ID, Epoch: op.Epoch, Fenced: op.Fenced})
	if !op.Fenced {
		d.electLeaderless()
	}
	return nil
}

func (d *decision) unregisterBroker(op UnregisterBroker) error {
	if _, err := d.broker(op.ID, op.Epoch); err != nil {
		return err
	}
	d.withoutBroker(op.ID, asConfigured)
	d.emit(&image.BrokerRemovalRecord{ID: op.ID, Epoch: op.Epoch})
	return nil
}

func (d *decision) broker(id model.NodeID, epoch model.BrokerEpoch) (*image.Broker, error) {
	b, ok := d.img.Broker(id)
	if !ok || b.Epoch != epoch {
		return nil, fmt.Errorf("broker %d is not registered with epoch %d: %w", id, epoch, model.ErrInvalidRequest)
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
