package controller

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/image/topicconfig"
	"github.com/brokerd/brokerd/core/model"
)

// Config bounds and fills what commands leave open.
type Config struct {
	// PartitionsDefault is the count of a topic that names none.
	PartitionsDefault int32
	// RequestPartitionsMax and ClusterPartitionsMax bound the new partitions of
	// one command, and the partitions of the cluster.
	RequestPartitionsMax int
	ClusterPartitionsMax int
	// Strict refuses a topic that cannot have its target of replicas at once,
	// instead of making it with what there is.
	Strict bool
	// ProducerIDBlock is how many producer IDs one allocation takes.
	ProducerIDBlock int32
	// BrokerLease is for how long a broker counts as alive that is not heard. It is a
	// few heartbeats at least.
	BrokerLease time.Duration
	// ShutdownMax bounds how long a broker that shuts down waits for the others to hear
	// that it leads no more.
	ShutdownMax time.Duration
	// RebalanceEvery is how often leadership goes back to preferred leaders, of brokers
	// that lack more than RebalanceAbove percent of what they are to lead; below 0: never.
	RebalanceEvery time.Duration
	RebalanceAbove int
	// RaisesMax bounds the partitions below their target that are given another replica at
	// once. So the first of them are done with while the others wait, what many new replicas ask of
	// their leaders and stores is spread over time, and a proposal has a bound.
	RaisesMax int
	// RaiseAfter is for how long a broker has to have served to be given them; RaiseAway,
	// for how long it has to have been gone before another one gets what it was being given.
	RaiseAfter, RaiseAway time.Duration
	// TopicDefaults are the broker properties that stand in for topic settings,
	// as the broker was started with them.
	TopicDefaults map[string]string
}

// DefaultConfig is the Config where nothing was said.
func DefaultConfig() Config {
	return Config{
		PartitionsDefault:    1,
		RequestPartitionsMax: 10_000,
		ClusterPartitionsMax: 200_000,
		ProducerIDBlock:      1000,
		BrokerLease:          time.Second,
		ShutdownMax:          5 * time.Second,
		RebalanceEvery:       5 * time.Minute,
		RebalanceAbove:       10,
		RaisesMax:            100,
		RaiseAfter:           5 * time.Second,
		RaiseAway:            time.Minute,
	}
}

// Validate says in one sentence what is wrong.
func (c Config) Validate() error {
	switch {
	case c.PartitionsDefault < 1:
		return fmt.Errorf("default of partitions is %d: it must be at least 1", c.PartitionsDefault)
	case c.RequestPartitionsMax < 1, c.ClusterPartitionsMax < 1:
		return errors.New("limits of partitions must be at least 1")
	case c.ProducerIDBlock < 1:
		return fmt.Errorf("producer ID block is %d: it must be at least 1", c.ProducerIDBlock)
	case c.BrokerLease <= 0 || c.ShutdownMax <= 0:
		return errors.New("lease and longest shutdown of brokers must be above 0")
	case c.RebalanceAbove < 0:
		return fmt.Errorf("rebalance above %d percent: it must be 0 or more", c.RebalanceAbove)
	case c.RaisesMax < 1 || c.RaiseAfter < 0 || c.RaiseAway < 0:
		return fmt.Errorf("%d raises at once, after %v and %v: at least 1, and times of 0 or more", c.RaisesMax, c.RaiseAfter, c.RaiseAway)
	}
	return nil
}

// CommandID names a command for as long as it is in flight.
type CommandID uint64

// ProposalID names a proposal for as long as it is in flight.
type ProposalID uint64

// Input is what Step takes.
type Input interface{ input() }

// Lead says that this node is the active controller, and Image is everything
// that was ever committed.
type Lead struct{ Image *image.Image }

// Resign says that it no longer is. Everything in flight is answered with
// ErrNotController: whether it will be committed is not known.
type Resign struct{}

// Command asks. ID is the caller's, and comes back with the answer.
type Command struct {
	ID CommandID
	Op Op
}

// Committed says that a proposal was committed and replayed; Image has it. They
// come in the order of the proposals.
type Committed struct {
	Proposal ProposalID
	Image    *image.Image
}

// Due says that the time of Deadline has come. Inputs that came before it are
// stepped before it, also where they came late: a heartbeat that has waited here is
// no reason to fence a broker.
type Due struct{}

func (Lead) input()      {}
func (Resign) input()    {}
func (Command) input()   {}
func (Committed) input() {}
func (Due) input()       {}

// Effects are what Step asks for, in order. The caller clears them.
type Effects struct {
	Propose []Proposal
	Respond []Response
	Notices []Notice
	// Counts of what was committed.
	Counts Counts
}

// Notice is what an operator is to read, once it is committed.
type Notice struct {
	Warn bool // the cluster is worse off for it
	Text string
	// What it is about: NoNode, "" and no partitions, where it is about none.
	Broker     model.NodeID
	Topic      string
	Partitions []int32
}

// Proposal is records to commit together.
type Proposal struct {
	ID      ProposalID
	Records []image.Record
}

// Response answers a command.
type Response struct {
	ID     CommandID
	Answer Answer
}

// Machine is the active controller, or one that waits to be it. It belongs to
// one goroutine.
type Machine struct {
	cfg  Config
	rand *rand.Rand

	leading bool
	// next is the metadata as it will be once everything in flight is committed.
	next         *image.Image
	lastProposal ProposalID
	inFlight     []parked
	// barrier is the proposal of a registration, whose epoch is the offset that
	// it gets: commands wait until it is known.
	barrier     ProposalID
	registering model.NodeID
	waiting     []Command
	soft        soft
}

// parked is a proposal in flight, and the answers that wait for it.
type parked struct {
	proposal ProposalID
	answers  []Response
	notices  []Notice
	counts   Counts
}

// New makes a machine. rand gives topic IDs and places replicas: in production
// it must be seeded so that nobody can guess it, in simulation by the scenario.
func New(cfg Config, rand *rand.Rand) (*Machine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	return &Machine{cfg: cfg, rand: rand}, nil
}

// Step takes one input and appends what it asks for to out. Of now only differences
// count, and none below 0, but for an image.Loss, which says when it was.
func (m *Machine) Step(now time.Time, input Input, out *Effects) {
	m.advance(now)
	switch in := input.(type) {
	case Lead:
		m.leading, m.next = true, in.Image
		m.beginLeases(now, in.Image)
	case Resign:
		m.resign(out)
	case Command:
		m.command(in, out)
	case Committed:
		m.committed(in, out)
	case Due:
		m.due(now, out)
	}
}

func (m *Machine) resign(out *Effects) {
	for _, p := range m.inFlight {
		for _, r := range p.answers {
			out.Respond = append(out.Respond, Response{r.ID, Answer{Err: fmt.Errorf("leadership was lost before the change was committed: %w", model.ErrNotController)}})
		}
	}
	for _, c := range m.waiting {
		out.Respond = append(out.Respond, Response{c.ID, Answer{Err: model.ErrNotController}})
	}
	*m = Machine{cfg: m.cfg, rand: m.rand, lastProposal: m.lastProposal}
}

func (m *Machine) command(c Command, out *Effects) {
	if !m.leading {
		out.Respond = append(out.Respond, Response{c.ID, Answer{Err: model.ErrNotController}})
		return
	}
	if beat, ok := c.Op.(Heartbeat); ok && m.heartbeat(c, beat, out) {
		return
	}
	if m.barrier != 0 {
		m.waiting = append(m.waiting, c)
		return
	}
	d := m.decision()
	answer := d.decide(c.Op)
	if _, beat := c.Op.(Heartbeat); beat && answer.Err == nil {
		answer.Heartbeat.Offset = m.soft.committed.Offset // a later one, where it waits for what was decided
	}
	if m.propose(d, out) {
		if op, ok := c.Op.(RegisterBroker); ok {
			m.barrier, m.registering = m.lastProposal, op.Registration.NodeID
		}
	}
	// Even a refusal may rest on what is not committed yet.
	response := Response{c.ID, answer}
	if last := len(m.inFlight) - 1; last >= 0 {
		m.inFlight[last].answers = append(m.inFlight[last].answers, response)
		return
	}
	out.Respond = append(out.Respond, response)
}

func (m *Machine) decision() *decision {
	return &decision{cfg: m.cfg, rand: m.rand, img: m.next, soft: &m.soft}
}

// propose proposes what was decided, if that is anything.
func (m *Machine) propose(d *decision, out *Effects) bool {
	if len(d.records) == 0 {
		return false
	}
	m.lastProposal++
	m.next = d.img
	m.inFlight = append(m.inFlight, parked{proposal: m.lastProposal, notices: d.notices, counts: d.counts})
	out.Propose = append(out.Propose, Proposal{m.lastProposal, d.records})
	return true
}

func (m *Machine) committed(in Committed, out *Effects) {
	if len(m.inFlight) == 0 || m.inFlight[0].proposal != in.Proposal {
		panic(fmt.Sprintf("controller: proposal %d committed out of order", in.Proposal))
	}
	done := m.inFlight[0]
	m.inFlight = m.inFlight[1:]
	m.soft.committed = in.Image
	if len(m.inFlight) == 0 {
		m.next = in.Image
	}
	if m.barrier == in.Proposal {
		m.barrier = 0
		if b, ok := in.Image.Broker(m.registering); ok {
			done.answers[0].Answer.Epoch = b.Epoch
			m.hear(b.ID, b.Epoch, 0)
		}
	}
	for i := range done.answers {
		if h := &done.answers[i].Answer.Heartbeat; h.Offset != 0 {
			h.Offset = in.Image.Offset
		}
	}
	out.Respond = append(out.Respond, done.answers...)
	out.Notices = append(out.Notices, done.notices...)
	out.Counts.Add(done.counts)
	waiting := m.waiting
	m.waiting = nil
	for _, c := range waiting {
		m.command(c, out)
	}
}

// decision is one command on its way to records: img is the metadata with the
// records so far.
type decision struct {
	cfg     Config
	rand    *rand.Rand
	img     *image.Image
	soft    *soft
	records []image.Record
	notices []Notice
	counts  Counts
	// resolved are the settings of a topic in an image.
	resolved    topicconfig.Config
	resolvedFor model.TopicID
	resolvedIn  *image.Image
}

// tell has an operator read something, once what was decided is committed.
func (d *decision) tell(n Notice) { d.notices = append(d.notices, n) }

func (d *decision) decide(op Op) Answer {
	switch op := op.(type) {
	case CreateTopics:
		return Answer{Topics: d.createTopics(op)}
	case DeleteTopics:
		return Answer{Topics: d.deleteTopics(op.Topics)}
	case CreatePartitions:
		return Answer{Errs: d.createPartitions(op)}
	case AlterConfigs:
		return Answer{Errs: d.alterConfigs(op)}
	case AllocateProducerIDs:
		return d.allocateProducerIDs()
	case RegisterBroker:
		return d.registerBroker(op.Registration)
	case Heartbeat:
		return d.beat(op)
	case AlterISR:
		return d.alterISR(op)
	case ElectLeaders:
		return d.electLeaders(op)
	case AlterReassignments:
		return Answer{Errs: d.alterReassignments(op)}
	case ReportLogs:
		return Answer{Err: d.reportLogs(op)}
	case FenceBroker:
		return Answer{Err: d.fenceBroker(op)}
	case UnregisterBroker:
		return Answer{Err: d.unregisterBroker(op)}
	case ConfirmRemoval:
		d.confirmRemoval(op)
		return Answer{}
	}
	return Answer{Err: fmt.Errorf("operation %T: %w", op, model.ErrInvalidRequest)}
}

// emit adds records, and lets what follows see them. A record that does not fit
// is a mistake of this package.
func (d *decision) emit(records ...image.Record) {
	if len(records) == 0 {
		return
	}
	delta := image.NewDelta(d.img, d.img.Offset+1)
	for _, r := range records {
		if c, ok := r.(*image.PartitionChangeRecord); ok {
			if was, _, ok := d.img.Partition(c.Partition); ok {
				d.counts.count(was, c)
			}
		}
		if err := delta.Apply(r); err != nil {
			panic(fmt.Sprintf("controller: decided a record that does not fit: %v", err))
		}
	}
	d.img = delta.Image()
	if len(d.soft.reports) > 0 {
		for _, r := range records {
			d.forgetReports(r)
		}
	}
	d.records = append(d.records, records...)
}

func (d *decision) allocateProducerIDs() Answer {
	first := d.img.NextProducerID()
	next := first + int64(d.cfg.ProducerIDBlock)
	if next < first {
		return Answer{Err: fmt.Errorf("all producer IDs are given out: %w", model.ErrCoordinatorNotAvailable)}
	}
	d.emit(&image.ProducerIDsRecord{Next: next})
	return Answer{ProducerIDs: model.ProducerIDBlock{First: first, Count: d.cfg.ProducerIDBlock}}
}
