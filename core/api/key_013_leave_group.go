package api

// LeaveGroup (13), versions 0 to 5; several members from version 3. (KIP-345)

import (
	"context"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// manyLeaveVersion is the first that names several members.
const manyLeaveVersion = 3

func (h *Handler) beginLeaveGroup(ctx context.Context, from caller, req *kmsg.LeaveGroupRequest) wire.Answer {
	if err := h.mayUseGroup(ctx, from, req.Group); err != nil {
		return answerNow(h.left(req, model.LeftGroup{Err: err}))
	}
	q := model.LeaveGroup{Group: req.Group}
	if req.Version < manyLeaveVersion {
		q.Members = []model.LeavingMember{{MemberID: req.MemberID}}
	}
	for _, m := range req.Members {
		q.Members = append(q.Members, model.LeavingMember{MemberID: m.MemberID, InstanceID: text(m.InstanceID), Reason: text(m.Reason)})
	}
	return await("a leave",
		func(done func(model.LeftGroup)) { h.deps.Groups.Leave(ctx, q, done) },
		func(_ context.Context, a model.LeftGroup) kmsg.Response { return h.left(req, a) })
}

func (h *Handler) left(req *kmsg.LeaveGroupRequest, a model.LeftGroup) *kmsg.LeaveGroupResponse {
	resp := kmsg.NewPtrLeaveGroupResponse()
	resp.ErrorCode = h.groupCode(a.Err)
	if a.Err != nil {
		return resp
	}
	if req.Version < manyLeaveVersion {
		resp.ErrorCode = h.groupCode(a.Members[0])
		return resp
	}
	resp.Members = make([]kmsg.LeaveGroupResponseMember, len(req.Members))
	for i, m := range req.Members {
		resp.Members[i] = kmsg.LeaveGroupResponseMember{MemberID: m.MemberID, InstanceID: m.InstanceID, ErrorCode: h.groupCode(a.Members[i])}
	}
	return resp
}
