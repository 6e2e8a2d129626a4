package storagetest_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// tracker is a store that knows, for its broken kinds, which log each handle is
// of and where that log ends. It breaks nothing itself.
type tracker struct {
	storage.Store
	mu      sync.Mutex
	logs    map[storage.Handle]storage.LogID
	newest  map[storage.LogID]storage.Handle
	leo     map[storage.LogID]int64
	last    map[storage.LogID][]byte // the last batch appended
	deleted []storage.LogID
	ghosts  map[storage.LogID]storage.AppendRequest // what was truncated last
}

func newTracker(inner storage.Store) *tracker {
	return &tracker{
		Store:  inner,
		logs:   map[storage.Handle]storage.LogID{},
		newest: map[storage.LogID]storage.Handle{},
		leo:    map[storage.LogID]int64{},
		last:   map[storage.LogID][]byte{},
		ghosts: map[storage.LogID]storage.AppendRequest{},
	}
}

func (t *tracker) Open(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult {
	results := t.Store.Open(ctx, specs)
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, r := range results {
		if r.Err == nil {
			t.logs[r.Handle], t.newest[specs[i].ID], t.leo[specs[i].ID] = specs[i].ID, r.Handle, r.LEO
		}
	}
	return results
}

func (t *tracker) Append(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
	batch := lastBatch(req)
	t.Store.Append(ctx, req, func(result storage.AppendResult, err error) {
		if err == nil {
			t.mu.Lock()
			id := t.logs[req.Handle]
			t.leo[id], t.last[id] = result.LEO, batch
			delete(t.ghosts, id)
			t.mu.Unlock()
		}
		done(result, err)
	})
}

func lastBatch(req storage.AppendRequest) []byte {
	if len(req.Batches) == 0 || len(req.Data) == 0 {
		return nil
	}
	size := int(req.Batches[len(req.Batches)-1].Bytes)
	last := req.Data[len(req.Data)-1]
	return bytes.Clone(last[max(0, len(last)-size):])
}

func (t *tracker) end(h storage.Handle) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.leo[t.logs[h]]
}

func (t *tracker) current(h storage.Handle) storage.Handle {
	t.mu.Lock()
	defer t.mu.Unlock()
	if newest, known := t.newest[t.logs[h]]; known {
		return newest
	}
	return h
}

// restamped returns the request moved to base.
func restamped(req storage.AppendRequest, base int64) storage.AppendRequest {
	moved := req
	data := bytes.Join(req.Data, nil)
	moved.Data, moved.Batches, moved.BaseOffset = [][]byte{data}, nil, base
	for rest := data; len(rest) > 0; {
		info, err := recordbatch.Parse(rest)
		if err != nil || int(info.Bytes) > len(rest) {
			return req
		}
		recordbatch.Stamp(rest, base, info.LeaderEpoch)
		base += info.LastOffset - info.BaseOffset + 1
		moved.Batches = append(moved.Batches, mustParse(rest))
		rest = rest[info.Bytes:]
	}
	return moved
}

func mustParse(b []byte) storage.BatchInfo {
	info, err := recordbatch.Parse(b)
	if err != nil {
		panic(err)
	}
	return info
}

func brokenOpening() []broken {
	return []broken{
		{name: "does not fence old handles", caughtBy: "open-fences-handle", wrap: breaking(func(h *hooked) {
			h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
				req.Handle = h.current(req.Handle)
				h.tracker.Append(ctx, req, done)
			}
		})},
		{name: "accepts a lower epoch", caughtBy: "open-fences-epoch", wrap: breaking(func(h *hooked) {
			h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
				req.LeaderEpoch = max(req.LeaderEpoch, 9)
				h.tracker.Append(ctx, req, done)
			}
		})},
		{name: "creates what it must not", caughtBy: "open-create", wrap: breaking(func(h *hooked) {
			h.open = func(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult {
				for i := range specs {
					specs[i].Create = true
				}
				return h.tracker.Open(ctx, specs)
			}
		})},
		{name: "does not know its epochs", caughtBy: "open-epochs", wrap: breaking(func(h *hooked) {
			h.open = func(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult {
				results := h.tracker.Open(ctx, specs)
				for i := range results {
					results[i].Epochs = results[i].Epochs[:min(len(results[i].Epochs), 1)]
				}
				return results
			}
		})},
		{name: "lists deleted logs", caughtBy: "delete", wrap: breaking(func(h *hooked) {
			h.delete = func(ctx context.Context, id storage.LogID) error {
				h.deleted = append(h.deleted, id)
				return h.tracker.Delete(ctx, id)
			}
			h.list = func(ctx context.Context) ([]storage.LogInfo, error) {
				infos, err := h.tracker.List(ctx)
				for _, id := range h.deleted {
					infos = append(infos, storage.LogInfo{ID: id, Label: "deleted"})
				}
				return infos, err
			}
		})},
		{name: "brings deleted logs back", caughtBy: "delete-kill",
			wrap: breaking(func(h *hooked) {
				h.delete = func(ctx context.Context, id storage.LogID) error {
					h.deleted = append(h.deleted, id)
					return h.tracker.Delete(ctx, id)
				}
			}),
			killed: func(disk *memstore.Disk, stores []storage.Store) {
				for _, store := range stores {
					for _, id := range store.(*hooked).deleted {
						reopened(disk, id, func(storage.Store, storage.OpenResult) {})
					}
				}
			}},
		{name: "takes a second opener", caughtBy: "second-opener",
			provide: func(p *memstore.Provider, cfg storage.Config) (storage.Store, storage.DirectoryID, error) {
				disk, err := p.DiskOf(cfg.Settings)
				if err != nil {
					return nil, storage.DirectoryID{}, err
				}
				disk.Kill()
				return p.Open(context.Background(), cfg)
			}},
		{name: "takes another cluster", caughtBy: "identity",
			provide: func(p *memstore.Provider, cfg storage.Config) (storage.Store, storage.DirectoryID, error) {
				cfg.Identity.ClusterID = "storagetest"
				return p.Open(context.Background(), cfg)
			}},
		{name: "overlooks unknown settings", caughtBy: "settings",
			provide: func(p *memstore.Provider, cfg storage.Config) (storage.Store, storage.DirectoryID, error) {
				if bytes.Contains(cfg.Settings, []byte("no-such-setting")) {
					cfg.Settings = memstore.Settings("another")
				}
				return p.Open(context.Background(), cfg)
			}},
		{name: "panics on a handle that is none", caughtBy: "arguments", wrap: breaking(func(h *hooked) {
			h.trim = func(ctx context.Context, id storage.Handle, to int64) (int64, error) {
				if _, known := h.logs[id]; !known {
					panic("no such handle")
				}
				return h.tracker.Trim(ctx, id, to)
			}
		})},
	}
}

func brokenAppends() []broken {
	return []broken{
		{name: "loses an acknowledged append on a kill", caughtBy: "kill-append", wrap: breaking(func(*hooked) {}),
			killed: func(disk *memstore.Disk, stores []storage.Store) {
				for _, store := range stores {
					for id, batch := range store.(*hooked).last {
						_ = disk.Tear(id, batch, 0) // it may be gone already
					}
				}
			}},
		{name: "stores a repeat twice", caughtBy: "append-repeat", wrap: breaking(func(h *hooked) {
			h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
				if end := h.end(req.Handle); req.BaseOffset < end {
					req = restamped(req, end)
				}
				h.tracker.Append(ctx, req, done)
			}
		})},
		{name: "refuses a repeat", caughtBy: "append-repeat", wrap: breaking(func(h *hooked) {
			h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
				if req.BaseOffset < h.end(req.Handle) {
					done(storage.AppendResult{}, storage.Errorf(storage.ErrInvalid, "not the LEO"))
					return
				}
				h.tracker.Append(ctx, req, done)
			}
		})},
		{name: "takes other bytes for a repeat", caughtBy: "append-repeat-other", wrap: breaking(func(h *hooked) {
			h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
				if end := h.end(req.Handle); req.BaseOffset < end {
					done(storage.AppendResult{LEO: end, Survives: storage.SurvivesProcess}, nil)
					return
				}
				h.tracker.Append(ctx, req, done)
			}
		})},
		{name: "ignores the base offset", caughtBy: "append-base-offset", wrap: breaking(ignoreBaseOffset)},
		{name: "stores what is behind a failure", caughtBy: "pipeline-failure", wrap: breaking(ignoreBaseOffset)},
		{name: "completes out of order", caughtBy: "pipeline-order", wrap: breaking(func(h *hooked) {
			h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
				h.tracker.Append(ctx, req, func(result storage.AppendResult, err error) {
					time.AfterFunc(time.Duration(rand.Int64N(int64(2*time.Millisecond))), func() { done(result, err) })
				})
			}
		})},
		{name: "completes twice", caughtBy: "pipeline", wrap: breaking(func(h *hooked) {
			h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
				h.tracker.Append(ctx, req, func(result storage.AppendResult, err error) {
					done(result, err)
					done(result, err)
				})
			}
		})},
		{name: "forgets a completion", caughtBy: "pipeline", timeout: time.Second, wrap: breaking(func(h *hooked) {
			h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
				h.tracker.Append(ctx, req, func(result storage.AppendResult, err error) {
					if result.LEO < 500 {
						done(result, err)
					}
				})
			}
		})},
		{name: "skips the CRC", caughtBy: "append-crc", wrap: breaking(func(h *hooked) {
			h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
				h.tracker.Append(ctx, req, func(result storage.AppendResult, err error) {
					if _, _, _, broken := recordbatch.Next(req.Data[0]); errors.Is(broken, recordbatch.ErrCRC) {
						result, err = storage.AppendResult{Survives: storage.SurvivesProcess}, nil
					}
					done(result, err)
				})
			}
		})},
		{name: "believes the description", caughtBy: "append-misdescribed", wrap: breaking(func(h *hooked) {
			h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
				if info, err := recordbatch.Parse(req.Data[0]); err == nil && len(req.Batches) > 0 {
					req.Batches[0].ProducerID = info.ProducerID
				}
				h.tracker.Append(ctx, req, done)
			}
		})},
		{name: "scribbles on the caller's bytes", caughtBy: "append-bytes", wrap: breaking(func(h *hooked) {
			h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
				h.tracker.Append(ctx, req, func(result storage.AppendResult, err error) {
					recordbatch.Stamp(req.Data[0], 0, 99)
					done(result, err)
				})
			}
		})},
		{name: "gives less than was required", caughtBy: "append-require", wrap: breaking(func(h *hooked) {
			h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
				req.Require = storage.SurvivesProcess
				h.tracker.Append(ctx, req, done)
			}
		})},
		{name: "cannot leave a gap", caughtBy: "append-gap", wrap: breaking(func(h *hooked) {
			h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
				if len(req.Batches) > 0 && req.Batches[0].BaseOffset > req.BaseOffset {
					done(storage.AppendResult{}, storage.Errorf(storage.ErrInvalid, "not at the base offset"))
					return
				}
				h.tracker.Append(ctx, req, done)
			}
		})},
	}
}

func ignoreBaseOffset(h *hooked) {
	h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
		if end := h.end(req.Handle); req.BaseOffset > end && len(req.Batches) > 0 {
			req = restamped(req, end)
		}
		h.tracker.Append(ctx, req, done)
	}
}

func brokenReads() []broken {
	var shared []byte
	return []broken{
		{name: "serves past UpTo", caughtBy: "read-up-to", wrap: breaking(func(h *hooked) {
			h.read = func(ctx context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
				req.UpTo++
				return h.tracker.Read(ctx, req)
			}
		})},
		{name: "splits a batch", caughtBy: "read-max-bytes", wrap: breaking(func(h *hooked) {
			h.read = func(ctx context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
				most := max(req.MaxBytes, 0)
				req.MaxBytes = math.MaxInt
				result, err := h.tracker.Read(ctx, req)
				if !req.AtLeastOne {
					result.Data = result.Data[:min(len(result.Data), most)]
				}
				return result, err
			}
		})},
		{name: "skips the batch around an offset", caughtBy: "read-offset", wrap: breaking(func(h *hooked) {
			h.read = func(ctx context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
				infos, err := h.tracker.Scan(ctx, storage.ScanRequest{Handle: req.Handle, Offset: req.Offset, UpTo: req.UpTo, MaxBatches: 1})
				if err == nil && len(infos) == 1 && infos[0].BaseOffset < req.Offset {
					req.Offset = infos[0].LastOffset + 1
				}
				return h.tracker.Read(ctx, req)
			}
		})},
		{name: "returns a shared buffer", caughtBy: "read-immutable", wrap: breaking(func(h *hooked) {
			h.read = func(ctx context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
				result, err := h.tracker.Read(ctx, req)
				shared = append(shared[:0], result.Data...)
				result.Data = shared
				return result, err
			}
		})},
		{name: "gives an error at the end", caughtBy: "read-end", wrap: breaking(func(h *hooked) {
			h.read = func(ctx context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
				result, err := h.tracker.Read(ctx, req)
				if err == nil && len(result.Data) == 0 {
					return result, storage.Errorf(storage.ErrInvalid, "nothing")
				}
				return result, err
			}
		})},
		{name: "answers out of range", caughtBy: "read-out-of-range", wrap: breaking(func(h *hooked) {
			h.read = func(ctx context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
				result, err := h.tracker.Read(ctx, req)
				if errors.Is(err, storage.ErrInvalid) {
					return storage.ReadResult{Next: req.Offset}, nil
				}
				return result, err
			}
		})},
		{name: "gives short pages", caughtBy: "scan-pages", wrap: breaking(func(h *hooked) {
			h.scan = func(ctx context.Context, req storage.ScanRequest) ([]storage.BatchInfo, error) {
				if req.MaxBatches == 0 || req.MaxBatches > 50 {
					req.MaxBatches = 50
				}
				return h.tracker.Scan(ctx, req)
			}
		})},
		{name: "finds timestamps off by one", caughtBy: "timestamp-first", wrap: breaking(func(h *hooked) {
			h.find = func(ctx context.Context, q storage.TimestampQuery) (storage.BatchInfo, bool, error) {
				q.Timestamp++
				return h.tracker.FindTimestamp(ctx, q)
			}
		})},
		{name: "takes the last for the latest", caughtBy: "timestamp-latest", wrap: breaking(func(h *hooked) {
			h.find = func(ctx context.Context, q storage.TimestampQuery) (storage.BatchInfo, bool, error) {
				if q.Kind != storage.Latest {
					return h.tracker.FindTimestamp(ctx, q)
				}
				infos, err := h.tracker.Scan(ctx, storage.ScanRequest{Handle: q.Handle, UpTo: q.UpTo})
				if err != nil || len(infos) == 0 {
					return storage.BatchInfo{}, false, err
				}
				return infos[len(infos)-1], true, nil
			}
		})},
	}
}
