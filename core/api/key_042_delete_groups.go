package api

// DeleteGroups (42), versions 0 to 3. A group named twice is answered once, as in
// Kafka.

import (
	"context"
	"errors"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (h *Handler) beginDeleteGroups(ctx context.Context, from caller, req *kmsg.DeleteGroupsRequest) wire.Answer {
	groups := once(req.Groups)
	g := gather[error](len(groups))
	for i, group := range groups {
		if !h.mayGroup(ctx, from, security.OpDelete, group) {
			g.answers[i] = model.ErrGroupAuthorization
			continue
		}
		g.ask(i, func(done func(error)) { h.deps.Groups.Delete(ctx, group, done) })
	}
	return g.seal("a deletion of groups", func(_ context.Context, errs []error) kmsg.Response {
		resp := kmsg.NewPtrDeleteGroupsResponse()
		resp.Groups = make([]kmsg.DeleteGroupsResponseGroup, len(errs))
		for i, err := range errs {
			resp.Groups[i] = kmsg.DeleteGroupsResponseGroup{Group: groups[i], ErrorCode: h.groupCode(err), ErrorMessage: h.message(groupErr(err))}
			if errors.Is(err, model.ErrGroupIDNotFound) {
				resp.Groups[i].ErrorMessage = groupNotFound(groups[i])
			}
		}
		return resp
	})
}

// once are names without repetitions, in the order of their first mention.
func once(names []string) []string {
	seen := make(map[string]bool, len(names))
	out := make([]string, 0, len(names))
	for _, n := range names {
		if !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}
