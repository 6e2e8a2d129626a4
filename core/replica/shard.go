package replica

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/loop"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// Input is what a shard can be stepped with. It is made by this package.
type Input struct {
	kind    inputKind
	replica *replica
	request *request
	stored  *appendCall
	parcel  *parcel
	rare    *rare
}

// rare is of the inputs that come so seldom that those that come often need not carry
// room for it.
type rare struct {
	in      partition.Input
	ask     *producersQuery
	assign  *assignment
	opened  *openedLog
	dir     *Directory
	handle  storage.Handle
	link    *link
	read    *caughtUp
	altered []alteration
	err     error
}

type inputKind int8

const (
	inputMachine   inputKind = iota // rare.in, for replica's machine
	inputRequest                    // request, for replica's machine
	inputProducers                  // ask, of replica's machine
	inputAssign                     // metadata says something about replica
	inputRemove                     // metadata gave replica's log up: delete it
	inputOpened                     // a log was opened, or not
	inputClosed                     // handle was closed
	inputDeleted                    // a log was deleted, or not: err
	inputStored                     // stored, a call for replica's log, has been answered
	inputLeased                     // the broker's lease has been renewed
	inputAiling                     // dir's store serves, or not
	inputRestarted                  // the process of dir's store was started again
	inputStop                       // the broker stops
	inputLinkUp                     // there is a link
	inputLinkDown                   // a link has ended
	inputParcel                     // parcel, of a message
	inputFeed                       // there may be credit again on link
	inputRead                       // read, for a follower of replica
	inputAltered                    // altered, by the controller or not
)

// assignment is what metadata says of a replica.
type assignment struct {
	leads    bool
	session  partition.Session // below those of this life of the broker
	lead     partition.Lead    // where it leads
	follow   partition.Follow  // where it does not
	settings TopicSettings
}

// request is an append, a trim, or what is copied from a leader, on its way. The payload is
// data. It is used again when it was answered, its payload was released, and no call has it
// any more.
type request struct {
	appendIn partition.Append
	timeout  time.Duration // of the append, from when the shard takes it
	data     []byte
	frame    *model.Frame // that data is in, or nil
	keeps    *model.Frame // until the request is used again
	weight   int64        // of the manager's budget
	done     func(model.Appended)

	isTrim  bool
	trimIn  partition.Trim
	trimmed func(model.TrimAnswer)

	isCopy   bool
	infos    []recordbatch.Info // of the batches of a copy
	incoming *incoming          // that its payload came in, if it has one

	// stampedBase and stampedEpoch are in data, when stamped.
	stamped      bool
	stampedBase  int64
	stampedEpoch model.LeaderEpoch
	answered     bool
	released     bool
	calls        int  // appends under way that have the payload
	stray        bool // a store may still read the payload, though its call has ended
}

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
	doubting(more int32)
}

func newShard(index int, cfg Config, deps Deps, exec Executor, tails *tails, waker *waker, h host) *Shard {
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
		default:
			s.step(now, key.replica, &partition.Fired{Timer: key.timer})
		}
	}
	s.revive(now)
	s.perform()
}

// Deadline implements loop.Body.
func (s *Shard) Deadline() (time.Time, bool) { return s.timers.Next() }

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
	case inputClosed:
		if in.replica.handle == in.rare.handle {
			in.replica.closed = true
		}
	case inputDeleted:
		s.logDeleted(now, in.replica, in.rare.err)
	case inputLeased: // whoever steps the shard looks
	case inputAiling:
		s.ailing(now, in.rare.dir)
	case inputRestarted:
		s.restarted(in.rare.dir)
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

// begin gives a request its number and hands it to the machine.
func (s *Shard) begin(now time.Time, r *replica, q *request) {
	id := s.number(q)
	if q.isTrim {
		q.trimIn.ID = id
		q.released = true // it has no payload
		if r.machine == nil || r.deleting {
			s.respond(&partition.Response{ID: id, LogStart: -1, Err: unavailable(r)})
			return
		}
		s.step(now, r, &q.trimIn)
		return
	}
	q.appendIn.ID, q.appendIn.Deadline = id, now.Add(q.timeout)
	if r.machine == nil || r.deleting {
		r.refuse(&q.appendIn.Batch)
		s.release(id)
		s.respond(&partition.Response{ID: id, BaseOffset: -1, LogAppendTime: -1, LogStart: -1, Epoch: model.NoEpoch, Err: unavailable(r), Refused: true})
		return
	}
	s.step(now, r, &q.appendIn)
}

func (s *Shard) number(q *request) partition.RequestID {
	if n := len(s.free); n > 0 {
		id := s.free[n-1]
		s.free = s.free[:n-1]
		s.requests[id] = q
		return id
	}
	s.requests = append(s.requests, q)
	return partition.RequestID(len(s.requests) - 1)
}

// assigned takes what metadata says: settings and the role.
func (s *Shard) assigned(now time.Time, r *replica, a *assignment) {
	if s.stopping || r.deleting {
		return
	}
	if old := s.replicas[r.id]; old != nil && old != r && old.deleting {
		old.successor, old.successorAssign = r, a
		return
	}
	if r.dir == nil {
		s.replicas[r.id] = r
		r.closed = true
		s.countOffline(r, true)
		return
	}
	var role partition.Input = &a.follow
	if a.leads {
		role = &a.lead
		s.follow(now, r, model.NoNode)
	}
	reopen := a.settings.Log != r.log
	r.log = a.settings.Log
	if r.machine == nil {
		s.makeMachine(now, r, a)
		s.step(now, r, role)
	} else {
		s.step(now, r, &partition.Configure{Settings: a.settings.Settings, Reopen: reopen, Role: role})
	}
	if !a.leads {
		s.follow(now, r, a.follow.Leader)
	}
	s.tellRefused(now, r)
}

// makeMachine makes the machine of a replica, which has no role yet.
func (s *Shard) makeMachine(now time.Time, r *replica, a *assignment) {
	r.machine = partition.New(partition.Config{
		Partition: r.id, Node: s.cfg.NodeID, Limits: s.cfg.Limits, Settings: a.settings.Settings, Session: max(s.session, a.session),
	})
	s.replicas[r.id] = r
	r.closed = true // until it is opened
	if r.dir.health.ails.Load() {
		s.step(now, r, &partition.Ailing{Ails: true})
	}
	if s.doubt {
		s.step(now, r, &partition.Doubted{Doubt: true})
	}
}

// remove ends a replica whose log metadata gave up, and deletes the log.
func (s *Shard) remove(now time.Time, r *replica) {
	if r.deleting {
		return
	}
	if r.machine != nil {
		s.step(now, r, &partition.Resign{Epoch: 1<<31 - 1})
	}
	s.follow(now, r, model.NoNode)
	if r.machine != nil {
		s.session = max(s.session, r.machine.LastSession())
	}
	for len(r.subscribers) > 0 {
		s.endStream(r.subscribers[0])
	}
	r.deleting, r.closed = true, true
	s.tails.reset(&r.tail)
	s.replicas[r.id] = r
	s.countOffline(r, false)
	if r.opens == 0 {
		s.deleteLog(r)
	}
}

func (s *Shard) deleteLog(r *replica) {
	if r.dir == nil {
		s.logDeleted(time.Time{}, r, nil)
		return
	}
	s.exec.Go(r.dir.ID, s.callDelete(r))
}

// deleteAgain is the wait before a delete that failed is repeated.
const deleteAgain = 5 * time.Second

func (s *Shard) logDeleted(now time.Time, r *replica, err error) {
	if err != nil {
		if !s.gathered(r, aboutDeletes, slog.Any("err", err)) {
			s.log.Warn("delete a log; trying again", "topic", r.topic, "partition", r.id.Index, "err", err)
		}
		if !s.stopping {
			s.timers.Set(timerKey{r, timerDelete}, now.Add(deleteAgain))
		}
		return
	}
	if s.replicas[r.id] == r {
		delete(s.replicas, r.id)
	}
	s.cancelTimers(r)
	s.host.deleted(r)
	if r.successor != nil {
		s.assigned(now, r.successor, r.successorAssign)
	}
}

func (s *Shard) cancelTimers(r *replica) {
	for t := partition.TimerDeadline; t <= partition.TimerExpiry; t++ {
		s.timers.Cancel(timerKey{r, t})
	}
	s.timers.Cancel(timerKey{r, timerDelete})
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
	r.opens--
	if r.deleting {
		if r.opens == 0 {
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
}

// require is what an append is to outlive. Where a store cannot promise that for
// an append, the machine asks for a flush after it.
func (d *Directory) require(machine bool) storage.Survives {
	if machine && d.Store.Capabilities().Survives >= storage.SurvivesMachine {
		return storage.SurvivesMachine
	}
	return storage.SurvivesProcess
}
