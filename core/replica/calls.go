package replica

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// producersBlob is the name under which producer state is kept.
const producersBlob = "producers"

// openedLog is a log that was opened, or not.
type openedLog struct {
	handle storage.Handle
	life   int // of the store, when it was asked
	in     partition.Opened
	kept   bool // that it went back
}

// tell hands a completion to the shard.
func (s *Shard) tell(r *replica, in partition.Input) {
	s.loop.Complete(Input{kind: inputMachine, replica: r, rare: &rare{in: in}})
}

// opening is what a call needs to know of a replica, copied for it.
type opening struct {
	replica *replica
	gen     partition.Generation
	life    int // of the store
	spec    storage.OpenSpec
}

// callOpen opens logs, with the producer snapshots beside them. A snapshot that
// the store does not return may be ahead of the log: it is removed before
// anything is appended, lest it be taken for true when the log has grown past
// it.
func (s *Shard) callOpen(d *Directory, logs []*replica) func(context.Context) {
	all := make([]opening, len(logs))
	specs := make([]storage.OpenSpec, len(logs))
	for i, r := range logs {
		specs[i] = storage.OpenSpec{ID: r.logID(), Label: r.topic, Create: true, LeaderEpoch: r.epoch, Options: r.log}
		all[i] = opening{replica: r, gen: r.gen, life: s.lifeOf(d), spec: specs[i]}
	}
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.OpenTimeout)
		defer cancel()
		d.health.opening.Add(1)
		results := d.Store.Open(ctx, specs)
		d.health.opening.Add(-1)
		for i, o := range all {
			res := storage.OpenResult{Err: storage.Errorf(storage.ErrUnknown, "the store answered for %d of %d logs", len(results), len(specs))}
			if i < len(results) {
				res = results[i]
			}
			opened := s.opened(ctx, d, o, res)
			s.loop.Complete(Input{kind: inputOpened, replica: o.replica, rare: &rare{opened: opened}})
		}
	}
}

func (s *Shard) opened(ctx context.Context, d *Directory, o opening, res storage.OpenResult) *openedLog {
	out := &openedLog{handle: res.Handle, life: o.life, in: partition.Opened{Gen: o.gen}}
	if res.Err != nil {
		out.in.Fault, out.in.Err = faultOf(res.Err), res.Err
		return out
	}
	out.in.LogStart, out.in.LEO, out.in.Durable = res.LogStart, res.LEO, res.Durable
	out.in.MayHaveLost = res.Verdict == storage.VerdictMayHaveLostSuffix
	for _, e := range res.Epochs {
		out.in.Epochs = append(out.in.Epochs, partition.EpochStart{Epoch: e.Epoch, Start: e.Start})
	}
	blob, found, err := d.Store.GetBlob(ctx, res.Handle, producersBlob)
	switch {
	case errors.Is(err, storage.ErrCorrupt):
		s.log.Warn("the snapshot of producers is damaged; scanning the log instead",
			"topic", o.replica.topic, "partition", o.replica.id.Index, "err", err)
	case err != nil:
		out.in.Fault, out.in.Err = faultOfOpening(err), err
		return out
	}
	if !found {
		if err := d.Store.PutBlob(ctx, res.Handle, producersBlob, storage.Blob{}); err != nil {
			out.in.Fault, out.in.Err = faultOfOpening(err), err
		}
		return out
	}
	out.in.SnapshotPresent, out.in.SnapshotOffset, out.in.Snapshot = true, blob.Offset, blob.Data
	return out
}

func (s *Shard) callScan(r *replica, scan partition.Scan) func(context.Context) {
	handle := r.handle
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
		defer cancel()
		batches, err := r.dir.Store.Scan(ctx, storage.ScanRequest{Handle: handle, Offset: scan.From, UpTo: scan.UpTo, MaxBatches: scan.Max})
		s.tell(r, &partition.Scanned{Gen: scan.Gen, Batches: batches, Fault: faultOfOpening(err), Err: err})
	}
}

func (s *Shard) callFlush(d *Directory, logs []*replica) func(context.Context) {
	handles := make([]storage.Handle, len(logs))
	gens := make([]partition.Generation, len(logs))
	for i, r := range logs {
		handles[i], gens[i] = r.handle, r.gen
	}
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
		defer cancel()
		begun := s.host.clockNow()
		d.health.begin(begun)
		results := d.Store.Flush(ctx, handles)
		var failed error
		for i := range results {
			failed = cmp.Or(failed, results[i].Err)
		}
		d.health.wrote(begun, s.host.clockNow(), failed)
		for i, r := range logs {
			res := storage.FlushResult{Err: storage.Errorf(storage.ErrUnknown, "the store answered for %d of %d logs", len(results), len(handles))}
			if i < len(results) {
				res = results[i]
			}
			s.tell(r, &partition.FlushDone{Gen: gens[i], Durable: res.Durable, Fault: faultOf(res.Err), Err: res.Err})
		}
	}
}

func (s *Shard) callTrim(r *replica, t partition.TrimLog) func(context.Context) {
	handle := r.handle
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
		defer cancel()
		start, err := r.dir.Store.Trim(ctx, handle, t.To)
		s.tell(r, &partition.TrimDone{Gen: t.Gen, ID: t.ID, LogStart: start, Fault: faultOf(err), Err: err})
	}
}

func (s *Shard) callRetain(r *replica, p partition.Retain) func(context.Context) {
	handle := r.handle
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
		defer cancel()
		res, err := r.dir.Store.Retain(ctx, handle, storage.RetainPolicy{Ceiling: p.Ceiling, Now: p.Now, MaxAge: p.Age, MaxBytes: p.Bytes})
		if err == nil && res.FutureStamps > 0 {
			s.log.Warn("records are stamped in the future; retention goes by their writing time",
				"topic", r.topic, "partition", r.id.Index, "segments", res.FutureStamps)
		}
		s.tell(r, &partition.Retained{Gen: p.Gen, LogStart: res.LogStart, Fault: faultOf(err), Err: err})
	}
}

func (s *Shard) callSnapshot(r *replica, p partition.PutSnapshot) func(context.Context) {
	handle := r.handle
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
		defer cancel()
		begun := s.host.clockNow()
		r.dir.health.begin(begun)
		err := r.dir.Store.PutBlob(ctx, handle, producersBlob, storage.Blob{Offset: p.Offset, Data: p.Data})
		r.dir.health.wrote(begun, s.host.clockNow(), err)
		s.tell(r, &partition.SnapshotDone{Gen: p.Gen, Fault: faultOf(err), Err: err})
	}
}

func (s *Shard) callDelete(r *replica) func(context.Context) {
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
		defer cancel()
		err := r.dir.Store.Delete(ctx, r.logID())
		s.loop.Complete(Input{kind: inputDeleted, replica: r, rare: &rare{err: err}})
	}
}

// appendCall is one call of a store's Append. Its shard uses it again when it has been
// answered, unless the store may still look at it.
type appendCall struct {
	shard    *Shard
	run      func(context.Context)             // call, bound once
	done     func(storage.AppendResult, error) // answered, bound once
	replica  *replica
	handle   storage.Handle
	gen      partition.Generation
	epoch    model.LeaderEpoch
	base     int64
	last     int64
	machine  bool
	bytes    int
	requests []*request
	batches  []recordbatch.Info // of all requests
	parts    [][]byte           // of each request, one batch or more; nobody changes them
	frames   []*model.Frame     // what the part is in; nil: it may be in anything
	begun    time.Time
	taken    bool // by the store
	answer   partition.AppendDone
}

// callsKept is how many calls a shard keeps for use, and batchesKept of how many
// batches one may have been.
const (
	callsKept   = 256
	batchesKept = 256
)

func (s *Shard) newCall() *appendCall {
	if n := len(s.idle); n > 0 {
		c := s.idle[n-1]
		s.idle = s.idle[:n-1]
		return c
	}
	c := &appendCall{shard: s}
	c.run, c.done = c.call, c.answered
	return c
}

// putCall keeps a call for use. The store has not let go of one that it has not taken:
// it may be an append of which the outcome is open.
func (s *Shard) putCall(c *appendCall) {
	if !c.taken || len(s.idle) == callsKept || cap(c.batches) > batchesKept {
		return
	}
	clear(c.requests)
	clear(c.parts)
	clear(c.frames)
	*c = appendCall{
		shard: s, run: c.run, done: c.done,
		requests: c.requests[:0], batches: c.batches[:0], parts: c.parts[:0], frames: c.frames[:0],
	}
	s.idle = append(s.idle, c)
}

// call makes the call, on the lane.
func (c *appendCall) call(ctx context.Context) {
	c.begun = c.shard.host.clockNow()
	c.replica.dir.health.append(c)
	c.replica.dir.Store.Append(ctx, storage.AppendRequest{
		Handle:      c.handle,
		LeaderEpoch: c.epoch,
		BaseOffset:  c.base,
		Batches:     c.batches,
		Data:        c.parts,
		Checked:     true,
		Require:     c.replica.dir.require(c.machine),
	}, c.done)
}

// answered brings the answer back. It never blocks.
func (c *appendCall) answered(res storage.AppendResult, err error) {
	now := c.shard.host.clockNow()
	c.replica.dir.health.appended(c, now, err)
	c.shard.events.Appended(c.replica.dir.Name, err)
	if c.taken = err == nil; c.taken {
		c.shard.events.Stored(len(c.batches), c.bytes, now.Sub(c.begun))
	}
	c.answer = partition.AppendDone{
		Gen: c.gen, Base: c.base, Last: c.last, LEO: res.LEO,
		Machine: res.Survives >= storage.SurvivesMachine, Durable: res.Durable,
		Fault: faultOf(err), Err: err,
	}
	c.shard.loop.Complete(Input{kind: inputStored, replica: c.replica, stored: c})
}
