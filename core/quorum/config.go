package quorum

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/loop"
	"github.com/brokerd/brokerd/core/model"
)

// Config says where the quorum lives and how it runs. Zero values stand for the
// defaults, where a field names one.
type Config struct {
	// Dir holds quorum.db; it is made if it is not there.
	Dir    string
	NodeID model.NodeID
	// Bootstrap allows to create a cluster where Dir has none. Where it has one,
	// Bootstrap changes nothing.
	Bootstrap bool
	// ClusterID is the ID that a new cluster gets, or "" for a random one. An
	// existing cluster must have it, if it is set.
	ClusterID model.ClusterID
	// The targets of a new cluster; 0: 3 replicas, 2 of them in sync. An existing
	// cluster keeps its own, with a warning. FeatureLevel 0 is the newest that
	// this release knows.
	ReplicationFactorTarget int16
	MinISRTarget            int16
	FeatureLevel            int16
	// Controller bounds commands; its zero value is controller.DefaultConfig.
	Controller controller.Config

	// Endpoint is where other members reach this node; "" where there are none.
	Endpoint string
	// Seeds are the endpoints of nodes that may know the cluster, this one's among them
	// or not.
	Seeds []string
	// Verdict is what a Finder has found, for a directory where nothing is and a node with
	// other seeds.
	Verdict Verdict
	// VotersTarget is how many voters the cluster makes by itself; 0: 3. Only odd numbers
	// make sense, and are reached.
	VotersTarget int
	// NeverVote keeps this node from becoming a voter by itself.
	NeverVote bool

	Tick            time.Duration // 0: 100 ms
	ElectionTicks   int           // 0: 10
	SnapshotEntries int           // entries between two snapshots; 0: 10,000
	Reserve         int           // bytes that quorum.db keeps free in itself, for a full disk; 0: 512 KiB
	LockTimeout     time.Duration // how long to wait for another process to let go of Dir; 0: 1 s

	sizeMax int // of quorum.db, for tests; 0: none
}

func (c Config) withDefaults() Config {
	set(&c.ReplicationFactorTarget, 3)
	set(&c.MinISRTarget, 2)
	set(&c.FeatureLevel, image.FeatureLevel)
	set(&c.VotersTarget, 3)
	set(&c.Tick, 100*time.Millisecond)
	set(&c.ElectionTicks, 10)
	set(&c.SnapshotEntries, 10_000)
	set(&c.LockTimeout, time.Second)
	set(&c.Reserve, reserveDefault)
	defaults := controller.DefaultConfig()
	set(&c.Controller.PartitionsDefault, defaults.PartitionsDefault)
	set(&c.Controller.RequestPartitionsMax, defaults.RequestPartitionsMax)
	set(&c.Controller.ClusterPartitionsMax, defaults.ClusterPartitionsMax)
	set(&c.Controller.ProducerIDBlock, defaults.ProducerIDBlock)
	set(&c.Controller.BrokerLease, defaults.BrokerLease)
	set(&c.Controller.ShutdownMax, defaults.ShutdownMax)
	set(&c.Controller.RebalanceEvery, defaults.RebalanceEvery)
	set(&c.Controller.RebalanceAbove, defaults.RebalanceAbove)
	set(&c.Controller.RaisesMax, defaults.RaisesMax)
	set(&c.Controller.RaiseAfter, defaults.RaiseAfter)
	set(&c.Controller.RaiseAway, defaults.RaiseAway)
	return c
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate says in one sentence what is wrong.
func (c Config) Validate() error {
	c = c.withDefaults()
	switch {
	case c.Dir == "":
		return errors.New("the quorum's directory is not set")
	case c.NodeID < 0:
		return fmt.Errorf("node ID is %d: it must be 0 or more", c.NodeID)
	case c.ReplicationFactorTarget < 1:
		return fmt.Errorf("target of the replication factor is %d: it must be at least 1", c.ReplicationFactorTarget)
	case c.MinISRTarget < 1:
		return fmt.Errorf("target of min ISR is %d: it must be at least 1", c.MinISRTarget)
	case c.FeatureLevel < 1 || c.FeatureLevel > image.FeatureLevel:
		return fmt.Errorf("feature level is %d: this release knows levels 1 to %d", c.FeatureLevel, image.FeatureLevel)
	case c.VotersTarget < 1:
		return fmt.Errorf("target of voters is %d: it must be at least 1", c.VotersTarget)
	case len(c.Endpoint) > textBytesMax:
		return fmt.Errorf("endpoint has %d bytes: it must have at most %d", len(c.Endpoint), textBytesMax)
	case c.Tick < 0 || c.ElectionTicks < 2 || c.SnapshotEntries < 1 || c.LockTimeout < 0 || c.Reserve < 0:
		return errors.New("tick, election ticks (at least 2), snapshot entries, lock timeout and reserve must be above 0")
	}
	return c.Controller.Validate()
}

// Deps are what the quorum uses of the machine.
type Deps struct {
	Logger *slog.Logger
	Clock  loop.Clock // nil: loop.System
	// Rand gives IDs and seeds; nil: crypto/rand. It must not be guessable.
	Rand io.Reader
	Disk Disk // nil: quorum.db in Config.Dir
	// Peers reach other nodes; nil: there are none to reach.
	Peers Peers
}

// Identity is what the quorum's directory says of itself. It never changes.
type Identity struct {
	ClusterID   model.ClusterID
	NodeID      model.NodeID
	DirectoryID model.DirectoryID // of the quorum's own directory
}

// Registration is how a broker names itself when it starts.
type Registration = controller.Registration

// Errors of Open. Each is one sentence that says what to do.
var (
	ErrNoCluster = errors.New("no cluster here yet")
	// ErrInUse also ends Run, where a member of the quorum has a copy of the directory.
	ErrInUse   = errors.New("the quorum's directory is in use")
	ErrForeign = errors.New("the quorum's directory is another's")
	ErrDamaged = errors.New("the quorum's database is damaged")
	// ErrRemoved ends Run.
	ErrRemoved = errors.New("this node is no member of the quorum any more")
)
