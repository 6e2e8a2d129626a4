package quorum

import (
	"bytes"
	"container/heap"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/cryptotest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/model"
)

var traceFlag = flag.Bool("story", false, "say what the nodes of a cluster log")

// worldLog says who logs, and when in the world.
type worldLog struct{ s *site }

func (l worldLog) Write(b []byte) (int, error) {
	_, rest, _ := bytes.Cut(b, []byte(" level="))
	l.s.w.t.Logf("%v node %d life %d: %s", l.s.w.now.Sub(time.Unix(1e9, 0)), l.s.id, l.s.life, bytes.TrimSpace(rest))
	return len(b), nil
}

// event happens at its time, those of one time in the order in which they were made.
type event struct {
	at  time.Time
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	if !e[i].at.Equal(e[j].at) {
		return e[i].at.Before(e[j].at)
	}
	return e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

// site is one node: its disk, and its process if it runs.
type site struct {
	w        *world
	id       model.NodeID
	endpoint string
	disk     *memDisk
	cfg      Config
	finder   *Finder
	node     *Node // nil: it is down
	life     int
	paused   time.Time // until when it is not turned
	checked  uint64    // applied entries that were looked at
	led      bool
	wiped    []model.DirectoryID // what it was before
	hidden   bool                // it is nobody's seed
}

// world is a cluster under a seed: its time, its network, and what was seen of it.
type world struct {
	t      *testing.T
	seed   uint64
	rand   *rand.Rand
	now    time.Time
	seq    int
	events events
	sites  []*site
	turns  int

	// The network: in thousandths.
	drop, double int
	delay        time.Duration
	cuts         map[[2]*site]bool

	// What was seen.
	entries map[uint64][2]uint64 // committed: term and hash, by index
	images  map[uint64]uint64    // by applied index
	leaders map[uint64]uint64    // by term
	votes   map[[2]uint64]uint64 // by who voted and term
	done    map[string]bool      // topics whose creation was answered
	blocks  map[int64]bool       // producer IDs that were given out
	byHand  bool                 // voters were changed by hand
	tally   map[string]int
	asked   int

	settling bool // there are no more faults
}

func newWorld(t *testing.T, seed uint64, nodes int, adapt func(*Config)) *world {
	cryptotest.SetGlobalRandom(t, seed)
	w := &world{
		t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1e9, 0), delay: 5 * time.Millisecond,
		cuts: map[[2]*site]bool{}, entries: map[uint64][2]uint64{}, images: map[uint64]uint64{}, leaders: map[uint64]uint64{},
		votes: map[[2]uint64]uint64{}, done: map[string]bool{}, blocks: map[int64]bool{}, tally: map[string]int{},
	}
	for i := range nodes {
		s := &site{w: w, id: model.NodeID(i + 1), endpoint: fmt.Sprint("host-", i+1), disk: &memDisk{}}
		s.cfg = Config{Dir: "none", NodeID: s.id, Bootstrap: i == 0, Endpoint: s.endpoint, SnapshotEntries: 1000, Controller: controller.Config{BrokerLease: time.Hour}}
		if adapt != nil {
			adapt(&s.cfg)
		}
		w.sites = append(w.sites, s)
	}
	return w
}

func (w *world) failf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d, turn %d, %v: %s", w.seed, w.turns, w.now.Sub(time.Unix(1e9, 0)), fmt.Sprintf(format, args...))
}

func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.events, event{w.now.Add(d), w.seq, do})
}

// chance is true in n of 1000 cases.
func (w *world) chance(n int) bool { return w.rand.IntN(1000) < n }

// start opens a node that is down. One without a log looks for a cluster first.
func (s *site) start() {
	s.life++
	s.cfg.Seeds = nil
	for _, o := range s.w.sites { // whoever moves a node tells the next one that starts
		if !o.hidden {
			s.cfg.Seeds = append(s.cfg.Seeds, o.endpoint)
		}
	}
	s.node, s.finder, s.checked, s.led, s.paused = nil, nil, 0, false, time.Time{}
	if s.disk.stored == nil {
		s.find()
		return
	}
	s.open(Verdict{})
}

func (s *site) deps() Deps {
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(s.w.rand.IntN(256))
	}
	d := Deps{Clock: worldClock{s.w}, Rand: rand.NewChaCha8(seed), Disk: s.disk, Peers: &worldPeers{s, s.life}}
	if *traceFlag {
		d.Logger = slog.New(slog.NewTextHandler(worldLog{s}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return d
}

func (s *site) find() {
	f, err := NewFinder(s.cfg, s.deps())
	if err != nil {
		s.w.failf("finder of %d: %v", s.id, err)
	}
	s.finder = f
}

func (s *site) open(v Verdict) {
	cfg := s.cfg
	cfg.Verdict = v
	n, err := Open(cfg, s.deps())
	if err != nil {
		s.w.failf("open %d: %v", s.id, err)
	}
	if len(s.wiped) > 0 && slices.Contains(s.wiped, n.identity.DirectoryID) {
		s.w.failf("node %d has the directory ID that it lost", s.id)
	}
	s.node = n
}

// crash ends a node without a word.
func (s *site) crash() {
	s.life++
	s.node, s.finder = nil, nil
}

// wipe takes a node's disk.
func (s *site) wipe() {
	s.crash()
	s.wiped = append(s.wiped, s.disk.stored.Identity.DirectoryID)
	s.disk = &memDisk{}
}

func (s *site) due() (time.Time, bool) {
	at, ok := time.Time{}, false
	switch {
	case s.finder != nil:
		at, ok = s.finder.Loop().Deadline()
	case s.node != nil:
		at, ok = s.node.Loop().Deadline()
	}
	if at.Before(s.paused) {
		at = s.paused
	}
	if at.Before(s.w.now) {
		at = s.w.now
	}
	return at, ok
}

// turn turns a node, and looks at what came of it.
func (s *site) turn() {
	w := s.w
	if w.now.Before(s.paused) || s.node == nil && s.finder == nil {
		return
	}
	w.turns++
	if s.finder != nil {
		s.finder.Loop().Turn(w.now)
		if v, found := s.finder.Verdict(); found {
			s.finder = nil
			w.tally["found"]++
			s.open(v)
		}
		return
	}
	n := s.node
	n.Loop().Turn(w.now)
	w.look(s)
	if ended, err := n.Ended(); ended {
		s.ended(err)
	}
}

// ended notes why a node ended.
func (s *site) ended(err error) {
	w := s.w
	w.tally["ended"]++
	if err := s.node.Close(); err != nil && !errors.Is(err, errDisk) {
		w.failf("close node %d: %v", s.id, err)
	}
	switch {
	case err == nil || errors.Is(err, errDisk):
	case errors.Is(err, ErrRemoved):
		w.tally["removed"]++
	case errors.Is(err, ErrInUse):
		w.tally["copies"]++
	default:
		w.failf("node %d ended: %v", s.id, err)
	}
	s.crash()
	if w.settling { // it was told to stop before
		w.after(time.Millisecond, func() { s.start() })
	}
}

// run lets d pass.
func (w *world) run(d time.Duration) {
	w.until(d, func() bool { return false })
}

// until lets time pass until f, for at most d.
func (w *world) until(d time.Duration, f func() bool) bool {
	end := w.now.Add(d)
	for !f() {
		var next *site
		at := end
		for _, s := range w.sites {
			if due, ok := s.due(); ok && due.Before(at) {
				next, at = s, due
			}
		}
		if len(w.events) > 0 && !w.events[0].at.After(at) && w.events[0].at.Before(end) {
			e := heap.Pop(&w.events).(event)
			if e.at.After(w.now) {
				w.now = e.at
			}
			e.do()
			continue
		}
		if next == nil {
			w.now = end
			return f()
		}
		w.now = at
		next.turn()
	}
	return true
}

// create asks a node for a topic. What is answered as done must be there for ever.
func (s *site) create() {
	w, n := s.w, s.node
	if n == nil {
		return
	}
	w.asked++
	name := fmt.Sprint("t", w.asked)
	if w.asked%3 == 0 {
		s.allocate()
		return
	}
	if w.asked%7 == 0 && len(w.done) > 20 { // keep the image small
		s.forget()
		return
	}
	n.Start(controller.CreateTopics{Topics: []model.NewTopic{{Name: name, Partitions: 1, ReplicationFactor: 1}}}, nil, func(a controller.Answer) {
		if a.Err != nil || a.Topics[0].Err != nil {
			w.tally["refused"]++
			return
		}
		w.tally["done"]++
		if _, ok := n.Image().TopicByName(name); !ok {
			w.failf("node %d does not see the topic %s that it made", s.id, name)
		}
		w.done[name] = true
	})
	s.turn()
}

func (s *site) allocate() {
	w := s.w
	s.node.Start(controller.AllocateProducerIDs{}, nil, func(a controller.Answer) {
		if a.Err != nil {
			w.tally["refused"]++
			return
		}
		w.tally["done"]++
		if w.blocks[a.ProducerIDs.First] {
			w.failf("the block of producer IDs from %d was given out twice", a.ProducerIDs.First)
		}
		w.blocks[a.ProducerIDs.First] = true
	})
	s.turn()
}

// forget deletes a topic.
func (s *site) forget() {
	w := s.w
	var names []string
	for name := range w.done {
		names = append(names, name)
	}
	slices.Sort(names)
	name := names[w.rand.IntN(len(names))]
	delete(w.done, name)
	s.node.Start(controller.DeleteTopics{Topics: []model.TopicRef{{Name: name}}}, nil, func(controller.Answer) {})
	s.turn()
}

// register makes it possible to create topics.
func (w *world) register() {
	n := w.sites[0].node
	r := testRegistration
	r.ClusterID = n.Identity().ClusterID
	beat := controller.Heartbeat{Broker: r.NodeID}
	w.must(func() controller.Op { return controller.RegisterBroker{Registration: r} }, func(a controller.Answer) { beat.Epoch = a.Epoch })
	w.must(func() controller.Op {
		beat.Offset = n.Image().Offset
		return beat
	}, nil)
}

// must has the first node do something, within a while.
func (w *world) must(op func() controller.Op, f func(controller.Answer)) {
	s, ok := w.sites[0], false
	do := op()
	s.node.Start(do, nil, func(a controller.Answer) {
		if ok = a.Err == nil; !ok {
			w.failf("%T: %v", do, a.Err)
		}
		if f != nil {
			f(a)
		}
	})
	s.turn()
	if !w.until(5*time.Second, func() bool { return ok }) {
		w.failf("%T is not answered", do)
	}
}

// leader is the site that leads, or nil.
func (w *world) leader() *site {
	for _, s := range w.sites {
		if s.node != nil && s.node.Leading() {
			return s
		}
	}
	return nil
}

func (w *world) voters() int {
	s := w.leader()
	if s == nil || len(s.node.conf.GetVotersOutgoing()) > 0 {
		return 0
	}
	return len(s.node.conf.GetVoters())
}

// settle ends all faults, and sees that everything works soon.
func (w *world) settle(voters int) { w.settleWith(voters, true) }

// settleWith is settle, where no broker may be registered.
func (w *world) settleWith(voters int, topics bool) {
	w.settling = true
	w.drop, w.double, w.delay = 0, 0, 5*time.Millisecond
	clear(w.cuts)
	for _, s := range w.sites {
		s.paused, s.disk.die = time.Time{}, false
		if s.node == nil { // a finder asks the seeds that there are now
			s.start()
		}
	}
	if !w.until(time.Minute, func() bool { return w.voters() == voters }) {
		w.failf("a minute after the last fault there are %d voters", w.voters())
	}
	for _, s := range w.sites {
		name := fmt.Sprint("last-", s.id)
		done := false
		var ask func()
		ask = func() {
			var op controller.Op = controller.AllocateProducerIDs{}
			if topics {
				op = controller.CreateTopics{Topics: []model.NewTopic{{Name: name, Partitions: 1, ReplicationFactor: 1}}}
			}
			s.node.Start(op, nil, func(a controller.Answer) {
				if a.Err != nil {
					w.after(100*time.Millisecond, ask)
					return
				}
				done = true
			})
			s.turn()
		}
		if !w.until(20*time.Second, func() bool { return s.node != nil }) {
			w.failf("node %d does not come back", s.id)
		}
		ask()
		if !w.until(30*time.Second, func() bool { return done }) {
			w.failf("node %d is not served", s.id)
		}
	}
	same := func() bool {
		for _, s := range w.sites {
			if s.node == nil || s.node.applied != w.sites[0].node.applied {
				return false
			}
		}
		return true
	}
	if !w.until(30*time.Second, same) {
		w.failf("the nodes do not come to one image")
	}
	for _, s := range w.sites {
		for topic := range w.done {
			if _, ok := s.node.Image().TopicByName(topic); !ok {
				w.failf("node %d lacks topic %s", s.id, topic)
			}
		}
	}
	w.settling = false
}

// vote is a message of a node that wants another's vote.
func (n *Node) vote(of *Node, term uint64) []byte {
	m := &raftpb.Message{
		Type: raftpb.MsgVote.Enum(), From: proto.Uint64(n.raftID), To: proto.Uint64(of.raftID),
		Term: proto.Uint64(term), Index: proto.Uint64(1000), LogTerm: proto.Uint64(term), Context: []byte("CampaignTransfer"),
	}
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return append(header(kindRaft, n.self()), b...)
}
