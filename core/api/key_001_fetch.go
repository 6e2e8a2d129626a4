package api

// Fetch (1), versions 4 to 18, with sessions (KIP-227).
//
// Left out: followers, which replicate in another way (INVALID_REQUEST);
// choosing a replica near the client (KIP-392: the preferred one is always -1);
// aborted transactions, of which there are none yet, so that READ_COMMITTED
// reads to the high watermark as READ_UNCOMMITTED does.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// zstdFetchVersion is the first Fetch that may carry zstd. (KIP-110)
	zstdFetchVersion = 10
	// idFetchVersion is the first that names topics by ID. (KIP-516)
	idFetchVersion = 13
	// leaderFetchVersion is the first that is told who leads. (KIP-951)
	leaderFetchVersion = 16
	// goneWait is how long a Fetch waits that can read nothing of what it names.
	goneWait = 100 * time.Millisecond
)

// fetching is one fetch on its way: what is wanted, and what came of it.
type fetching struct {
	req     *kmsg.FetchRequest
	img     *image.Image
	session *fetchSession // nil without one
	full    bool          // every partition is answered, whether or not it has news
	want    []fetchPartition
	topics  []*image.Topic  // of each wanted partition; nil where it is not known
	got     []model.Fetched // for each wanted partition
}

func (h *Handler) fetch(ctx context.Context, from caller, req *kmsg.FetchRequest) wire.Reply {
	f := &fetching{req: req, img: h.deps.Metadata.Image()}
	if err := h.beginFetch(f); err != nil {
		resp := kmsg.NewPtrFetchResponse()
		resp.ErrorCode = h.code(err)
		if req.Version < 7 { // the head has no error yet
			h.refuseFetch(resp, req, err)
		}
		return respond(resp)
	}
	h.read(ctx, from, f)
	return respond(h.fetchResponse(from, f))
}

// beginFetch finds out what to fetch: the request's partitions, or those of its
// session after the request's changes.
func (h *Handler) beginFetch(f *fetching) error {
	req := f.req
	if req.ReplicaID >= 0 || req.ReplicaState.ID >= 0 {
		return fmt.Errorf("%w: followers do not fetch here", model.ErrInvalidRequest)
	}
	want := wantedPartitions(req)
	byID := req.Version >= idFetchVersion
	switch {
	case req.Version < 7 || req.SessionEpoch == sessionEpochFinal:
		h.sessions.remove(req.SessionID)
		f.full, f.want = true, want
		return nil
	case req.SessionEpoch == sessionEpochInitial:
		h.sessions.remove(req.SessionID)
		f.full, f.want = true, want
		if len(want) > 0 {
			f.session = h.sessions.add(byID, want)
		}
		return nil
	}
	var err error
	f.session, f.want, err = h.sessions.follow(req.SessionID, req.SessionEpoch, byID, want, forgotten(req))
	return err
}

// wantedPartitions lists what a request names, in its order. Of a partition
// that is named twice the last word counts.
func wantedPartitions(req *kmsg.FetchRequest) []fetchPartition {
	var out []fetchPartition
	at := make(map[fetchKey]int)
	for i := range req.Topics {
		t := &req.Topics[i]
		for _, p := range t.Partitions {
			w := fetchPartition{
				key:    fetchKey{id: t.TopicID, name: t.Topic, index: p.Partition},
				offset: p.FetchOffset, logStart: p.LogStartOffset,
				epoch: p.CurrentLeaderEpoch, lastFetched: p.LastFetchedEpoch, maxBytes: p.PartitionMaxBytes,
			}
			if j, again := at[w.key]; again {
				out[j] = w
				continue
			}
			at[w.key] = len(out)
			out = append(out, w)
		}
	}
	return out
}

func forgotten(req *kmsg.FetchRequest) []fetchKey {
	var out []fetchKey
	for _, t := range req.ForgottenTopics {
		for _, p := range t.Partitions {
			out = append(out, fetchKey{id: t.TopicID, name: t.Topic, index: p})
		}
	}
	return out
}

// read fetches every partition that exists and may be read. Their errors do not wait
// for records. What is not there, or may not be read, is told when the others are
// answered, as in Kafka: a client keeps asking for a topic that was deleted until it
// believes it, and would have its answers as fast as it can ask. Where there are no
// others, it waits for a moment.
func (h *Handler) read(ctx context.Context, from caller, f *fetching) {
	f.topics = make([]*image.Topic, len(f.want))
	f.got = make([]model.Fetched, len(f.want))
	ask := model.Fetch{
		MaxBytes:  min(int(f.req.MaxBytes), h.cfg.FetchBytesMax),
		MaxWait:   max(0, time.Duration(f.req.MaxWaitMillis)*time.Millisecond),
		Isolation: isolation(f.req.IsolationLevel),
		Room:      from.room,
	}
	ask.MaxBytes = max(0, ask.MaxBytes)
	ask.MinBytes = min(max(0, int(f.req.MinBytes)), ask.MaxBytes)
	at := make([]int, 0, len(f.want))
	ask.Partitions = make([]model.FetchPartition, 0, len(f.want))
	var t *image.Topic
	var denied error
	for i, w := range f.want {
		if i == 0 || w.key.id != f.want[i-1].key.id || w.key.name != f.want[i-1].key.name {
			t, denied = h.readable(ctx, from, f, w.key)
		}
		f.topics[i] = t
		err := denied
		if err == nil {
			if _, ok := partition(t, w.key.index); !ok {
				err = model.ErrUnknownTopicOrPartition
			}
		}
		if err != nil {
			f.got[i] = model.Fetched{HighWatermark: -1, LastStable: -1, LogStart: -1, LeaderEpoch: model.NoEpoch, Err: err}
			continue
		}
		at = append(at, i)
		ask.Partitions = append(ask.Partitions, model.FetchPartition{
			Partition: model.Partition{Topic: t.ID, Index: w.key.index},
			Offset:    w.offset, LogStart: w.logStart, MaxBytes: max(0, int(w.maxBytes)),
			CurrentEpoch: w.epoch, LastFetchedEpoch: w.lastFetched,
		})
	}
	if len(ask.Partitions) == 0 {
		if len(f.want) > 0 {
			pause(ctx, min(ask.MaxWait, goneWait))
		}
		return
	}
	for j, got := range h.deps.Partitions.Fetch(ctx, ask).Partitions {
		if f.req.Version < zstdFetchVersion && got.Err == nil && holdsZstd(slices.Concat(got.Data...)) {
			got.Err = model.ErrUnsupportedCompression
		}
		if got.Err != nil {
			got.Data = nil
		}
		f.got[at[j]] = got
	}
}

// pause waits, no longer than ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// isolation is what a client may see: a level that is not known is the default.
func isolation(level int8) model.IsolationLevel {
	if l := model.IsolationLevel(level); l == model.ReadCommitted {
		return l
	}
	return model.ReadUncommitted
}

// readable finds a topic and says whether the client may read it.
func (h *Handler) readable(ctx context.Context, from caller, f *fetching, k fetchKey) (*image.Topic, error) {
	var t *image.Topic
	var ok bool
	if f.req.Version >= idFetchVersion {
		if t, ok = f.img.Topic(k.id); !ok {
			return nil, model.ErrUnknownTopicID
		}
		if !h.mayTopic(ctx, from, security.OpRead, t.Name) {
			return nil, model.ErrTopicAuthorization
		}
	} else {
		if !h.mayTopic(ctx, from, security.OpRead, k.name) {
			return nil, model.ErrTopicAuthorization
		}
		if t, ok = f.img.TopicByName(k.name); !ok {
			return nil, model.ErrUnknownTopicOrPartition
		}
	}
	return t, nil
}

// holdsZstd looks at the attributes of whole batches.
func holdsZstd(data []byte) bool {
	const zstd = 4
	for len(data) > 0 {
		info, err := recordbatch.Parse(data)
		if err != nil || int(info.Bytes) > len(data) {
			return false
		}
		if info.Attributes&recordbatch.CodecMask == zstd {
			return true
		}
		data = data[info.Bytes:]
	}
	return false
}

// fetchResponse makes the answer.
func (h *Handler) fetchResponse(from caller, f *fetching) *kmsg.FetchResponse {
	resp := kmsg.NewPtrFetchResponse()
	if f.session != nil {
		resp.SessionID = f.session.id
	}
	resp.Topics = []kmsg.FetchResponseTopic{}
	leaders := newLeaders(f.img, from.Listener)
	for i, w := range f.want {
		got := f.got[i]
		if f.session != nil && !f.session.tell(w.key, got) && !f.full {
			continue
		}
		if n := got.Bytes(); n > 0 {
			h.deps.Events.Fetched(f.topics[i].Name, n)
		}
		out := h.fetchedPartition(f, w, got)
		if h.movesClient(f.req.Version, got.Err) {
			leader, epoch := leaders.of(f.topics[i], w.key.index)
			out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = int32(leader), epoch
		}
		topic := fetchedTopic(resp, w.key)
		topic.Partitions = append(topic.Partitions, out)
	}
	for _, n := range leaders.named {
		b := kmsg.NewFetchResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = int32(n.id), n.host, n.port, n.rack
		resp.Brokers = append(resp.Brokers, b)
	}
	return resp
}

func (h *Handler) movesClient(version int16, err error) bool {
	return version >= leaderFetchVersion &&
		(errors.Is(err, model.ErrNotLeaderOrFollower) || errors.Is(err, model.ErrFencedLeaderEpoch))
}

// fetchedTopic is the entry of a partition's topic: the last one, or a new one
// when the order of the partitions left the topic.
func fetchedTopic(resp *kmsg.FetchResponse, k fetchKey) *kmsg.FetchResponseTopic {
	if n := len(resp.Topics); n > 0 {
		if t := &resp.Topics[n-1]; t.Topic == k.name && model.TopicID(t.TopicID) == k.id {
			return t
		}
	}
	t := kmsg.NewFetchResponseTopic()
	t.Topic, t.TopicID = k.name, k.id
	resp.Topics = append(resp.Topics, t)
	return &resp.Topics[len(resp.Topics)-1]
}

func (h *Handler) fetchedPartition(f *fetching, w fetchPartition, got model.Fetched) kmsg.FetchResponseTopicPartition {
	out := kmsg.NewFetchResponseTopicPartition()
	out.Partition = w.key.index
	out.ErrorCode = h.dataCode(got.Err)
	out.HighWatermark, out.LastStableOffset, out.LogStartOffset = got.HighWatermark, got.LastStable, got.LogStart
	out.RecordBatches = slices.Concat(got.Data...)
	if out.RecordBatches == nil {
		out.RecordBatches = []byte{} // old clients fail on null
	}
	if isolation(f.req.IsolationLevel) == model.ReadCommitted {
		out.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
	}
	if got.Diverging != nil && got.Err == nil {
		out.DivergingEpoch.Epoch, out.DivergingEpoch.EndOffset = got.Diverging.Epoch, got.Diverging.EndOffset
		out.RecordBatches = []byte{}
	}
	return out
}

// refuseFetch puts an error on every partition, for versions without one in the
// head.
func (h *Handler) refuseFetch(resp *kmsg.FetchResponse, req *kmsg.FetchRequest, err error) {
	for _, w := range wantedPartitions(req) {
		topic := fetchedTopic(resp, w.key)
		out := kmsg.NewFetchResponseTopicPartition()
		out.Partition, out.ErrorCode = w.key.index, h.code(err)
		out.HighWatermark, out.RecordBatches = -1, []byte{}
		topic.Partitions = append(topic.Partitions, out)
	}
}
