package storagetest_test

import (
	"context"
	"os"

	"github.com/brokerd/brokerd/sdk/storage"
)

// hooked is a tracker some of whose methods are replaced.
type hooked struct {
	*tracker
	open     func(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult
	append   func(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error))
	read     func(ctx context.Context, req storage.ReadRequest) (storage.ReadResult, error)
	scan     func(ctx context.Context, req storage.ScanRequest) ([]storage.BatchInfo, error)
	flush    func(ctx context.Context, handles []storage.Handle) []storage.FlushResult
	truncate func(ctx context.Context, h storage.Handle, epoch int32, to int64) (int64, error)
	trim     func(ctx context.Context, h storage.Handle, to int64) (int64, error)
	retain   func(ctx context.Context, h storage.Handle, p storage.RetainPolicy) (storage.RetainResult, error)
	replace  func(ctx context.Context, req storage.ReplaceRequest) error
	find     func(ctx context.Context, q storage.TimestampQuery) (storage.BatchInfo, bool, error)
	put      func(ctx context.Context, h storage.Handle, name string, b storage.Blob) error
	get      func(ctx context.Context, h storage.Handle, name string) (storage.Blob, bool, error)
	list     func(ctx context.Context) ([]storage.LogInfo, error)
	delete   func(ctx context.Context, id storage.LogID) error

	shutdown     func(ctx context.Context) error
	capabilities func() storage.Capabilities
	grant        func(ctx context.Context, h storage.Handle, epoch int32, require storage.Survives) (storage.Grant, error)
	endGrant     func(ctx context.Context, h storage.Handle, id storage.GrantID) error
	lease        func(ctx context.Context, h storage.Handle, offset int64) (storage.Lease, error)
	giveBack     func(leases []storage.LeaseID)
	lock         func() (*os.File, error)
}

// breaking makes a wrap of a function that replaces methods.
func breaking(change func(h *hooked)) func(storage.Store) storage.Store {
	return func(inner storage.Store) storage.Store {
		t := newTracker(inner)
		h := &hooked{
			tracker: t, open: t.Open, append: t.Append, read: t.Read, scan: t.Scan, flush: t.Flush, truncate: t.Truncate,
			trim: t.Trim, retain: t.Retain, replace: t.Replace, find: t.FindTimestamp, put: t.PutBlob, get: t.GetBlob,
			list: t.List, delete: t.Delete, shutdown: t.Shutdown, capabilities: t.Capabilities,
		}
		if files := t.Files(); files != nil {
			h.grant, h.endGrant, h.lease, h.giveBack, h.lock = files.Grant, files.End, files.Lease, files.Return, files.Lock
		}
		change(h)
		return h
	}
}

func (h *hooked) Open(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult {
	return h.open(ctx, specs)
}

func (h *hooked) Append(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
	h.append(ctx, req, done)
}

func (h *hooked) Read(ctx context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
	return h.read(ctx, req)
}

func (h *hooked) Scan(ctx context.Context, req storage.ScanRequest) ([]storage.BatchInfo, error) {
	return h.scan(ctx, req)
}

func (h *hooked) Flush(ctx context.Context, handles []storage.Handle) []storage.FlushResult {
	return h.flush(ctx, handles)
}

func (h *hooked) Truncate(ctx context.Context, id storage.Handle, epoch int32, to int64) (int64, error) {
	return h.truncate(ctx, id, epoch, to)
}

func (h *hooked) Trim(ctx context.Context, id storage.Handle, to int64) (int64, error) {
	return h.trim(ctx, id, to)
}

func (h *hooked) Retain(ctx context.Context, id storage.Handle, p storage.RetainPolicy) (storage.RetainResult, error) {
	return h.retain(ctx, id, p)
}

func (h *hooked) Replace(ctx context.Context, req storage.ReplaceRequest) error {
	return h.replace(ctx, req)
}

func (h *hooked) FindTimestamp(ctx context.Context, q storage.TimestampQuery) (storage.BatchInfo, bool, error) {
	return h.find(ctx, q)
}

func (h *hooked) PutBlob(ctx context.Context, id storage.Handle, name string, b storage.Blob) error {
	return h.put(ctx, id, name, b)
}

func (h *hooked) GetBlob(ctx context.Context, id storage.Handle, name string) (storage.Blob, bool, error) {
	return h.get(ctx, id, name)
}

func (h *hooked) List(ctx context.Context) ([]storage.LogInfo, error) { return h.list(ctx) }

func (h *hooked) Delete(ctx context.Context, id storage.LogID) error { return h.delete(ctx, id) }

func (h *hooked) Shutdown(ctx context.Context) error { return h.shutdown(ctx) }

func (h *hooked) Capabilities() storage.Capabilities { return h.capabilities() }

func (h *hooked) Files() storage.Files {
	if h.tracker.Files() == nil {
		return nil
	}
	return hookedFiles{h}
}

// hookedFiles is the part of a hooked store that lends files.
type hookedFiles struct{ h *hooked }

func (f hookedFiles) Grant(ctx context.Context, h storage.Handle, epoch int32, require storage.Survives) (storage.Grant, error) {
	return f.h.grant(ctx, h, epoch, require)
}

func (f hookedFiles) End(ctx context.Context, h storage.Handle, id storage.GrantID) error {
	return f.h.endGrant(ctx, h, id)
}

func (f hookedFiles) Lease(ctx context.Context, h storage.Handle, offset int64) (storage.Lease, error) {
	return f.h.lease(ctx, h, offset)
}

func (f hookedFiles) Return(leases []storage.LeaseID) { f.h.giveBack(leases) }

func (f hookedFiles) Lock() (*os.File, error) { return f.h.lock() }
