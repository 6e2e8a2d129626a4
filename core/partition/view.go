package partition

import (
	"fmt"

	"github.com/brokerd/brokerd/core/model"
)

// Status is whether a replica serves.
type Status int8

// The states that a reader can tell apart.
const (
	StatusNone      Status = iota // neither leads nor follows
	StatusOpening                 // about to serve: waiting helps
	StatusServing                 // the log is open
	StatusReopened                // offsets are known, the log is being opened again
	StatusOffline                 // not serving; see View.Why
	StatusFollowing               // another replica leads; what is below the high watermark may be read
)

// View is what a machine shows to readers: a value that never changes, to be
// published as a whole. Views can be compared with ==.
type View struct {
	Partition  model.Partition
	Status     Status
	Follows    bool // also where Status is StatusOffline
	Epoch      model.LeaderEpoch
	EpochStart int64 // the log end when the epoch began
	LogStart   int64
	First      int64 // where the batch begins that LogStart is in, as far as that is known
	HighWater  int64
	LastStable int64
	LEO        int64
	Gen        Generation
	Why        error // for StatusOffline, and while the log cannot be opened
	CutOff     bool  // it leads, and others may by now: nothing has been committed here for a while

	epochs *epochCache
	under  model.PartitionEpoch // of the metadata that the machine knows
	// backed: there are other replicas; damaged: a read has met damage, and nobody else is to lead.
	backed, damaged bool

	readable bool  // with StatusFollowing: the offsets are those of the log
	open     bool  // likewise: its log is open
	known    int64 // on a follower: the leader's high watermark, by its last word
}

// Serving is nil when offsets are known and this replica leads. Otherwise the
// error wraps the sentinel for a client.
func (v *View) Serving() error {
	switch {
	case v.Follows:
		return fmt.Errorf("partition %s is followed here: %w", v.Partition, model.ErrNotLeaderOrFollower)
	case v.CutOff:
		return errCutOff(v.Partition)
	case v.Status == StatusServing || v.Status == StatusReopened:
		return nil
	case v.Status == StatusOffline:
		return fmt.Errorf("partition %s is offline: %w: %w", v.Partition, v.Why, model.ErrStorage)
	case v.Status == StatusOpening:
		return fmt.Errorf("partition %s is being opened: %w", v.Partition, model.ErrNotLeaderOrFollower)
	}
	return fmt.Errorf("partition %s: %w", v.Partition, model.ErrNotLeaderOrFollower)
}

// ServingReads is nil where Serving is, and on a follower whose log is open, below whose
// high watermark consumers may read. (KIP-392)
func (v *View) ServingReads() error {
	if v.Status == StatusFollowing && v.Open() {
		return nil
	}
	return v.Serving()
}

// Open reports whether records can be read: of a leader, or of a follower.
func (v *View) Open() bool {
	return v.Status == StatusServing || v.Status == StatusFollowing && v.readable && v.open
}

// Unreadable is what a client hears of a read that has met damage: while another replica may
// lead in place of this one, that it is to ask again.
func (v *View) Unreadable() error {
	if v.backed && !v.damaged {
		return model.ErrStorage
	}
	return model.ErrCorruptMessage
}

// HasCommitted reports whether offset is one that every replica in sync has, or the one
// after all of them.
func (v *View) HasCommitted(offset int64) bool { return v.LogStart <= offset && offset <= v.HighWater }

// LogEnd is where the log ends. False: that is not known now.
func (v *View) LogEnd() (model.LogEnd, bool) {
	if !v.Open() {
		return model.LogEnd{}, false
	}
	return model.LogEnd{Partition: v.Partition, PartitionEpoch: v.under, LastEpoch: v.epochs.last(), LEO: v.LEO}, true
}

// CheckEpoch compares the epoch that a client believes in with this one's;
// NoEpoch is not checked. (KIP-320)
func (v *View) CheckEpoch(current model.LeaderEpoch) error {
	switch {
	case current == model.NoEpoch || current == v.Epoch:
		return nil
	case current < v.Epoch:
		return fmt.Errorf("leader epoch %d, here it is %d: %w", current, v.Epoch, model.ErrFencedLeaderEpoch)
	}
	return fmt.Errorf("leader epoch %d, here it is %d: %w", current, v.Epoch, model.ErrUnknownLeaderEpoch)
}

// CheckFetch says whether a consumer may read from offset: nil, an error, or
// where the client's log diverges from this one. (KIP-320, KIP-595)
func (v *View) CheckFetch(offset int64, current, lastFetched model.LeaderEpoch) (*model.EpochEnd, error) {
	if err := v.CheckEpoch(current); err != nil {
		return nil, err
	}
	if lastFetched != model.NoEpoch {
		end := v.epochs.end(lastFetched, v.LEO)
		if end.Epoch == model.NoEpoch {
			return nil, fmt.Errorf("no record of leader epoch %d: %w", lastFetched, model.ErrOffsetOutOfRange)
		}
		if end.Epoch < lastFetched || end.EndOffset < offset {
			return &end, nil
		}
	}
	if v.Follows && offset > v.LEO && offset <= v.known {
		// The leader has it: that is no reason to give up the place. Beyond, a client is to
		// ask the leader, which it does when it hears that the offset is out of range. (KIP-392)
		return nil, fmt.Errorf("offset %d is above %d, all that this follower has: %w", offset, v.LEO, model.ErrOffsetNotAvailable)
	}
	if offset < v.LogStart || offset > v.LEO {
		return nil, fmt.Errorf("offset %d is outside %d to %d: %w", offset, v.LogStart, v.LEO, model.ErrOffsetOutOfRange)
	}
	return nil, nil
}

// EpochEnd answers where an epoch ends. (KIP-101, KIP-279)
func (v *View) EpochEnd(current, epoch model.LeaderEpoch) (model.EpochEnd, error) {
	if err := v.CheckEpoch(current); err != nil {
		return model.EpochEnd{Epoch: model.NoEpoch, EndOffset: -1}, err
	}
	if v.Status == StatusReopened && epoch >= v.epochs.last() {
		// What the store had taken may be more than is known yet.
		return model.EpochEnd{Epoch: model.NoEpoch, EndOffset: -1}, fmt.Errorf("partition %s is being opened again, where epoch %d ends is not known: %w",
			v.Partition, epoch, model.ErrOffsetNotAvailable)
	}
	return v.epochs.end(epoch, v.LEO), nil
}

// ReadLimit is the offset below which a client may read.
func (v *View) ReadLimit(isolation model.IsolationLevel) int64 {
	if isolation == model.ReadCommitted {
		return v.LastStable
	}
	return v.HighWater
}

// Latest is the end as a client sees it; it is not available before the high
// watermark has reached what was there when the epoch began. (KIP-207)
func (v *View) Latest(isolation model.IsolationLevel) (int64, error) {
	if v.HighWater < v.EpochStart {
		return -1, fmt.Errorf("high watermark %d is below %d, where epoch %d began: %w",
			v.HighWater, v.EpochStart, v.Epoch, model.ErrOffsetNotAvailable)
	}
	return v.ReadLimit(isolation), nil
}

// EpochAt is the leader epoch of the record at offset, or NoEpoch.
func (v *View) EpochAt(offset int64) model.LeaderEpoch { return v.epochs.at(offset) }

// Producers are the idempotent producers that the log tells of, the idlest first,
// and those whose first batch is on its way there. The slice is the caller's.
// Nothing is known before the log was read, nor of a replica that does not lead:
// ask Serving of the view. (KIP-664)
func (m *Machine) Producers() []model.ProducerState { return m.producers.active() }

// LastEpoch is the epoch of the last record, or NoEpoch.
func (v *View) LastEpoch() model.LeaderEpoch { return v.epochs.last() }
