package plugin

import (
	"context"

	"github.com/brokerd/brokerd/sdk/storage"
)

// serveFiles begins a unit that is about the store's files.
func (l *serverLane) serveFiles(ctx context.Context, r request) {
	files := l.store.Files()
	switch {
	case files == nil && r.kind != kindReturn:
		l.answer(answer{head: r.answerHead(), err: storage.Errorf(storage.ErrInvalid, "the store lends no files")})
		return
	case r.kind == kindReturn:
		if files != nil {
			files.Return(r.leases)
		}
		l.unanswered()
		return
	}
	l.wg.Go(func() {
		ctx, cancel := withUnitTimeout(ctx, r.head)
		defer cancel()
		a := answer{head: r.answerHead()}
		switch r.kind {
		case kindGrant:
			a.grant, a.err = files.Grant(ctx, r.handle, r.grant.epoch, r.grant.require)
			a.file = a.grant.File
		case kindEnd:
			a.err = files.End(ctx, r.handle, r.end)
		case kindLease:
			a.lease, a.err = files.Lease(ctx, r.handle, r.lease)
			a.file = a.lease.File
		case kindLock:
			a.file, a.err = files.Lock()
		}
		l.answer(a)
	})
}

// unanswered makes room for another unit after one that has no answer.
func (l *serverLane) unanswered() {
	l.mu.Lock()
	l.taken--
	l.mu.Unlock()
	nudge(l.room)
}
