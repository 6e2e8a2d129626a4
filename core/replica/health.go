package replica

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/storage"
)

// health is what the calls of a store tell of it: whether it answers, and whether it does
// what it is asked. Its methods may be called concurrently. Times are nanoseconds since
// began, and at least 1.
type health struct {
	began time.Time
	calls pulse // that a store answers at once
	// answered is when an append was answered last, whatever its log, and youngest when the
	// youngest was begun of those that were.
	answered, youngest atomic.Int64
	// writes is since when writes fail, and lives since when the store says that it does not
	// serve; 0: the last did not.
	writes, lives atomic.Int64
	opening       atomic.Int64 // openings under way, which take as long as they take
	probing       atomic.Bool

	// Of whoever asks for Manager.Offline.
	probed int64       // when the store was asked last how it is
	ails   atomic.Bool // as the shards were told
}

// pulse is of calls of one kind.
type pulse struct {
	// under is how many are under way, and heard when the last was answered, or the first
	// of them began.
	under, heard atomic.Int64
}

func (p *pulse) begin(at int64) {
	if p.under.Load() == 0 {
		p.heard.Store(at) // before it counts as under way
	}
	p.under.Add(1)
}

func (p *pulse) end(at int64) {
	p.heard.Store(at)
	p.under.Add(-1)
}

// waits is since when nothing was heard of what is under way; 0: there is nothing.
func (p *pulse) waits() int64 {
	if p.under.Load() == 0 {
		return 0
	}
	return p.heard.Load()
}

func (h *health) at(now time.Time) int64 { return int64(max(1, now.Sub(h.began))) }

// begin is told of a call that a store answers at once, before it is made.
func (h *health) begin(now time.Time) { h.calls.begin(h.at(now)) }

// end is told of its answer.
func (h *health) end(now time.Time) { h.calls.end(h.at(now)) }

// wrote is end for a call that writes. One that has failed has done so since it began.
func (h *health) wrote(begun, now time.Time, err error) {
	h.end(now)
	switch faultOf(err) {
	case partition.FaultRetry, partition.FaultGone, partition.FaultUnknown:
		h.writes.CompareAndSwap(0, h.at(begun))
	case partition.FaultNone:
		if h.writes.Load() != 0 {
			h.writes.Store(0)
		}
	}
}

// append is begin for an append.
func (h *health) append(c *appendCall) {
	h.begin(c.begun)
	c.replica.appends.begin(h.at(c.begun))
}

// appended is wrote for an append.
func (h *health) appended(c *appendCall, now time.Time, err error) {
	h.wrote(c.begun, now, err)
	at, begun := h.at(now), h.at(c.begun)
	h.answered.Store(at)
	if begun > h.youngest.Load() {
		h.youngest.Store(begun) // two at once are about as young
	}
	c.replica.appends.end(at)
}

// serves says whether the store has answered, and done what it was asked, within a while.
func (h *health) serves(now time.Time, within time.Duration) bool {
	at := h.at(now)
	late := func(since int64) bool { return since != 0 && at-since > int64(within) }
	under := h.calls.under.Load()
	if h.probing.Load() && h.opening.Load() > 0 {
		under-- // the question waits behind logs that are opened
	}
	hangs := under > 0 && late(h.calls.heard.Load())
	return !hangs && !late(h.writes.Load()) && !late(h.lives.Load())
}

// hangs says whether the store hangs at a log, though it answers: a log of which nobody can
// say whether it takes anything stops its partition, wherever it leads. Of the appends to it
// that are under way none was answered within a while, nor was one to any other log, or else
// one that was begun as long after: the log does not wait for its turn then. A store that has
// much to do answers one after the other, about as they were begun, however long each waits.
func (h *health) hangs(r *replica, now time.Time, within time.Duration) bool {
	at := h.at(now)
	since := r.appends.waits()
	if since == 0 || at-since <= int64(within) {
		return false
	}
	return at-h.answered.Load() > int64(within) || h.youngest.Load()-since >= int64(within)
}

// doubtful says whether the store is to be asked: it was not heard for a while, or did
// not do what it was asked last.
func (h *health) doubtful(now time.Time, within time.Duration) bool {
	at := h.at(now)
	if h.probed != 0 && at-h.probed < int64(within/probesWithin) {
		return false
	}
	return h.writes.Load() != 0 || h.lives.Load() != 0 || at-h.calls.heard.Load() > int64(within/2)
}

// probesWithin is how often a store that ails is asked within Config.DirectoryTimeout.
const probesWithin = 4

// Offline lists the directories that do not serve: for Config.DirectoryTimeout their store
// has answered nothing, or has done nothing that it was asked. What they hold is to be led by
// others. (KIP-858) It is to be asked again and again by one goroutine, and does not block.
func (m *Manager) Offline() []model.DirectoryID {
	var out []model.DirectoryID
	now := m.clockNow()
	for i := range m.deps.Directories {
		d := &m.deps.Directories[i]
		h := d.health
		if h.doubtful(now, m.cfg.DirectoryTimeout) && h.probing.CompareAndSwap(false, true) {
			h.probed = h.at(now)
			h.begin(now)
			m.exec.Go(d.ID, func(ctx context.Context) { m.probe(ctx, d, now) })
		}
		ails := !h.serves(now, m.cfg.DirectoryTimeout) || m.hangsAtOne(d, now)
		if ails {
			out = append(out, d.ID)
		}
		if ails == h.ails.Load() {
			continue
		}
		h.ails.Store(ails)
		if ails {
			m.deps.Logger.Error("a store does not serve", "directory", d.Name)
		} else {
			m.deps.Logger.Info("a store serves again", "directory", d.Name)
		}
		for _, s := range m.shards {
			s.loop.Complete(Input{kind: inputAiling, rare: &rare{dir: d}})
		}
	}
	return out
}

// hangsAtOne says whether the store of a directory hangs at one of the logs.
func (m *Manager) hangsAtOne(d *Directory, now time.Time) bool {
	if d.health.calls.under.Load() == 0 {
		return false
	}
	for _, r := range *m.replicas.Load() {
		if r.dir == d && d.health.hangs(r, now, m.cfg.DirectoryTimeout) {
			return true
		}
	}
	return false
}

// probeBlob is written beside a log, and removed, where it is to be known whether a store
// can write again.
const probeBlob = "probe"

// probe asks a store how it is.
func (m *Manager) probe(ctx context.Context, d *Directory, begun time.Time) {
	h := d.health
	ctx, cancel := context.WithTimeout(ctx, m.cfg.StoreTimeout)
	defer cancel()
	_, err := d.Store.Usage(ctx)
	switch faultOf(err) {
	case partition.FaultRetry, partition.FaultGone, partition.FaultUnknown:
		h.lives.CompareAndSwap(0, h.at(begun))
	default:
		h.lives.Store(0)
	}
	if err == nil && h.writes.Load() != 0 {
		m.probeWrite(ctx, d)
	}
	h.end(m.clockNow())
	h.probing.Store(false)
}

// probeWrite writes, where something has to be written by. A handle that has ended says
// nothing of the store; that no log can be opened does not say that it writes.
func (m *Manager) probeWrite(ctx context.Context, d *Directory) {
	handle, opening := m.anyHandle(d)
	if handle == 0 {
		if !opening {
			d.health.writes.Store(0)
		}
		return
	}
	err := d.Store.PutBlob(ctx, handle, probeBlob, storage.Blob{Data: []byte{1}})
	if err == nil {
		err = d.Store.PutBlob(ctx, handle, probeBlob, storage.Blob{})
	}
	if err == nil || errors.Is(err, storage.ErrFull) {
		d.health.writes.Store(0)
	}
}

// anyHandle is of the first log that is open in a directory, or 0, and says whether one is
// to be opened.
func (m *Manager) anyHandle(d *Directory) (handle storage.Handle, opening bool) {
	var first *replica
	for _, r := range *m.replicas.Load() {
		if r.dir != d {
			continue
		}
		v := r.view.Load()
		serves := v.Status == partition.StatusServing || v.Status == partition.StatusFollowing
		switch {
		case v.Status == partition.StatusOpening || v.Status == partition.StatusReopened || serves && v.handle == 0:
			opening = true
		case serves && (first == nil || byID(r, first) < 0):
			first, handle = r, v.handle
		}
	}
	return handle, opening
}

// ailing tells machines whether their store serves.
func (s *Shard) ailing(now time.Time, d *Directory) {
	ails := d.health.ails.Load()
	for _, r := range s.inOrder() {
		if r.dir == d && r.machine != nil && !r.deleting {
			s.step(now, r, &partition.Ailing{Ails: ails})
		}
	}
}
