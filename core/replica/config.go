package replica

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/image/topicconfig"
	"github.com/brokerd/brokerd/core/loop"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/storage"
)

// Config is the settings of a Manager.
type Config struct {
	NodeID model.NodeID
	// Shards is how many loops share the partitions.
	Shards int
	// AppendBytes bounds the batches that were taken and not yet let go.
	AppendBytes int64
	// CopyBytes bounds the batches that leaders have sent to followers here and that are
	// not stored yet, but for one large message from each.
	CopyBytes int64
	// FetchBytes bounds the answer to one fetch, whatever the client asks.
	FetchBytes int
	// TailBytes bounds what is kept in memory of the ends of all logs, for readers
	// that keep up. Zero keeps nothing.
	TailBytes int64
	// StoreTimeout is the deadline of a call of a store that moves little.
	StoreTimeout time.Duration
	// DirectoryTimeout is for how long a store may do nothing that it is asked before the
	// controller is told that it does not serve.
	DirectoryTimeout time.Duration
	// OpenTimeout is that of opening logs, which may recover them.
	OpenTimeout time.Duration
	// OpenWait is how long a call with queries waits for logs that are being
	// opened; zero: it doesn't.
	OpenWait time.Duration
	// AppendTimeout stands in where an append has no timeout of its own.
	AppendTimeout time.Duration
	// ShutdownTimeout bounds the clean end of Run.
	ShutdownTimeout time.Duration
	// StoreWorkers is how many calls run side by side on one store.
	StoreWorkers int
	// Limits bound one partition.
	Limits partition.Limits
}

// DefaultConfig is the product's, but for the node's ID.
func DefaultConfig() Config {
	return Config{
		Shards:           2,
		AppendBytes:      128 << 20,
		CopyBytes:        64 << 20,
		FetchBytes:       55 << 20,
		TailBytes:        64 << 20,
		StoreTimeout:     15 * time.Second,
		DirectoryTimeout: 2 * time.Second,
		OpenTimeout:      5 * time.Minute,
		OpenWait:         2 * time.Second,
		AppendTimeout:    30 * time.Second,
		ShutdownTimeout:  20 * time.Second,
		StoreWorkers:     8,
		Limits:           partition.DefaultLimits(),
	}
}

// Validate says what is wrong with c.
func (c Config) Validate() error {
	switch {
	case c.NodeID < 0:
		return fmt.Errorf("node ID %d is below 0", c.NodeID)
	case c.Shards < 1 || c.StoreWorkers < 1:
		return fmt.Errorf("%d shards, %d store workers: at least 1 of each", c.Shards, c.StoreWorkers)
	case c.AppendBytes < 1 || c.CopyBytes < 1 || c.FetchBytes < 1 || c.TailBytes < 0:
		return errors.New("append bytes, copy bytes and fetch bytes are at least 1, tail bytes at least 0")
	case c.StoreTimeout <= 0 || c.DirectoryTimeout <= 0 || c.OpenTimeout <= 0 || c.AppendTimeout <= 0 || c.ShutdownTimeout <= 0:
		return errors.New("every timeout is above 0")
	}
	return nil
}

// idleShare is the part of Config.TailBytes that a manager's own buffers keep idle.
const idleShare = 4

// Directory is one store of this broker.
type Directory struct {
	ID     model.DirectoryID
	Name   string // in the configuration
	Plugin string
	Store  storage.Store

	// fromMemory is what readers were given of it without the store, by shard.
	fromMemory []counter
	health     *health
}

// TopicSettings is what a topic's settings mean here.
type TopicSettings struct {
	partition.Settings
	Log storage.LogOptions
	// LeaderThrottled and FollowerThrottled are the replicas that throttles count for, by
	// the broker that leads and by the one that follows. (KIP-73)
	LeaderThrottled   topicconfig.Replicas
	FollowerThrottled topicconfig.Replicas
}

// Events counts what happens. Its methods are called from hot paths and must
// not block.
type Events interface {
	// Stored tells of one append to a store that succeeded.
	Stored(batches, bytes int, took time.Duration)
	// Reopened tells that a log's outcomes had to be settled.
	Reopened(topic string)
	// Lost tells of acknowledged records that a store no longer has.
	Lost(topic string, records int64)
	// Offline tells how many replicas do not serve.
	Offline(replicas int)
	// Quarantined tells how many logs the metadata does not know, whenever that
	// has changed.
	Quarantined(logs int)
	// Damaged tells of a read that met damaged records; the listener logs it.
	Damaged(topic string, partition int32, offset int64, err error)
	// Appended tells how a store answered an append: nil, or its error.
	Appended(store string, err error)
}

// Deps is what a Manager works with. Directories, the default one first, and
// Logger are needed; the rest has defaults.
type Deps struct {
	Directories []Directory
	Logger      *slog.Logger
	Clock       loop.Clock
	Events      Events
	// Settings are a topic's settings; the default is SettingsOf with no static
	// properties.
	Settings func(img *image.Image, topic string) (TopicSettings, error)
	// Streams are the links to other brokers, and Controller whom leaders ask. Nil: there
	// is no other broker.
	Streams    Streams
	Controller Controller
	// Executor makes the calls that change stores. Nil is the manager's own,
	// which lives as long as Run.
	Executor Executor
	// Buffers lends the memory of what is kept and read. Nil: the manager's own, which
	// keep a quarter of Config.TailBytes idle.
	Buffers Buffers
	// Incarnation is this start of the broker. Until its registration is in the
	// image, the metadata may lack what was committed last, and nothing is applied.
	// Zero: the first image is current.
	Incarnation [16]byte
	// Doubts keeps that a log may lack what others count on. Nil: that ends with the broker.
	Doubts Doubts
	// Purged is told when a directory holds no log of a removed topic any more.
	// It must not block. May be nil.
	Purged func(topic model.TopicID, dir model.DirectoryID)
}

// Broker is the broker's own settings that concern replicas.
type Broker struct {
	// Static are the broker properties that stand in for topic settings.
	Static map[string]string
	Flush  partition.FlushPolicy
	// FlushEvery is the period under partition.FlushInterval.
	FlushEvery     time.Duration
	ProducerExpiry time.Duration
	RetentionEvery time.Duration
}

// DefaultBroker is the product's.
func DefaultBroker() Broker {
	d := partition.DefaultSettings()
	return Broker{Flush: d.Flush, FlushEvery: d.FlushEvery, ProducerExpiry: d.ProducerExpiry, RetentionEvery: d.RetentionEvery}
}

// SettingsOf resolves topics' settings on a broker from metadata and the broker's
// own.
func SettingsOf(node model.NodeID, b Broker) func(*image.Image, string) (TopicSettings, error) {
	return func(img *image.Image, topic string) (TopicSettings, error) {
		c, err := img.TopicConfig(topic, node, b.Static)
		if err != nil {
			return TopicSettings{}, fmt.Errorf("settings of topic %s: %w", topic, err)
		}
		return TopicSettings{
			Settings: partition.Settings{
				MinISR:         c.MinISR,
				Flush:          flushPolicy(b.Flush, c),
				FlushEvery:     min(b.FlushEvery, c.FlushInterval),
				ProducerExpiry: b.ProducerExpiry,
				Delete:         c.CleanupPolicy.Delete,
				Compact:        c.CleanupPolicy.Compact,
				RetentionAge:   retentionAge(c.RetentionAge),
				RetentionBytes: c.RetentionBytes,
				RetentionEvery: b.RetentionEvery,
			},
			Log: storage.LogOptions{
				SegmentBytes:       c.SegmentBytes,
				SegmentAge:         c.SegmentAge,
				IndexIntervalBytes: c.IndexIntervalBytes,
			},
			LeaderThrottled:   topicconfig.ParseReplicas(c.LeaderThrottled),
			FollowerThrottled: topicconfig.ParseReplicas(c.FollowerThrottled),
		}, nil
	}
}

// flushPolicy is the broker's, unless the topic asks that every record be
// forced to disk.
func flushPolicy(broker partition.FlushPolicy, c topicconfig.Config) partition.FlushPolicy {
	if c.FlushMessages == 1 || c.FlushInterval == 0 {
		return partition.FlushAlways
	}
	return broker
}

// retentionAge keeps 'at once' (0 in Kafka) apart from 'no limit' (0 here).
func retentionAge(age time.Duration) time.Duration {
	if age == 0 {
		return time.Nanosecond
	}
	return age
}

// noEvents is used where nobody counts.
type noEvents struct{}

func (noEvents) Stored(int, int, time.Duration)      {}
func (noEvents) Reopened(string)                     {}
func (noEvents) Lost(string, int64)                  {}
func (noEvents) Offline(int)                         {}
func (noEvents) Quarantined(int)                     {}
func (noEvents) Damaged(string, int32, int64, error) {}
func (noEvents) Appended(string, error)              {}
