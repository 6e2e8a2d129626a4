package partition

import (
	"slices"
	"sort"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// disk is a log as a store keeps it, with the calls on it. It does what the storage
// contract allows.
type disk struct {
	log      []recordbatch.Info
	logStart int64
	end      int64 // where there are no batches
	durable  int64
	blob     *PutSnapshot
	lost     bool // some at the end, perhaps

	handle   Generation
	epoch    model.LeaderEpoch // the highest that it was opened under in this life
	deleting bool              // the log is to be deleted before it is opened again
	gone     bool              // its process has ended since it was opened
	failing  Fault             // what every append gets until the log is opened
	lane     time.Time         // when the last append that was queued is taken
}

func (d *disk) leo() int64 {
	if n := len(d.log); n > 0 {
		return d.log[n-1].LastOffset + 1
	}
	return d.end
}

// search is the first batch that ends at or above an offset.
func (d *disk) search(offset int64) int {
	return sort.Search(len(d.log), func(i int) bool { return d.log[i].LastOffset >= offset })
}

// valueAt is the record at an offset, or 0.
func (d *disk) valueAt(offset int64) int64 {
	if i := d.search(offset); i < len(d.log) && d.log[i].BaseOffset <= offset {
		return valueAt(&d.log[i], offset)
	}
	return 0
}

func (d *disk) above(offset int64) []recordbatch.Info { return d.log[d.search(offset):] }

func (d *disk) epochs() []EpochStart {
	var out []EpochStart
	for i := range d.log {
		b := &d.log[i]
		if n := len(out); n == 0 || out[n-1].Epoch < b.LeaderEpoch {
			out = append(out, EpochStart{b.LeaderEpoch, max(b.BaseOffset, d.logStart)})
		}
	}
	return out
}

func (d *disk) truncate(to int64) {
	end := d.leo()
	n := d.search(to)
	if n < len(d.log) {
		end = max(d.log[n].BaseOffset, d.logStart)
	}
	d.log = slices.Clone(d.log[:n])
	d.end = min(end, max(to, d.logStart))
	d.durable = min(d.durable, d.leo())
	if d.blob != nil && d.blob.Offset > d.leo() {
		d.blob = nil
	}
}

func (d *disk) trim(to int64) {
	if to <= d.logStart {
		return
	}
	d.logStart = to
	if to > d.leo() {
		d.log, d.end, d.durable = nil, to, to
	}
	d.log = slices.Clone(d.log[d.search(to):])
	if len(d.log) == 0 {
		d.end = max(d.end, to)
	}
	d.durable = max(d.durable, to)
}

// losePower takes some of what was not flushed.
func (h *host) losePower() {
	i := h.search(h.durable)
	if i < len(h.log) {
		if h.c.chance(0.5) {
			i += h.c.rng.IntN(len(h.log) - i)
		}
		h.truncate(h.log[i].BaseOffset)
		h.lost = true
	}
}

// storeCalls has done what a machine asks of its store.
func (h *host) storeCalls(e *Effects) {
	if e.Open != nil {
		h.open(*e.Open)
	}
	for _, a := range e.Appends {
		b := h.payloads[a.ID].batches[0]
		b.BaseOffset, b.LastOffset, b.LeaderEpoch = a.Base, a.Last, a.Epoch
		h.append(a.Gen, a.Base, a.Epoch, a.Machine, a.ID, []recordbatch.Info{b})
	}
	for _, a := range e.Copies {
		h.append(a.Gen, a.Base, a.Epoch, a.Machine, a.ID, h.payloads[a.ID].batches)
	}
	if e.Truncate != nil {
		tr := *e.Truncate
		h.call(tr.Gen, func(fault Fault) Input {
			if fault == FaultNone {
				h.truncate(tr.To)
			}
			h.cut = h.cut || fault != FaultNone
			return &Truncated{Gen: tr.Gen, LEO: h.leo(), Fault: fault}
		})
	}
	if dl := e.Delete; dl != nil {
		gen := dl.Gen
		if len(h.above(h.logStart)) > 0 {
			h.c.fail("broker %d deletes its log from %d to %d", h.id, h.logStart, h.leo())
		}
		h.hw, h.checked = 0, 0
		h.deleting = true
		h.in(h.c.between(0, 20), func() {
			h.log, h.logStart, h.end, h.durable, h.blob, h.deleting = nil, 0, 0, 0, nil, false
			h.c.stats.anew++
			h.later(func() { h.step(&Deleted{Gen: gen}) })
		})
	}
	for _, tr := range e.Trims {
		h.call(tr.Gen, func(fault Fault) Input {
			if fault == FaultNone {
				h.trim(tr.To)
			}
			return &TrimDone{Gen: tr.Gen, ID: tr.ID, LogStart: h.logStart, Fault: fault}
		})
	}
	if f := e.Flush; f != nil {
		gen := f.Gen
		h.callWithin(20, gen, func(fault Fault) Input {
			if fault == FaultNone {
				h.durable = h.leo()
			}
			return &FlushDone{Gen: gen, Durable: h.durable, Fault: fault}
		})
	}
	if s := e.Scan; s != nil {
		scan := *s
		h.call(scan.Gen, func(fault Fault) Input {
			in := &Scanned{Gen: scan.Gen, Fault: fault}
			for i := h.search(scan.From); i < len(h.log) && h.log[i].LastOffset < scan.UpTo && len(in.Batches) < scan.Max; i++ {
				in.Batches = append(in.Batches, h.log[i])
			}
			return in
		})
	}
	if s := e.Snapshot; s != nil {
		blob := *s
		h.call(blob.Gen, func(fault Fault) Input {
			if fault == FaultNone && blob.Offset <= h.leo() {
				h.blob = &blob
			}
			return &SnapshotDone{Gen: blob.Gen, Fault: fault}
		})
	}
	if r := e.Retain; r != nil {
		gen := r.Gen
		h.call(gen, func(fault Fault) Input { return &Retained{Gen: gen, LogStart: h.logStart, Fault: fault} })
	}
}

// open fences, and tells what the log holds.
func (h *host) open(o OpenLog) {
	h.in(h.c.between(0, 8), func() {
		if h.deleting {
			h.open(o)
			return
		}
		in := &Opened{Gen: o.Gen}
		switch {
		case o.Gen < h.handle || o.Epoch < h.epoch:
			in.Fault = FaultFenced
		case h.faulty(0.05):
			in.Fault = FaultRetry
		default:
			h.handle, h.epoch, h.gone, h.failing, h.lane = o.Gen, o.Epoch, false, FaultNone, time.Time{}
			in.LogStart, in.LEO, in.Durable, in.Epochs, in.MayHaveLost = h.logStart, h.leo(), h.durable, h.epochs(), h.lost
			if h.blob != nil {
				in.SnapshotPresent, in.SnapshotOffset, in.Snapshot = true, h.blob.Offset, h.blob.Data
			}
		}
		h.later(func() { h.step(in) })
	})
}

func (h *host) faulty(p float64) bool { return !h.c.calm && h.c.chance(p) }

// call makes a call other than an append: it happens, and later its answer comes.
func (h *host) call(gen Generation, run func(Fault) Input) { h.callWithin(4, gen, run) }

func (h *host) callWithin(most int, gen Generation, run func(Fault) Input) {
	h.in(h.c.between(0, most), func() {
		fault := FaultNone
		switch {
		case gen != h.handle:
			fault = FaultFenced
		case h.gone:
			fault = FaultGone
		case h.faulty(0.02):
			fault = []Fault{FaultUnknown, FaultRetry}[h.c.rng.IntN(2)]
		}
		in := run(fault)
		h.later(func() { h.step(in) })
	})
}

// append queues batches behind those that were queued before.
func (h *host) append(gen Generation, base int64, epoch model.LeaderEpoch, machine bool, id RequestID, batches []recordbatch.Info) {
	at := h.c.now.Add(h.c.between(0, 3))
	if at.Before(h.lane) {
		at = h.lane
	}
	h.lane = at
	h.when(at, func() {
		last := batches[len(batches)-1].LastOffset
		done := &AppendDone{Gen: gen, Base: base, Last: last, Machine: machine}
		switch {
		case gen != h.handle:
			done.Fault = FaultFenced
		case h.gone:
			done.Fault = FaultGone
		case h.failing != FaultNone:
			done.Fault = h.failing
		default:
			done.Fault = h.take(base, epoch, id, batches)
		}
		if done.Fault == FaultNone && machine {
			h.durable = h.leo()
		}
		done.LEO, done.Durable = h.leo(), h.durable
		// Answers come in order, since each waits for its own time only when it is taken.
		answer := h.c.now.Add(h.c.between(0, 2))
		if answer.Before(h.lane) {
			answer = h.lane
		}
		h.lane = answer
		h.when(answer, func() { h.step(done) })
	})
}

// take appends, or fails as it may.
func (h *host) take(base int64, epoch model.LeaderEpoch, id RequestID, batches []recordbatch.Info) Fault {
	if h.payloads[id].released && h.handle == h.m.gen {
		h.c.fail("broker %d appends payload %d, which was released", h.id, id)
	}
	if base != h.leo() || epoch < h.epoch {
		h.failing = FaultInvalid
		return FaultInvalid
	}
	landed := len(batches)
	fault := FaultNone
	if h.faulty(0.015) {
		fault = []Fault{FaultUnknown, FaultUnknown, FaultRetry, FaultFull}[h.c.rng.IntN(4)]
		landed = 0
		h.failing = FaultInvalid
		if fault == FaultUnknown {
			landed = h.c.rng.IntN(len(batches) + 1)
			h.failing = FaultUnknown
		}
	}
	for i := range landed {
		b := batches[i]
		if n := len(h.log); b.BaseOffset < h.leo() || n > 0 && b.LeaderEpoch < h.log[n-1].LeaderEpoch || b.LeaderEpoch > epoch {
			h.c.fail("broker %d appends a batch of epoch %d at %d behind %d", h.id, b.LeaderEpoch, b.BaseOffset, h.leo())
		}
		h.log = append(h.log, b)
	}
	if fault == FaultRetry || fault == FaultFull {
		// Those behind it, up to what is queued now, fail with it; then it is good again.
		gen := h.handle
		h.when(h.lane, func() {
			if h.handle == gen && h.failing == FaultInvalid {
				h.failing = FaultNone
			}
		})
	}
	return fault
}
