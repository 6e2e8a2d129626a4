package api

// Metadata (3), versions 0 to 13.
//
// Left out: the check of the cluster that makes a client bootstrap again
// (KIP-1102); REPLICA_NOT_AVAILABLE in version 0, where missing replicas are
// listed as in all other versions.

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// autoCreateWait is how long a metadata request waits for a topic that it makes, so
// that the client, which asks again, finds it.
const autoCreateWait = 2 * time.Second

// notAsked stands in authorized operations that were not asked for. (KIP-430)
const notAsked int32 = math.MinInt32

func (h *Handler) metadata(ctx context.Context, from caller, req *kmsg.MetadataRequest) *kmsg.MetadataResponse {
	resp := kmsg.NewPtrMetadataResponse()
	img := h.deps.Metadata.Image()
	if len(req.Topics) > 0 {
		resp.Topics = h.namedTopics(ctx, from, req, img)
	} else if req.Version == 0 || req.Topics == nil {
		resp.Topics = h.allTopics(ctx, from, req, img)
	}
	all := nodes(img, from.Listener)
	for _, n := range all {
		if n.fenced {
			continue
		}
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = int32(n.id), n.host, n.port, n.rack
		resp.Brokers = append(resp.Brokers, b)
	}
	resp.ClusterID = clusterID(img)
	resp.ControllerID = int32(h.shownController(all))
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = h.clusterOperations(ctx, from)
	}
	return resp
}

func clusterID(img *image.Image) *string {
	if img.Cluster.ID == "" {
		return nil
	}
	id := string(img.Cluster.ID)
	return &id
}

// allTopics leaves out, without a word, those that the client may not see.
func (h *Handler) allTopics(ctx context.Context, from caller, req *kmsg.MetadataRequest, img *image.Image) []kmsg.MetadataResponseTopic {
	out := make([]kmsg.MetadataResponseTopic, 0, img.TopicCount())
	for t := range img.Topics() {
		if h.mayTopic(ctx, from, security.OpDescribe, t.Name) {
			out = append(out, h.topicMetadata(ctx, from, req, img, t))
		}
	}
	return out
}

// namedTopics answers for the topics asked for. A topic that this request makes is
// unknown in its answer, as in Kafka's: who wants it asks again, and who only looks
// whether a topic was deleted sees that it was.
func (h *Handler) namedTopics(ctx context.Context, from caller, req *kmsg.MetadataRequest, img *image.Image) []kmsg.MetadataResponseTopic {
	made := h.autoCreate(ctx, from, req, img)
	out := make([]kmsg.MetadataResponseTopic, 0, len(req.Topics))
	seen := make(map[string]bool, len(req.Topics))
	for _, want := range req.Topics {
		if want.Topic != nil && want.TopicID == [16]byte{} {
			if seen[*want.Topic] {
				continue
			}
			seen[*want.Topic] = true
		}
		t, err := h.findTopic(ctx, from, req.Version, img, want, made)
		if err == nil {
			out = append(out, h.topicMetadata(ctx, from, req, img, t))
			continue
		}
		failed := kmsg.NewMetadataResponseTopic()
		failed.ErrorCode = h.code(err)
		failed.Topic, failed.TopicID = want.Topic, want.TopicID
		if failed.Topic == nil && req.Version < 12 {
			failed.Topic = new(string)
		}
		failed.Partitions = []kmsg.MetadataResponseTopicPartition{}
		out = append(out, failed)
	}
	return out
}

// findTopic finds what was asked for. A topic that the client may not see is
// told apart from one that does not exist only to who named it. (KIP-516)
func (h *Handler) findTopic(ctx context.Context, from caller, version int16, img *image.Image, want kmsg.MetadataRequestTopic, made map[string]error) (*image.Topic, error) {
	if want.TopicID != [16]byte{} {
		if version < 12 {
			return nil, model.ErrInvalidRequest
		}
		t, ok := img.Topic(want.TopicID)
		if !ok || !h.mayTopic(ctx, from, security.OpDescribe, t.Name) {
			return nil, model.ErrUnknownTopicID
		}
		return t, nil
	}
	if want.Topic == nil {
		return nil, model.ErrInvalidRequest
	}
	if !h.mayTopic(ctx, from, security.OpDescribe, *want.Topic) {
		return nil, model.ErrTopicAuthorization
	}
	if t, ok := img.TopicByName(*want.Topic); ok {
		return t, nil
	}
	if err := made[*want.Topic]; err != nil {
		return nil, err
	}
	if !topicName(*want.Topic) {
		return nil, model.ErrInvalidTopic
	}
	return nil, model.ErrUnknownTopicOrPartition
}

func (h *Handler) topicMetadata(ctx context.Context, from caller, req *kmsg.MetadataRequest, img *image.Image, t *image.Topic) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	out.Topic, out.TopicID, out.IsInternal = &t.Name, t.ID, internal(t)
	out.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(t.Partitions))
	for i, p := range t.Partitions {
		s := stateOf(img, p, from.Listener)
		if errors.Is(s.err, model.ErrListenerNotFound) && req.Version < 6 {
			s.err = model.ErrLeaderNotAvailable
		}
		part := kmsg.NewMetadataResponseTopicPartition()
		part.ErrorCode = h.code(s.err)
		part.Partition = int32(i)
		part.Leader, part.LeaderEpoch = int32(s.leader), p.LeaderEpoch
		part.Replicas, part.ISR, part.OfflineReplicas = numbers(p.Replicas), numbers(p.ISR), numbers(s.offline)
		out.Partitions[i] = part
	}
	if req.IncludeTopicAuthorizedOperations {
		out.AuthorizedOperations = h.topicOperations(ctx, from, t.Name)
	}
	return out
}

// autoCreate makes the topics that do not exist, where broker and client both
// allow it, and waits a while for them, so that the next request finds them. The
// result says for each topic that was tried why it is not there. (KIP-4, KIP-204)
func (h *Handler) autoCreate(ctx context.Context, from caller, req *kmsg.MetadataRequest, img *image.Image) map[string]error {
	if !h.cfg.AutoCreateTopics || req.Version >= 4 && !req.AllowAutoTopicCreation {
		return nil
	}
	tried := make(map[string]error)
	var create []model.NewTopic
	for _, want := range req.Topics {
		if want.Topic == nil || want.TopicID != [16]byte{} {
			continue
		}
		name := *want.Topic
		if _, ok := img.TopicByName(name); ok || !topicName(name) || strings.HasPrefix(name, internalPrefix) {
			continue
		}
		if _, twice := tried[name]; twice || !h.mayTopic(ctx, from, security.OpDescribe, name) {
			continue
		}
		if !h.mayCluster(ctx, from, security.OpCreate) && !h.mayTopic(ctx, from, security.OpCreate, name) {
			tried[name] = model.ErrTopicAuthorization
			continue
		}
		tried[name] = model.ErrUnknownTopicOrPartition
		if h.creating.enter(name) {
			create = append(create, model.NewTopic{Name: name, Partitions: -1, ReplicationFactor: -1})
		}
	}
	if len(create) > 0 {
		h.createMissing(ctx, create, tried)
	}
	return tried
}

// createMissing asks the controller. A topic that is still being made when the
// wait is over is unknown for now, which clients ask again about.
func (h *Handler) createMissing(ctx context.Context, create []model.NewTopic, tried map[string]error) {
	defer func() {
		for _, t := range create {
			h.creating.leave(t.Name)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, autoCreateWait)
	defer cancel()
	results, err := h.deps.Controller.CreateTopics(ctx, create, false)
	if err != nil || len(results) != len(create) {
		h.log.Warn("create topics on a client's request", "topic", create[0].Name, "err", err)
		return
	}
	for i, r := range results {
		switch {
		case r.Err == nil, errors.Is(r.Err, model.ErrTopicExists):
			h.log.Info("topic created on a client's request", "topic", create[i].Name)
		case errors.Is(r.Err, model.ErrInvalidTopic), errors.Is(r.Err, model.ErrPolicyViolation), errors.Is(r.Err, model.ErrInvalidReplication):
			tried[create[i].Name] = r.Err
		default:
			h.log.Warn("create topic on a client's request", "topic", create[i].Name, "err", r.Err)
		}
	}
}

// internalPrefix is how Kafka's own topics begin; none of them is made because a
// client asks for it.
const internalPrefix = "__"

// topicName is Kafka's rule for a topic's name.
func topicName(s string) bool {
	const bytesMax = 249
	if s == "" || len(s) > bytesMax || s == "." || s == ".." {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !alphanumeric(c) && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// inFlight remembers the topics that are being made, so that a crowd of clients
// asks the controller once.
type inFlight struct {
	mu    sync.Mutex
	names map[string]bool
}

func newInFlight() *inFlight { return &inFlight{names: make(map[string]bool)} }

func (f *inFlight) enter(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.names[name] {
		return false
	}
	f.names[name] = true
	return true
}

func (f *inFlight) leave(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.names, name)
}

func topicOperationsAll() []security.Operation {
	return []security.Operation{security.OpRead, security.OpWrite, security.OpCreate, security.OpDelete,
		security.OpAlter, security.OpDescribe, security.OpDescribeConfigs, security.OpAlterConfigs}
}

func clusterOperationsAll() []security.Operation {
	return []security.Operation{security.OpCreate, security.OpAlter, security.OpDescribe, security.OpClusterAction,
		security.OpDescribeConfigs, security.OpAlterConfigs, security.OpIdempotentWrite}
}

// topicOperations is a bit for each operation that the client may do. (KIP-430)
func (h *Handler) topicOperations(ctx context.Context, from caller, topic string) int32 {
	var bits int32
	for _, op := range topicOperationsAll() {
		if h.mayTopic(ctx, from, op, topic) {
			bits |= 1 << op
		}
	}
	return bits
}

func (h *Handler) clusterOperations(ctx context.Context, from caller) int32 {
	var bits int32
	for _, op := range clusterOperationsAll() {
		if h.mayCluster(ctx, from, op) {
			bits |= 1 << op
		}
	}
	return bits
}
