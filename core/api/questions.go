package api

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupsMax bounds the groups that one request may name: each of them is a question of
// its own, while its name is a few bytes. More closes the connection.
const groupsMax = 100_000

// groupsNamed counts the groups that a request names.
func groupsNamed(req kmsg.Request) int {
	switch req := req.(type) {
	case *kmsg.OffsetFetchRequest:
		return len(req.Groups)
	case *kmsg.FindCoordinatorRequest:
		return len(req.CoordinatorKeys)
	case *kmsg.DescribeGroupsRequest:
		return len(req.Groups)
	case *kmsg.DeleteGroupsRequest:
		return len(req.Groups)
	case *kmsg.ConsumerGroupDescribeRequest:
		return len(req.Groups)
	}
	return 0
}

// beginGroups posts the questions of the group APIs to the coordinator, in the order
// in which the connection brought them; the Answer only waits. It is nil for every
// other API.
func (h *Handler) beginGroups(ctx context.Context, from caller, req kmsg.Request) wire.Answer {
	switch req := req.(type) {
	case *kmsg.OffsetFetchRequest:
		return h.beginOffsetFetch(ctx, from, req)
	case *kmsg.JoinGroupRequest:
		return h.beginJoinGroup(ctx, from, req)
	case *kmsg.HeartbeatRequest:
		return h.beginHeartbeat(ctx, from, req)
	case *kmsg.LeaveGroupRequest:
		return h.beginLeaveGroup(ctx, from, req)
	case *kmsg.SyncGroupRequest:
		return h.beginSyncGroup(ctx, from, req)
	case *kmsg.DescribeGroupsRequest:
		return h.beginDescribeGroups(ctx, from, req)
	case *kmsg.ListGroupsRequest:
		return h.beginListGroups(ctx, from, req)
	case *kmsg.DeleteGroupsRequest:
		return h.beginDeleteGroups(ctx, from, req)
	case *kmsg.OffsetDeleteRequest:
		return h.beginOffsetDelete(ctx, from, req)
	case *kmsg.ConsumerGroupDescribeRequest:
		return h.beginConsumerGroupDescribe(ctx, from, req)
	}
	return nil
}

// answerNow is an Answer that waits for nothing.
func answerNow(r kmsg.Response) wire.Answer {
	return func(context.Context) wire.Reply { return respond(r) }
}

// givenUp is the reply to a request whose connection, or broker, is going away.
func givenUp(ctx context.Context, what string) wire.Reply {
	return wire.Reply{Close: true, Reason: fmt.Sprintf("%s was given up: %v", what, context.Cause(ctx))}
}

// await asks one question at once, and answers with what respond makes of the answer.
// An answer that nobody waits for any more is dropped.
func await[T any](what string, post func(done func(T)), respond func(context.Context, T) kmsg.Response) wire.Answer {
	answer := make(chan T, 1) // done never blocks
	post(func(a T) { answer <- a })
	return func(ctx context.Context) wire.Reply {
		select {
		case a := <-answer:
			return wire.Reply{Response: respond(ctx, a)}
		case <-ctx.Done():
			return givenUp(ctx, what)
		}
	}
}

// gathered are the answers to several questions, in the order of asking.
type gathered[T any] struct {
	answers []T
	pending atomic.Int64 // questions without an answer, and one while they are asked
	done    chan struct{}
}

// gather makes room for n answers. Ask and then seal are called by one goroutine.
func gather[T any](n int) *gathered[T] {
	g := &gathered[T]{answers: make([]T, n), done: make(chan struct{})}
	g.pending.Store(1)
	return g
}

// ask posts the question whose answer is answers[i].
func (g *gathered[T]) ask(i int, post func(done func(T))) {
	g.pending.Add(1)
	post(func(a T) {
		g.answers[i] = a
		g.finish()
	})
}

func (g *gathered[T]) finish() {
	if g.pending.Add(-1) == 0 {
		close(g.done)
	}
}

// seal says that all was asked, and gives the Answer that waits for it.
func (g *gathered[T]) seal(what string, respond func(context.Context, []T) kmsg.Response) wire.Answer {
	g.finish()
	return func(ctx context.Context) wire.Reply {
		select {
		case <-g.done:
			return wire.Reply{Response: respond(ctx, g.answers)}
		case <-ctx.Done():
			return givenUp(ctx, what)
		}
	}
}

func (h *Handler) mayGroup(ctx context.Context, from caller, op security.Operation, group string) bool {
	return h.may(ctx, from, op, security.Group, group)
}

// mayUseGroup says why a client may not be a member of a group, or nil.
func (h *Handler) mayUseGroup(ctx context.Context, from caller, group string) error {
	if !h.mayGroup(ctx, from, security.OpRead, group) {
		return model.ErrGroupAuthorization
	}
	if group == "" {
		return model.ErrInvalidGroupID
	}
	return nil
}

// groupErr is an error of the coordinator as clients of groups know it: those of a
// write to the offsets topic, and the end of a wait, ask them to look for the
// coordinator again.
func groupErr(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, model.ErrNotEnoughReplicas), errors.Is(err, model.ErrNotEnoughReplicasAfter), errors.Is(err, model.ErrRequestTimedOut),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return model.ErrCoordinatorNotAvailable
	case errors.Is(err, model.ErrNotLeaderOrFollower), errors.Is(err, model.ErrStorage):
		return model.ErrNotCoordinator
	}
	return err
}

// groupCode is the code of a coordinator's error. What a client asked to be written and
// no batch can hold is UNKNOWN_SERVER_ERROR, as in Kafka, yet no fault of ours: the
// coordinator logs it, now and then.
func (h *Handler) groupCode(err error) wire.Code {
	if errors.Is(err, model.ErrMessageTooLarge) || errors.Is(err, model.ErrRecordListTooLarge) {
		return wire.CodeUnknown
	}
	return h.code(groupErr(err))
}

func groupOperationsAll() []security.Operation {
	return []security.Operation{security.OpRead, security.OpDelete, security.OpDescribe, security.OpDescribeConfigs, security.OpAlterConfigs}
}

// groupOperations is a bit for each operation that the client may do. (KIP-430)
func (h *Handler) groupOperations(ctx context.Context, from caller, group string) int32 {
	var bits int32
	for _, op := range groupOperationsAll() {
		if h.mayGroup(ctx, from, op, group) {
			bits |= 1 << op
		}
	}
	return bits
}

// text is a field that may be null; null is "" to the coordinator.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// orNull is the reverse.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
