package api

// Produce (0), versions 3 to 13. Versions 0 to 2 are advertised and refused, see
// core/wire.
//
// Left out: transactions (UNSUPPORTED_VERSION).

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

const (
	// zstdProduceVersion is the first Produce that may carry zstd. (KIP-110)
	zstdProduceVersion = 7
	// leaderProduceVersion is the first that is told who leads. (KIP-951)
	leaderProduceVersion = 10
	// startProduceVersion is the first that is told where the log starts. (KIP-107)
	startProduceVersion = 5
	// idProduceVersion is the first that names topics by ID. (KIP-516)
	idProduceVersion = 13
	// slotsKept is for how many partitions room is kept, for another request.
	slotsKept = 64
	// comparedMax is up to how many partitions are compared each with all others.
	comparedMax = 32
	// adminClientID may write to internal topics, as in Kafka.
	adminClientID = "__admin_client"
	// produceTimeoutMax bounds what a client may ask acks=all to wait.
	produceTimeoutMax = 10 * time.Minute
)

// produce is one request from its beginning until its answer was sent. Then it is used
// for another, unless appends may still come to their ends. It is the Body of its own
// answer.
type produce struct {
	h      *Handler
	from   caller
	turn   wire.Turn
	frame  *model.Frame
	begun  time.Time
	img    *image.Image
	req    wire.Produce
	resp   wire.ProduceResponse
	slots  []*produced // of the request's partitions, in their order
	used   int         // of slots
	answer wire.Answer // p.reply, bound once

	pending atomic.Int32  // appends not answered yet, and one while they are queued
	made    chan struct{} // closed when none is pending; nil: turn is told
}

// produced is the outcome for one partition of a request.
type produced struct {
	of      *produce
	done    func(model.Appended) // appended, bound once
	topic   *wire.ProduceTopic
	in      *wire.ProducePartition
	target  *target         // nil where the topic is not known
	id      model.Partition // where it is
	twice   bool            // the request names the partition again
	invalid bool            // the batch did not pass the checks
	records int32
	bytes   int
	model.Appended
}

func (h *Handler) newProduce() *produce {
	if p, ok := h.produces.Get().(*produce); ok {
		return p
	}
	p := &produce{h: h}
	p.answer = p.reply
	return p
}

// slot is the next partition's.
func (p *produce) slot() *produced {
	if p.used == len(p.slots) {
		s := &produced{of: p}
		s.done = s.appended
		p.slots = append(p.slots, s)
	}
	s := p.slots[p.used]
	p.used++
	return s
}

// forget makes p ready for another request. Nobody else knows it any more.
func (p *produce) forget() {
	p.req.Forget()
	p.resp.Forget()
	for _, s := range p.slots[:p.used] {
		*s = produced{of: p, done: s.done}
	}
	if len(p.slots) > slotsKept {
		p.slots = nil
	}
	p.used = 0
	p.from, p.turn, p.frame, p.img, p.made = caller{}, nil, nil, nil, nil
	p.h.produces.Put(p)
}

// finish takes one from what is pending. After the last one p may be in use for another
// request.
func (p *produce) finish() {
	switch {
	case p.pending.Add(-1) > 0:
	case p.made != nil:
		close(p.made)
	default:
		p.turn.Ready()
	}
}

// appended is told how the partition's append has ended.
func (s *produced) appended(a model.Appended) {
	s.Appended = a
	s.of.finish()
}

// name is the topic's, as far as it is known.
func (s *produced) name() string {
	if s.target != nil {
		return s.target.topic.Name
	}
	return string(s.topic.Name)
}

// beginProduce checks the request and queues its appends, all in the order in
// which the connection brought them. The answer is there when they have ended.
func (h *Handler) beginProduce(ctx context.Context, c wire.Call, begun time.Time) wire.Answer {
	p := h.newProduce()
	if err := p.req.Read(c.Version, c.Body); err != nil {
		p.forget()
		return closing(err.Error())
	}
	p.from = caller{Header: c.Header, Peer: c.From}
	p.turn, p.frame, p.begun, p.img = c.Turn, c.Frame, begun, h.deps.Metadata.Image()
	p.pending.Store(1)
	p.lookUp(ctx)
	p.findTwice()
	for _, s := range p.slots[:p.used] {
		if s.Err != nil {
			continue
		}
		if err := p.append(ctx, s); err != nil {
			s.Err = err
		}
	}
	if p.asksLogStarts() {
		p.made = make(chan struct{}) // logs may have to be waited for, as only an Answer may
	} else {
		p.turn.Later()
	}
	p.finish()
	return p.answer
}

// lookUp finds the topics, and who may not write to them.
func (p *produce) lookUp(ctx context.Context) {
	refused := p.refused(ctx)
	for i := range p.req.Topics {
		in := &p.req.Topics[i]
		t, err := (*target)(nil), refused
		if err == nil {
			t, err = p.target(ctx, in)
		}
		for j := range in.Partitions {
			s := p.slot()
			s.topic, s.in, s.target = in, &in.Partitions[j], t
			if t != nil {
				s.id = model.Partition{Topic: t.topic.ID, Index: s.in.Index}
			}
			s.Appended = model.Appended{BaseOffset: -1, LogAppendTime: -1, LogStart: -1, Err: err, Spent: true}
		}
	}
}

// refused says why a whole request is refused, or nil.
func (p *produce) refused(ctx context.Context) error {
	if id := p.req.TransactionalID; id != nil {
		if !p.h.may(ctx, p.from, security.OpWrite, security.TransactionalID, string(id)) {
			return model.ErrTransactionalIDAuth
		}
		return errTransactions
	}
	switch model.Acks(p.req.Acks) {
	case model.AcksAll, model.AcksNone, model.AcksLeader:
		return nil
	}
	return fmt.Errorf("%w: %d is none of -1, 0 and 1", model.ErrInvalidRequiredAcks, p.req.Acks)
}

// errTransactions is what transactional requests get until transactions are
// served: clients take it as final and say so.
var errTransactions = fmt.Errorf("%w: transactions are not served yet", model.ErrUnsupportedVersion)

// target finds the topic and says whether the client may write to it. A refusal by
// name is the same whether there is such a topic or not, so that it tells nothing.
func (p *produce) target(ctx context.Context, in *wire.ProduceTopic) (*target, error) {
	var t *target
	if p.from.Version >= idProduceVersion {
		if t = p.h.targets.identified(p.img, in.ID); t == nil {
			return nil, model.ErrUnknownTopicID
		}
	} else if t = p.h.targets.named(p.img, in.Name); t == nil {
		if !p.h.mayTopic(ctx, p.from, security.OpWrite, string(in.Name)) {
			return nil, model.ErrTopicAuthorization
		}
		return nil, model.ErrUnknownTopicOrPartition
	}
	if !p.h.mayTopic(ctx, p.from, security.OpWrite, t.topic.Name) {
		return nil, model.ErrTopicAuthorization
	}
	if t.internal && p.from.ClientID != adminClientID {
		return t, fmt.Errorf("%w: %s is internal", model.ErrInvalidTopic, t.topic.Name)
	}
	return t, nil
}

// findTwice marks the partitions that a request names more than once. None of their
// batches is appended: one answer could not tell which of them was.
func (p *produce) findTwice() {
	slots := p.slots[:p.used]
	if len(slots) > comparedMax {
		first := make(map[model.Partition]*produced, len(slots))
		for _, s := range slots {
			if other := first[s.id]; other != nil {
				s.twice, other.twice = true, true
			} else {
				first[s.id] = s
			}
		}
		return
	}
	for i, s := range slots {
		for _, other := range slots[:i] {
			if s.id == other.id {
				s.twice, other.twice = true, true
			}
		}
	}
}

// append checks a batch and queues its append, or says why not. Once it is queued, its
// end may write to s at any time.
func (p *produce) append(ctx context.Context, s *produced) error {
	t := s.target
	if !hasPartition(t.topic, s.id.Index) {
		return model.ErrUnknownTopicOrPartition
	}
	if s.twice {
		return fmt.Errorf("%w: partition %d of %s is named twice", model.ErrInvalidRequest, s.id.Index, t.topic.Name)
	}
	data, checked, err := p.check(t, s.in.Records)
	if err != nil {
		s.invalid = true
		return err
	}
	frame := p.frame
	if &data[0] != &s.in.Records[0] {
		frame = nil // it is in another codec, and lies elsewhere
	}
	s.records, s.bytes = checked.Info.Records, len(data)
	p.pending.Add(1)
	p.h.deps.Partitions.Append(ctx, model.Append{
		Partition: s.id, Batch: checked.Info, Data: data, Frame: frame, Acks: model.Acks(p.req.Acks),
		Timeout: produceTimeout(p.req.TimeoutMillis), LogAppendTime: checked.LogAppendTime,
	}, s.done)
	return nil
}

// check checks a batch against the topic's settings, and returns it in the
// topic's codec.
func (p *produce) check(t *target, data []byte) ([]byte, batch.Checked, error) {
	if len(data) >= recordbatch.HeaderBytes && recordbatch.Attributes(data)&recordbatch.AttrTransactional != 0 {
		if _, err := recordbatch.Parse(data); err == nil {
			return nil, batch.Checked{}, errTransactions
		}
	}
	policy := t.policy
	policy.ZstdAllowed = p.from.Version >= zstdProduceVersion
	policy.Now = p.begun.UnixMilli()
	checked, err := batch.Check(data, policy)
	if err != nil {
		return nil, batch.Checked{}, err
	}
	if t.own {
		return batch.Recompress(data, checked, t.codec, policy)
	}
	return data, checked, nil
}

// literalMillis keeps the longest duration the longest.
func literalMillis(d time.Duration) int64 {
	if d == math.MaxInt64 {
		return math.MaxInt64
	}
	return d.Milliseconds()
}

func produceTimeout(ms int32) time.Duration {
	return min(max(time.Duration(ms)*time.Millisecond, 0), produceTimeoutMax)
}

// asksLogStarts reports whether the client is told where logs start whose batches did
// not pass the checks.
func (p *produce) asksLogStarts() bool {
	if p.from.Version < startProduceVersion || model.Acks(p.req.Acks) == model.AcksNone {
		return false
	}
	return slices.ContainsFunc(p.slots[:p.used], (*produced).asksLogStart)
}

// asksLogStart: as Kafka tells it, not of batches that are too large or whose CRC is
// wrong.
func (s *produced) asksLogStart() bool {
	return s.invalid && !errors.Is(s.Err, model.ErrMessageTooLarge) &&
		!errors.Is(s.Err, model.ErrRecordListTooLarge) && !errors.Is(s.Err, model.ErrCorruptMessage)
}

func (p *produce) addLogStarts(ctx context.Context) {
	var asked []model.OffsetQuery
	var slots []*produced
	for _, s := range p.slots[:p.used] {
		if s.asksLogStart() {
			asked = append(asked, model.OffsetQuery{Partition: s.id, Timestamp: model.TimestampEarliest, CurrentEpoch: model.NoEpoch})
			slots = append(slots, s)
		}
	}
	for i, answer := range p.h.deps.Partitions.Offsets(ctx, asked) {
		if answer.Err == nil {
			slots[i].LogStart = answer.Offset
		}
	}
}

// reply is the request's Answer, given when every append has ended. Where the context
// has ended before, appends may still be under way, and p is not used again. With acks=0
// there is no response; an error ends the connection, so that the client asks for
// metadata again.
func (p *produce) reply(ctx context.Context) wire.Reply {
	if p.made != nil {
		select {
		case <-p.made:
			p.addLogStarts(ctx)
		case <-ctx.Done():
		}
	}
	p.h.deps.Events.Answered(wire.KeyProduce, p.from.Version, p.h.now().Sub(p.begun))
	if p.pending.Load() > 0 {
		return wire.Reply{Close: true, Reason: fmt.Sprintf("produce was given up: %v", context.Cause(ctx))}
	}
	failed, spent := p.tell()
	if model.Acks(p.req.Acks) != model.AcksNone {
		p.makeResponse()
		return wire.Reply{Body: p, Spent: spent}
	}
	r := wire.Reply{Spent: spent}
	if failed != nil {
		r = wire.Reply{Close: true, Reason: fmt.Sprintf("produce without acks failed: %s-%d: %v", failed.name(), failed.in.Index, failed.Err)}
	}
	p.forget()
	return r
}

// tell counts what was appended, and returns the first partition where nothing was,
// and whether nobody looks at the request any more but for who keeps its frame.
func (p *produce) tell() (failed *produced, spent bool) {
	spent = true
	for _, s := range p.slots[:p.used] {
		spent = spent && (s.Spent || p.frame != nil)
		if s.Err == nil {
			p.h.deps.Events.Produced(s.target.topic.Name, int(s.records), s.bytes)
		} else if failed == nil {
			failed = s
		}
	}
	return failed, spent
}

// makeResponse makes the response of the outcomes.
func (p *produce) makeResponse() {
	p.resp.Answer(&p.req)
	var leaders *leaders
	n := 0
	for i := range p.resp.Topics {
		for j := range p.resp.Topics[i].Partitions {
			s, out := p.slots[n], &p.resp.Topics[i].Partitions[j]
			n++
			out.BaseOffset, out.LogAppendTime, out.LogStart = s.BaseOffset, s.LogAppendTime, s.LogStart
			if s.Err == nil {
				continue
			}
			p.h.refuse(out, s.Err)
			if p.from.Version >= leaderProduceVersion && errors.Is(s.Err, model.ErrNotLeaderOrFollower) {
				if leaders == nil {
					leaders = p.h.newLeaders(p.from.Listener)
				}
				leader, epoch := leaders.of(s.target.topic, s.id.Index, s.Err)
				out.Leader, out.LeaderEpoch = int32(leader), epoch
			}
		}
	}
	if leaders == nil {
		return
	}
	for _, b := range leaders.named {
		p.resp.Brokers = append(p.resp.Brokers, wire.ProducedBroker{ID: int32(b.id), Host: b.host, Port: b.port, Rack: b.rack})
	}
}

// refuse tells why a batch was not appended.
func (h *Handler) refuse(out *wire.ProducedPartition, err error) {
	out.Code, out.Message = h.dataCode(err), h.message(err)
	var records *batch.RecordsError
	if errors.As(err, &records) {
		for _, r := range records.Records {
			out.Records = append(out.Records, wire.ProducedRecord{Index: r.Index, Message: r.Message})
		}
	}
}

// Size implements wire.Body.
func (p *produce) Size() wire.Size { return wire.Size{Appended: p.resp.Size()} }

// Encode implements wire.Body.
func (p *produce) Encode(dst []byte, _ wire.Splice) []byte {
	return p.resp.AppendTo(dst, p.from.Version)
}

// Release implements wire.Body.
func (p *produce) Release() { p.forget() }
