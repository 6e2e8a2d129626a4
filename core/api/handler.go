package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Config is what an operator decides about the edge. The zero values of numbers
// stand for the defaults beside them.
type Config struct {
	NodeID model.NodeID
	// AutoCreateTopics lets a client make a topic by asking for its metadata
	// (auto.create.topics.enable).
	AutoCreateTopics bool
	// FetchBytesMax bounds the answer of any fetch; 55 MiB.
	FetchBytesMax int
	// FetchSessionsMax bounds the cache of fetch sessions; 1000. (KIP-227)
	FetchSessionsMax int
	// DecompressedBytesMax bounds what one batch may grow to while it is
	// checked; 64 MiB.
	DecompressedBytesMax int64
	// Properties are the broker's own settings by Kafka's names, for
	// DescribeConfigs and as defaults of topic settings. They do not change
	// while the broker runs.
	Properties map[string]Property
}

// Property is one setting of the broker.
type Property struct {
	Value string
	// Default says that nobody set it.
	Default bool
	Doc     string
	// Sensitive values are never shown.
	Sensitive bool
}

// The defaults of Config.
const (
	fetchBytesMaxDefault        = 55 << 20
	fetchSessionsMaxDefault     = 1000
	decompressedBytesMaxDefault = 64 << 20
)

func (c Config) withDefaults() Config {
	if c.FetchBytesMax == 0 {
		c.FetchBytesMax = fetchBytesMaxDefault
	}
	if c.FetchSessionsMax == 0 {
		c.FetchSessionsMax = fetchSessionsMaxDefault
	}
	if c.DecompressedBytesMax == 0 {
		c.DecompressedBytesMax = decompressedBytesMaxDefault
	}
	return c
}

// Validate says what cannot be.
func (c Config) Validate() error {
	switch {
	case c.NodeID < 0:
		return fmt.Errorf("node id %d is negative", c.NodeID)
	case c.FetchBytesMax < 0:
		return fmt.Errorf("fetch.max.bytes %d is negative", c.FetchBytesMax)
	case c.FetchSessionsMax < 0:
		return fmt.Errorf("max.incremental.fetch.session.cache.slots %d is negative", c.FetchSessionsMax)
	case c.DecompressedBytesMax < 0:
		return fmt.Errorf("decompressed bytes max %d is negative", c.DecompressedBytesMax)
	}
	return nil
}

// Deps are what the edge asks. All of them are called from many goroutines.
type Deps struct {
	Partitions model.Partitions
	Controller Controller
	Metadata   Metadata
	Operations Operations
	Quorum     Quorum
	Groups     Groups
	Authorizer security.Authorizer
	Events     Events
	Logger     *slog.Logger
	// Now is the wall clock.
	Now func() time.Time
}

// Events are told what happened, for metrics. They must not block.
type Events interface {
	// Answered is told of every request that was decoded, when its answer is
	// ready; took counts from when it was begun.
	Answered(key, version int16, took time.Duration)
	// Produced is told of every batch that was appended.
	Produced(topic string, records, bytes int)
	// Fetched is told of the bytes of records for one partition.
	Fetched(topic string, bytes int)
	// FetchSessions is told how many sessions are open after a change, and
	// whether the change took another session's slot.
	FetchSessions(open int, evicted bool)
	// ClientSeen is told what software a client says it is. Both are letters,
	// digits, '-' and '.', up to 256 of them, and chosen by the client.
	ClientSeen(software, version string)
}

// Handler answers the requests of all connections. It starts no goroutine and
// all of its methods may be called concurrently.
type Handler struct {
	cfg         Config
	deps        Deps
	apis        wire.Table
	errs        wire.Errors
	log         *slog.Logger
	now         func() time.Time
	configs     *configCache
	targets     *targets
	produces    sync.Pool // of *produce
	commits     sync.Pool // of *commit
	fetches     sync.Pool // of *fetching
	sessions    *fetchSessions
	producerIDs *producerIDs
	creating    *inFlight
}

var _ wire.Handler = (*Handler)(nil)

// New makes a Handler.
func New(cfg Config, deps Deps) *Handler {
	cfg = cfg.withDefaults()
	configs := newConfigCache(cfg.NodeID, cfg.Properties)
	return &Handler{
		cfg:         cfg,
		deps:        deps,
		apis:        wire.NewTable(),
		errs:        wire.NewErrors(),
		log:         deps.Logger,
		now:         deps.Now,
		configs:     configs,
		targets:     newTargets(configs, cfg.DecompressedBytesMax),
		sessions:    newFetchSessions(cfg.FetchSessionsMax, deps.Now, deps.Events),
		producerIDs: newProducerIDs(deps.Controller),
		creating:    newInFlight(),
	}
}

// caller is who a request came from, and how.
type caller struct {
	wire.Header
	wire.Peer
	room model.Room // of a Fetch
}

// Begin decodes a request. The appends of a Produce and the questions to the group
// coordinator are queued before it returns; all other work is the Answer's.
func (h *Handler) Begin(ctx context.Context, c wire.Call) wire.Answer {
	start := h.now()
	served, ok := h.apis.Lookup(c.Key)
	switch {
	case !ok:
		return closing(fmt.Sprintf("API key %d is not served", c.Key))
	case !served.Supports(c.Version) && c.Key == wire.KeyAPIVersions:
		return func(context.Context) wire.Reply { return h.unknownAPIVersions() }
	case !served.Supports(c.Version):
		return closing(fmt.Sprintf("%s version %d is not served", served.Name(), c.Version))
	}
	switch c.Key {
	case wire.KeyProduce:
		return h.beginProduce(ctx, c, start)
	case wire.KeyFetch:
		return h.beginFetch(c, start)
	case wire.KeyOffsetCommit:
		return h.beginOffsetCommit(ctx, c, start)
	}
	return h.beginDecoded(ctx, c, start)
}

// beginDecoded begins a request that the codec decodes.
func (h *Handler) beginDecoded(ctx context.Context, c wire.Call, start time.Time) wire.Answer {
	req, err := h.apis.Decode(c.Header, c.Body)
	if err != nil {
		return closing(err.Error())
	}
	from := caller{Header: c.Header, Peer: c.From}
	answer := h.begin(ctx, from, req)
	return func(ctx context.Context) wire.Reply {
		reply := answer(ctx)
		h.deps.Events.Answered(from.Key, from.Version, h.now().Sub(start))
		if reply.Response != nil && reply.Version == nil {
			reply.Response.SetVersion(from.Version)
		}
		return reply
	}
}

func (h *Handler) begin(ctx context.Context, from caller, req kmsg.Request) wire.Answer {
	if n := groupsNamed(req); n > groupsMax {
		return closing(fmt.Sprintf("%d groups are named, more than %d", n, groupsMax))
	}
	if answer := h.beginGroups(ctx, from, req); answer != nil {
		return answer
	}
	return func(ctx context.Context) wire.Reply { return h.answer(ctx, from, req) }
}

func closing(reason string) wire.Answer {
	return func(context.Context) wire.Reply { return wire.Reply{Close: true, Reason: reason} }
}

// answer asks the file of the API key. Its cases are the wire table's keys but
// those that Begin has taken.
func (h *Handler) answer(ctx context.Context, from caller, req kmsg.Request) wire.Reply {
	switch req := req.(type) {
	case *kmsg.ListOffsetsRequest:
		return respond(h.listOffsets(ctx, from, req))
	case *kmsg.MetadataRequest:
		return respond(h.metadata(ctx, from, req))
	case *kmsg.ApiVersionsRequest:
		return respond(h.apiVersions(req))
	case *kmsg.CreateTopicsRequest:
		return respond(h.createTopics(ctx, from, req))
	case *kmsg.DeleteTopicsRequest:
		return respond(h.deleteTopics(ctx, from, req))
	case *kmsg.DeleteRecordsRequest:
		return respond(h.deleteRecords(ctx, from, req))
	case *kmsg.FindCoordinatorRequest:
		return respond(h.findCoordinator(ctx, from, req))
	case *kmsg.InitProducerIDRequest:
		return respond(h.initProducerID(ctx, from, req))
	case *kmsg.OffsetForLeaderEpochRequest:
		return respond(h.offsetForLeaderEpoch(ctx, from, req))
	case *kmsg.DescribeConfigsRequest:
		return respond(h.describeConfigs(ctx, from, req))
	case *kmsg.AlterConfigsRequest:
		return respond(h.alterConfigs(ctx, from, req))
	case *kmsg.IncrementalAlterConfigsRequest:
		return respond(h.incrementalAlterConfigs(ctx, from, req))
	case *kmsg.DescribeLogDirsRequest:
		return respond(h.describeLogDirs(ctx, from, req))
	case *kmsg.CreatePartitionsRequest:
		return respond(h.createPartitions(ctx, from, req))
	case *kmsg.DescribeClusterRequest:
		return respond(h.describeCluster(ctx, from, req))
	case *kmsg.DescribeTopicPartitionsRequest:
		return respond(h.describeTopicPartitions(ctx, from, req))
	}
	return h.answerAdmin(ctx, from, req)
}

func respond(r kmsg.Response) wire.Reply { return wire.Reply{Response: r} }

// may asks the authorizer.
func (h *Handler) may(ctx context.Context, from caller, op security.Operation, kind security.ResourceType, name string) bool {
	return h.deps.Authorizer.Authorize(ctx, from.Principal, from.Host, security.Action{Operation: op, Resource: kind, Name: name})
}

func (h *Handler) mayTopic(ctx context.Context, from caller, op security.Operation, topic string) bool {
	return h.may(ctx, from, op, security.Topic, topic)
}

func (h *Handler) mayCluster(ctx context.Context, from caller, op security.Operation) bool {
	return h.may(ctx, from, op, security.Cluster, security.ClusterName)
}

// The bounds of the time that an admin request may name for its work.
const (
	adminTimeoutMin = time.Second
	adminTimeoutMax = 10 * time.Minute
	// adminTimeoutDefault is for requests that name none.
	adminTimeoutDefault = 30 * time.Second
)

// adminContext bounds an admin request by the timeout in it. Its end stops the
// waiting; what was asked of the controller may still happen.
func adminContext(ctx context.Context, ms int32) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, min(max(time.Duration(ms)*time.Millisecond, adminTimeoutMin), adminTimeoutMax))
}

// code is the error's code. One without a sentinel is a fault of ours: it is
// logged here, and nowhere else.
func (h *Handler) code(err error) wire.Code {
	c := h.errs.Code(err)
	if c == wire.CodeUnknown {
		h.log.Error("error without a code", "err", err)
	}
	return c
}

// dataCode is code for Produce and Fetch, where UNKNOWN_SERVER_ERROR makes
// clients give up, and producers write twice: the retriable storage error takes
// its place.
func (h *Handler) dataCode(err error) wire.Code {
	if c := h.code(err); c != wire.CodeUnknown {
		return c
	}
	return h.errs.Code(model.ErrStorage)
}

// message is the text of an error for a client. What concerns the inside of the
// broker is in its log, not in answers.
func (h *Handler) message(err error) *string {
	if err == nil {
		return nil
	}
	text := h.errs.Text(err)
	switch {
	case errors.Is(err, model.ErrStorage):
		text = model.ErrStorage.Error()
	case h.errs.Code(err) == wire.CodeUnknown:
		text = "the broker failed, its log says why"
	}
	return &text
}
