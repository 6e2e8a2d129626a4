package api

// JoinGroup (11), versions 0 to 9: answered when the group has its next generation.

import (
	"context"
	"errors"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// rebalanceTimeoutJoinVersion is the first with a timeout of its own for
	// rebalances. (KIP-62)
	rebalanceTimeoutJoinVersion = 1
	// knownIDJoinVersion is the first whose members get an ID before they join.
	// (KIP-394)
	knownIDJoinVersion = 4
	// nullProtocolJoinVersion is the first in which a protocol may be null.
	nullProtocolJoinVersion = 7
	// skipJoinVersion is the first that can tell a leader to keep its assignment.
	// (KIP-814)
	skipJoinVersion = 9
)

func (h *Handler) beginJoinGroup(ctx context.Context, from caller, req *kmsg.JoinGroupRequest) wire.Answer {
	if err := h.mayUseGroup(ctx, from, req.Group); err != nil {
		return answerNow(h.joined(req, model.JoinedGroup{Generation: -1, Err: err}))
	}
	q := model.JoinGroup{
		Group: req.Group, MemberID: req.MemberID, InstanceID: text(req.InstanceID),
		ClientID: from.ClientID, ClientHost: "/" + from.Host, // as Kafka shows it
		ProtocolType: req.ProtocolType, Protocols: make([]model.GroupProtocol, len(req.Protocols)),
		SessionTimeout:   time.Duration(req.SessionTimeoutMillis) * time.Millisecond,
		RebalanceTimeout: time.Duration(req.RebalanceTimeoutMillis) * time.Millisecond,
		AsksForID:        req.Version >= knownIDJoinVersion && text(req.InstanceID) == "",
		SkipsAssignment:  req.Version >= skipJoinVersion,
		Reason:           text(req.Reason),
	}
	if req.Version < rebalanceTimeoutJoinVersion || req.RebalanceTimeoutMillis < 0 {
		q.RebalanceTimeout = q.SessionTimeout
	}
	for i, p := range req.Protocols {
		q.Protocols[i] = model.GroupProtocol{Name: p.Name, Metadata: p.Metadata}
	}
	return await("a join",
		func(done func(model.JoinedGroup)) { h.deps.Groups.Join(ctx, q, done) },
		func(_ context.Context, a model.JoinedGroup) kmsg.Response { return h.joined(req, a) })
}

func (h *Handler) joined(req *kmsg.JoinGroupRequest, a model.JoinedGroup) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.MemberID = req.MemberID
	if req.Version < nullProtocolJoinVersion {
		resp.Protocol = new(string)
	}
	if a.Err != nil {
		resp.Generation, resp.ErrorCode = -1, h.groupCode(a.Err)
		if errors.Is(a.Err, model.ErrMemberIDRequired) {
			resp.MemberID = a.MemberID
		}
		return resp
	}
	resp.Generation, resp.ProtocolType, resp.Protocol = a.Generation, &a.ProtocolType, &a.Protocol
	resp.LeaderID, resp.MemberID, resp.SkipAssignment = a.Leader, a.MemberID, a.SkipAssignment
	if len(a.Members) > 0 {
		resp.Members = make([]kmsg.JoinGroupResponseMember, len(a.Members))
	}
	for i, m := range a.Members {
		resp.Members[i] = kmsg.JoinGroupResponseMember{MemberID: m.MemberID, InstanceID: orNull(m.InstanceID), ProtocolMetadata: m.Metadata}
	}
	return resp
}
