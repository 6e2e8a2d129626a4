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

// errFull says what an operator can do about a write that had no room.
func (s *store) errFull(err error) error {
	if !isFull(err) {
		return err
	}
	return fmt.Errorf("the disk of %s is full, make room on it and start the broker again: %w", s.db.Path(), err)
}

// hasReserve says whether half of the reserve is left, or more.
func (s *store) hasReserve() bool {
	stats := s.db.Stats()
	return !s.filled && (stats.FreePageN+stats.PendingPageN)*s.db.Info().PageSize >= s.reserve/2
}

// keepReserve sees to pages that are free, and whose place on the disk is
// quorum.db's already: it writes as many as the reserve has, and frees them. Where
// that does not fit, nothing has changed.
func (s *store) keepReserve() error {
	if s.filled { // by an attempt that was cut short
		if err := s.db.Update(dropFiller); err != nil {
			return fmt.Errorf("free the reserve of quorum.db: %w", err)
		}
		s.filled = false
	}
	if s.hasReserve() {
		return nil
	}
	// More than all that is free is never put where something was free.
	err := s.db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket(bucketReserve)
		if err != nil {
			return err
		}
		return b.Put(keyFiller, make([]byte, s.reserve))
	})
	if err != nil {
		return fmt.Errorf("make a reserve in quorum.db: %w", err)
	}
	s.filled = true
	if err := s.db.Update(dropFiller); err != nil {
		return fmt.Errorf("free the reserve of quorum.db: %w", err)
	}
	s.filled = false
	return nil
}

func dropFiller(tx *bbolt.Tx) error { return tx.DeleteBucket(bucketReserve) }

// keepReserve notes whether the metadata has room.
func (n *Node) keepReserve() {
	err := n.store.keepReserve()
	if short := err != nil && !n.store.hasReserve(); short != n.short {
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
