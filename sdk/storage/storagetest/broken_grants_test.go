package storagetest_test

import (
	"bytes"
	"context"
	"io"
	"math"
	"os"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// lent is what a broken store knows of the end of a log that it has lent.
type lent struct {
	storage.Grant
	path string
	told int64 // up to where the host has told
}

// tail is what lies in the file behind what was told.
func (l *lent) tail() []byte {
	f, err := os.Open(l.path)
	if err != nil {
		return nil // it is gone
	}
	defer f.Close()
	rest, err := io.ReadAll(io.NewSectionReader(f, l.told, math.MaxInt64-l.told))
	if err != nil {
		panic(err)
	}
	return rest
}

// put writes to the file.
func (l *lent) put(data []byte, at int64) {
	f, err := os.OpenFile(l.path, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if _, err := f.WriteAt(data, at); err != nil {
		panic(err)
	}
}

// lender notes the latest grant of each log, over all lives of the store.
type lender map[storage.LogID]*lent

// of returns what is lent of the log of the handle.
func (l lender) of(h *hooked, id storage.Handle) *lent {
	h.mu.Lock()
	defer h.mu.Unlock()
	return l[h.logs[id]]
}

// watching makes a wrap of a function that replaces methods of a store whose grants
// are noted.
func watching(change func(h *hooked, l lender)) func(storage.Store) storage.Store {
	l := lender{}
	return breaking(func(h *hooked) {
		grant := h.grant
		h.grant = func(ctx context.Context, id storage.Handle, epoch int32, require storage.Survives) (storage.Grant, error) {
			g, err := grant(ctx, id, epoch, require)
			if err == nil {
				h.mu.Lock()
				l[h.logs[id]] = &lent{Grant: g, path: g.File.Name(), told: g.Pos}
				h.mu.Unlock()
			}
			return g, err
		}
		h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
			h.tracker.Append(ctx, req, func(result storage.AppendResult, err error) {
				if g := l.of(h, req.Handle); g != nil && err == nil && req.Granted == g.ID {
					g.told = req.Pos + req.Bytes()
				}
				done(result, err)
			})
		}
		change(h, l)
	})
}

// answering makes a wrap of a function that changes answers to what is told.
func answering(change func(h *hooked, req storage.AppendRequest, result *storage.AppendResult, err *error)) func(storage.Store) storage.Store {
	return breaking(func(h *hooked) {
		h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
			h.tracker.Append(ctx, req, func(result storage.AppendResult, err error) {
				if req.Granted != 0 {
					change(h, req, &result, &err)
				}
				done(result, err)
			})
		}
	})
}

// believe takes whatever is told.
func believe(_ *hooked, req storage.AppendRequest, result *storage.AppendResult, err *error) {
	*result, *err = storage.AppendResult{LEO: endOf(req), Survives: storage.SurvivesProcess}, nil
}

// endOf is where what the request carries ends.
func endOf(req storage.AppendRequest) int64 {
	if len(req.Batches) == 0 {
		return req.BaseOffset
	}
	return req.Batches[len(req.Batches)-1].LastOffset + 1
}

func brokenGrants() []broken {
	over := map[storage.GrantID]bool{}
	return []broken{
		{name: "forgets what it was told", caughtBy: "grant", files: true, wrap: breaking(func(h *hooked) {
			h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
				if req.Granted != 0 {
					done(storage.AppendResult{LEO: endOf(req), Survives: storage.SurvivesProcess}, nil)
					return
				}
				h.tracker.Append(ctx, req, done)
			}
		})},
		{name: "gives one grant again and again", caughtBy: "grant", files: true, wrap: breaking(func(h *hooked) {
			grant := h.grant
			h.grant = func(ctx context.Context, id storage.Handle, epoch int32, require storage.Survives) (storage.Grant, error) {
				g, err := grant(ctx, id, epoch, require)
				g.ID = 1
				return g, err
			}
		})},
		{name: "names a limit that it does not keep", caughtBy: "grant-limits", files: true, wrap: breaking(func(h *hooked) {
			grant := h.grant
			h.grant = func(ctx context.Context, id storage.Handle, epoch int32, require storage.Survives) (storage.Grant, error) {
				g, err := grant(ctx, id, epoch, require)
				g.Limit += 100
				return g, err
			}
		})},
		{name: "allows gaps and takes none", caughtBy: "grant-gaps", files: true, wrap: answering(
			func(_ *hooked, req storage.AppendRequest, result *storage.AppendResult, err *error) {
				if req.Batches[0].BaseOffset > req.BaseOffset {
					*result, *err = storage.AppendResult{}, storage.Errorf(storage.ErrInvalid, "a gap")
				}
			})},
		{name: "does not sync what it was told", caughtBy: "grant-require", files: true, wrap: answering(
			func(_ *hooked, _ storage.AppendRequest, result *storage.AppendResult, _ *error) {
				result.Survives, result.Durable = storage.SurvivesProcess, 0
			})},
		{name: "refuses what is on its way when a grant is over", caughtBy: "grant-pipeline", files: true, wrap: answering(
			func(_ *hooked, req storage.AppendRequest, result *storage.AppendResult, err *error) {
				if over[req.Granted] {
					*result, *err = storage.AppendResult{}, storage.Errorf(storage.ErrInvalid, "the grant is over")
				}
				over[req.Granted] = result.GrantOver
			})},
		{name: "lends an end that has moved", caughtBy: "grant-after-appends", files: true, wrap: breaking(func(h *hooked) {
			grant, before := h.grant, map[storage.Handle]int64{}
			h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
				before[req.Handle] = req.BaseOffset
				h.tracker.Append(ctx, req, done)
			}
			h.grant = func(ctx context.Context, id storage.Handle, epoch int32, require storage.Survives) (storage.Grant, error) {
				g, err := grant(ctx, id, epoch, require)
				g.LEO = before[id]
				return g, err
			}
		})},
		{name: "stores twice what is appended again", caughtBy: "grant-repeat", files: true, wrap: breaking(func(h *hooked) {
			h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
				if end := h.end(req.Handle); req.Granted == 0 && req.BaseOffset < end {
					req = restamped(req, end)
				}
				h.tracker.Append(ctx, req, done)
			}
		})},
		{name: "takes grants back to flush", caughtBy: "grant-outlasts", files: true, wrap: watching(func(h *hooked, l lender) {
			h.flush = func(ctx context.Context, handles []storage.Handle) []storage.FlushResult {
				for _, id := range handles {
					if g := l.of(h, id); g != nil {
						_ = h.endGrant(ctx, id, g.ID)
					}
				}
				return h.tracker.Flush(ctx, handles)
			}
		})},
		{name: "has one grant for all logs", caughtBy: "grant-logs", files: true, wrap: breaking(func(h *hooked) {
			grant, last, holder := h.grant, storage.GrantID(0), storage.Handle(0)
			h.grant = func(ctx context.Context, id storage.Handle, epoch int32, require storage.Survives) (storage.Grant, error) {
				h.mu.Lock()
				id0, last0 := holder, last
				h.mu.Unlock()
				if id0 != 0 {
					_ = h.endGrant(ctx, id0, last0)
				}
				g, err := grant(ctx, id, epoch, require)
				h.mu.Lock()
				holder, last = id, g.ID
				h.mu.Unlock()
				return g, err
			}
		})},
		{name: "forgets the options of a log that is granted", caughtBy: "grant-retain", files: true, wrap: breaking(func(h *hooked) {
			h.open = func(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult {
				for i := range specs {
					specs[i].Options = storage.LogOptions{}
				}
				return h.tracker.Open(ctx, specs)
			}
		})},
		{name: "leaves what was truncated in the file", caughtBy: "grant-truncate", files: true, wrap: watching(keepTruncated)},
		{name: "forgets what it was not told", caughtBy: "grant-untold", files: true, wrap: watching(forgetUntold)},
		{name: "counts a torn batch", caughtBy: "grant-torn", files: true, wrap: watching(func(h *hooked, l lender) {
			open := h.open
			h.open = func(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult {
				torn := false
				if g := l[specs[0].ID]; g != nil {
					rest := bytes.TrimRight(g.tail(), "\x00")
					for err := error(nil); err == nil && len(rest) > 0; {
						_, _, rest, err = recordbatch.Next(rest)
						torn = err != nil
					}
				}
				results := open(ctx, specs)
				if torn {
					results[0].LEO++
				}
				return results
			}
		})},
	}
}

// forgetUntold drops what was written and not told, as a store does that looks at
// its own memory alone.
func forgetUntold(h *hooked, l lender) {
	open := h.open
	h.open = func(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult {
		for _, spec := range specs {
			if g := l[spec.ID]; g != nil && len(g.tail()) > 0 {
				_ = os.Truncate(g.path, g.told)
			}
		}
		return open(ctx, specs)
	}
}

// keepTruncated leaves the bytes of what is truncated in the file.
func keepTruncated(h *hooked, l lender) {
	h.truncate = func(ctx context.Context, id storage.Handle, epoch int32, to int64) (int64, error) {
		g := l.of(h, id)
		if g == nil {
			return h.tracker.Truncate(ctx, id, epoch, to)
		}
		before, err := os.ReadFile(g.path)
		if err != nil {
			return h.tracker.Truncate(ctx, id, epoch, to)
		}
		leo, err := h.tracker.Truncate(ctx, id, epoch, to)
		if info, statErr := os.Stat(g.path); statErr == nil && info.Size() < int64(len(before)) {
			g.put(before[info.Size():], info.Size())
		}
		return leo, err
	}
}

func brokenGrantEnds() []broken {
	type bad struct {
		data []byte
		req  storage.AppendRequest
	}
	damaged := map[storage.Handle]bad{}
	return []broken{
		{name: "takes what is told under a grant that is over", caughtBy: "grant-ended", files: true, wrap: answering(believe)},
		{name: "takes what is told under a grant that was given back", caughtBy: "grant-end", files: true, wrap: answering(believe)},
		{name: "takes any grant back", caughtBy: "grant-end", files: true, wrap: watching(func(h *hooked, l lender) {
			end := h.endGrant
			h.endGrant = func(ctx context.Context, id storage.Handle, _ storage.GrantID) error {
				return end(ctx, id, l.of(h, id).ID)
			}
		})},
		{name: "lends to any leader", caughtBy: "grant-fenced", files: true, wrap: breaking(func(h *hooked) {
			grant := h.grant
			h.grant = func(ctx context.Context, id storage.Handle, epoch int32, require storage.Survives) (storage.Grant, error) {
				return grant(ctx, id, max(epoch, 5), require)
			}
		})},
		{name: "believes any position", caughtBy: "grant-lies", files: true, wrap: watching(func(h *hooked, l lender) {
			inner := h.append
			h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
				if g := l.of(h, req.Handle); g != nil && req.Granted == g.ID {
					req.Pos = g.told
				}
				inner(ctx, req, done)
			}
		})},
		{name: "reads what is damaged", caughtBy: "grant-damaged", files: true, wrap: watching(func(h *hooked, l lender) {
			inner := h.append
			h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
				inner(ctx, req, func(result storage.AppendResult, err error) {
					if g := l.of(h, req.Handle); req.Granted != 0 && err != nil {
						damaged[req.Handle] = bad{g.tail(), req}
						result, err = storage.AppendResult{LEO: endOf(req), Survives: storage.SurvivesProcess}, nil
					}
					done(result, err)
				})
			}
			h.read = func(ctx context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
				if b, is := damaged[req.Handle]; is && req.Offset == b.req.BaseOffset {
					return storage.ReadResult{Data: b.data, Next: endOf(b.req)}, nil
				}
				return h.tracker.Read(ctx, req)
			}
		})},
		{name: "leaves in the file what a failed write left", caughtBy: "grant-failed-write", files: true, wrap: watching(func(h *hooked, l lender) {
			inner := h.append
			h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
				g := l.of(h, req.Handle)
				var left []byte
				if g != nil && req.Granted == 0 {
					left = g.tail()
				}
				inner(ctx, req, done)
				if n := req.Bytes(); int64(len(left)) > n {
					g.put(left[n:], g.told+n)
				}
			}
		})},
		{name: "forgets on a kill what it was not told", caughtBy: "grant-kill", files: true, wrap: watching(forgetUntold)},
		{name: "leaves what was truncated for the next life", caughtBy: "grant-kill-truncate", files: true, wrap: watching(keepTruncated)},
		{name: "says intact when what was not told is lost", caughtBy: "grant-power", files: true, wrap: breaking(func(h *hooked) {
			h.open = func(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult {
				results := h.tracker.Open(ctx, specs)
				for i := range results {
					results[i].Verdict = storage.VerdictIntact
				}
				return results
			}
		})},
	}
}
