package api

// Heartbeat (12), versions 0 to 4.

import (
	"context"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) beginHeartbeat(ctx context.Context, from caller, req *kmsg.HeartbeatRequest) wire.Answer {
	if err := h.mayUseGroup(ctx, from, req.Group); err != nil {
		return answerNow(h.beaten(err))
	}
	q := model.GroupHeartbeat{Group: req.Group, Generation: req.Generation, MemberID: req.MemberID, InstanceID: text(req.InstanceID)}
	return await("a heartbeat",
		func(done func(error)) { h.deps.Groups.Heartbeat(ctx, q, done) },
		func(_ context.Context, err error) kmsg.Response { return h.beaten(err) })
}

func (h *Handler) beaten(err error) *kmsg.HeartbeatResponse {
	resp := kmsg.NewPtrHeartbeatResponse()
	resp.ErrorCode = h.groupCode(err)
	return resp
}
