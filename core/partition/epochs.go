package partition

import (
	"slices"

	"github.com/brokerd/brokerd/core/model"
)

// EpochStart is the first offset written under a leader epoch.
type EpochStart struct {
	Epoch model.LeaderEpoch
	Start int64
}

// epochCache is the leader epochs of a log with the offset at which each
// starts, rising in both. A value is never changed: every change makes another,
// so that readers may keep one. (KIP-101)
type epochCache struct{ starts []EpochStart }

// assigned adds an epoch that starts at start. An epoch that is not higher than
// the last changes nothing; entries at or above start that hold no record are
// replaced, so that elections without writes leave no conflict. (KAFKA-10706)
func (c *epochCache) assigned(epoch model.LeaderEpoch, start int64) *epochCache {
	n := len(c.starts)
	if n > 0 && c.starts[n-1].Epoch >= epoch {
		return c
	}
	kept := c.starts
	for len(kept) > 0 && kept[len(kept)-1].Start >= start {
		kept = kept[:len(kept)-1]
	}
	return &epochCache{starts: append(slices.Clone(kept), EpochStart{epoch, start})}
}

// trimmed forgets epochs that end at or below logStart; the one that reaches
// over it starts there.
func (c *epochCache) trimmed(logStart int64) *epochCache {
	first := 0
	for first+1 < len(c.starts) && c.starts[first+1].Start <= logStart {
		first++
	}
	if len(c.starts) == 0 || (first == 0 && c.starts[0].Start >= logStart) {
		return c
	}
	kept := slices.Clone(c.starts[first:])
	kept[0].Start = max(kept[0].Start, logStart)
	return &epochCache{starts: kept}
}

// last is the highest epoch, or NoEpoch.
func (c *epochCache) last() model.LeaderEpoch {
	if len(c.starts) == 0 {
		return model.NoEpoch
	}
	return c.starts[len(c.starts)-1].Epoch
}

// first is the lowest epoch, or NoEpoch.
func (c *epochCache) first() model.LeaderEpoch {
	if len(c.starts) == 0 {
		return model.NoEpoch
	}
	return c.starts[0].Epoch
}

// at is the epoch of the record at offset, or NoEpoch.
func (c *epochCache) at(offset int64) model.LeaderEpoch {
	for i := len(c.starts) - 1; i >= 0; i-- {
		if c.starts[i].Start <= offset {
			return c.starts[i].Epoch
		}
	}
	return model.NoEpoch
}

// end is the largest epoch at or below the one asked for, with its end offset;
// the current one ends at leo. Below every known epoch the answer is the one
// asked for, ending where the known ones start. Unknown is NoEpoch, -1. (KIP-279)
func (c *epochCache) end(epoch model.LeaderEpoch, leo int64) model.EpochEnd {
	none := model.EpochEnd{Epoch: model.NoEpoch, EndOffset: -1}
	if epoch < 0 || len(c.starts) == 0 {
		return none
	}
	if epoch == c.last() {
		return model.EpochEnd{Epoch: epoch, EndOffset: leo}
	}
	higher := slices.IndexFunc(c.starts, func(s EpochStart) bool { return s.Epoch > epoch })
	switch higher {
	case -1:
		return none
	case 0:
		return model.EpochEnd{Epoch: epoch, EndOffset: c.starts[0].Start}
	}
	return model.EpochEnd{Epoch: c.starts[higher-1].Epoch, EndOffset: c.starts[higher].Start}
}
