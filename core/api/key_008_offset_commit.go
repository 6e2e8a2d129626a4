package api

// OffsetCommit (8), versions 2 to 10; topics by ID from version 10 (KIP-848).
//
// Kafka takes commits of a group whose name is empty, and so do we.

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
)

const (
	// notFoundCommitVersion is the first that knows groups that are not there.
	// (KIP-848)
	notFoundCommitVersion = 9
	// idCommitVersion is the first that names topics by ID.
	idCommitVersion = 10
)

// commitKept is for how many offsets room is kept, for another request.
const commitKept = 1024

// commit is one request from its beginning until its answer was sent. Then it is used
// for another, unless its question may still be answered. It is the Body of its own
// answer.
type commit struct {
	h     *Handler
	from  caller
	turn  wire.Turn
	begun time.Time
	img   *image.Image
	req   wire.OffsetCommit
	codes []wire.Code // of the request's partitions, in their order
	asked []int       // the places in codes of those that are asked about
	q     model.CommitOffsets

	answer    wire.Answer                  // reply, bound once
	done      func(model.CommittedOffsets) // committed, bound once
	ended     atomic.Bool                  // the question is answered, or there was none
	committed model.CommittedOffsets
}

func (h *Handler) newCommit() *commit {
	if c, ok := h.commits.Get().(*commit); ok {
		return c
	}
	c := &commit{h: h}
	c.answer, c.done = c.reply, c.take
	return c
}

// forget makes c ready for another request. Nobody else knows it any more.
func (c *commit) forget() {
	c.req.Forget()
	offsets := c.q.Offsets
	clear(offsets)
	if cap(offsets) > commitKept || cap(c.codes) > commitKept {
		offsets, c.codes, c.asked = nil, nil, nil
	}
	c.codes, c.asked = c.codes[:0], c.asked[:0]
	c.q = model.CommitOffsets{Offsets: offsets[:0]}
	c.from, c.turn, c.img, c.committed = caller{}, nil, nil, model.CommittedOffsets{}
	c.ended.Store(false)
	c.h.commits.Put(c)
}

// beginOffsetCommit asks the coordinator, in the order in which the connection brought
// the requests. The answer is there when what is committed is durable.
func (h *Handler) beginOffsetCommit(ctx context.Context, call wire.Call, begun time.Time) wire.Answer {
	c := h.newCommit()
	if err := c.req.Read(call.Version, call.Body); err != nil {
		c.forget()
		return closing(err.Error())
	}
	c.from = caller{Header: call.Header, Peer: call.From}
	c.turn, c.begun, c.img = call.Turn, begun, h.deps.Metadata.Image()
	if c.prepare(ctx); len(c.q.Offsets) == 0 {
		c.ended.Store(true)
		return c.answer
	}
	c.turn.Later()
	h.deps.Groups.Commit(ctx, c.q, c.done)
	return c.answer
}

// prepare makes the question, of all that the client may commit.
func (c *commit) prepare(ctx context.Context) {
	c.q.Group = string(c.req.Group)
	if !c.h.mayGroup(ctx, c.from, security.OpRead, c.q.Group) {
		denied := c.h.code(model.ErrGroupAuthorization)
		for range c.req.Partitions() {
			c.codes = append(c.codes, denied)
		}
		return
	}
	c.q.Generation, c.q.MemberID, c.q.InstanceID, c.q.Retention = c.req.Generation, string(c.req.MemberID), string(c.req.InstanceID), -1
	if c.req.RetentionMillis >= 0 {
		c.q.Retention = literalDuration(c.req.RetentionMillis)
	}
	for i := range c.req.Topics {
		in := &c.req.Topics[i]
		t, err := c.topic(ctx, in)
		code := c.h.code(err)
		for j := range in.Partitions {
			c.add(t, &in.Partitions[j], code)
		}
	}
}

// add adds one offset to the question, unless there is a code that says why not.
func (c *commit) add(t *image.Topic, in *wire.OffsetCommitPartition, code wire.Code) {
	if code == wire.CodeNone && !hasPartition(t, in.Index) {
		code = c.h.code(model.ErrUnknownTopicOrPartition)
	}
	if code == wire.CodeNone {
		c.asked = append(c.asked, len(c.codes))
		c.q.Offsets = append(c.q.Offsets, model.GroupOffset{
			TopicPartition: model.TopicPartition{Topic: t.Name, Partition: in.Index}, TopicID: t.ID,
			Offset: in.Offset, LeaderEpoch: in.LeaderEpoch, Metadata: string(in.Metadata),
		})
	}
	c.codes = append(c.codes, code)
}

// topic finds a topic and says whether the client may commit offsets of it.
func (c *commit) topic(ctx context.Context, in *wire.OffsetCommitTopic) (*image.Topic, error) {
	byID := c.from.Version >= idCommitVersion
	if byID {
		if t := c.h.targets.identified(c.img, in.ID); t != nil {
			return c.h.offsetsOf(ctx, c.from, security.OpRead, t.topic)
		}
	} else if t := c.h.targets.named(c.img, in.Name); t != nil {
		return c.h.offsetsOf(ctx, c.from, security.OpRead, t.topic)
	}
	return c.h.offsetsTopic(ctx, c.from, security.OpRead, c.img, string(in.Name), in.ID, byID)
}

// take is told the answer to the question.
func (c *commit) take(a model.CommittedOffsets) {
	c.committed = a
	c.ended.Store(true)
	c.turn.Ready()
}

// reply is the request's Answer, given when the question has been answered. Where the
// context has ended before, c is not used again.
func (c *commit) reply(ctx context.Context) wire.Reply {
	c.h.deps.Events.Answered(wire.KeyOffsetCommit, c.from.Version, c.h.now().Sub(c.begun))
	if !c.ended.Load() {
		return givenUp(ctx, "a commit")
	}
	for i, at := range c.asked {
		err := c.committed.Err
		if err == nil {
			err = c.committed.Offsets[i]
		}
		if c.from.Version < notFoundCommitVersion && errors.Is(err, model.ErrGroupIDNotFound) {
			err = model.ErrIllegalGeneration
		}
		c.codes[at] = c.h.groupCode(err)
	}
	return wire.Reply{Body: c, Spent: true}
}

// Size implements wire.Body.
func (c *commit) Size() wire.Size { return wire.Size{Appended: c.req.Size()} }

// Encode implements wire.Body.
func (c *commit) Encode(dst []byte, _ wire.Splice) []byte {
	return c.req.AppendAnswer(dst, c.from.Version, c.codes)
}

// Release implements wire.Body.
func (c *commit) Release() { c.forget() }

// offsetsTopic finds a topic by its name or its ID and says whether the client may do
// this with its offsets. Names are authorized before they are looked up.
func (h *Handler) offsetsTopic(ctx context.Context, from caller, op security.Operation, img *image.Image, name string, id model.TopicID, byID bool) (*image.Topic, error) {
	if byID {
		t, ok := img.Topic(id)
		if !ok {
			return nil, model.ErrUnknownTopicID
		}
		return h.offsetsOf(ctx, from, op, t)
	}
	if !h.mayTopic(ctx, from, op, name) {
		return nil, model.ErrTopicAuthorization
	}
	t, ok := img.TopicByName(name)
	if !ok {
		return nil, model.ErrUnknownTopicOrPartition
	}
	return t, nil
}

// offsetsOf says whether the client may do this with the offsets of a topic.
func (h *Handler) offsetsOf(ctx context.Context, from caller, op security.Operation, t *image.Topic) (*image.Topic, error) {
	if !h.mayTopic(ctx, from, op, t.Name) {
		return nil, model.ErrTopicAuthorization
	}
	return t, nil
}

// literalDuration keeps what is longer than a duration can be the longest.
func literalDuration(ms int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(ms, most)) * time.Millisecond
}
