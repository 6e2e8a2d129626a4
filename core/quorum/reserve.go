package quorum

import (
	"errors"
	"fmt"
	"syscall"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/model"
)

// reserveDefault is the room that quorum.db keeps in itself, so that the broker can
// start and topics be deleted where the disk has none: a start takes a few pages.
const reserveDefault = 512 << 10

// reserveTicks are between two attempts to make room, while there is none.
const reserveTicks = 10

// isFull says whether a write failed because there is no room.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, berrors.ErrMaxSizeReached)
}

// hasReserve says whether half of the reserve is left, or more.
func (d *database) hasReserve() bool {
	stats := d.db.Stats()
	return !d.filled && (stats.FreePageN+stats.PendingPageN)*d.db.Info().PageSize >= d.reserve/2
}

// keepReserve sees to pages that are free, and whose place on the disk is
// quorum.db's already: it writes as many as the reserve has, and frees them. Where
// that does not fit, nothing has changed.
func (d *database) keepReserve() error {
	if d.filled { // by an attempt that was cut short
		if err := d.db.Update(dropFiller); err != nil {
			return fmt.Errorf("free the reserve of quorum.db: %w", err)
		}
		d.filled = false
	}
	if d.hasReserve() {
		return nil
	}
	// More than all that is free is never put where something was free.
	err := d.db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket(bucketReserve)
		if err != nil {
			return err
		}
		return b.Put(keyFiller, make([]byte, d.reserve))
	})
	if err != nil {
		return fmt.Errorf("make a reserve in quorum.db: %w", err)
	}
	d.filled = true
	if err := d.db.Update(dropFiller); err != nil {
		return fmt.Errorf("free the reserve of quorum.db: %w", err)
	}
	d.filled = false
	return nil
}

// Room implements Disk.
func (d *database) Room() error {
	if d.hasReserve() {
		return nil
	}
	if err := d.keepReserve(); err != nil && !d.hasReserve() {
		return err
	}
	return nil
}

func dropFiller(tx *bbolt.Tx) error { return tx.DeleteBucket(bucketReserve) }

// keepReserve notes whether the metadata has room.
func (n *Node) keepReserve() {
	err := n.store.disk.Room()
	if short := err != nil; short != n.short {
		n.short = short
		if short {
			n.log.Warn("the metadata has no room, topics are not made until there is", "dir", n.cfg.Dir, "err", err)
		} else {
			n.log.Info("room returned, topics can be made", "dir", n.cfg.Dir)
		}
	}
}

// refusal is the answer to what would use up the reserve, which is for starts and
// for what makes room.
func (n *Node) refusal(op controller.Op) error {
	if !n.short {
		return nil
	}
	switch op.(type) {
	case controller.CreateTopics, controller.CreatePartitions:
		return fmt.Errorf("the disk of the metadata is full: delete topics, or make room on it: %w", model.ErrStorage)
	}
	return nil
}

// tickReserve tries again for room, where there was none.
func (n *Node) tickReserve() {
	if !n.short {
		return
	}
	if n.shortTicks++; n.shortTicks >= reserveTicks {
		n.shortTicks = 0
		n.keepReserve()
	}
}
