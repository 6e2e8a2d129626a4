package storagetest_test

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/brokerd/brokerd/sdk/storage"
)

func brokenParts() []broken {
	var room []byte
	return []broken{
		{name: "stores the first part alone", caughtBy: "append-parts", wrap: breaking(func(h *hooked) {
			h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
				whole := req
				if len(req.Data) > 1 {
					n := 0
					for size := len(req.Data[0]); size > 0; n++ {
						size -= int(req.Batches[n].Bytes)
					}
					req.Data, req.Batches = req.Data[:1], req.Batches[:n]
				}
				h.tracker.Append(ctx, req, func(result storage.AppendResult, err error) {
					if err == nil {
						result.LEO = whole.Batches[len(whole.Batches)-1].LastOffset + 1
					}
					done(result, err)
				})
			}
		})},
		{name: "looks at the first part alone", caughtBy: "append-parts-refused", wrap: breaking(func(h *hooked) {
			h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
				h.tracker.Append(ctx, req, func(result storage.AppendResult, err error) {
					if len(req.Data) == 3 && errors.Is(err, storage.ErrInvalid) {
						result, err = storage.AppendResult{Survives: storage.SurvivesProcess}, nil
					}
					done(result, err)
				})
			}
		})},
		{name: "believes all of what was checked", caughtBy: "append-checked", wrap: breaking(func(h *hooked) {
			h.append = func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
				if req.Checked {
					req = restamped(req, h.end(req.Handle))
				}
				h.tracker.Append(ctx, req, done)
			}
		})},
		{name: "reads into the end of the room", caughtBy: "read-buf", wrap: breaking(func(h *hooked) {
			h.read = func(ctx context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
				result, err := h.tracker.Read(ctx, req)
				if n := len(req.Buf) - len(result.Data); n > 0 {
					copy(req.Buf[n:], result.Data)
					result.Data = req.Buf[n:]
				}
				return result, err
			}
		})},
		{name: "writes beside the room", caughtBy: "read-buf", wrap: breaking(func(h *hooked) {
			h.read = func(ctx context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
				result, err := h.tracker.Read(ctx, req)
				if len(req.Buf) > 0 && len(result.Data) > len(req.Buf) {
					result.Data = result.Data[:copy(req.Buf, result.Data)]
				}
				return result, err
			}
		})},
		{name: "reads into the room of the read before", caughtBy: "read-buf-apart", wrap: breaking(func(h *hooked) {
			h.read = func(ctx context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
				result, err := h.tracker.Read(ctx, req)
				if len(req.Buf) > 0 {
					room = req.Buf
				}
				if len(room) >= len(result.Data) {
					result.Data = room[:copy(room, result.Data)]
				}
				return result, err
			}
		})},
	}
}

func brokenFiles() []broken {
	noLock := breaking(func(h *hooked) {
		h.lock = func() (*os.File, error) { return os.Open(os.DevNull) }
	})
	return []broken{
		{name: "says that it lends and does not", caughtBy: "files-offered", wrap: breaking(func(h *hooked) {
			h.capabilities = func() storage.Capabilities {
				return storage.Capabilities{Survives: storage.SurvivesMachine, Leases: true}
			}
		})},
		{name: "lends and does not say so", caughtBy: "files-offered", files: true, wrap: breaking(func(h *hooked) {
			h.capabilities = func() storage.Capabilities { return storage.Capabilities{Survives: storage.SurvivesMachine} }
		})},
		{name: "lends a lock that locks nothing", caughtBy: "files-lock-leases", files: true, wrap: noLock},
		{name: "lends a lock that locks nothing, and grants", caughtBy: "files-lock-grants", files: true, wrap: noLock},
		{name: "unlocks for everybody", caughtBy: "files-lock-shutdown", files: true, wrap: breaking(func(h *hooked) {
			h.shutdown = func(ctx context.Context) error {
				lock, err := h.lock()
				if err != nil {
					return err
				}
				defer lock.Close()
				if err := h.tracker.Shutdown(ctx); err != nil {
					return err
				}
				return unix.Flock(int(lock.Fd()), unix.LOCK_UN)
			}
		})},
	}
}
