package partition

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"pgregory.net/rapid"
)

// world is a machine with a store and clients around it, all of them models.
// The store does what the storage contract allows it to do.
type world struct {
	t   *rapid.T
	m   *Machine
	now time.Time
	out Effects

	// The store.
	log      []recordbatch.Info // what landed
	durable  int64
	handle   Generation  // the opening that is current
	calls    []AppendLog // queued appends, in order
	failing  Fault       // what the appends behind a failed one get; none: nothing failed
	snapshot *PutSnapshot
	pending  []Input // completions of everything else that was asked for

	// The clients.
	nextID   RequestID
	requests map[RequestID]*Append
	answers  map[RequestID]Response
	released map[RequestID]bool
	acked    map[int64]recordbatch.Info
	timers   map[Timer]time.Time
	hw       int64
	// lenient: a batch that follows one that was refused may be out of order.
	lenient bool
}

func newWorld(t *rapid.T) *world {
	limits := DefaultLimits()
	limits.InFlightBatches = 6
	limits.QueuedBatches = 10
	limits.ScanBatches = 2
	limits.SnapshotAfter = 5
	settings := DefaultSettings()
	settings.Flush = FlushPolicy(rapid.IntRange(0, 2).Draw(t, "flush"))
	w := &world{
		t: t, now: time.Unix(1000, 0), requests: map[RequestID]*Append{}, answers: map[RequestID]Response{},
		released: map[RequestID]bool{}, acked: map[int64]recordbatch.Info{},
		timers: map[Timer]time.Time{},
	}
	w.m = New(Config{Node: 1, Limits: limits, Settings: settings})
	w.step(&Lead{Epoch: 1, ISR: []model.NodeID{1}, Replicas: []model.NodeID{1}, Target: 1})
	return w
}

func (w *world) leo() int64 {
	if len(w.log) == 0 {
		return 0
	}
	return w.log[len(w.log)-1].LastOffset + 1
}

// step steps the machine and takes its effects into the world.
func (w *world) step(in Input) {
	w.m.Step(w.now, in, &w.out)
	e := &w.out
	if e.Open != nil {
		w.pending = append(w.pending, &Opened{Gen: e.Open.Gen}) // filled in when it runs
	}
	if e.Scan != nil {
		w.pending = append(w.pending, &Scanned{Gen: e.Scan.Gen, Batches: w.scan(e.Scan)})
	}
	if e.Flush != nil {
		w.pending = append(w.pending, &FlushDone{Gen: e.Flush.Gen})
	}
	if e.Snapshot != nil {
		w.pending = append(w.pending, &SnapshotDone{Gen: e.Snapshot.Gen})
		if e.Snapshot.Gen == w.handle {
			w.snapshot = e.Snapshot
		}
	}
	w.calls = append(w.calls, e.Appends...)
	for _, r := range e.Responses {
		if _, twice := w.answers[r.ID]; twice {
			w.t.Fatalf("request %d is answered twice", r.ID)
		}
		w.answers[r.ID] = r
		w.checkAnswer(r)
	}
	for _, id := range e.Releases {
		if w.released[id] {
			w.t.Fatalf("request %d is released twice", id)
		}
		w.released[id] = true
	}
	for _, s := range e.Timers {
		w.timers[s.Timer] = s.At
	}
	for _, n := range e.Notices {
		if n.Kind == NoticeLost || n.Kind == NoticeOffline {
			w.t.Fatalf("notice %s: %s %v", n.Kind, n.Text, n.Err)
		}
	}
	w.out.Reset()
	v := w.m.View()
	if v.Status == StatusServing && (v.LogStart > v.HighWater || v.HighWater > v.LEO || v.HighWater < w.hw) {
		w.t.Fatalf("log start %d, high watermark %d (was %d), end %d", v.LogStart, v.HighWater, w.hw, v.LEO)
	}
	w.hw = v.HighWater
}

func (w *world) scan(s *Scan) []recordbatch.Info {
	var out []recordbatch.Info
	for _, b := range w.log {
		if b.LastOffset >= s.From && b.LastOffset < s.UpTo && len(out) < s.Max {
			out = append(out, b)
		}
	}
	return out
}

// checkAnswer checks a success against the log.
func (w *world) checkAnswer(r Response) {
	if r.Err != nil {
		if !w.lenient && errors.Is(r.Err, model.ErrOutOfOrderSequence) {
			w.t.Fatalf("request %d: %v", r.ID, r.Err)
		}
		return
	}
	ask := w.requests[r.ID]
	at := slices.IndexFunc(w.log, func(b recordbatch.Info) bool { return b.BaseOffset == r.BaseOffset })
	if at < 0 {
		w.t.Fatalf("request %d acknowledged at offset %d, which is not in the log", r.ID, r.BaseOffset)
	}
	b := w.log[at]
	if b.ProducerID != ask.Batch.ProducerID || b.BaseSequence != ask.Batch.BaseSequence || b.Bytes != ask.Batch.Bytes {
		w.t.Fatalf("request %d acknowledged at offset %d, which holds %+v", r.ID, r.BaseOffset, b)
	}
	if ask.Acks == model.AcksAll && w.m.View().HighWater <= b.LastOffset {
		w.t.Fatalf("request %d acknowledged at %d, the high watermark is %d", r.ID, b.LastOffset, w.m.View().HighWater)
	}
	w.acked[b.BaseOffset] = b
}

// send sends a batch of a producer, or of none.
func (w *world) send(producer int64, records int32, seq int32) RequestID {
	w.nextID++
	a := &Append{ID: w.nextID, Acks: rapid.SampledFrom([]model.Acks{model.AcksAll, model.AcksLeader, model.AcksNone}).Draw(w.t, "acks"),
		Deadline: w.now.Add(30 * time.Second), LogAppendTime: -1,
		Batch: recordbatch.Info{LastOffset: int64(records - 1), Records: records, Bytes: 100 + records, ProducerID: producer, BaseSequence: -1, MaxTimestamp: int64(w.nextID)}}
	if producer >= 0 {
		a.Batch.BaseSequence, a.Batch.MaxTimestamp = seq, int64(seq)
	}
	w.requests[a.ID] = a
	w.step(a)
	return a.ID
}

// answerAppend lets the store answer its oldest append.
func (w *world) answerAppend(fault Fault, landed bool) {
	call := w.calls[0]
	w.calls = w.calls[1:]
	done := &AppendDone{Gen: call.Gen, Base: call.Base, Last: call.Last, Fault: fault}
	switch {
	case call.Gen != w.handle:
		done.Fault = FaultFenced
	case w.failing != FaultNone:
		done.Fault = w.failing
	case fault == FaultNone || landed && (fault == FaultUnknown || fault == FaultGone):
		w.land(call)
		done.LEO, done.Machine, done.Durable = w.leo(), call.Machine, w.durable
		if call.Machine {
			w.durable = w.leo()
			done.Durable = w.durable
		}
	}
	if fault != FaultNone && done.Fault == fault && w.failing == FaultNone {
		w.failing = FaultInvalid
		if fault == FaultUnknown || fault == FaultGone {
			w.failing = fault
		}
	}
	if len(w.calls) == 0 && (w.failing == FaultInvalid) {
		w.failing = FaultNone
	}
	w.step(done)
}

// land appends, as the contract says: at the log end, or as a repeat.
func (w *world) land(call AppendLog) {
	if call.Base != w.leo() {
		w.t.Fatalf("append at %d, the log ends at %d", call.Base, w.leo())
	}
	ask := w.requests[call.ID]
	if w.released[call.ID] {
		w.t.Fatalf("append %d goes to the store after its payload was released", call.ID)
	}
	b := ask.Batch
	b.BaseOffset, b.LastOffset, b.LeaderEpoch = call.Base, call.Last, call.Epoch
	w.log = append(w.log, b)
}

// runPending completes one of the other calls.
func (w *world) runPending(i int, fault Fault) {
	in := w.pending[i]
	w.pending = slices.Delete(w.pending, i, i+1)
	switch in := in.(type) {
	case *Opened:
		if fault != FaultNone {
			in.Fault = fault
			break
		}
		// Fencing: what was queued under earlier openings landed before, or never.
		w.calls = slices.DeleteFunc(w.calls, func(c AppendLog) bool { return c.Gen < in.Gen })
		w.handle, w.failing = in.Gen, FaultNone
		in.LEO, in.Durable = w.leo(), w.durable
		for _, b := range w.log {
			if n := len(in.Epochs); n == 0 || in.Epochs[n-1].Epoch < b.LeaderEpoch {
				in.Epochs = append(in.Epochs, EpochStart{b.LeaderEpoch, b.BaseOffset})
			}
		}
		if w.snapshot != nil {
			in.SnapshotPresent, in.SnapshotOffset, in.Snapshot = true, w.snapshot.Offset, w.snapshot.Data
		}
	case *FlushDone:
		in.Fault = fault
		if fault == FaultNone {
			w.durable = w.leo()
			in.Durable = w.durable
		}
	case *Scanned:
		in.Fault = fault
	case *SnapshotDone:
		in.Fault = fault
	}
	w.step(in)
}

// fire advances time to the earliest timer.
func (w *world) fire() {
	var first Timer = -1
	for t, at := range w.timers {
		if t != TimerRetention && (first < 0 || at.Before(w.timers[first]) || at.Equal(w.timers[first]) && t < first) {
			first = t
		}
	}
	if first < 0 {
		return
	}
	if w.timers[first].After(w.now) {
		w.now = w.timers[first]
	}
	delete(w.timers, first)
	w.step(&Fired{Timer: first})
}

// calm lets the store do everything well until nothing is left to do.
func (w *world) calm() {
	for i := 0; len(w.calls) > 0 || len(w.pending) > 0 || len(w.answers) < len(w.requests) || len(w.released) < len(w.requests); i++ {
		switch {
		case i > 2000:
			w.t.Fatalf("still busy: %d calls, %d others, %d of %d answered", len(w.calls), len(w.pending), len(w.answers), len(w.requests))
		case len(w.pending) > 0:
			w.runPending(0, FaultNone)
		case len(w.calls) > 0:
			w.answerAppend(FaultNone, true)
		default:
			w.fire()
		}
	}
}

func TestNothingAcknowledgedIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		epoch := model.LeaderEpoch(1)
		faults := rapid.SampledFrom([]Fault{FaultNone, FaultNone, FaultNone, FaultRetry, FaultFull, FaultUnknown, FaultGone})
		t.Repeat(map[string]func(*rapid.T){
			"plain append": func(t *rapid.T) { w.send(-1, rapid.Int32Range(1, 3).Draw(t, "records"), 0) },
			"store answers": func(t *rapid.T) {
				if len(w.calls) == 0 {
					t.Skip()
				}
				w.answerAppend(faults.Draw(t, "fault"), rapid.Bool().Draw(t, "landed"))
			},
			"other call ends": func(t *rapid.T) {
				if len(w.pending) == 0 {
					t.Skip()
				}
				w.runPending(rapid.IntRange(0, len(w.pending)-1).Draw(t, "which"),
					rapid.SampledFrom([]Fault{FaultNone, FaultNone, FaultRetry, FaultGone, FaultUnknown}).Draw(t, "fault"))
			},
			"time passes": func(*rapid.T) { w.fire() },
			"clock jumps": func(t *rapid.T) { w.now = w.now.Add(time.Duration(rapid.Int64Range(-1e12, 1e12).Draw(t, "by"))) },
			"new epoch": func(t *rapid.T) {
				epoch++
				w.step(&Lead{Epoch: epoch, ISR: []model.NodeID{1}, Replicas: []model.NodeID{1}, Target: 1})
			},
			"read fails":     func(*rapid.T) { w.step(&ReadFailed{Gen: w.m.gen, Fault: FaultGone}) },
			"store restarts": func(*rapid.T) { w.step(&Restarted{}) },
			"process dies":   func(*rapid.T) { w.crash(epoch) },
		})
		w.calm()
		w.checkEnd()
	})
}

// crash loses the machine and everything that was not in the store.
func (w *world) crash(epoch model.LeaderEpoch) {
	w.calls, w.pending, w.failing = nil, nil, FaultNone
	for id := range w.requests {
		if _, ok := w.answers[id]; !ok {
			w.answers[id] = Response{ID: id, Err: errors.New("connection reset")}
		}
		w.released[id] = true
	}
	clear(w.timers)
	fresh := New(Config{Node: 1, Limits: w.m.limits, Settings: w.m.settings})
	fresh.gen = w.m.gen // handles are never used twice
	w.m, w.hw = fresh, 0
	w.step(&Lead{Epoch: epoch, ISR: []model.NodeID{1}, Replicas: []model.NodeID{1}, Target: 1})
}

func (w *world) checkEnd() {
	for id := range w.requests {
		if !w.released[id] {
			w.t.Fatalf("request %d was answered and never released", id)
		}
	}
	for base, want := range w.acked {
		at := slices.IndexFunc(w.log, func(b recordbatch.Info) bool { return b.BaseOffset == base })
		if at < 0 || w.log[at] != want {
			w.t.Fatalf("acknowledged at offset %d: %+v; it is not there any more", base, want)
		}
	}
}

// client is an idempotent producer: at most five batches are not acknowledged,
// and what is not may be sent again at any time, in order.
type client struct {
	w        *world
	id       int64
	next     int32
	oldest   int32               // not acknowledged
	sent     map[RequestID]int32 // sequence by request
	offsets  map[int32]int64     // acknowledged
	draining bool
}

// hear takes the answers that have come.
func (c *client) hear() {
	for id, seq := range c.sent {
		a, ok := c.w.answers[id]
		if !ok {
			continue
		}
		delete(c.sent, id)
		switch {
		case a.Err == nil:
			if at, known := c.offsets[seq]; known && at != a.BaseOffset {
				c.w.t.Fatalf("producer %d, sequence %d is acknowledged at %d and at %d", c.id, seq, at, a.BaseOffset)
			}
			c.offsets[seq] = a.BaseOffset
		case c.draining && seq == c.oldest && errors.Is(a.Err, model.ErrOutOfOrderSequence):
			c.w.t.Fatalf("producer %d, sequence %d is the oldest not acknowledged: %v", c.id, seq, a.Err)
		}
	}
	for {
		if _, ok := c.offsets[c.oldest]; !ok {
			return
		}
		c.oldest++
	}
}

func (c *client) send(seq int32) {
	id := c.w.send(c.id, 1, seq)
	c.sent[id] = seq
	c.hear()
}

// sendNext sends something new, unless something older has failed: that goes
// first, since a producer that is not known may begin with any sequence.
func (c *client) sendNext() {
	c.hear()
	flying := make(map[int32]bool)
	for _, seq := range c.sent {
		flying[seq] = true
	}
	for seq := c.oldest; seq < c.next; seq++ {
		if _, ok := c.offsets[seq]; !ok && !flying[seq] {
			c.resend()
			return
		}
	}
	if c.next-c.oldest < producerBatches {
		c.next++
		c.send(c.next - 1)
	}
}

func (c *client) resend() {
	c.hear()
	for seq := c.oldest; seq < c.next; seq++ {
		if _, ok := c.offsets[seq]; !ok {
			c.send(seq)
		}
	}
}

func TestProducersAreExactlyOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.lenient = true
		var clients []*client
		for id := range int64(2) {
			clients = append(clients, &client{w: w, id: id, sent: map[RequestID]int32{}, offsets: map[int32]int64{}})
		}
		pick := rapid.SampledFrom(clients)
		faults := rapid.SampledFrom([]Fault{FaultNone, FaultNone, FaultNone, FaultRetry, FaultFull, FaultUnknown, FaultGone})
		answer := func(t *rapid.T) {
			if len(w.calls) == 0 {
				t.Skip()
			}
			w.answerAppend(faults.Draw(t, "fault"), rapid.Bool().Draw(t, "landed"))
		}
		t.Repeat(map[string]func(*rapid.T){
			"send":                func(t *rapid.T) { pick.Draw(t, "client").sendNext() },
			"send more":           func(t *rapid.T) { pick.Draw(t, "client").sendNext() },
			"send again":          func(t *rapid.T) { pick.Draw(t, "client").resend() },
			"store answers":       answer,
			"store answers again": answer,
			"other call ends": func(t *rapid.T) {
				if len(w.pending) == 0 {
					t.Skip()
				}
				w.runPending(rapid.IntRange(0, len(w.pending)-1).Draw(t, "which"), FaultNone)
			},
			"time passes":  func(*rapid.T) { w.fire() },
			"process dies": func(*rapid.T) { w.crash(1) },
		})
		w.calm()
		for _, c := range clients {
			c.hear()
			c.draining = true
			for c.oldest < c.next {
				c.resend()
				w.calm()
				c.hear()
			}
		}
		w.checkEnd()
		w.checkProducers(clients)
	})
}

// checkProducers wants every sequence once, where it was acknowledged, and in
// order.
func (w *world) checkProducers(clients []*client) {
	for _, c := range clients {
		next := int32(0)
		for _, b := range w.log {
			if b.ProducerID != c.id {
				continue
			}
			if b.BaseSequence != next || c.offsets[next] != b.BaseOffset {
				w.t.Fatalf("producer %d: offset %d holds sequence %d; %d is next, acknowledged at %d",
					c.id, b.BaseOffset, b.BaseSequence, next, c.offsets[next])
			}
			next++
		}
		if next != c.next {
			w.t.Fatalf("producer %d sent %d batches, %d are in the log", c.id, c.next, next)
		}
	}
}
