package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/group"
	"github.com/brokerd/brokerd/core/loop"
	"github.com/brokerd/brokerd/core/model"
)

// Config is the settings of a Manager.
type Config struct {
	NodeID model.NodeID
	// Shards is how many loops share the partitions of the offsets topic.
	Shards int
	// Groups are the settings of the machines.
	Groups group.Settings
	// Topic is how the offsets topic is made where it is not there yet.
	Topic Topic
	// Codec compresses what is written (offsets.topic.compression.codec).
	Codec batch.Codec
	// Static are the broker properties that stand in for topic settings.
	Static map[string]string
	// ChunkBytes is how much of a log is read at once while it is loaded; more
	// comes only where one batch is larger.
	ChunkBytes int
	// ShutdownTimeout bounds the clean end of Run.
	ShutdownTimeout time.Duration
}

// DefaultConfig is the product's, but for the node's ID.
func DefaultConfig() Config {
	return Config{
		Shards:          2,
		Groups:          group.DefaultSettings(),
		Topic:           DefaultTopic(),
		ChunkBytes:      1 << 20,
		ShutdownTimeout: 2 * time.Second,
	}
}

// Validate says what is wrong with c.
func (c Config) Validate() error {
	switch {
	case c.NodeID < 0:
		return fmt.Errorf("node ID %d is below 0", c.NodeID)
	case c.Shards < 1:
		return fmt.Errorf("%d shards: at least 1", c.Shards)
	case c.ChunkBytes < 1:
		return fmt.Errorf("%d chunk bytes: at least 1", c.ChunkBytes)
	case c.ShutdownTimeout <= 0:
		return errors.New("the shutdown timeout is above 0")
	case c.Topic.Partitions < 1:
		return fmt.Errorf("%d partitions of the offsets topic: at least 1", c.Topic.Partitions)
	}
	return nil
}

// Controller makes the offsets topic.
type Controller interface {
	// CreateTopics returns after the topics are in the images that Apply is given,
	// or soon will be.
	CreateTopics(ctx context.Context, topics []model.NewTopic, validateOnly bool) ([]model.TopicResult, error)
}

// Log is how the machines' records are read and written: a part of
// model.Partitions.
type Log interface {
	Append(ctx context.Context, a model.Append, done func(model.Appended))
	Fetch(ctx context.Context, f model.Fetch) *model.FetchAnswer
	EpochEnds(ctx context.Context, qs []model.EpochQuery) []model.EpochAnswer
}

// Executor runs what may wait for a store away from the loops. Neither method
// waits or runs the work before it returns. What is queued is bounded by what a
// shard has under way: appendsMax and loadsMax.
type Executor interface {
	// Ordered runs the work of one shard in the order of the calls.
	Ordered(shard int, work func(ctx context.Context))
	// Go runs work of a shard beside other work.
	Go(shard int, work func(ctx context.Context))
}

// Events counts what happens. Its methods must not block.
type Events interface {
	// Loaded tells of a partition whose groups are served.
	Loaded(took time.Duration)
	// LoadFailed tells of a load that will be tried again.
	LoadFailed()
	// Rebalanced tells of a group that has begun a rebalance.
	Rebalanced()
	// Committed tells of offsets that a group has committed.
	Committed(offsets int)
	// Expired tells of offsets that were kept long enough.
	Expired(offsets int)
	// Refused tells of a write of a machine that failed.
	Refused()
	// Full tells of a request for which groups have no memory.
	Full()
	// NotAvailable tells of somebody who was not told a coordinator, and why.
	NotAvailable(reason string)
}

// Deps is what a Manager works with. Log, Controller and Logger are needed; the
// rest has defaults.
type Deps struct {
	Log        Log
	Controller Controller
	Logger     *slog.Logger
	Clock      loop.Clock
	Events     Events
	// NewID draws what makes a member's ID unique, such as a random UUID. It is called
	// by the shards' loops; the default is RandomID.
	NewID func() string
	// Executor runs reads and appends. Nil is the manager's own, which lives as long
	// as Run.
	Executor Executor
	// Memory is what the machines count in, all of them together. Without its accounts
	// nothing is counted or refused.
	Memory group.Memory
	// Incarnation is this start of the broker. Until its registration is in the
	// image, the metadata may lack what was committed last, and nothing is applied.
	// Zero: the first image is current.
	Incarnation [16]byte
}

func (d Deps) withDefaults() (Deps, error) {
	if d.Log == nil || d.Controller == nil || d.Logger == nil {
		return d, errors.New("a log, a controller and a logger are needed")
	}
	if d.Clock == nil {
		d.Clock = loop.System{}
	}
	if d.Events == nil {
		d.Events = noEvents{}
	}
	if d.NewID == nil {
		d.NewID = RandomID
	}
	return d, nil
}

// noEvents is used where nobody counts.
type noEvents struct{}

func (noEvents) Loaded(time.Duration) {}
func (noEvents) LoadFailed()          {}
func (noEvents) Rebalanced()          {}
func (noEvents) Committed(int)        {}
func (noEvents) Expired(int)          {}
func (noEvents) Refused()             {}
func (noEvents) Full()                {}
func (noEvents) NotAvailable(string)  {}
