package quorum

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	randv2 "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/loop"
	"github.com/brokerd/brokerd/core/model"
)

const (
	// requestsQueued bounds commands that wait for the loop; then callers wait.
	requestsQueued = 1024
	// batchRequests bounds the commands that share one sync.
	batchRequests = 256
	// heldRequests bounds the commands that wait for a leader; more are refused
	// with ErrNotController.
	heldRequests = 1024
	// Bounds of what Raft sends and applies at once.
	messageBytesMax  = 1 << 20
	messagesInFlight = 64
	heartbeatTicks   = 1
	// unsettled is leadFrom while the end of the log is not known.
	unsettled = math.MaxUint64
)

// Node is this node's part in the quorum. Its methods may be called concurrently,
// except where one says otherwise.
type Node struct {
	cfg      Config
	log      *slog.Logger
	clock    loop.Clock
	rand     io.Reader
	identity Identity
	raftID   uint64

	image    atomic.Pointer[image.Image]
	reached  atomic.Pointer[reached]
	leading  atomic.Bool
	requests chan request
	stopped  chan struct{}
	failure  error // of Run, once stopped is closed
	running  atomic.Bool
	onImage  []func(*image.Image)

	// What follows belongs to Run's goroutine.
	store    *store
	raft     *raft.RawNode
	machine  *controller.Machine
	effects  controller.Effects
	session  session
	conf     *raftpb.ConfState
	applied  uint64
	snapped  uint64
	logBytes int // applied since the snapshot
	// snapAfter is where the next snapshot may be tried, when one had no room.
	snapAfter uint64
	// short: the reserve is used up and there is no room for another; shortTicks
	// are those since it was tried.
	short      bool
	shortTicks int
	// term is that of the entry applied last. Raft elected this node in a term;
	// the machine leads once an entry of it is applied, and leadFrom too.
	term     uint64
	elected  bool
	leadFrom uint64
	held     []request
	replies  map[controller.CommandID]chan controller.Answer
	nextID   controller.CommandID
	answered []controller.Response // to send once the image is published
}

// Open opens the quorum's directory, or creates a cluster in it where there is
// none and cfg.Bootstrap allows it. It starts nothing: Run does. Close must be
// called in the end. Errors are one sentence and wrap ErrNoCluster, ErrInUse,
// ErrForeign or ErrDamaged where they apply.
func Open(cfg Config, deps Deps) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("quorum: %w", err)
	}
	n := &Node{
		cfg: cfg.withDefaults(), log: deps.Logger, clock: deps.Clock, rand: deps.Rand,
		requests: make(chan request, requestsQueued), stopped: make(chan struct{}),
		replies: map[controller.CommandID]chan controller.Answer{},
	}
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	if n.clock == nil {
		n.clock = loop.System{}
	}
	if n.rand == nil {
		n.rand = rand.Reader
	}
	if err := n.createIfNew(); err != nil {
		return nil, err
	}
	s, err := openStore(n.cfg)
	if err != nil {
		return nil, err
	}
	n.store = s
	n.removeLeftovers()
	if err := n.restore(); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	return n, nil
}

// removeLeftovers removes what a creation left behind that was cut short. Whoever
// has the database open is alone in the directory: one that is under way now fails.
func (n *Node) removeLeftovers() {
	entries, err := os.ReadDir(n.cfg.Dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), databaseName+freshSuffix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(n.cfg.Dir, e.Name())))
		}
	}
	if err != nil {
		n.log.Warn("remove what was left of a creation that was cut short", "err", err)
	}
}

func (n *Node) createIfNew() error {
	_, err := os.Stat(filepath.Join(n.cfg.Dir, databaseName))
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return nil // opening it says what is wrong
	}
	if !n.cfg.Bootstrap {
		return fmt.Errorf("%s holds no cluster: to create one here, set cluster.bootstrap to true on this one node: %w", n.cfg.Dir, ErrNoCluster)
	}
	first, err := n.firstState()
	if err != nil {
		return err
	}
	if err := createStore(n.cfg, first); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("another process has just created a cluster in %s: %w", n.cfg.Dir, ErrInUse)
		}
		return err
	}
	n.log.Info("created a cluster", "cluster", first.identity.ClusterID, "broker", n.cfg.NodeID)
	return nil
}

// firstState is a log whose first snapshot, at index 1, names the cluster and
// its only voter.
func (n *Node) firstState() (firstState, error) {
	var dir model.DirectoryID
	for dir.IsZero() || !validRaftID(raftID(dir)) {
		if _, err := io.ReadFull(n.rand, dir[:]); err != nil {
			return firstState{}, fmt.Errorf("draw a directory ID: %w", err)
		}
	}
	id := n.cfg.ClusterID
	if id == "" {
		var err error
		if id, err = NewClusterID(n.rand); err != nil {
			return firstState{}, err
		}
	}
	record := &image.ClusterRecord{Cluster: image.Cluster{
		ID: id, FeatureLevel: n.cfg.FeatureLevel,
		ReplicationFactorTarget: n.cfg.ReplicationFactorTarget, MinISRTarget: n.cfg.MinISRTarget,
	}}
	return firstState{
		identity: storedIdentity{Version: storeVersion, ClusterID: string(id), NodeID: int32(n.cfg.NodeID), DirectoryID: dir[:]},
		hard:     &raftpb.HardState{Term: proto.Uint64(1), Commit: proto.Uint64(1)},
		snapshot: &raftpb.Snapshot{
			Data: encodeEntry(session{}, 0, []image.Record{record}),
			Metadata: &raftpb.SnapshotMetadata{
				Index: proto.Uint64(1), Term: proto.Uint64(1),
				ConfState: &raftpb.ConfState{Voters: []uint64{raftID(dir)}},
			},
		},
	}, nil
}

// NewClusterID draws the ID of a cluster that is to be created.
func NewClusterID(random io.Reader) (model.ClusterID, error) {
	for {
		var cluster [16]byte
		if _, err := io.ReadFull(random, cluster[:]); err != nil {
			return "", fmt.Errorf("draw a cluster ID: %w", err)
		}
		cluster[6], cluster[8] = cluster[6]&0x0f|0x40, cluster[8]&0x3f|0x80       // version 4, RFC 9562
		if id := base64.RawURLEncoding.EncodeToString(cluster[:]); id[0] != '-' { // Kafka avoids IDs that look like a flag
			return model.ClusterID(id), nil
		}
	}
}

// Database is the file in dir that holds the metadata, whether it is there or not.
func Database(dir string) string { return filepath.Join(dir, databaseName) }

// raftID is a node's name in Raft: never the node ID, so that a node whose
// directory was wiped is another voter, and cannot vote twice.
func raftID(dir model.DirectoryID) uint64 { return binary.BigEndian.Uint64(dir[:8]) }

func validRaftID(id uint64) bool { return id != raft.None && !raft.IsLocalMsgTarget(id) }

// restore checks whose directory it is, and replays what is known to be
// committed.
func (n *Node) restore() error {
	stored := n.store.identity
	n.identity = Identity{ClusterID: model.ClusterID(stored.ClusterID), NodeID: model.NodeID(stored.NodeID)}
	copy(n.identity.DirectoryID[:], stored.DirectoryID)
	n.raftID = raftID(n.identity.DirectoryID)
	if n.identity.NodeID != n.cfg.NodeID {
		return fmt.Errorf("%s belongs to node %d and not to node %d: set node.id to %d, or give this node another directory: %w",
			n.cfg.Dir, n.identity.NodeID, n.cfg.NodeID, n.identity.NodeID, ErrForeign)
	}
	if n.cfg.ClusterID != "" && n.cfg.ClusterID != n.identity.ClusterID {
		return fmt.Errorf("%s belongs to cluster %s and not to cluster %s: correct cluster.id, or give this node another directory: %w",
			n.cfg.Dir, n.identity.ClusterID, n.cfg.ClusterID, ErrForeign)
	}
	if err := n.replayStored(); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(n.cfg.Dir, databaseName), err)
	}
	if c := n.Image().Cluster; c.ReplicationFactorTarget != n.cfg.ReplicationFactorTarget || c.MinISRTarget != n.cfg.MinISRTarget {
		n.log.Warn("the targets of replication were fixed when the cluster was created; this node's configuration has others, which have no effect",
			"broker", n.cfg.NodeID, "replicas", c.ReplicationFactorTarget, "min_isr", c.MinISRTarget,
			"configured_replicas", n.cfg.ReplicationFactorTarget, "configured_min_isr", n.cfg.MinISRTarget)
	}
	return n.newRaft()
}

func (n *Node) replayStored() error {
	snap, err := n.store.mem.Snapshot()
	if err != nil {
		return err
	}
	n.snapped = snap.GetMetadata().GetIndex()
	n.applied, n.conf = n.snapped, snap.GetMetadata().GetConfState()
	_, _, records, err := decodeEntry(snap.GetData())
	if err != nil {
		return fmt.Errorf("snapshot %d: %w", n.snapped, err)
	}
	img, err := replay(&image.Image{}, n.snapped, records)
	if err != nil {
		return fmt.Errorf("snapshot %d: %w", n.snapped, err)
	}
	if img.Cluster.ID != n.identity.ClusterID {
		return fmt.Errorf("snapshot %d is of cluster %q, the directory of cluster %q: %w", n.snapped, img.Cluster.ID, n.identity.ClusterID, ErrDamaged)
	}
	n.image.Store(img)
	first, commit := n.snapped+1, n.store.hard.GetCommit()
	if commit < first {
		return nil
	}
	entries, err := n.store.mem.Entries(first, commit+1, ^uint64(0))
	if err != nil {
		return fmt.Errorf("read entries %d to %d: %w", first, commit, err)
	}
	for _, e := range entries {
		// Changes of membership are left to Raft, from here on.
		if e.GetType() != raftpb.EntryNormal {
			return nil
		}
		if img, _, err = n.replayEntry(img, e); err != nil {
			return err
		}
		n.image.Store(img)
		n.applied = e.GetIndex()
		n.logBytes += len(e.GetData())
	}
	return nil
}

func (n *Node) newRaft() error {
	var seed [32]byte
	if _, err := io.ReadFull(n.rand, seed[:]); err != nil {
		return fmt.Errorf("draw a seed: %w", err)
	}
	var err error
	if n.machine, err = controller.New(n.cfg.Controller, randv2.New(randv2.NewChaCha8(seed))); err != nil {
		return err
	}
	n.raft, err = raft.NewRawNode(&raft.Config{
		ID: n.raftID, ElectionTick: n.cfg.ElectionTicks, HeartbeatTick: heartbeatTicks,
		Storage: n.store.mem, Applied: n.applied,
		MaxSizePerMsg: messageBytesMax, MaxInflightMsgs: messagesInFlight,
		CheckQuorum: true, PreVote: true, DisableProposalForwarding: true,
		Logger: raftLogger{n.log},
	})
	if err != nil {
		return fmt.Errorf("start raft: %w", err)
	}
	return nil
}

// Identity is what the directory says of itself.
func (n *Node) Identity() Identity { return n.identity }

// Image is the metadata as this node knows it. It never blocks, and is never nil.
func (n *Node) Image() *image.Image { return n.image.Load() }

// Leading reports whether this node is the active controller.
func (n *Node) Leading() bool { return n.leading.Load() }

// OnImage has f called with the image that there is when Run begins, and with
// each one after it, in order, on Run's goroutine, before anyone hears that the
// change is done. f must not block and not call the node's commands. OnImage is
// for before Run alone.
func (n *Node) OnImage(f func(*image.Image)) { n.onImage = append(n.onImage, f) }

// Close releases the directory. It is for after Run has returned, or instead of
// it.
func (n *Node) Close() error { return n.store.close() }

// Run takes part in the quorum until ctx ends, which is no error. It can be
// called once. An error of the disk ends it: what was not acknowledged may then
// be there or not.
func (n *Node) Run(ctx context.Context) error {
	if n.running.Swap(true) {
		return errors.New("quorum: Run was called twice")
	}
	defer n.stop()
	if err := n.run(ctx); err != nil {
		n.failure = err
	}
	return n.failure
}

func (n *Node) run(ctx context.Context) error {
	n.keepReserve()
	n.publish(n.Image())
	if n.onlyVoter() {
		if err := n.raft.Campaign(); err != nil {
			return fmt.Errorf("campaign: %w", err)
		}
	}
	tick, stopTick := n.clock.NewTimer(n.cfg.Tick)
	defer func() { stopTick() }()
	for {
		if err := n.ready(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
			n.raft.Tick()
			n.tickReserve()
			n.due()
			tick, stopTick = n.clock.NewTimer(n.cfg.Tick)
		case r := <-n.requests:
			n.accept(r)
			for range batchRequests - 1 {
				select {
				case r := <-n.requests:
					n.accept(r)
					continue
				default:
				}
				break
			}
			n.release()
		}
	}
}

// onlyVoter says whether nobody else's vote is needed.
func (n *Node) onlyVoter() bool {
	return len(n.conf.GetVoters()) == 1 && n.conf.GetVoters()[0] == n.raftID && len(n.conf.GetVotersOutgoing()) == 0
}

// stop answers everyone who still waits.
func (n *Node) stop() {
	n.leading.Store(false)
	n.step(controller.Resign{})
	n.release()
	close(n.stopped)
}

// ready does what Raft asks for until it asks for nothing: save, then apply,
// then answer. With one voter there is nobody to send to.
func (n *Node) ready() error {
	for {
		if err := n.maybeLead(); err != nil {
			return err
		}
		if err := n.noteReached(); err != nil {
			return err
		}
		n.release()
		if !n.raft.HasReady() {
			if n.leadFrom != unsettled {
				return nil
			}
			// Everything that Raft took is saved by now.
			last, err := n.store.mem.LastIndex()
			if err != nil {
				return fmt.Errorf("end of the metadata log: %w", err)
			}
			n.leadFrom = last
			continue
		}
		rd := n.raft.Ready()
		if err := n.store.save(rd); err != nil {
			return err
		}
		if !n.short && !n.store.hasReserve() {
			n.keepReserve()
		}
		if rd.SoftState != nil {
			n.roleChanged(rd.SoftState)
		}
		if err := n.apply(rd.CommittedEntries); err != nil {
			return err
		}
		n.raft.Advance(rd)
		if err := n.maybeSnapshot(); err != nil {
			return err
		}
	}
}

// roleChanged notes that this node was elected, or no longer leads.
func (n *Node) roleChanged(soft *raft.SoftState) {
	leader := soft.RaftState == raft.StateLeader
	if n.elected && !leader {
		n.log.Info("no longer the active controller", "broker", n.cfg.NodeID)
		n.leading.Store(false)
		n.step(controller.Resign{})
	}
	n.elected, n.leadFrom = leader, 0
	if !leader && soft.Lead != raft.None {
		held := n.held
		n.held = nil
		for _, r := range held { // there is another to ask
			n.accept(r)
		}
	}
}

// maybeLead begins to decide once everything that was committed before is in the
// image: the first entry of a leader's term follows what earlier leaders left.
func (n *Node) maybeLead() error {
	if !n.elected || n.leading.Load() || n.term != n.store.hard.GetTerm() || n.applied < n.leadFrom {
		return nil
	}
	if _, err := io.ReadFull(n.rand, n.session[:]); err != nil {
		return fmt.Errorf("draw a session: %w", err)
	}
	n.leading.Store(true)
	n.step(controller.Lead{Image: n.Image()})
	n.log.Info("active controller", "broker", n.cfg.NodeID, "cluster", string(n.identity.ClusterID), "offset", n.Image().Offset)
	held := n.held
	n.held = nil
	for _, r := range held {
		n.accept(r)
	}
	return nil
}

// apply replays committed entries, and publishes what they lead to.
func (n *Node) apply(entries []*raftpb.Entry) error {
	img := n.Image()
	for _, e := range entries {
		if e.GetIndex() <= n.applied {
			continue
		}
		if e.GetType() != raftpb.EntryNormal {
			return fmt.Errorf("entry %d changes the membership, which this release cannot do", e.GetIndex())
		}
		next, own, err := n.replayEntry(img, e)
		if err != nil {
			return err
		}
		img, n.applied, n.term = next, e.GetIndex(), e.GetTerm()
		n.logBytes += len(e.GetData())
		if own != 0 {
			n.step(controller.Committed{Proposal: own, Image: img})
		}
	}
	if img != n.Image() {
		n.publish(img)
	}
	return nil
}

// replayEntry leads from base to the image after e, and says which of this
// leader's own proposals e is, or 0.
func (n *Node) replayEntry(base *image.Image, e *raftpb.Entry) (*image.Image, controller.ProposalID, error) {
	if len(e.GetData()) == 0 {
		return base, 0, nil // a new leader's first
	}
	s, proposal, records, err := decodeEntry(e.GetData())
	if err != nil {
		return nil, 0, fmt.Errorf("metadata log entry %d: %w", e.GetIndex(), err)
	}
	img, err := replay(base, e.GetIndex(), records)
	if err != nil {
		return nil, 0, fmt.Errorf("metadata log entry %d: %w", e.GetIndex(), err)
	}
	if !n.leading.Load() || s != n.session {
		proposal = 0
	}
	return img, proposal, nil
}

func (n *Node) publish(img *image.Image) {
	n.image.Store(img)
	for _, f := range n.onImage {
		f(img)
	}
}
