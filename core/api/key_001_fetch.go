package api

// Fetch (1), versions 4 to 18, with sessions (KIP-227).
//
// Left out: followers, which replicate in another way (INVALID_REQUEST); aborted
// transactions, of which there are none yet, so that READ_COMMITTED
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
)

const (
	// sessionFetchVersion is the first that has sessions, and an error of its own.
	// (KIP-227)
	sessionFetchVersion = 7
	// zstdFetchVersion is the first Fetch that may carry zstd. (KIP-110)
	zstdFetchVersion = 10
	// idFetchVersion is the first that names topics by ID. (KIP-516)
	idFetchVersion = 13
	// leaderFetchVersion is the first that is told who leads. (KIP-951)
	leaderFetchVersion = 16
	// goneWait is how long a Fetch waits that can read nothing of what it names.
	goneWait = 100 * time.Millisecond
	// partsKept is for how many partitions room is kept, for another request.
	partsKept = 4096
)

// fetchPart is one partition of a fetch.
type fetchPart struct {
	fetchWant
	place, turn int32        // in the session
	at          int32        // of the question to the replicas, and of its answer; unless there is err
	err         error        // why nobody is asked
	elsewhere   model.NodeID // with FetchPartition.Elsewhere: where the client is sent
	news        bool         // there is something to tell
}

// fetching is one fetch from its beginning until its answer was sent: what is wanted,
// and what came of it. Then it is used for another. It is the Body of its own answer.
type fetching struct {
	h      *Handler
	from   caller
	begun  time.Time
	img    *image.Image
	req    wire.Fetch
	resp   wire.FetchResponse
	answer wire.Answer // f.reply, bound once

	named  []fetchWant // by the request
	forget []fetchKey
	seen   map[fetchKey]int32 // where the request's partitions are in parts

	session *fetchSession // nil without one
	full    bool          // every partition is answered, whether or not it has news
	parts   []fetchPart
	asked   []model.FetchPartition
	fetched *model.FetchAnswer // nil: nobody was asked
	refused model.Fetched      // of a partition for which nobody is asked
}

func (h *Handler) newFetching() *fetching {
	if f, ok := h.fetches.Get().(*fetching); ok {
		return f
	}
	f := &fetching{h: h, seen: make(map[fetchKey]int32)}
	f.answer = f.reply
	return f
}

// Release implements wire.Body: f is ready for another request, and nobody else knows
// it any more.
func (f *fetching) Release() {
	if f.fetched != nil {
		f.fetched.Release()
	}
	f.req.Forget()
	f.resp.Forget()
	if cap(f.parts) > partsKept || cap(f.named) > partsKept || cap(f.forget) > partsKept {
		return
	}
	clear(f.named)
	clear(f.forget)
	clear(f.parts)
	*f = fetching{
		h: f.h, req: f.req, resp: f.resp, answer: f.answer, seen: f.seen,
		named: f.named[:0], forget: f.forget[:0], parts: f.parts[:0], asked: f.asked[:0],
	}
	f.h.fetches.Put(f)
}

// beginFetch reads the request. All the rest may wait, and is for the answer.
func (h *Handler) beginFetch(c wire.Call, begun time.Time) wire.Answer {
	f := h.newFetching()
	if err := f.req.Read(c.Version, c.Body); err != nil {
		f.Release()
		return closing(err.Error())
	}
	f.from, f.begun = caller{Header: c.Header, Peer: c.From, room: c.Room}, begun
	return f.answer
}

// reply is the request's Answer. Nothing in it is of the request's body.
func (f *fetching) reply(ctx context.Context) wire.Reply {
	f.img = f.h.deps.Metadata.Image()
	f.collect()
	if err := f.begin(); err != nil {
		f.refuse(err)
	} else {
		f.read(ctx)
		f.respond()
	}
	f.req.Forget()
	f.h.deps.Events.Answered(wire.KeyFetch, f.from.Version, f.h.now().Sub(f.begun))
	return wire.Reply{Body: f, Spent: true}
}

func (f *fetching) byID() bool { return f.from.Version >= idFetchVersion }

// collect lists what the request names, in its order, and what it forgets.
func (f *fetching) collect() {
	for i := range f.req.Topics {
		in := &f.req.Topics[i]
		key, topic := f.key(in.Name, in.ID)
		for j := range in.Partitions {
			p := &in.Partitions[j]
			key.index = p.Index
			f.named = append(f.named, fetchWant{
				key: key, topic: topic, offset: p.Offset, logStart: p.LogStart,
				epoch: p.LeaderEpoch, lastFetched: p.LastFetchedEpoch, maxBytes: p.MaxBytes,
			})
		}
	}
	for i := range f.req.Forgotten {
		in := &f.req.Forgotten[i]
		key, _ := f.key(in.Name, in.ID)
		for _, key.index = range in.Partitions {
			f.forget = append(f.forget, key)
		}
	}
}

// key names a topic, in memory that is not the request's.
func (f *fetching) key(name []byte, id model.TopicID) (fetchKey, *image.Topic) {
	var t *target
	if f.byID() {
		t = f.h.targets.identified(f.img, id)
	} else {
		t = f.h.targets.named(f.img, name)
	}
	switch {
	case t == nil:
		return fetchKey{id: id, name: string(name)}, nil
	case f.byID():
		return fetchKey{id: id}, t.topic
	}
	return fetchKey{name: t.topic.Name}, t.topic
}

// begin finds out what to fetch: the request's partitions, or those of its
// session after the request's changes.
func (f *fetching) begin() error {
	if f.req.ReplicaID >= 0 {
		return fmt.Errorf("%w: followers do not fetch here", model.ErrInvalidRequest)
	}
	sessions := f.h.sessions
	if f.req.SessionEpoch != sessionEpochInitial && f.req.SessionEpoch != sessionEpochFinal {
		return sessions.follow(f)
	}
	f.full = true
	if f.from.Version >= sessionFetchVersion {
		sessions.remove(f.req.SessionID)
	}
	if f.req.SessionEpoch == sessionEpochInitial && len(f.named) > 0 {
		if f.session = sessions.add(f.img, f.byID(), f.named); f.session != nil {
			f.parts = f.session.all(f.parts)
			return nil
		}
	}
	f.addOnce()
	return nil
}

// addOnce takes what the request names. Of a partition that is named twice the last
// word counts.
func (f *fetching) addOnce() {
	for i := range f.named {
		w := &f.named[i]
		if before := f.before(w); before != nil {
			before.fetchWant = *w
		} else {
			f.parts = append(f.parts, fetchPart{fetchWant: *w})
		}
	}
	if len(f.seen) > 0 {
		clear(f.seen)
	}
}

// before is the part that was added for the same partition, or nil. Then the caller adds
// one.
func (f *fetching) before(w *fetchWant) *fetchPart {
	if len(f.named) > comparedMax {
		at, again := f.seen[w.key]
		if again {
			return &f.parts[at]
		}
		f.seen[w.key] = int32(len(f.parts))
		return nil
	}
	for i := range f.parts {
		if p := &f.parts[i]; p.key.index == w.key.index && p.key == w.key {
			return p
		}
	}
	return nil
}

// read fetches every partition that exists and may be read. Their errors do not wait
// for records. What is not there, or may not be read, is told when the others are
// answered, as in Kafka: a client keeps asking for a topic that was deleted until it
// believes it, and would have its answers as fast as it can ask. Where there are no
// others, it waits for a moment.
func (f *fetching) read(ctx context.Context) {
	maxBytes := max(0, min(int(f.req.MaxBytes), f.h.cfg.FetchBytesMax))
	ask := model.Fetch{
		MaxBytes:  maxBytes,
		MinBytes:  min(max(0, int(f.req.MinBytes)), maxBytes),
		MaxWait:   max(0, time.Duration(f.req.MaxWaitMillis)*time.Millisecond),
		Isolation: isolation(f.req.IsolationLevel),
		Room:      f.from.room,
		Sections:  f.from.Version >= zstdFetchVersion, // before, refuseZstd looks into what is read
	}
	var denied error
	for i := range f.parts {
		p := &f.parts[i]
		if i == 0 || p.key.id != f.parts[i-1].key.id || p.key.name != f.parts[i-1].key.name {
			denied = f.denied(ctx, p)
		}
		if p.err = denied; p.err != nil {
			continue
		}
		registered, ok := partition(p.topic, p.key.index)
		if !ok {
			p.err = model.ErrUnknownTopicOrPartition
			continue
		}
		p.at = int32(len(f.asked))
		f.asked = append(f.asked, model.FetchPartition{
			Partition: model.Partition{Topic: p.topic.ID, Index: p.key.index},
			Offset:    p.offset, LogStart: p.logStart, MaxBytes: max(0, int(p.maxBytes)),
			CurrentEpoch: p.epoch, LastFetchedEpoch: p.lastFetched,
		})
		if len(f.req.Rack) > 0 {
			f.choose(p, &registered)
		}
	}
	if len(f.asked) == 0 {
		if len(f.parts) > 0 {
			pause(ctx, min(ask.MaxWait, goneWait))
		}
		return
	}
	ask.Partitions = f.asked
	f.fetched = f.h.deps.Partitions.Fetch(ctx, ask)
	if f.from.Version < zstdFetchVersion {
		f.refuseZstd()
	}
}

// choose finds out from which replica a client that has told its rack is to read: one in
// sync in that rack; of several, each serves some partitions. Where the leader is there
// too, it serves. (KIP-392)
func (f *fetching) choose(p *fetchPart, registered *image.Partition) {
	ask, self := &f.asked[p.at], f.h.cfg.NodeID
	if b, ok := f.img.Broker(self); ok && b.Rack == string(f.req.Rack) {
		ask.Nearby = slices.Contains(registered.ISR, self)
		return
	}
	if registered.Leader != self {
		return
	}
	n := 0
	for _, id := range registered.ISR {
		if f.near(id) {
			n++
		}
	}
	if n == 0 {
		return
	}
	turn := int(p.key.index) % n
	for _, id := range registered.ISR {
		if !f.near(id) {
			continue
		}
		if turn == 0 {
			ask.Elsewhere, p.elsewhere = true, id
			return
		}
		turn--
	}
}

// near reports whether a broker is in the client's rack, and there for it.
func (f *fetching) near(id model.NodeID) bool {
	b, ok := alive(f.img, id)
	if !ok || b.ShuttingDown || b.Rack != string(f.req.Rack) {
		return false
	}
	_, ok = b.Listeners[f.from.Listener]
	return ok
}

// denied says why the client may not read a topic, or nil.
func (f *fetching) denied(ctx context.Context, p *fetchPart) error {
	name, unknown := p.key.name, model.ErrUnknownTopicOrPartition
	if f.byID() {
		if unknown = model.ErrUnknownTopicID; p.topic == nil {
			return unknown
		}
		name = p.topic.Name
	}
	switch {
	case !f.h.mayTopic(ctx, f.from, security.OpRead, name):
		return model.ErrTopicAuthorization
	case p.topic == nil:
		return unknown
	}
	return nil
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

// refuseZstd is for clients that cannot read it.
func (f *fetching) refuseZstd() {
	for i := range f.fetched.Partitions {
		got := &f.fetched.Partitions[i]
		for _, batches := range got.Data {
			if got.Err == nil && holdsZstd(batches) {
				got.Err = model.ErrUnsupportedCompression
			}
		}
	}
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

// got is what came of a partition, until the next call.
func (f *fetching) got(p *fetchPart) *model.Fetched {
	if p.err == nil {
		return &f.fetched.Partitions[p.at]
	}
	f.refused = model.Fetched{HighWatermark: -1, LastStable: -1, LogStart: -1, LeaderEpoch: model.NoEpoch, Err: p.err}
	return &f.refused
}

// respond makes the answer.
func (f *fetching) respond() {
	if f.session != nil {
		f.resp.SessionID = f.session.id
		f.session.tell(f)
	}
	var leaders *leaders
	for i := range f.parts {
		p := &f.parts[i]
		if !p.news && !f.full {
			continue
		}
		got := f.got(p)
		out := f.answerFor(&p.key)
		f.tell(out, got)
		if got.Elsewhere {
			out.Preferred = int32(p.elsewhere)
		}
		if n := got.Bytes(); n > 0 && got.Err == nil {
			f.h.deps.Events.Fetched(p.topic.Name, n)
		}
		if !f.movesClient(got.Err) {
			continue
		}
		if leaders == nil {
			leaders = f.h.newLeaders(f.from.Listener)
		}
		leader, epoch := leaders.of(p.topic, p.key.index, got.Err)
		out.Leader, out.LeaderEpoch = int32(leader), epoch
	}
	if leaders == nil {
		return
	}
	for _, n := range leaders.named {
		f.resp.Brokers = append(f.resp.Brokers, wire.ProducedBroker{ID: int32(n.id), Host: n.host, Port: n.port, Rack: n.rack})
	}
}

func (f *fetching) movesClient(err error) bool {
	return err != nil && f.from.Version >= leaderFetchVersion &&
		(errors.Is(err, model.ErrNotLeaderOrFollower) || errors.Is(err, model.ErrFencedLeaderEpoch))
}

// answerFor adds a partition to the answer: to the last topic, or to a new one where
// the order of the partitions left the topic.
func (f *fetching) answerFor(k *fetchKey) *wire.FetchedPartition {
	topics := f.resp.Topics
	if n := len(topics); n == 0 || topics[n-1].Name != k.name || topics[n-1].ID != k.id {
		f.resp.Topic(k.name, k.id)
	}
	return f.resp.Partition(k.index)
}

func (f *fetching) tell(out *wire.FetchedPartition, got *model.Fetched) {
	out.HighWatermark, out.LastStable, out.LogStart = got.HighWatermark, got.LastStable, got.LogStart
	out.Committed = isolation(f.req.IsolationLevel) == model.ReadCommitted
	switch {
	case got.Err != nil:
		out.Code = f.h.dataCode(got.Err)
	case got.Diverging != nil:
		out.DivergingEpoch, out.DivergingEnd = got.Diverging.Epoch, got.Diverging.EndOffset
	default:
		out.Section, out.Records = got.Section, got.Data
	}
}

// refuse answers with an error: in the head, or on every partition for versions without
// one there.
func (f *fetching) refuse(err error) {
	f.resp.Code = f.h.code(err)
	if f.from.Version >= sessionFetchVersion {
		return
	}
	f.addOnce()
	for i := range f.parts {
		f.answerFor(&f.parts[i].key).Code = f.resp.Code
	}
}

// Size implements wire.Body. What the records take of memory is more than they are.
func (f *fetching) Size() wire.Size {
	size := f.resp.Size()
	if f.fetched != nil {
		size.Spliced = max(size.Spliced, f.fetched.Memory)
	}
	return size
}

// Encode implements wire.Body.
func (f *fetching) Encode(dst []byte, splice wire.Splice) []byte {
	return f.resp.Encode(dst, f.from.Version, splice)
}
