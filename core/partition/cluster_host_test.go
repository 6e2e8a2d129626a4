package partition

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// host is a broker around one machine: its disk, its store, its ends of links, and what it
// has to do for clients. A life of it ends with its process.
type host struct {
	c     *cluster
	index int
	id    model.NodeID
	disk

	life        int
	alive       bool
	diedAt      time.Time
	registered  bool
	absent      bool // the replica is not one of this broker
	brokerEpoch model.BrokerEpoch
	pausedUntil time.Time
	cutUntil    time.Time // from the controller
	version     int       // of the metadata
	m           *Machine
	out         Effects
	timers      [TimerExpiry + 1]time.Time
	streams     []*stream
	sessions    map[model.NodeID]subscribed // of those who subscribed here

	nextID   RequestID
	payloads map[RequestID]*payload

	// told is the committed ISR by what this broker was told last, under which partition
	// epoch; alone the log end when it was told that it is the only one in it.
	told      []model.NodeID
	replicas  int // in the assignment, by what it was told as leader
	toldEpoch model.PartitionEpoch
	alone     int64

	// fell: its store has lost something, which the machine has not said yet. lacks: likewise, or
	// it has not been left out of the ISR since.
	lacks, fell bool
	// cut: a truncation has failed, of which the outcome is open.
	cut bool

	hw      int64 // of the last view
	checked int64 // what is below was checked
	led     model.LeaderEpoch
}

// payload is what a request of this life has brought: of a client, or of a leader.
type payload struct {
	batches  []recordbatch.Info
	acks     model.Acks
	copied   bool
	answered bool
	released bool
	done     func(Response)
}

// subscribed is the last subscription that came over a link.
type subscribed struct {
	session Session
	link    int
}

// stream is a follower that is sent the log.
type stream struct {
	to        *host
	session   Session
	epoch     model.LeaderEpoch
	next      int64
	hw, start int64
	stuck     bool // what comes next has gone
}

// start begins a life of the broker. Registered, it is given another broker epoch.
func (h *host) start(again bool) {
	h.life++
	h.alive, h.registered, h.absent = true, false, false
	h.version = 0
	h.brokerEpoch = h.c.ctl.register(h, again)
	h.registered = true
	h.begin(Session(h.brokerEpoch) << 32)
	for _, peer := range h.c.hosts {
		if peer != h && peer.alive {
			h.c.setLink(h, peer, true)
		}
	}
}

// begin makes the replica's machine.
func (h *host) begin(session Session) {
	limits := DefaultLimits()
	limits.LagMax, limits.AnswerWait, limits.AppendStall = 200*time.Millisecond, 100*time.Millisecond, 200*time.Millisecond
	limits.BackoffMin, limits.BackoffMax = 5*time.Millisecond, 50*time.Millisecond
	limits.ScanBatches = 3
	limits.SnapshotAfter = 20
	h.m = New(Config{Node: h.id, Limits: limits, Settings: h.c.settings, Session: session})
	h.out = Effects{}
	h.timers = [TimerExpiry + 1]time.Time{}
	h.streams, h.sessions, h.payloads = nil, map[model.NodeID]subscribed{}, map[RequestID]*payload{}
	h.told, h.toldEpoch, h.gone, h.deleting, h.fell, h.cut = nil, 0, false, false, false, false
	h.handle, h.epoch, h.hw, h.checked, h.led = 0, -1, 0, 0, -1
}

// remove deletes the log that the metadata has taken from this broker. Given to it again, it
// has another one, and no call or timer of this one counts.
func (h *host) remove(meta *metadata) {
	if slices.Contains(h.c.ctl.isr, h.id) {
		h.c.fail("broker %d is in sync, and deletes its log by partition epoch %d", h.id, meta.partitionEpoch)
	}
	h.step(&Resign{Epoch: 1<<31 - 1})
	session := h.m.LastSession()
	h.life++
	h.disk, h.lacks = disk{}, false
	h.begin(session)
	h.absent = true
	h.c.stats.removed++
	if h.c.trace != nil {
		h.c.trace("broker %d deletes its log", h.id)
	}
	for _, peer := range h.c.hosts {
		if peer != h && peer.alive && h.c.link(h, peer).up {
			h.m.Step(h.c.now, &Reached{Node: peer.id, Up: true}, &h.out)
		}
	}
	h.c.ctl.tell(h)
	h.in(h.c.between(5, 30), func() { h.c.ctl.unfence(h) })
}

// die ends a life. The power loss takes what was not flushed, or some of it.
func (h *host) die(power bool) {
	h.alive, h.diedAt = false, h.c.now
	if h.c.trace != nil {
		h.c.trace("broker %d dies, losing power: %v; in sync %v", h.id, power, h.c.ctl.isr)
	}
	h.registered = false
	for _, id := range sortedIDs(h.payloads) {
		if p := h.payloads[id]; !p.answered && p.done != nil {
			p.done(Response{ID: id, Err: errors.New("connection reset")})
		}
	}
	for _, peer := range h.c.hosts {
		if peer != h {
			h.c.setLink(h, peer, false)
		}
	}
	if power {
		h.losePower()
		h.c.stats.powerLosses++
	}
}

func sortedIDs(m map[RequestID]*payload) []RequestID {
	ids := make([]RequestID, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// do runs something of this life, later when the process is paused.
func (h *host) do(run func()) {
	if !h.alive {
		return
	}
	if h.pausedUntil.After(h.c.now) {
		life := h.life
		h.c.at(h.pausedUntil, func() {
			if h.life == life {
				h.do(run)
			}
		})
		return
	}
	run()
}

// later runs something of this life.
func (h *host) later(run func()) { h.in(h.c.between(0, 3), run) }

func (h *host) in(d time.Duration, run func()) { h.when(h.c.now.Add(d), run) }

func (h *host) when(at time.Time, run func()) {
	life := h.life
	h.c.at(at, func() {
		if h.life == life {
			h.do(run)
		}
	})
}

// linked tells the machine of a link.
func (h *host) linked(peer *host, up bool) {
	if s := h.sessions[peer.id]; s.session > 0 && s.link < h.c.link(h, peer).id {
		delete(h.sessions, peer.id)
		h.step(&Unsubscribed{Node: peer.id, Session: s.session})
		h.streams = slices.DeleteFunc(h.streams, func(s *stream) bool { return s.to == peer })
	}
	h.step(&Reached{Node: peer.id, Up: up})
}

// step steps the machine, looks at it from outside, and has done what it asks.
func (h *host) step(in Input) {
	h.hears(in)
	h.m.Step(h.c.now, in, &h.out)
	if h.c.trace != nil {
		v := h.m.View()
		h.c.trace("broker %d: %T%+v -> status %d epoch %d, %d..%d..%d of %d; effects %+v", h.id, in, in, v.Status, v.Epoch, v.LogStart, v.HighWater, v.LEO, h.leo(), h.out)
	}
	h.noticed()
	h.look()
	e := &h.out
	h.storeCalls(e)
	for _, t := range e.Timers {
		h.timers[t.Timer] = t.At
		if t.At.Sub(h.c.begun) > time.Minute {
			continue
		}
		h.when(t.At, func() {
			if h.timers[t.Timer].Equal(t.At) {
				h.timers[t.Timer] = time.Time{}
				h.step(&Fired{Timer: t.Timer})
			}
		})
	}
	for _, id := range e.Releases {
		p := h.payloads[id]
		if p == nil || p.released {
			h.c.fail("broker %d releases payload %d twice, or never had it", h.id, id)
			return
		}
		p.released = true
	}
	for _, r := range e.Responses {
		h.respond(r)
	}
	h.messages(e)
	e.Reset()
	h.pump()
}

// noticed takes what the machine has to say of losses: there was one.
func (h *host) noticed() {
	for _, n := range h.out.Notices {
		switch {
		case n.Kind == NoticeLost && h.fell:
			h.fell = false
			h.hw, h.checked = min(h.hw, h.leo()), min(h.checked, h.leo())
		case n.Kind == NoticeLost && h.cut: // perhaps to the beginning of a batch, of which it has not heard
			h.cut = false
		case n.Kind == NoticeOffline && h.m.whole.lacks:
		case n.Kind == NoticeLost || n.Kind == NoticeOffline:
			h.c.fail("broker %d: %s %d..%d: %s: %v", h.id, n.Kind, n.From, n.To, n.Text, n.Err)
		}
	}
}

// hears takes what an input tells of the ISR.
func (h *host) hears(in Input) {
	epoch, isr := h.toldEpoch, h.told
	switch in := in.(type) {
	case *Lead:
		epoch, isr, h.replicas = in.PartitionEpoch, in.ISR, len(in.Replicas)
	case *Follow:
		epoch, isr = in.PartitionEpoch, in.ISR
	case *Altered:
		if in.Outcome == OutcomeDone {
			epoch, isr = in.NewPartitionEpoch, in.ISR
		}
	}
	if epoch > h.toldEpoch {
		if len(isr) == 1 && len(h.told) != 1 {
			h.alone = h.leo()
		}
		h.toldEpoch, h.told = epoch, isr
	}
}

// look checks what a reader can see.
func (h *host) look() {
	v := h.m.View()
	known := v.Status == StatusServing || v.Status == StatusReopened || v.Status == StatusFollowing && v.readable
	if !known {
		return
	}
	if h.logStart > h.c.deleted {
		h.c.fail("the log of broker %d starts at %d, and nobody has deleted more than what is below %d", h.id, h.logStart, h.c.deleted)
	}
	if v.LogStart > v.HighWater || v.HighWater > v.LEO {
		h.c.fail("broker %d: log start %d, high watermark %d, log end %d", h.id, v.LogStart, v.HighWater, v.LEO)
	}
	if v.HighWater < h.hw {
		h.c.fail("broker %d: high watermark %d falls to %d", h.id, h.hw, v.HighWater)
	}
	if v.HighWater > max(h.hw, v.LogStart) && v.Status == StatusServing && len(h.told) < min(h.c.settings.MinISR, h.replicas) {
		h.c.fail("broker %d: high watermark %d rises to %d with %v in sync", h.id, h.hw, v.HighWater, h.told)
	}
	h.hw = v.HighWater
	from := max(h.checked, h.logStart)
	if v.HighWater > from {
		for i := h.search(from); i < len(h.log) && h.log[i].LastOffset < v.HighWater; i++ {
			h.c.commit(h, &h.log[i])
		}
		h.checked = v.HighWater
		if v.Status == StatusServing && !h.fell {
			h.inSyncHave(from, v.HighWater)
		}
	}
	if v.Status == StatusServing && h.led != v.Epoch && !h.fell {
		h.led = v.Epoch
		h.c.stats.elections++
		if v.Epoch == h.c.ctl.epoch { // one of before may know less, and commits nothing
			h.c.holdsAcked(h, "leading")
		}
	}
}

// inSyncHave checks that what a leader has committed is in the log of every broker that
// the controller has in its ISR, and that could be elected as it is.
func (h *host) inSyncHave(from, to int64) {
	if h.m.epoch != h.c.ctl.epoch {
		return
	}
	for _, id := range h.c.ctl.isr {
		h.has(h.c.hosts[id-1], from, to)
	}
}

// has checks that a broker in sync has what this leader has committed.
func (h *host) has(o *host, from, to int64) {
	if !o.registered || o.lacks {
		return
	}
	for off := max(from, o.logStart); off < to; off++ {
		if o.valueAt(off) != h.c.committed[off] {
			h.c.fail("leader %d has committed offset %d, and broker %d is in sync without it", h.id, off, o.id)
			return
		}
	}
}

func (h *host) respond(r Response) {
	p := h.payloads[r.ID]
	if p == nil || p.answered {
		h.c.fail("broker %d answers request %d twice, or never had it", h.id, r.ID)
		return
	}
	p.answered = true
	if r.Err == nil && p.acks == model.AcksAll && len(p.batches) > 0 {
		if b := p.batches[0]; h.fell { // its followers have it
			b.LastOffset += r.BaseOffset - b.BaseOffset
			b.BaseOffset = r.BaseOffset
			h.c.commit(h, &b)
		}
		h.c.answered(h, p.batches[0], r.BaseOffset)
	}
	if p.done != nil {
		p.done(r)
	}
}

// payloadOf keeps what a request brings, for as long as it is not released.
func (h *host) payloadOf(p *payload) RequestID {
	h.nextID++
	h.payloads[h.nextID] = p
	return h.nextID
}

// allReleased wants every payload answered and released.
func (h *host) allReleased() error {
	for _, id := range sortedIDs(h.payloads) {
		if p := h.payloads[id]; !p.released || !p.copied && !p.answered {
			return fmt.Errorf("broker %d: payload %d is answered %v, released %v", h.id, id, p.answered, p.released)
		}
	}
	return nil
}

// messages sends what the machine has to say to other brokers.
func (h *host) messages(e *Effects) {
	if sub := e.Subscription; sub != nil {
		in := Subscribe{Node: h.id, BrokerEpoch: h.brokerEpoch, Session: sub.Session, Epoch: sub.Epoch, PartitionEpoch: sub.PartitionEpoch, LEO: sub.LEO,
			Counted: sub.Counted, LastEpoch: sub.LastEpoch, LogStart: sub.LogStart}
		to := h.c.hosts[sub.Leader-1]
		h.c.send(h, to, func() {
			if in.Session > to.sessions[h.id].session {
				to.sessions[h.id] = subscribed{in.Session, h.c.link(h, to).id}
			}
			again := in
			to.step(&again)
		})
	}
	if e.Ack != nil {
		in := Acknowledged{Node: h.id, Session: e.Ack.Session, Epoch: e.Ack.Epoch, PartitionEpoch: e.Ack.PartitionEpoch, LEO: e.Ack.LEO}
		to := h.c.hosts[e.Ack.Leader-1]
		h.c.send(h, to, func() {
			again := in
			to.step(&again)
		})
	}
	for _, a := range e.Answers {
		h.answer(a)
	}
	for _, x := range e.EndStreams {
		h.streams = slices.DeleteFunc(h.streams, func(s *stream) bool { return s.to.id == x.Node && s.session == x.Session })
		to := h.c.hosts[x.Node-1]
		h.c.send(h, to, func() { to.step(&Damaged{Session: x.Session, Err: errors.New("the leader has ended the stream")}) })
	}
	if e.Alter != nil {
		h.c.ctl.ask(h, *e.Alter)
	}
}

func (h *host) answer(a Answer) {
	to := h.c.hosts[a.Node-1]
	in := Subscribed{Node: h.id, Session: a.Session, Epoch: a.Epoch, Verdict: a.Verdict, End: a.End, LogStart: a.LogStart}
	h.c.send(h, to, func() {
		again := in
		to.step(&again)
	})
	h.streams = slices.DeleteFunc(h.streams, func(s *stream) bool { return s.to == to && s.session <= a.Session })
	switch a.Verdict {
	case VerdictAccepted:
		h.streams = append(h.streams, &stream{to: to, session: a.Session, epoch: a.Epoch, next: a.From, hw: -1})
	case VerdictReset:
		h.c.stats.resets++
	case VerdictDiverges:
		h.c.stats.truncations++
	}
}

// pump sends followers what they do not have.
func (h *host) pump() {
	v := h.m.View()
	if v.Status != StatusServing {
		return
	}
	for _, s := range h.streams {
		for !s.stuck {
			in := Replicate{Session: s.session, Epoch: s.epoch, From: s.next, HighWater: v.HighWater, LogStart: v.LogStart}
			if max(s.next, v.LogStart) < h.logStart && s.next >= v.First {
				break // soon the machine will know
			}
			if s.next < v.First {
				s.stuck = true
			} else {
				for i := h.search(max(s.next, v.LogStart)); i < len(h.log) && h.log[i].LastOffset < v.LEO && len(in.Batches) < 4; i++ {
					in.Batches = append(in.Batches, h.log[i])
					s.next = h.log[i].LastOffset + 1
				}
			}
			if len(in.Batches) == 0 && s.hw == v.HighWater && s.start == v.LogStart && !s.stuck {
				break
			}
			s.hw, s.start = v.HighWater, v.LogStart
			h.c.send(h, s.to, func() {
				again := in
				again.ID = s.to.payloadOf(&payload{batches: in.Batches, copied: true})
				s.to.step(&again)
			})
		}
	}
}

// apply takes the metadata.
func (h *host) apply(v int, meta *metadata) {
	if v <= h.version {
		return
	}
	h.version = v
	if h.absent = !slices.Contains(meta.replicas, h.id); h.absent {
		if h.m.epoch >= 0 || len(h.log) > 0 || h.end > 0 {
			h.remove(meta)
		}
		return
	}
	if meta.leader == h.id {
		h.step(&Lead{Epoch: meta.epoch, PartitionEpoch: meta.partitionEpoch, BrokerEpoch: h.brokerEpoch,
			ISR: meta.isr, Replicas: meta.replicas, Target: len(meta.replicas)})
		return
	}
	h.step(&Follow{Epoch: meta.epoch, PartitionEpoch: meta.partitionEpoch, Leader: meta.leader,
		ISR: meta.isr, Replicas: meta.replicas, Target: len(meta.replicas)})
}
