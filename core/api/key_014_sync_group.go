package api

// SyncGroup (14), versions 0 to 5: answered when the leader's assignment is durable.

import (
	"context"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// protocolSyncVersion is the first that says which protocol the member believes in.
// (KIP-559)
const protocolSyncVersion = 5

func (h *Handler) beginSyncGroup(ctx context.Context, from caller, req *kmsg.SyncGroupRequest) wire.Answer {
	q := model.SyncGroup{
		Group: req.Group, Generation: req.Generation, MemberID: req.MemberID, InstanceID: text(req.InstanceID),
		ProtocolType: text(req.ProtocolType), Protocol: text(req.Protocol),
	}
	if req.Version >= protocolSyncVersion && (q.ProtocolType == "" || q.Protocol == "") {
		return answerNow(h.synced(model.SyncedGroup{Err: model.ErrInconsistentProtocol}))
	}
	if err := h.mayUseGroup(ctx, from, req.Group); err != nil {
		return answerNow(h.synced(model.SyncedGroup{Err: err}))
	}
	if len(req.GroupAssignment) > 0 {
		q.Assignments = make([]model.MemberAssignment, len(req.GroupAssignment))
	}
	for i, a := range req.GroupAssignment {
		q.Assignments[i] = model.MemberAssignment{MemberID: a.MemberID, Assignment: a.MemberAssignment}
	}
	return await("a sync",
		func(done func(model.SyncedGroup)) { h.deps.Groups.Sync(ctx, q, done) },
		func(_ context.Context, a model.SyncedGroup) kmsg.Response { return h.synced(a) })
}

func (h *Handler) synced(a model.SyncedGroup) *kmsg.SyncGroupResponse {
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.ErrorCode = h.groupCode(a.Err)
	if a.Err == nil {
		resp.ProtocolType, resp.Protocol, resp.MemberAssignment = &a.ProtocolType, &a.Protocol, a.Assignment
	}
	return resp
}
