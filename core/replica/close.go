package replica

import (
	"context"
	"errors"
	"slices"

	"github.com/brokerd/brokerd/sdk/storage"
)

// unclosed is the logs of one store that were not closed cleanly.
type unclosed struct {
	logs int
	err  error // the first reason
}

func (u *unclosed) add(logs int, err error) {
	u.logs += logs
	if u.err == nil {
		u.err = err
	}
}

// callClose closes logs. When the broker stops, those whose handles ended with
// their store's process are opened once more, since only a log that was closed
// cleanly need not be looked through at the next start.
func (s *Shard) callClose(d *Directory, logs []*replica) func(context.Context) {
	handles := make([]storage.Handle, len(logs))
	specs := make([]storage.OpenSpec, len(logs))
	for i, r := range logs {
		handles[i] = r.handle
		specs[i] = storage.OpenSpec{ID: r.logID(), Label: r.topic, LeaderEpoch: r.epoch, Options: r.log}
	}
	stopping := s.stopping
	return func(ctx context.Context) {
		left, gone := s.closeHandles(ctx, d, handles)
		if stopping && len(gone) > 0 {
			again := make([]storage.OpenSpec, len(gone))
			for i, at := range gone {
				again[i] = specs[at]
			}
			more := s.closeAnew(ctx, d, again)
			left.add(more.logs, more.err)
		}
		switch {
		case left.logs == 0:
		case stopping:
			s.host.unclosed(d, left)
		default:
			s.log.Warn("close logs", "directory", d.Name, "logs", left.logs, "err", left.err)
		}
		for i, r := range logs {
			s.loop.Complete(Input{kind: inputClosed, replica: r, rare: &rare{handle: handles[i]}})
		}
	}
}

// closeHandles says how many could not be closed, and which had ended before.
func (s *Shard) closeHandles(ctx context.Context, d *Directory, handles []storage.Handle) (left unclosed, gone []int) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
	defer cancel()
	for i, err := range d.Store.Close(ctx, handles) {
		switch {
		case err == nil || i >= len(handles):
		case errors.Is(err, storage.ErrGone):
			gone = append(gone, i)
		default:
			left.add(1, err)
		}
	}
	return left, gone
}

// closeAnew opens logs and closes them, for no longer than half of the time that
// the broker has to stop.
func (s *Shard) closeAnew(ctx context.Context, d *Directory, specs []storage.OpenSpec) (left unclosed) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ShutdownTimeout/2)
	defer cancel()
	for chunk := range slices.Chunk(specs, openBatch) {
		if err := ctx.Err(); err != nil {
			left.add(len(chunk), err)
			continue
		}
		var handles []storage.Handle
		for _, res := range d.Store.Open(ctx, chunk) {
			if res.Err != nil {
				left.add(1, res.Err)
				continue
			}
			handles = append(handles, res.Handle)
		}
		if len(handles) == 0 {
			continue
		}
		for _, err := range d.Store.Close(ctx, handles) {
			if err != nil {
				left.add(1, err)
			}
		}
	}
	return left
}

// unclosed implements host.
func (m *Manager) unclosed(d *Directory, left unclosed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.left[d]
	u.add(left.logs, left.err)
	m.left[d] = u
}

// tellUnclosed says, once for each store, what the next start has to look through.
func (m *Manager) tellUnclosed() {
	m.mu.Lock()
	left := m.left
	m.left = make(map[*Directory]unclosed)
	m.closedAll = len(left) == 0
	m.mu.Unlock()
	for i := range m.deps.Directories {
		d := &m.deps.Directories[i]
		if u := left[d]; u.logs > 0 {
			m.deps.Logger.Warn("logs were not closed cleanly; the next start looks through them",
				"directory", d.Name, "logs", u.logs, "err", u.err)
		}
	}
}

// ClosedAll says, after Run, whether every log was closed, so that all of it was flushed.
func (m *Manager) ClosedAll() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closedAll
}
