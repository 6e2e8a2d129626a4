package replica

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/loop"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/storage"
)

// timerKey names a timer of a shard.
type timerKey struct {
	replica *replica
	timer   partition.Timer
}

// timerDelete repeats a delete that failed; it is beyond a machine's timers.
const timerDelete partition.Timer = 100

// timerGather ends the gathering of lines for the log. It is of no replica.
const timerGather partition.Timer = 101

// Shard owns some replicas' machines. It is a loop.Body.
type Shard struct {
	index  int
	cfg    Config
	log    *slog.Logger
	events Events
	exec   Executor
	loop   *loop.Loop[Input]
	host   host

	timers   *loop.Timers[timerKey]
	requests []*request // by RequestID
	idle     []*appendCall
	free     []partition.RequestID
	dirty    []*replica
	spare    []*replica
	burst    batchedCalls
	tails    *tails // of all shards
	waker    *waker // likewise
	replicas map[model.Partition]*replica
	stopping bool
	doubt    bool      // the broker's lease has run out, as the machines know
	now      time.Time // of this turn

	// Of this broker as follower.
	leaders   map[model.NodeID]*upstream
	session   partition.Session // the last of any replica that was removed
	upstreams []*upstream       // that have something to say
	// As leader.
	feeds      []*feed // that have something to say
	tellers    []*feed // likewise, when timerTidings fires
	telling    bool    // it is set
	retries    []*subscriber
	throttles  *throttles // of all shards
	heldBack   []*feed    // by throttles
	letGoAt    time.Time  // when timerThrottle fires; zero: it is not set
	tailRead   tailRead
	controller Controller
	changes    []model.ISRChange // to be asked for in this turn
	changing   []alteration      // whose they are

	revivals   []*revival
	gatherings []*gathering
}

// host is what a shard needs of its manager.
type host interface {
	clockNow() time.Time
	letGo(weight int64)
	spent(q *request)
	deleted(r *replica)
	offline(delta int)
	unclosed(d *Directory, left unclosed)
	unpacked(p *parcel)
	newOutgoing(l *link) *outgoing
	send(o *outgoing)
	wake(l *link, shard int)
	windowNow() int64
	lapsed(now time.Time) bool
	lapses() (at time.Time, ok bool) // when lapsed is so, unless there is another lease by then
	doubting(more int32)
	doubt()                            // keeps it; it may block
	doubtful(d *Directory, more int64) // counts what is in doubt
}

func newShard(index int, cfg Config, deps Deps, exec Executor, tails *tails, waker *waker, throttles *throttles, h host) *Shard {
	s := &Shard{
		index:    index,
		cfg:      cfg,
		log:      deps.Logger,
		events:   deps.Events,
		exec:     exec,
		host:     h,
		timers:   loop.NewTimers[timerKey](),
		replicas: make(map[model.Partition]*replica),
		tails:    tails,
		waker:    waker,

		throttles:  throttles,
		leaders:    make(map[model.NodeID]*upstream),
		controller: deps.Controller,
	}
	s.loop = loop.New[Input](s, deps.Clock, 0)
	return s
}

// Step implements loop.Body.
func (s *Shard) Step(now time.Time, burst []Input) {
	s.now = now
	s.judgeLease(now)
	for i := range burst {
		s.handle(now, &burst[i])
	}
	for key, due := s.timers.Pop(now); due; key, due = s.timers.Pop(now) {
		switch key.timer {
		case timerDelete:
			s.deleteLog(key.replica)
		case timerGather:
			s.tellGathered(now)
		case timerTidings:
			s.tellFeeds()
		case timerReads:
			s.readOn()
		case timerThrottle:
			s.letPass()
		default:
			s.step(now, key.replica, &partition.Fired{Timer: key.timer})
		}
	}
	s.revive(now)
	s.perform()
}

// Deadline implements loop.Body. The end of a lease is one: who waits then may wait for a
// leader that others have replaced.
func (s *Shard) Deadline() (time.Time, bool) {
	at, ok := s.timers.Next()
	if end, leased := s.host.lapses(); leased && !s.doubt && (!ok || end.Before(at)) {
		return end, true
	}
	return at, ok
}

// Done implements loop.Body: told to stop, and every log is closed.
func (s *Shard) Done() bool {
	if !s.stopping {
		return false
	}
	for _, r := range s.replicas {
		if !r.closed {
			return false
		}
	}
	return true
}

func (s *Shard) handle(now time.Time, in *Input) {
	switch in.kind {
	case inputMachine:
		s.step(now, in.replica, in.rare.in)
	case inputRequest:
		s.begin(now, in.replica, in.request)
	case inputProducers:
		in.rare.ask.answer(in.replica)
	case inputAssign:
		s.assigned(now, in.replica, in.rare.assign)
	case inputRemove:
		s.remove(now, in.replica)
	case inputStored:
		s.stored(now, in.replica, in.stored)
	case inputOpened:
		s.logOpened(now, in.replica, in.rare.opened)
	case inputKept:
		s.kept(now, in.replica, in.rare.opened)
	case inputClosed:
		if in.replica.handle == in.rare.handle {
			in.replica.closed = true
		}
	case inputDeleted:
		s.logDeleted(now, in.replica, in.rare.err)
	case inputLag:
		in.rare.lag.answers <- s.lags()
	case inputLeased: // whoever steps the shard looks
	case inputAiling:
		s.ailing(now, in.rare.dir)
	case inputRestarted:
		s.restarted(in.rare.dir)
		s.host.doubtful(in.rare.dir, -1)
	case inputStop:
		s.stop(now)
	default:
		s.replicate(now, in)
	}
}

// replicate takes the inputs that other brokers are the reason of.
func (s *Shard) replicate(now time.Time, in *Input) {
	switch in.kind {
	case inputParcel:
		s.unpack(now, in.parcel)
	case inputLinkUp:
		s.linkUp(now, in.rare.link)
	case inputLinkDown:
		s.linkDown(now, in.rare.link)
	case inputFeed:
		if f := in.rare.link.feeds[s.index]; f != nil {
			s.busyFeed(f)
		}
	case inputRead:
		s.wasRead(in.rare.read)
	case inputThrottles:
		s.letPass()
	case inputAltered:
		for i := range in.rare.altered {
			s.step(now, in.rare.altered[i].replica, &in.rare.altered[i].in)
		}
	}
}

// step steps one machine and remembers that it has effects.
func (s *Shard) step(now time.Time, r *replica, in partition.Input) {
	if r.machine == nil {
		return
	}
	r.machine.Step(now, in, &r.effects)
	s.touch(r)
}

func (s *Shard) touch(r *replica) {
	if !r.dirty {
		r.dirty = true
		s.dirty = append(s.dirty, r)
	}
}

// inOrder is all replicas.
func (s *Shard) inOrder() []*replica { return sorted(slices.Collect(maps.Values(s.replicas))) }

// stop asks every machine to end cleanly.
func (s *Shard) stop(now time.Time) {
	if s.stopping {
		return
	}
	s.stopping = true
	for _, r := range s.inOrder() {
		if r.machine != nil && !r.deleting {
			s.step(now, r, &partition.Stop{})
		}
	}
}

// stored takes the answer to an append. What the machine has taken for stored is
// kept for readers, who do not see it before the view says so.
func (s *Shard) stored(now time.Time, r *replica, c *appendCall) {
	s.step(now, r, &c.answer)
	if c.taken {
		r.arrived += int64(c.bytes)
	}
	if c.taken && c.gen == r.gen && !r.deleting {
		if v := r.machine.View(); v.Gen == c.gen && v.LEO > c.last {
			s.keepTail(r, c)
		}
	}
	for _, q := range c.requests {
		q.calls--
		q.stray = q.stray || !c.taken
		s.retire(q)
	}
	s.putCall(c)
}

// keepTail keeps the batches of a call, of which each part has one or more.
func (s *Shard) keepTail(r *replica, c *appendCall) {
	part, at := 0, 0
	for i := range c.batches {
		b := &c.batches[i]
		end := at + int(b.Bytes)
		s.tails.add(&r.tail, b.BaseOffset, b.LastOffset, c.parts[part][at:end:end], c.frames[part])
		if at = end; at == len(c.parts[part]) {
			part, at = part+1, 0
		}
	}
}

// logOpened keeps the handle, then tells the machine.
func (s *Shard) logOpened(now time.Time, r *replica, o *openedLog) {
	if !r.deleting && s.holdOpened(r, o) {
		return
	}
	r.opens--
	if r.deleting {
		if r.opens == 0 && !r.renewing {
			s.deleteLog(r)
		}
		return
	}
	if o.in.Gen == r.gen && o.in.Fault == partition.FaultNone {
		r.handle, r.life, r.closed = o.handle, o.life, false
		s.tails.reset(&r.tail) // the log may hold less, or more, than it says
		if !r.machine.Active() {
			s.closeLog(r) // it was being opened when it was told to end
			return
		}
	}
	s.step(now, r, &o.in)
	if o.in.Gen == r.gen && o.in.Fault == partition.FaultNone && o.life == s.lifeOf(r.dir) {
		r.unsure = false
	}
}

// require is what an append is to outlive. Where a store cannot promise that for
// an append, the machine asks for a flush after it.
func (d *Directory) require(machine bool) storage.Survives {
	if machine && d.Store.Capabilities().Survives >= storage.SurvivesMachine {
		return storage.SurvivesMachine
	}
	return storage.SurvivesProcess
}
