package quorum

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	randv2 "math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"time"

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
	// heldRequests bounds the commands that wait for a leader; more are refused
	// with ErrNotController.
	heldRequests = 1024
	// Bounds of what Raft sends and applies at once.
	messageBytesMax  = 1 << 20
	messagesInFlight = 64
	heartbeatTicks   = 1
)

// Node is this node's part in the quorum. Its methods may be called concurrently,
// except where one says otherwise.
type Node struct {
	cfg      Config
	deps     Deps
	log      *slog.Logger
	clock    loop.Clock
	rand     io.Reader
	identity Identity
	raftID   uint64
	loop     *loop.Loop[Input]

	image   atomic.Pointer[image.Image]
	reached atomic.Pointer[reached]
	counts  atomic.Pointer[controller.Counts]
	leading atomic.Bool
	// leads is the node ID of who leads; views how far the members are, for Status.
	leads   atomic.Int32
	views   atomic.Pointer[[]view]
	stopped chan struct{}
	failure error // of Run, once stopped is closed
	running atomic.Bool
	onImage []func(*image.Image)

	// What waits for the loop of what others have sent.
	receiving      atomic.Int64
	receivingBytes atomic.Int64
	questions      atomic.Int64

	// What follows belongs to the loop.
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

	now      time.Time // of this turn
	nextTick time.Time
	begun    bool
	stopping bool
	ended    bool
	// term is that of the entry applied last. Raft elected this node in a term;
	// the machine leads once an entry of it is applied, and leadFrom too.
	term     uint64
	elected  bool
	leadFrom uint64
	held     []*request
	replies  map[controller.CommandID]*request
	nextID   controller.CommandID
	answered []controller.Response // to send once the image is published

	peers     map[uint64]*peer // by their names in Raft
	strangers []model.ClusterID
	applying  bool
	latest    *raftpb.Snapshot // for members that are far behind

	// What is asked of others, and what was forwarded to who leads.
	nextAsk   uint64
	asking    map[uint64]func(answer, error)
	forwarded []*forwarded
	awaiting  []awaited
	announce  announce

	// Changes of the membership, where this node leads.
	nextChange  controller.ProposalID
	change      *changing
	changesDone []*request
	// caughtMark is what was committed a tick ago.
	caughtMark uint64
	// ledTicks are those since this node began to lead.
	ledTicks int
	// handing is when a hand-over was begun, before the end.
	handing time.Time
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
		cfg: cfg.withDefaults(), deps: deps, log: deps.Logger, clock: deps.Clock, rand: deps.Rand,
		stopped: make(chan struct{}), replies: map[controller.CommandID]*request{},
		peers: map[uint64]*peer{}, asking: map[uint64]func(answer, error){},
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
	n.leads.Store(int32(model.NoNode))
	n.announce = announce{leader: Address{Endpoint: n.cfg.Verdict.Seed, Node: model.NoNode}, ticks: announceTicks}
	n.loop = loop.New[Input](n, n.clock, requestsQueued)
	disk := deps.Disk
	if disk == nil {
		disk = newDatabase(n.cfg, n.log)
	}
	stored, err := n.load(disk)
	if err != nil {
		return nil, errors.Join(err, disk.Close())
	}
	if n.store, err = openStore(disk, stored); err == nil {
		err = n.restore()
	}
	if err != nil {
		return nil, errors.Join(err, disk.Close())
	}
	return n, nil
}

// load reads the disk, and creates a cluster on one that is empty.
func (n *Node) load(disk Disk) (*Stored, error) {
	stored, err := disk.Load()
	if stored != nil || err != nil {
		return stored, err
	}
	var first *Stored
	switch v := n.cfg.Verdict; {
	case v.Join != "":
		first, err = n.joiningState(v.Join)
	case n.cfg.Bootstrap && (v.Create || len(n.cfg.others()) == 0):
		first, err = n.firstState()
	case n.cfg.Bootstrap:
		err = fmt.Errorf("%s holds no cluster, and the other seeds were not asked whether there is one: %w", n.cfg.Dir, ErrNoCluster)
	default:
		err = fmt.Errorf("%s holds no cluster: to create one here, set cluster.bootstrap to true on this one node: %w", n.cfg.Dir, ErrNoCluster)
	}
	if err != nil {
		return nil, err
	}
	if err := disk.Create(first); err != nil {
		return nil, err
	}
	if first.Snapshot != nil {
		n.log.Info("created a cluster", "cluster", string(first.Identity.ClusterID), "broker", n.cfg.NodeID)
	}
	return disk.Load()
}

// joiningState is a directory without a log, which comes from who leads. Its ID is new, so
// that nobody takes it for one that was lost: it has no vote that it could cast twice.
func (n *Node) joiningState(cluster model.ClusterID) (*Stored, error) {
	dir, err := n.newDirectory()
	if err != nil {
		return nil, err
	}
	return &Stored{Identity: Identity{ClusterID: cluster, NodeID: n.cfg.NodeID, DirectoryID: dir}, Hard: &raftpb.HardState{}}, nil
}

// firstState is a log whose first snapshot, at index 1, names the cluster and
// its only voter.
func (n *Node) firstState() (*Stored, error) {
	dir, err := n.newDirectory()
	if err != nil {
		return nil, err
	}
	id := n.cfg.ClusterID
	if id == "" {
		if id, err = NewClusterID(n.rand); err != nil {
			return nil, err
		}
	}
	member := image.MemberRecord{Directory: dir, Node: n.cfg.NodeID, Endpoint: n.cfg.Endpoint, MayVote: !n.cfg.NeverVote}
	record := &image.ClusterRecord{Cluster: image.Cluster{
		ID: id, FeatureLevel: n.cfg.FeatureLevel,
		ReplicationFactorTarget: n.cfg.ReplicationFactorTarget, MinISRTarget: n.cfg.MinISRTarget,
	}}
	return &Stored{
		Identity: Identity{ClusterID: id, NodeID: n.cfg.NodeID, DirectoryID: dir},
		Hard:     &raftpb.HardState{Term: proto.Uint64(1), Commit: proto.Uint64(1)},
		Snapshot: &raftpb.Snapshot{
			Data: encodeEntry(session{}, 0, []image.Record{record, &member}),
			Metadata: &raftpb.SnapshotMetadata{
				Index: proto.Uint64(1), Term: proto.Uint64(1),
				ConfState: &raftpb.ConfState{Voters: []uint64{raftID(dir)}},
			},
		},
	}, nil
}

// newDirectory draws the ID of a directory.
func (n *Node) newDirectory() (dir model.DirectoryID, err error) {
	for dir.IsZero() || !validRaftID(raftID(dir)) {
		if _, err := io.ReadFull(n.rand, dir[:]); err != nil {
			return dir, fmt.Errorf("draw a directory ID: %w", err)
		}
	}
	return dir, nil
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
	n.identity = n.store.identity
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
	if c := n.Image().Cluster; c.ID != "" && (c.ReplicationFactorTarget != n.cfg.ReplicationFactorTarget || c.MinISRTarget != n.cfg.MinISRTarget) {
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
	img := &image.Image{}
	n.snapped = snap.GetMetadata().GetIndex()
	n.applied, n.conf = n.snapped, snap.GetMetadata().GetConfState()
	if n.snapped > 0 {
		if img, err = n.decodeSnapshot(snap); err != nil {
			return err
		}
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
		Storage: raftStorage{n.store.mem, n}, Applied: n.applied,
		MaxSizePerMsg: messageBytesMax, MaxInflightMsgs: messagesInFlight,
		CheckQuorum: true, PreVote: true, DisableProposalForwarding: true, StepDownOnRemoval: true,
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
	release := context.AfterFunc(ctx, n.Stop)
	defer release()
	if err := n.loop.Run(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	return n.failure
}
