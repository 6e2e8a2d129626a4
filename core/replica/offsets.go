package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/storage"
)

// noOffset is the answer when no record qualifies.
var noOffset = model.OffsetAnswer{Offset: -1, Timestamp: -1, LeaderEpoch: model.NoEpoch}

// Offsets implements model.Partitions. All queries together wait Config.OpenWait
// for logs that are being opened, and Config.StoreTimeout for their stores.
func (m *Manager) Offsets(ctx context.Context, qs []model.OffsetQuery) []model.OffsetAnswer {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.OpenWait+m.cfg.StoreTimeout)
	defer cancel()
	until := m.deps.Clock.Now().Add(m.cfg.OpenWait)
	out := make([]model.OffsetAnswer, len(qs))
	for i := range qs {
		a, err := m.offset(ctx, &qs[i], until)
		if err != nil {
			a = noOffset
			a.Err = err
		}
		out[i] = a
	}
	return out
}

// EpochEnds implements model.Partitions. It waits as Offsets does.
func (m *Manager) EpochEnds(ctx context.Context, qs []model.EpochQuery) []model.EpochAnswer {
	until := m.deps.Clock.Now().Add(m.cfg.OpenWait)
	out := make([]model.EpochAnswer, len(qs))
	for i, q := range qs {
		out[i].EpochEnd = model.EpochEnd{Epoch: model.NoEpoch, EndOffset: -1}
		_, v, err := m.served(ctx, q.Partition, until)
		if err == nil {
			out[i].EpochEnd, err = v.EpochEnd(q.CurrentEpoch, q.Epoch)
		}
		out[i].Err = err
	}
	return out
}

// served returns a replica and its view, having waited for its log to be opened,
// for no longer than until.
func (m *Manager) served(ctx context.Context, p model.Partition, until time.Time) (*replica, *view, error) {
	r, err := m.find(p)
	if err != nil {
		return nil, nil, err
	}
	v := r.view.Load()
	if v.Status == partition.StatusServing {
		return r, v, v.Serving()
	}
	left := until.Sub(m.deps.Clock.Now())
	if left <= 0 {
		return r, v, v.Serving()
	}
	w := newWatcher()
	at := watch{watcher: w}
	r.watch(&at)
	defer r.unwatch(&at)
	fire, stop := m.deps.Clock.NewTimer(left)
	defer stop()
	for {
		v = r.view.Load()
		if v.Status != partition.StatusOpening && v.Status != partition.StatusReopened {
			return r, v, v.Serving()
		}
		select {
		case <-w.wake:
		case <-fire:
			return r, v, v.Serving()
		case <-ctx.Done():
			return r, v, v.Serving()
		}
	}
}

// offset answers one query by time. (KIP-79, KIP-207, KIP-734)
func (m *Manager) offset(ctx context.Context, q *model.OffsetQuery, until time.Time) (model.OffsetAnswer, error) {
	r, v, err := m.served(ctx, q.Partition, until)
	if err != nil {
		return noOffset, err
	}
	if err := v.CheckEpoch(q.CurrentEpoch); err != nil {
		return noOffset, err
	}
	latest, err := v.Latest(q.Isolation)
	if err != nil {
		return noOffset, err
	}
	switch q.Timestamp {
	case model.TimestampLatest:
		return model.OffsetAnswer{Offset: latest, Timestamp: -1, LeaderEpoch: v.LastEpoch()}, nil
	case model.TimestampEarliest, model.TimestampEarliestLocal:
		return model.OffsetAnswer{Offset: v.LogStart, Timestamp: -1, LeaderEpoch: v.EpochAt(v.LogStart)}, nil
	case model.TimestampLatestTiered, model.TimestampEarliestRemote:
		return noOffset, nil // no record is in a remote tier
	}
	query := storage.TimestampQuery{Handle: v.handle, Kind: storage.FirstAtOrAfter, Timestamp: q.Timestamp, UpTo: latest}
	if q.Timestamp == model.TimestampMax {
		query.Kind = storage.Latest
	} else if q.Timestamp < 0 {
		return noOffset, fmt.Errorf("timestamp %d: %w", q.Timestamp, model.ErrInvalidRequest)
	}
	return m.byTime(ctx, r, v, query)
}

// byTime finds the batch in the store, then the record in the batch.
func (m *Manager) byTime(ctx context.Context, r *replica, v *view, q storage.TimestampQuery) (model.OffsetAnswer, error) {
	found, ok, err := r.dir.Store.FindTimestamp(ctx, q)
	if err != nil {
		return noOffset, m.queryFailed(ctx, r, v, err)
	}
	if !ok {
		return noOffset, nil
	}
	want := q.Timestamp
	if q.Kind == storage.Latest {
		want = found.MaxTimestamp
	}
	for from := max(found.BaseOffset, v.LogStart); from < q.UpTo; {
		res, err := r.dir.Store.Read(ctx, storage.ReadRequest{
			Handle: v.handle, Offset: from, UpTo: q.UpTo, MaxBytes: int(found.Bytes), AtLeastOne: true,
		})
		if err != nil {
			return noOffset, m.queryFailed(ctx, r, v, err)
		}
		if len(res.Data) == 0 {
			break
		}
		for rec, err := range batch.Stamps(res.Data, 0) {
			if err != nil {
				return noOffset, fmt.Errorf("look for a timestamp at offset %d: %w", from, err)
			}
			if rec.Timestamp >= want && rec.Offset >= v.LogStart {
				return model.OffsetAnswer{Offset: rec.Offset, Timestamp: rec.Timestamp, LeaderEpoch: v.EpochAt(rec.Offset)}, nil
			}
		}
		from = res.Next
	}
	return noOffset, nil
}

// queryFailed is what a client hears of a store's error; all of it can be tried
// again.
func (m *Manager) queryFailed(ctx context.Context, r *replica, v *view, err error) error {
	switch {
	case errors.Is(err, storage.ErrCorrupt):
		return fmt.Errorf("look for a timestamp: %w: %w", err, model.ErrCorruptMessage)
	case errors.Is(err, storage.ErrGone), errors.Is(err, storage.ErrFenced):
		_ = r.shard.loop.Post(ctx, Input{kind: inputMachine, replica: r, rare: &rare{in: &partition.ReadFailed{Gen: v.Gen, Fault: faultOf(err), Err: err}}})
	}
	return fmt.Errorf("look for a timestamp: %w: %w", err, model.ErrStorage)
}

// sorted orders replicas by identity.
func sorted(all []*replica) []*replica {
	slices.SortFunc(all, byID)
	return all
}

func byID(a, b *replica) int {
	return cmp.Or(slices.Compare(a.id.Topic[:], b.id.Topic[:]), cmp.Compare(a.id.Index, b.id.Index))
}
