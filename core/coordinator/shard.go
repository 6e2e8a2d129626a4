package coordinator

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/group"
	"github.com/brokerd/brokerd/core/loop"
	"github.com/brokerd/brokerd/core/model"
)

const (
	// appendsMax bounds the appends that a shard has under way. Beyond it writes
	// wait, and are packed together.
	appendsMax = 256
	// appendsEach bounds those of one partition: a store takes a few large ones
	// sooner than many small ones.
	appendsEach = 4
	// loadsMax bounds the reads that a shard has under way. Beyond it partitions wait
	// for their turn.
	loadsMax = 4
)

// Input is what a shard can be stepped with. It is made by this package.
type Input struct {
	kind   inputKind
	index  int32 // of the partition
	ask    *request
	append *appending
	seldom *seldom
}

// seldom is of the inputs that come so seldom that those that come often need not carry
// room for it.
type seldom struct {
	lead    *lead
	counted chan<- group.Census // has room for one
	hosted  *hosted
	chunk   *chunk
	topics  []string
	bytes   int
}

type inputKind int8

const (
	inputLead     inputKind = iota // metadata says that partition index is led here
	inputResign                    // metadata says that it is not any more
	inputAsk                       // ask, of partition index
	inputList                      // ask, of all partitions
	inputCensus                    // counted, of all partitions
	inputChunk                     // chunk of hosted's log
	inputAppended                  // append has its result
	inputDeleted                   // topics are gone
	inputLimit                     // batches of the offsets topic have at most so many bytes
	inputStop                      // the broker stops
)

// lead is what metadata says of a partition that this broker leads.
type lead struct {
	partition model.Partition
	epoch     model.LeaderEpoch
}

// hosted is one partition's groups, under one leader epoch or a part of one: a
// machine that resigns is not led again, another one is made.
type hosted struct {
	lead
	machine *group.Machine
	effects group.Effects
	dirty   bool
	ended   bool // what comes back for it is not listened to

	load   loading
	loaded bool
	writes writing
}

// timerKey names a timer of a shard.
type timerKey struct {
	hosted *hosted
	kind   timerKind
}

type timerKind int8

const (
	timerMachine timerKind = iota // the machine's own
	timerLoad                     // the load goes on
	timerGone                     // topics that were not there after the load are looked for again
)

// Shard owns some partitions' machines. It is a loop.Body.
type Shard struct {
	index  int
	cfg    Config
	log    *slog.Logger
	events Events
	exec   Executor
	source Log
	newID  func() string
	memory group.Memory
	host   host
	clock  loop.Clock
	loop   *loop.Loop[Input]

	hosted     map[int32]*hosted
	timers     *loop.Timers[timerKey]
	requests   map[group.RequestID]*request
	lastID     group.RequestID
	dirty      []*hosted
	written    group.Written
	builder    *batch.Builder
	idle       []*appending // to be used again
	batchBytes int
	appends    int                     // under way
	loads      int                     // under way
	loadQueue  []*hosted               // wait for one of them
	held       []*hosted               // have writes, and wait for room
	underway   map[model.Partition]int // appends, whoever asked for them
	failures   rare                    // of loads
	refusals   rare                    // of writes
	shortages  rare                    // of memory
	stopping   bool
}

// host is what a shard needs of its manager.
type host interface {
	// exists reports whether there is a topic of this name now.
	exists(topic string) bool
	// serves is told when the groups of a partition are served, and when they are not
	// any more.
	serves(index int32, does bool)
	// answered is given a commit that was answered, to be used again.
	answered(q *request)
}

func newShard(index int, cfg Config, deps Deps, exec Executor, h host) *Shard {
	s := &Shard{
		index:      index,
		cfg:        cfg,
		log:        deps.Logger,
		events:     deps.Events,
		exec:       exec,
		source:     deps.Log,
		newID:      deps.NewID,
		memory:     deps.Memory,
		hosted:     make(map[int32]*hosted),
		timers:     loop.NewTimers[timerKey](),
		requests:   make(map[group.RequestID]*request),
		builder:    batch.NewBuilder(batch.Options{Codec: cfg.Codec}),
		batchBytes: batchBytesDefault,
		host:       h,
		clock:      deps.Clock,
		underway:   make(map[model.Partition]int),
	}
	s.loop = loop.New[Input](s, deps.Clock, 0)
	return s
}

// Step implements loop.Body.
func (s *Shard) Step(now time.Time, burst []Input) {
	for i := range burst {
		s.handle(now, &burst[i])
	}
	for key, due := s.timers.Pop(now); due; key, due = s.timers.Pop(now) {
		s.fired(now, key)
	}
	s.perform(now)
}

// Deadline implements loop.Body.
func (s *Shard) Deadline() (time.Time, bool) { return s.timers.Next() }

// Done implements loop.Body: told to stop, and nothing is under way.
func (s *Shard) Done() bool { return s.stopping && len(s.hosted) == 0 }

func (s *Shard) handle(now time.Time, in *Input) {
	switch in.kind {
	case inputLead:
		s.leads(now, in.index, *in.seldom.lead)
	case inputResign:
		s.resigns(now, in.index)
	case inputAsk:
		s.ask(now, in.index, in.ask)
	case inputList:
		s.list(now, in.ask)
	case inputCensus:
		s.count(in.seldom.counted)
	case inputChunk:
		s.chunkRead(now, in.seldom.hosted, in.seldom.chunk)
	case inputAppended:
		s.appended(now, in.append)
	case inputDeleted:
		s.deleted(now, in.seldom.topics)
	case inputLimit:
		s.batchBytes = in.seldom.bytes
	case inputStop:
		s.stopping = true // nothing more is taken; what is being written is waited for
	}
}

// leads begins to coordinate the groups of a partition, or begins anew.
func (s *Shard) leads(now time.Time, index int32, l lead) {
	s.resigns(now, index)
	if s.stopping {
		return
	}
	h := &hosted{lead: l, machine: group.New(s.cfg.Groups, s.newID, s.memory)}
	s.hosted[index] = h
	s.step(now, h, &group.Lead{Epoch: l.epoch})
}

// resigns ends that: whoever waits is told. What was not sent yet is not written any
// more: it may rest on a write that is not in the log.
func (s *Shard) resigns(now time.Time, index int32) {
	h := s.hosted[index]
	if h == nil {
		return
	}
	delete(s.hosted, index)
	s.host.serves(index, false)
	s.step(now, h, &group.Resign{})
	h.ended = true // before anything is performed, which could end it again
	h.writes.queue = nil
	s.tellClients(h)
	h.effects.Reset()
	for _, k := range []timerKind{timerMachine, timerLoad, timerGone} {
		s.timers.Cancel(timerKey{h, k})
	}
}

// again drops a machine which cannot know any more what is in its log, and begins
// with what there is.
func (s *Shard) again(now time.Time, h *hosted) { s.leads(now, h.partition.Index, h.lead) }

// step steps one machine and remembers that it has effects.
func (s *Shard) step(now time.Time, h *hosted, in group.Input) {
	if h.ended {
		return
	}
	h.machine.Step(now, in, &h.effects)
	if !h.dirty {
		h.dirty = true
		s.dirty = append(s.dirty, h)
	}
}

// perform performs what the machines asked for in this burst, and what follows from
// that.
func (s *Shard) perform(now time.Time) {
	for {
		for i := 0; i < len(s.dirty); i++ { // it may become longer
			h := s.dirty[i]
			s.dirty[i] = nil
			h.dirty = false
			if !h.ended {
				s.performOne(now, h)
			}
		}
		s.dirty = s.dirty[:0]
		s.sendHeld(now)
		if len(s.dirty) == 0 {
			break
		}
	}
	if s.stopping {
		s.endIdle(now)
	}
}

// performOne performs the effects of one machine. Sending comes last, since it may step
// the machine.
func (s *Shard) performOne(now time.Time, h *hosted) {
	e := &h.effects
	if e.Load != nil {
		s.startLoad(now, h, e.Load.Gen)
	}
	h.writes.add(e.Writes)
	switch {
	case e.Timer == nil:
	case e.Timer.IsZero():
		s.timers.Cancel(timerKey{h, timerMachine})
	default:
		s.timers.Set(timerKey{h, timerMachine}, *e.Timer)
	}
	s.tellClients(h)
	e.Reset()
	s.send(now, h)
}

// tellClients gives the answers of a machine, and tells of what it has noticed.
func (s *Shard) tellClients(h *hosted) {
	for i := range h.effects.Notices {
		s.notice(h, &h.effects.Notices[i])
	}
	for i := range h.effects.Responses {
		s.respond(&h.effects.Responses[i])
	}
}

func (s *Shard) fired(now time.Time, key timerKey) {
	switch key.kind {
	case timerMachine:
		s.step(now, key.hosted, &group.Fired{})
	case timerLoad:
		s.waited(now, key.hosted)
	case timerGone:
		s.stillGone(now, key.hosted)
	}
}

// deleted tells the machines of topics that are gone.
func (s *Shard) deleted(now time.Time, topics []string) {
	for _, h := range s.inOrder() {
		s.step(now, h, &group.TopicsDeleted{Topics: topics})
	}
}

// inOrder are the partitions in the order of their numbers.
func (s *Shard) inOrder() []*hosted {
	out := make([]*hosted, 0, len(s.hosted))
	for _, index := range slices.Sorted(maps.Keys(s.hosted)) {
		out = append(out, s.hosted[index])
	}
	return out
}

// endIdle resigns the machines that write nothing, when the broker stops.
func (s *Shard) endIdle(now time.Time) {
	for _, h := range s.inOrder() {
		if h.writes.idle() {
			s.resigns(now, h.partition.Index)
		}
	}
}

// abandon answers whoever still waits after the loop has ended.
func (s *Shard) abandon() {
	for id, q := range s.requests {
		delete(s.requests, id)
		q.refuse(errStopping())
	}
}

func errStopping() error {
	return fmt.Errorf("the broker is stopping: %w", model.ErrCoordinatorNotAvailable)
}

// complete brings something back to the loop. After its end nobody waits for it.
func (s *Shard) complete(in Input) { s.loop.Complete(in) }
