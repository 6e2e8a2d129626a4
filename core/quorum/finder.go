package quorum

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/loop"
	"github.com/brokerd/brokerd/core/model"
)

const (
	// findAgain is the time between two rounds of questions to the seeds.
	findAgain = 200 * time.Millisecond
	// findTold rounds without a change are worth a line in the log.
	findTold = 50
)

// Verdict is what becomes of a node whose directory is empty: it creates a cluster, or joins
// one, or nothing is known.
type Verdict struct {
	// Create: the other seeds have no cluster, and this node is to create it.
	Create bool
	// Join is the cluster that a seed is a member of.
	Join model.ClusterID
	// Seed is who said so.
	Seed string
}

// Finder finds out whether there is a cluster to join, for a node whose directory is
// empty: it asks the seeds. A cluster is created only where Config.Bootstrap allows it and
// every other seed has answered that it has none. One that is silent is waited for: it may
// be the one that knows. Of two nodes that are to create one, the one with the greater node
// ID joins the other.
//
// Like a Node it is the body of a loop, which Run turns, or a simulator. It writes nothing.
// Whoever has opened the Node passes the questions of others to that one.
type Finder struct {
	cfg  Config
	deps Deps
	log  *slog.Logger
	loop *loop.Loop[Found]

	// self tells this Finder from another with the same node ID.
	self    Identity
	verdict Verdict
	err     error
	done    bool

	next   time.Time
	round  int
	waits  int      // answers of this round that have not come
	silent []string // of this round: those who did not say that they have none
	told   string
}

// Found is what the loop of a Finder takes.
type Found struct {
	round int
	seed  string
	bytes []byte
	err   error
}

// NewFinder makes a Finder. It starts nothing. ErrNoCluster: there is nobody to ask.
func NewFinder(cfg Config, deps Deps) (*Finder, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("quorum: %w", err)
	}
	f := &Finder{cfg: cfg.withDefaults(), deps: deps, log: deps.Logger}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	f.self.NodeID = f.cfg.NodeID
	random := deps.Rand
	if random == nil {
		random = rand.Reader
	}
	if _, err := io.ReadFull(random, f.self.DirectoryID[:]); err != nil {
		return nil, fmt.Errorf("draw a name: %w", err)
	}
	clock := deps.Clock
	if clock == nil {
		clock = loop.System{}
	}
	f.loop = loop.New[Found](f, clock, 0)
	if others := cfg.others(); len(others) == 0 && cfg.Bootstrap {
		f.verdict.Create, f.done = true, true
	} else if len(others) == 0 || deps.Peers == nil {
		return nil, fmt.Errorf("%s holds no cluster, and no seed is named that may know one: %w", cfg.Dir, ErrNoCluster)
	}
	return f, nil
}

// Run asks until there is a verdict, or ctx ends.
func (f *Finder) Run(ctx context.Context) (Verdict, error) {
	if err := f.loop.Run(ctx); err != nil {
		return Verdict{}, err
	}
	return f.verdict, f.err
}

// Loop is the finder's loop, for a simulator that turns it itself instead of calling Run.
func (f *Finder) Loop() *loop.Loop[Found] { return f.loop }

// Verdict is what was found, and whether anything was. For who turns the loop, between two
// turns.
func (f *Finder) Verdict() (Verdict, bool) { return f.verdict, f.done && f.err == nil }

// Ended says whether the search is over, and why nothing can be found.
func (f *Finder) Ended() (bool, error) { return f.done, f.err }

// Question answers another node's question: there is no cluster here. It may be called
// concurrently, and calls reply before it returns.
func (f *Finder) Question(b []byte, reply func(answer []byte)) {
	kind, _, _, err := decodeHeader(b)
	switch {
	case err != nil:
		reply(doneAnswer(0, controller.Answer{Err: fmt.Errorf("%w: %w", err, model.ErrInvalidRequest)}))
	case kind == kindWho:
		reply(appendCluster(f.self, f.cfg.Bootstrap))
	default:
		reply(notLeader(Address{}))
	}
}

// Step implements loop.Body.
func (f *Finder) Step(now time.Time, burst []Found) {
	for _, in := range burst {
		if !f.done && in.round == f.round {
			f.take(in)
		}
	}
	if f.done || now.Before(f.next) || f.waits > 0 {
		return
	}
	if f.round > 0 && len(f.silent) == 0 && f.cfg.Bootstrap {
		f.verdict.Create, f.done = true, true
		return
	}
	f.tell()
	f.ask(now)
}

// Deadline implements loop.Body.
func (f *Finder) Deadline() (time.Time, bool) { return f.next, !f.done && f.waits == 0 }

// Done implements loop.Body.
func (f *Finder) Done() bool { return f.done }

// ask begins a round.
func (f *Finder) ask(now time.Time) {
	f.round++
	f.next = now.Add(findAgain)
	f.silent = f.silent[:0]
	others, round := f.cfg.others(), f.round
	f.waits = len(others)
	question := header(kindWho, sender{Identity{ClusterID: f.cfg.ClusterID, NodeID: f.cfg.NodeID}, f.cfg.Endpoint})
	for _, seed := range others {
		f.deps.Peers.Ask(Address{Endpoint: seed, Node: model.NoNode}, question, askTimeout, func(b []byte, err error) {
			f.loop.Complete(Found{round: round, seed: seed, bytes: b, err: err})
		})
	}
}

func (f *Finder) take(in Found) {
	f.waits--
	a, err := answer{}, in.err
	if err == nil {
		a, err = decodeAnswer(in.bytes)
	}
	switch {
	case err != nil || a.status != statusCluster:
		f.silent = append(f.silent, in.seed)
	case a.of == f.self: // this node, by another name
	case a.of.NodeID == f.self.NodeID && a.of.ClusterID == "":
		f.err = fmt.Errorf("node ID %d is also that of the seed %s: each node needs its own: %w", f.self.NodeID, in.seed, ErrForeign)
		f.done = true
	case a.of.ClusterID == "" && a.founding && a.of.NodeID < f.self.NodeID:
		f.silent = append(f.silent, in.seed) // it creates one
	case a.of.ClusterID == "":
	case f.cfg.ClusterID != "" && a.of.ClusterID != f.cfg.ClusterID:
		f.err = fmt.Errorf("the seed %s belongs to cluster %s and not to cluster %s: correct cluster.id or the seeds: %w", in.seed, a.of.ClusterID, f.cfg.ClusterID, ErrForeign)
		f.done = true
	default:
		f.verdict.Join, f.verdict.Seed, f.done = a.of.ClusterID, in.seed, true
	}
}

// tell says now and then whom this node waits for.
func (f *Finder) tell() {
	slices.Sort(f.silent)
	waits := strings.Join(f.silent, ", ")
	if f.round == 0 || waits == f.told && f.round%findTold != 0 {
		return
	}
	f.told = waits
	if f.cfg.Bootstrap {
		f.log.Info("no cluster is created before every seed has said that it has none", "waiting_for", waits)
		return
	}
	f.log.Info("waiting for a seed that knows the cluster", "waiting_for", strings.Join(f.cfg.others(), ", "))
}
