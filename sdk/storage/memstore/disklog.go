package memstore

import (
	"fmt"
	"slices"
	"sort"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// search returns the position of the first batch that reaches offset: the one
// that contains it, or the first after it.
func (l *diskLog) search(offset int64) int {
	return sort.Search(len(l.batches), func(i int) bool { return l.batches[i].LastOffset >= offset })
}

// bytes returns what the log's batches occupy.
func (l *diskLog) bytes() int64 {
	total := int64(0)
	for i := range l.batches {
		total += int64(l.batches[i].Bytes)
	}
	return total
}

// lastEnd returns the offset after the last batch, or the log start.
func (l *diskLog) lastEnd() int64 {
	if n := len(l.batches); n > 0 {
		return max(l.start, l.batches[n-1].LastOffset+1)
	}
	return l.start
}

// lastEpoch returns the leader epoch of the last batch, or -1.
func (l *diskLog) lastEpoch() int32 {
	if n := len(l.batches); n > 0 {
		return l.batches[n-1].LeaderEpoch
	}
	return -1
}

// tear drops the batches from position i on, keeping the first bytes of that
// one.
func (l *diskLog) tear(i, keep int) {
	if keep > 0 {
		l.batches[i].data = slices.Clone(l.batches[i].data[:keep])
		i++
	}
	l.batches = slices.Clip(l.batches[:i])
	l.end = l.lastEnd()
}

// cut drops the batches from position i on, and the blobs that are ahead of
// what is left.
func (l *diskLog) cut(i int) {
	l.batches = slices.Clip(l.batches[:i])
	l.end = l.lastEnd()
	l.durable = min(l.durable, l.end)
	l.dropBlobsAhead()
}

func (l *diskLog) dropBlobsAhead() {
	for name, blob := range l.blobs {
		if blob.Offset > l.end {
			delete(l.blobs, name)
		}
	}
}

// recover checks every batch, as a store does that finds a log which was not
// closed in order. It cuts the log at the first damaged batch past the recovery
// point and says what it dropped. Damage below stays, for reads to meet.
func (l *diskLog) recover() (dropped string, err error) {
	if l.end < l.durable {
		return "", storage.Errorf(storage.ErrCorrupt,
			"the log ends at %d but was flushed up to %d", l.end, l.durable)
	}
	for i := range l.batches {
		b := &l.batches[i]
		damage := b.check()
		if damage == nil || b.LastOffset < l.durable {
			continue
		}
		// A batch of full length, or one with others behind it, had been written
		// whole, and may have been acknowledged.
		if len(b.data) == int(b.Bytes) || i+1 < len(l.batches) {
			l.suspect = true
		}
		dropped = fmt.Sprintf("%d batches from offset %d: %v", len(l.batches)-i, b.BaseOffset, damage)
		l.batches = slices.Clip(l.batches[:i])
		l.end = max(l.lastEnd(), l.durable) // Replace may have left no batch there
		break
	}
	l.dropBlobsAhead()
	return dropped, nil
}

// check returns what is wrong with the stored bytes, if anything.
func (b *storedBatch) check() error {
	info, _, rest, err := recordbatch.Next(b.data)
	switch {
	case err != nil:
		return err
	case len(rest) > 0 || info != b.BatchInfo:
		return fmt.Errorf("%w: its header is not the one that was written", recordbatch.ErrNotABatch)
	}
	return nil
}

// epochs returns the leader epochs of the batches and where each starts.
func (l *diskLog) epochs() []storage.EpochStart {
	var epochs []storage.EpochStart
	for i := range l.batches {
		b := &l.batches[i]
		if n := len(epochs); n == 0 || epochs[n-1].Epoch < b.LeaderEpoch {
			epochs = append(epochs, storage.EpochStart{Epoch: b.LeaderEpoch, Start: max(b.BaseOffset, l.start)})
		}
	}
	return epochs
}

// dropTrimmed frees the units that are wholly below the log start.
func (l *diskLog) dropTrimmed() {
	gone := 0
	for _, u := range l.unitList() {
		if u.last >= l.start {
			break
		}
		gone += u.batches
	}
	if gone > 0 {
		l.batches = slices.Clone(l.batches[gone:])
	}
}

// unit is the batches that retention drops together: a segment of a store on
// files.
type unit struct {
	batches      int
	bytes        int64
	last         int64 // offset
	maxTimestamp int64
	written      int64 // milliseconds since 1970
}

func (l *diskLog) unitList() []unit {
	var units []unit
	for i := range l.batches {
		b := &l.batches[i]
		if i == 0 || l.batches[i-1].unit != b.unit {
			units = append(units, unit{maxTimestamp: -1})
		}
		u := &units[len(units)-1]
		u.batches++
		u.bytes += int64(b.Bytes)
		u.last = b.LastOffset
		u.maxTimestamp = max(u.maxTimestamp, b.MaxTimestamp)
		u.written = max(u.written, b.written.UnixMilli())
	}
	return units
}
