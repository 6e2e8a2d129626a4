package storagetest_test

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

func brokenChanges() []broken {
	return []broken{
		{name: "forgets a trim after a kill", caughtBy: "trim-kill", wrap: breaking(func(h *hooked) {
			starts := map[storage.LogID]int64{}
			h.trim = func(_ context.Context, id storage.Handle, to int64) (int64, error) {
				h.mu.Lock()
				defer h.mu.Unlock()
				starts[h.logs[id]] = max(to, starts[h.logs[id]])
				return starts[h.logs[id]], nil
			}
			h.read = func(ctx context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
				if req.Offset < starts[h.logs[req.Handle]] {
					return storage.ReadResult{}, storage.Errorf(storage.ErrInvalid, "trimmed")
				}
				return h.tracker.Read(ctx, req)
			}
		})},
		{name: "trims no further than its end", caughtBy: "trim-reset", wrap: breaking(func(h *hooked) {
			h.trim = func(ctx context.Context, id storage.Handle, to int64) (int64, error) {
				return h.tracker.Trim(ctx, id, min(to, h.end(id)))
			}
		})},
		{name: "truncates in memory only", caughtBy: "truncate-kill",
			wrap: breaking(rememberTruncated),
			killed: func(disk *memstore.Disk, stores []storage.Store) {
				for _, store := range stores {
					for id, req := range store.(*hooked).ghosts {
						reopened(disk, id, func(store storage.Store, r storage.OpenResult) {
							req.Handle, req.LeaderEpoch = r.Handle, 1<<20
							store.Append(context.Background(), req, func(storage.AppendResult, error) {})
						})
					}
				}
			}},
		{name: "keeps the batch that is cut into", caughtBy: "truncate", wrap: breaking(func(h *hooked) {
			h.truncate = func(ctx context.Context, id storage.Handle, epoch int32, to int64) (int64, error) {
				infos, err := h.tracker.Scan(ctx, storage.ScanRequest{Handle: id, Offset: to, UpTo: math.MaxInt64, MaxBatches: 1})
				if err == nil && len(infos) == 1 && infos[0].BaseOffset < to {
					to = infos[0].LastOffset + 1
				}
				return h.tracker.Truncate(ctx, id, epoch, to)
			}
		})},
		{name: "retains beyond the ceiling", caughtBy: "retain-ceiling", wrap: breaking(func(h *hooked) {
			h.retain = func(ctx context.Context, id storage.Handle, p storage.RetainPolicy) (storage.RetainResult, error) {
				p.Ceiling = math.MaxInt64
				return h.tracker.Retain(ctx, id, p)
			}
		})},
		{name: "retains by age twice too long", caughtBy: "retain-age", wrap: breaking(func(h *hooked) {
			h.retain = func(ctx context.Context, id storage.Handle, p storage.RetainPolicy) (storage.RetainResult, error) {
				p.MaxAge *= 3
				return h.tracker.Retain(ctx, id, p)
			}
		})},
		{name: "retains less than it may", caughtBy: "retain-size", wrap: breaking(func(h *hooked) {
			h.retain = func(ctx context.Context, id storage.Handle, p storage.RetainPolicy) (storage.RetainResult, error) {
				p.MaxBytes /= 2
				return h.tracker.Retain(ctx, id, p)
			}
		})},
		{name: "takes no limit for the limit zero", caughtBy: "retain-stops", wrap: breaking(func(h *hooked) {
			h.retain = func(ctx context.Context, id storage.Handle, p storage.RetainPolicy) (storage.RetainResult, error) {
				p.MaxBytes = max(p.MaxBytes, 0)
				return h.tracker.Retain(ctx, id, p)
			}
		})},
		{name: "holds records from the future for ever", caughtBy: "retain-future",
			opt: memstore.Options{Now: func() time.Time { return time.Now().AddDate(50, 0, 0) }}},
		{name: "needs two passes behind a trim", caughtBy: "retain-once", wrap: breaking(func(h *hooked) {
			trimmed := false
			h.trim = func(ctx context.Context, id storage.Handle, to int64) (int64, error) {
				trimmed = true
				return h.tracker.Trim(ctx, id, to)
			}
			h.retain = func(ctx context.Context, id storage.Handle, p storage.RetainPolicy) (storage.RetainResult, error) {
				if trimmed {
					p.MaxAge, p.MaxBytes, trimmed = 0, -1, false
				}
				return h.tracker.Retain(ctx, id, p)
			}
		})},
		{name: "ignores the options of an opening", caughtBy: "retain-segment-age", wrap: breaking(func(h *hooked) {
			h.open = func(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult {
				for i := range specs {
					specs[i].Options = storage.LogOptions{}
				}
				return h.tracker.Open(ctx, specs)
			}
		})},
		{name: "replaces half, and the rest later", caughtBy: "replace-kill", wrap: breaking(halveReplace)},
		{name: "lets the end fall", caughtBy: "replace-end", wrap: breaking(func(h *hooked) {
			h.replace = func(ctx context.Context, req storage.ReplaceRequest) error {
				if req.To == h.end(req.Handle) && len(req.Batches) == 0 {
					_, err := h.tracker.Truncate(ctx, req.Handle, 1, req.From)
					return err
				}
				return h.tracker.Replace(ctx, req)
			}
		})},
		{name: "replaces what lies half in the range", caughtBy: "replace-invalid", wrap: breaking(func(h *hooked) {
			h.replace = func(ctx context.Context, req storage.ReplaceRequest) error {
				infos, err := h.tracker.Scan(ctx, storage.ScanRequest{Handle: req.Handle, Offset: max(req.From, 0), UpTo: math.MaxInt64, MaxBatches: 1})
				if err == nil && len(infos) == 1 && infos[0].BaseOffset < req.From {
					req.From = infos[0].BaseOffset
				}
				return h.tracker.Replace(ctx, req)
			}
		})},
	}
}

// rememberTruncated keeps what a truncation drops, until the next append.
func rememberTruncated(h *hooked) {
	h.truncate = func(ctx context.Context, id storage.Handle, epoch int32, to int64) (int64, error) {
		end := h.end(id)
		infos, err := h.tracker.Scan(ctx, storage.ScanRequest{Handle: id, Offset: min(to, end), UpTo: math.MaxInt64})
		if err == nil && len(infos) > 0 {
			data, err := h.tracker.Read(ctx, storage.ReadRequest{Handle: id, Offset: infos[0].BaseOffset, UpTo: math.MaxInt64, MaxBytes: math.MaxInt})
			if err != nil {
				return 0, err
			}
			h.mu.Lock()
			h.ghosts[h.logs[id]] = storage.AppendRequest{BaseOffset: infos[0].BaseOffset, Batches: infos, Data: [][]byte{data.Data}}
			h.mu.Unlock()
		}
		return h.tracker.Truncate(ctx, id, epoch, to)
	}
}

// halveReplace replaces the first half of a range, and the second when it is
// next asked for something.
func halveReplace(h *hooked) {
	var rest *storage.ReplaceRequest
	finish := func() {
		if rest != nil {
			req := *rest
			rest = nil
			if err := h.tracker.Replace(context.Background(), req); err != nil {
				panic(err)
			}
		}
	}
	h.replace = func(ctx context.Context, req storage.ReplaceRequest) error {
		finish()
		infos, err := h.tracker.Scan(ctx, storage.ScanRequest{Handle: req.Handle, Offset: req.From, UpTo: req.To})
		if err != nil || len(infos) < 2 {
			return h.tracker.Replace(ctx, req)
		}
		first, second := req, req
		first.To = infos[len(infos)/2].BaseOffset
		second.From = first.To
		n, size := 0, 0
		for n < len(req.Batches) && req.Batches[n].BaseOffset < first.To {
			size += int(req.Batches[n].Bytes)
			n++
		}
		first.Batches, first.Data = req.Batches[:n], req.Data[:size]
		second.Batches, second.Data = req.Batches[n:], req.Data[size:]
		rest = &second
		return h.tracker.Replace(ctx, first)
	}
	h.read = func(ctx context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
		finish()
		return h.tracker.Read(ctx, req)
	}
}

func brokenPromises() []broken {
	return []broken{
		{name: "returns blobs ahead of the log", caughtBy: "blob-ahead", wrap: breaking(keepBlobs)},
		{name: "keeps blobs over a truncation", caughtBy: "blob-truncate", wrap: breaking(keepBlobs)},
		{name: "takes any name for a blob", caughtBy: "blob-limits", wrap: breaking(keepBlobs)},
		{name: "always says intact", caughtBy: "power-suffix", wrap: breaking(func(h *hooked) {
			h.open = func(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult {
				results := h.tracker.Open(ctx, specs)
				for i := range results {
					results[i].Verdict = storage.VerdictIntact
				}
				return results
			}
		})},
		{name: "gives its verdict once", caughtBy: "power-verdict", wrap: breaking(func(h *hooked) {
			h.open = func(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult {
				first := h.tracker.Open(ctx, specs)
				for _, r := range first {
					h.Close(ctx, []storage.Handle{r.Handle})
				}
				second := h.tracker.Open(ctx, specs)
				for i := range second {
					second[i].Verdict = first[i].Verdict
				}
				return second
			}
		})},
		{name: "says flushed and is not", caughtBy: "power-flush", wrap: breaking(func(h *hooked) {
			h.flush = func(_ context.Context, handles []storage.Handle) []storage.FlushResult {
				results := make([]storage.FlushResult, len(handles))
				for i := range handles {
					results[i].Durable = h.end(handles[i])
				}
				return results
			}
		})},
		{name: "flushes one log of many", caughtBy: "flush", wrap: breaking(func(h *hooked) {
			h.flush = func(ctx context.Context, handles []storage.Handle) []storage.FlushResult {
				return append(h.tracker.Flush(ctx, handles[:1]), make([]storage.FlushResult, len(handles)-1)...)
			}
		})},
		{name: "cannot be read when it is full", caughtBy: "full", wrap: breaking(func(h *hooked) {
			full := false
			h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
				h.tracker.Append(ctx, req, func(result storage.AppendResult, err error) {
					full = errors.Is(err, storage.ErrFull)
					done(result, err)
				})
			}
			h.read = func(ctx context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
				if full {
					return storage.ReadResult{}, storage.Errorf(storage.ErrFull, "no room")
				}
				return h.tracker.Read(ctx, req)
			}
		})},
	}
}

// keepBlobs keeps every blob for ever, whatever the log does.
func keepBlobs(h *hooked) {
	type key struct {
		id   storage.LogID
		name string
	}
	kept := map[key]storage.Blob{}
	h.put = func(_ context.Context, id storage.Handle, name string, b storage.Blob) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		kept[key{h.logs[id], name}] = b
		return nil
	}
	h.get = func(_ context.Context, id storage.Handle, name string) (storage.Blob, bool, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		b, found := kept[key{h.logs[id], name}]
		return b, found, nil
	}
}
