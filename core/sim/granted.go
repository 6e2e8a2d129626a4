package sim

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/sim/world"
	"github.com/brokerd/brokerd/sdk/storage"
)

// pages is what lies in the files of logs and their store has not been told, in the
// order in which it was written: it outlives the processes of the store and of the
// host, and not a loss of power.
type pages map[storage.LogID][]storage.AppendRequest

// granted is the host's side of a store whose logs' ends are lent to it, and the
// store's side of that too, as far as a broker can tell: an append is in the file and
// answered at once, the store is told later, and an opening finds what it was not
// told. When the store's process has died the host goes on for a moment, until it
// hears of it.
type granted struct {
	storage.Store
	w       *world.World
	report  *Report
	pages   pages
	logs    map[storage.Handle]*grantedLog
	revoked bool
}

// grantedLog is a log as one handle of it has it.
type grantedLog struct {
	id      storage.LogID
	handle  storage.Handle
	leo     int64
	durable int64
	lent    bool
	plain   int   // appends without a grant that are under way
	told    int   // of pages, how many the store is being told of
	broken  error // why nothing is appended before the log is opened again
}

// tellWithin is how long the store does not hear of a write at most.
const tellWithin = 5 * time.Millisecond

// lentOneIn: of so many appends without a grant one is followed by a grant.
const lentOneIn = 3

// revoke ends all that is lent: the host has heard that the process is gone.
func (g *granted) revoke() { g.revoked = true }

func errRevoked() error { return storage.Errorf(storage.ErrGone, "the store's process is gone") }

// Open implements storage.Store.
func (g *granted) Open(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult {
	results := make([]storage.OpenResult, len(specs))
	for i, spec := range specs {
		for _, l := range g.logs {
			if l.id == spec.ID {
				_ = g.barrier(ctx, l) // what the store does not take now, it finds
				l.broken = storage.Errorf(storage.ErrFenced, "the log was opened again")
				delete(g.logs, l.handle)
			}
		}
		if results[i] = g.open(ctx, spec); results[i].Err == nil {
			r := results[i]
			g.logs[r.Handle] = &grantedLog{id: spec.ID, handle: r.Handle, leo: r.LEO, durable: r.Durable}
		}
	}
	return results
}

// open opens a log, and takes in what lies in its file and the store does not know.
func (g *granted) open(ctx context.Context, spec storage.OpenSpec) storage.OpenResult {
	r := g.Store.Open(ctx, []storage.OpenSpec{spec})[0]
	if r.Err != nil {
		return r
	}
	untold := slices.DeleteFunc(g.pages[spec.ID], func(a storage.AppendRequest) bool { return endOf(a) <= r.LEO })
	if g.pages[spec.ID] = untold; len(untold) == 0 {
		return r
	}
	var failed error
	for _, a := range untold {
		a.Handle, a.LeaderEpoch, a.Require = r.Handle, spec.LeaderEpoch, storage.SurvivesUnset
		g.Store.Append(ctx, a, func(_ storage.AppendResult, err error) {
			if failed == nil {
				failed = err
			}
		})
	}
	if _, err := g.Store.Trim(ctx, r.Handle, 0); err != nil { // which only waits for them
		return storage.OpenResult{Err: err}
	}
	if failed != nil {
		return storage.OpenResult{Err: failed}
	}
	again := g.Store.Open(ctx, []storage.OpenSpec{spec})[0]
	if again.Err != nil {
		return again
	}
	g.report.Found += len(untold)
	g.w.Note("an opening finds %d appends that it was not told of", len(untold))
	delete(g.pages, spec.ID)
	again.Cut = r.Cut
	return again
}

func endOf(a storage.AppendRequest) int64 { return a.Batches[len(a.Batches)-1].LastOffset + 1 }

// Append implements storage.Store.
func (g *granted) Append(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
	l := g.logs[req.Handle]
	switch {
	case l == nil:
		g.Store.Append(ctx, req, done)
		return
	case l.broken != nil:
		done(storage.AppendResult{}, l.broken)
		return
	case g.revoked:
		done(storage.AppendResult{}, errRevoked())
		return
	case !l.takes(&req):
		g.tell(ctx, l)
		l.lent = false
		l.plain++
		g.Store.Append(ctx, req, func(result storage.AppendResult, err error) {
			l.plain--
			if err == nil {
				l.leo, l.durable = max(l.leo, result.LEO), result.Durable
				l.lent = l.plain == 0 && !g.revoked && g.w.Chance(lentOneIn)
			}
			done(result, err)
		})
		return
	}
	written := req
	written.Data = [][]byte{bytes.Join(req.Data, nil)} // the caller's are its own again
	written.Batches = slices.Clone(req.Batches)
	g.pages[l.id] = append(g.pages[l.id], written)
	l.leo = endOf(req)
	g.report.Granted++
	if req.Require > storage.SurvivesProcess {
		g.tell(ctx, l, done)
		return
	}
	done(storage.AppendResult{LEO: l.leo, Survives: storage.SurvivesProcess, Durable: l.durable}, nil)
	g.w.After(g.w.Between(0, tellWithin), func() { g.tell(ctx, l) })
}

// takes says whether an append can be written under a grant.
func (l *grantedLog) takes(req *storage.AppendRequest) bool {
	if !l.lent || l.plain > 0 || req.BaseOffset != l.leo || len(req.Batches) == 0 {
		return false
	}
	next := l.leo
	for i := range req.Batches {
		b := &req.Batches[i]
		if b.BaseOffset != next || b.LeaderEpoch != req.LeaderEpoch {
			return false
		}
		next = b.LastOffset + 1
	}
	return true
}

// tell tells the store of what it has not been told of. The last of it is answered by
// last, if that is given.
func (g *granted) tell(ctx context.Context, l *grantedLog, last ...func(storage.AppendResult, error)) {
	if l.broken != nil {
		return
	}
	all := g.pages[l.id]
	for ; l.told < len(all); l.told++ {
		answered := func(storage.AppendResult, error) {}
		if l.told == len(all)-1 && len(last) > 0 {
			answered = last[0]
		}
		g.Store.Append(ctx, all[l.told], func(result storage.AppendResult, err error) {
			switch {
			case err != nil && l.broken == nil:
				l.broken = storage.Errorf(storage.ErrGone, "the store does not take what it was told (%v)", err)
			case err == nil && l.broken == nil:
				g.pages[l.id] = g.pages[l.id][1:]
				l.told--
				l.durable = result.Durable
			}
			if err != nil { // what it is of, an opening finds, whatever the store says
				err = storage.Errorf(storage.ErrUnknown, "the store was told, and says: %v", err)
			}
			answered(result, err)
		})
	}
}

// barrier ends the grant of a log, and waits until the store knows all.
func (g *granted) barrier(ctx context.Context, l *grantedLog) error {
	g.tell(ctx, l)
	l.lent = false
	if l.broken == nil && len(g.pages[l.id]) > 0 {
		if _, err := g.Store.Trim(ctx, l.handle, 0); err != nil {
			return err
		}
	}
	return l.broken
}

// settled is barrier for a call on a handle; one that is not known is the store's.
func (g *granted) settled(ctx context.Context, h storage.Handle) error {
	if l := g.logs[h]; l != nil {
		return g.barrier(ctx, l)
	}
	return nil
}

// Close implements storage.Store.
func (g *granted) Close(ctx context.Context, handles []storage.Handle) []error {
	errs := make([]error, len(handles))
	for i, h := range handles {
		if errs[i] = g.settled(ctx, h); errs[i] == nil {
			errs[i] = g.Store.Close(ctx, []storage.Handle{h})[0]
		}
	}
	return errs
}

// Delete implements storage.Store.
func (g *granted) Delete(ctx context.Context, id storage.LogID) error {
	err := g.Store.Delete(ctx, id)
	if err == nil {
		delete(g.pages, id)
	}
	return err
}

// Read implements storage.Store.
func (g *granted) Read(ctx context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
	if err := g.settled(ctx, req.Handle); err != nil {
		return storage.ReadResult{}, err
	}
	return g.Store.Read(ctx, req)
}

// Scan implements storage.Store.
func (g *granted) Scan(ctx context.Context, req storage.ScanRequest) ([]storage.BatchInfo, error) {
	if err := g.settled(ctx, req.Handle); err != nil {
		return nil, err
	}
	return g.Store.Scan(ctx, req)
}

// Flush implements storage.Store.
func (g *granted) Flush(ctx context.Context, handles []storage.Handle) []storage.FlushResult {
	results := make([]storage.FlushResult, len(handles))
	for i, h := range handles {
		if err := g.settled(ctx, h); err != nil {
			results[i].Err = err
			continue
		}
		results[i] = g.Store.Flush(ctx, []storage.Handle{h})[0]
	}
	return results
}

// Truncate implements storage.Store.
func (g *granted) Truncate(ctx context.Context, h storage.Handle, leaderEpoch int32, to int64) (int64, error) {
	if err := g.settled(ctx, h); err != nil {
		return 0, err
	}
	leo, err := g.Store.Truncate(ctx, h, leaderEpoch, to)
	if l := g.logs[h]; l != nil && err == nil {
		l.leo = leo
	}
	return leo, err
}

// Trim implements storage.Store.
func (g *granted) Trim(ctx context.Context, h storage.Handle, to int64) (int64, error) {
	if err := g.settled(ctx, h); err != nil {
		return 0, err
	}
	start, err := g.Store.Trim(ctx, h, to)
	if l := g.logs[h]; l != nil && err == nil {
		l.leo = max(l.leo, start)
	}
	return start, err
}

// Retain implements storage.Store.
func (g *granted) Retain(ctx context.Context, h storage.Handle, p storage.RetainPolicy) (storage.RetainResult, error) {
	if err := g.settled(ctx, h); err != nil {
		return storage.RetainResult{}, err
	}
	return g.Store.Retain(ctx, h, p)
}

// Replace implements storage.Store.
func (g *granted) Replace(ctx context.Context, req storage.ReplaceRequest) error {
	if err := g.settled(ctx, req.Handle); err != nil {
		return err
	}
	return g.Store.Replace(ctx, req)
}

// FindTimestamp implements storage.Store.
func (g *granted) FindTimestamp(ctx context.Context, q storage.TimestampQuery) (storage.BatchInfo, bool, error) {
	if err := g.settled(ctx, q.Handle); err != nil {
		return storage.BatchInfo{}, false, err
	}
	return g.Store.FindTimestamp(ctx, q)
}

// PutBlob implements storage.Store. A blob may describe what the store is yet to be
// told of.
func (g *granted) PutBlob(ctx context.Context, h storage.Handle, name string, b storage.Blob) error {
	if err := g.settled(ctx, h); err != nil {
		return err
	}
	return g.Store.PutBlob(ctx, h, name, b)
}

// Shutdown implements storage.Store.
func (g *granted) Shutdown(ctx context.Context) error {
	for _, h := range g.handles() {
		if err := g.barrier(ctx, g.logs[h]); err != nil {
			return err
		}
	}
	return g.Store.Shutdown(ctx)
}

// handles are all in an order that does not change.
func (g *granted) handles() []storage.Handle {
	var all []storage.Handle
	for h := range g.logs {
		all = append(all, h)
	}
	slices.Sort(all)
	return all
}
