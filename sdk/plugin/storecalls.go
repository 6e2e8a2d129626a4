package plugin

import (
	"context"
	"fmt"
	"slices"
	"time"

	storagev1 "github.com/brokerd/brokerd/sdk/proto/storage/v1"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// Capabilities implements storage.Store. Grants and leases are for others with
// CarrierLent alone: see Files.
func (s *Store) Capabilities() storage.Capabilities {
	c := s.capabilities
	if s.carrier != CarrierLent {
		c.Grants, c.Leases = false, false
	}
	return c
}

// begin gives a call its deadline, and refuses it when the store is lost.
func (s *Store) begin(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if err := s.lane.died(); err != nil {
		return ctx, func() {}, err
	}
	ctx, cancel := withDefault(ctx, s.client.callTimeout)
	return ctx, cancel, nil
}

// alone is begin for a call that changes logs, or lets go of them. It finds the
// appends of the handles done and the plugin knowing of all that was written, and
// nothing of the logs is lent until what it returns instead of a cancel is called.
func (s *Store) alone(ctx context.Context, handles ...storage.Handle) (context.Context, context.CancelFunc, error) {
	ctx, cancel, err := s.begin(ctx)
	ends := []func(){cancel}
	done := func() {
		for _, end := range slices.Backward(ends) {
			end()
		}
	}
	for i := 0; err == nil && s.files != nil && i < len(handles); i++ {
		var end func()
		end, err = s.files.settle(ctx, handles[i])
		ends = append(ends, end)
	}
	if err == nil {
		err = s.lane.barrier(ctx, handles)
	}
	return ctx, done, err
}

// rewriting is alone for a call after which other batches may be where some were
// checked.
func (s *Store) rewriting(ctx context.Context, h storage.Handle) (context.Context, context.CancelFunc, error) {
	ctx, cancel, err := s.alone(ctx, h)
	if s.files != nil {
		s.files.leases.forgetChecked(h)
	}
	return ctx, cancel, err
}

// known is begin for a call that sees what was written in a log.
func (s *Store) known(ctx context.Context, h storage.Handle) (context.Context, context.CancelFunc, error) {
	ctx, cancel, err := s.begin(ctx)
	if err == nil && s.files != nil {
		err = s.files.tellAll(ctx, h)
	}
	return ctx, cancel, err
}

// Append implements storage.Store.
func (s *Store) Append(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
	if err := sizeError(recordbatch.TotalBytes(req.Data), len(req.Batches)); err != nil {
		done(storage.AppendResult{}, err)
		return
	}
	if req.Granted != 0 && len(req.Data) > 0 {
		done(storage.AppendResult{}, storage.Errorf(storage.ErrInvalid, "an append under a grant carries data"))
		return
	}
	c := s.newAppend(ctx, req, done)
	if s.files != nil {
		if log := s.files.log(req.Handle); log != nil {
			log.append(ctx, c)
			return
		}
	}
	_ = s.lane.submit(ctx, c) // appends always complete
}

// newAppend makes a call of an append, with the deadline of ctx or the default.
func (s *Store) newAppend(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) *call {
	c := s.lane.newAppend()
	c.req.head = head{kind: kindAppend, handle: req.Handle}
	if req.Granted != 0 && s.carrier == CarrierLent {
		c.req.kind = kindTold
	}
	c.req.append = req
	c.cost = int64(recordbatch.TotalBytes(req.Data))
	c.appended = done
	now := time.Now()
	at, ok := ctx.Deadline()
	if !ok {
		at = now.Add(s.client.callTimeout)
	}
	c.deadline, c.cancelled = at, ctx.Done()
	c.req.timeout = max(at.Sub(now), time.Millisecond)
	return c
}

// sizeError refuses what does not fit into a unit.
func sizeError(data, batches int) error {
	if n := headBytes + replaceBodyBytes + batches*infoBytes + data; n > maxUnitBytes {
		return storage.Errorf(storage.ErrInvalid, "%d bytes are more than the %d that the lane carries at once", n, maxUnitBytes)
	}
	return nil
}

// maxReadBytes bounds the data of a read.
const maxReadBytes = maxUnitBytes - headBytes - answerBodyBytes - readAnswerBytes

// do sends a request over the data stream and waits for its answer.
func (s *Store) do(ctx context.Context, req request, bytes int) (answer, error) {
	at, _ := ctx.Deadline()
	req.timeout = max(time.Until(at), time.Millisecond)
	return s.lane.do(ctx, req, int64(bytes))
}

// Read implements storage.Store.
func (s *Store) Read(ctx context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
	req.MaxBytes = min(max(req.MaxBytes, 0), maxReadBytes)
	if s.files != nil {
		if res, ok := s.files.leases.read(&req); ok {
			return res, nil
		}
	}
	ctx, cancel, err := s.begin(ctx)
	defer cancel()
	if err != nil {
		return storage.ReadResult{}, err
	}
	if s.files != nil {
		if err := s.files.tellFor(ctx, &req); err != nil {
			return storage.ReadResult{}, err
		}
		if res, ok := s.files.leases.readNew(ctx, &req); ok {
			return res, nil
		}
		if err := s.files.tellAll(ctx, req.Handle); err != nil {
			return storage.ReadResult{}, err
		}
	}
	a, err := s.do(ctx, request{head: head{kind: kindRead, handle: req.Handle}, read: req}, req.MaxBytes)
	if err != nil {
		a.drop()
		return storage.ReadResult{}, err
	}
	a.read.Data = a.give(req.Buf)
	return a.read, nil
}

// give returns the data of a read as the caller's own: in buf, if it has room. What
// it fills for the most part is not copied, but never used again.
func (a *answer) give(buf []byte) []byte {
	data := a.read.Data
	switch {
	case a.mem == nil:
		return data
	case cap(buf) >= len(data):
		data = append(buf[:0], data...)
	case 2*len(data) > a.memSize:
		return data
	default:
		data = append([]byte(nil), data...)
	}
	a.mem.Free()
	return data
}

// Replace implements storage.Store.
func (s *Store) Replace(ctx context.Context, req storage.ReplaceRequest) error {
	if err := sizeError(len(req.Data), len(req.Batches)); err != nil {
		return err
	}
	ctx, cancel, err := s.rewriting(ctx, req.Handle)
	defer cancel()
	if err != nil {
		return err
	}
	_, err = s.do(ctx, request{head: head{kind: kindReplace, handle: req.Handle}, replace: req}, len(req.Data))
	return err
}

// countError is a plugin that answered for another number of logs.
func countError(act string, got, want int) error {
	return fmt.Errorf("%s: %w: the plugin answered for %d of %d", act, storage.ErrGone, got, want)
}

func handlesToProto(in []storage.Handle) []uint64 {
	out := make([]uint64, len(in))
	for i, h := range in {
		out[i] = uint64(h)
	}
	return out
}

// Close implements storage.Store.
func (s *Store) Close(ctx context.Context, handles []storage.Handle) []error {
	errs := make([]error, len(handles))
	fail := func(err error) []error {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	ctx, cancel, err := s.alone(ctx, handles...)
	defer cancel()
	if err != nil {
		return fail(err)
	}
	m, err := s.rpc.Close(ctx, &storagev1.CloseRequest{Handles: handlesToProto(handles)})
	if err != nil {
		return fail(callError(ctx, "close logs", err))
	}
	if len(m.GetErrors()) != len(handles) {
		return fail(countError("close logs", len(m.GetErrors()), len(handles)))
	}
	for i, e := range m.GetErrors() {
		errs[i] = errorFromProto(e)
		s.forget(handles[i])
	}
	return errs
}

// Flush implements storage.Store.
func (s *Store) Flush(ctx context.Context, handles []storage.Handle) []storage.FlushResult {
	results := make([]storage.FlushResult, len(handles))
	fail := func(err error) []storage.FlushResult {
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	ctx, cancel, err := s.begin(ctx)
	defer cancel()
	logs := make([]*hostLog, len(handles))
	generations := make([]uint64, len(handles))
	for i := 0; err == nil && s.files != nil && i < len(handles); i++ {
		if logs[i] = s.files.log(handles[i]); logs[i] != nil {
			generations[i], err = logs[i].flush(ctx)
		}
	}
	if err == nil {
		err = s.lane.barrier(ctx, handles)
	}
	if err != nil {
		return fail(err)
	}
	m, err := s.rpc.Flush(ctx, &storagev1.FlushRequest{Handles: handlesToProto(handles)})
	if err != nil {
		return fail(callError(ctx, "flush logs", err))
	}
	if len(m.GetResults()) != len(handles) {
		return fail(countError("flush logs", len(m.GetResults()), len(handles)))
	}
	for i, r := range m.GetResults() {
		results[i] = storage.FlushResult{Durable: r.GetDurable(), Err: errorFromProto(r.GetError())}
		if logs[i] != nil && results[i].Err == nil {
			logs[i].flushed(generations[i], r.GetDurable())
		}
	}
	return results
}

// List implements storage.Store.
func (s *Store) List(ctx context.Context) ([]storage.LogInfo, error) {
	ctx, cancel, err := s.begin(ctx)
	defer cancel()
	if err != nil {
		return nil, err
	}
	if s.files != nil {
		for _, l := range s.files.all() {
			if err := s.files.tellAll(ctx, l.handle); err != nil {
				return nil, err
			}
		}
	}
	m, err := s.rpc.List(ctx, &storagev1.ListRequest{})
	if err != nil {
		return nil, callError(ctx, "list logs", err)
	}
	if err := errorFromProto(m.GetError()); err != nil {
		return nil, err
	}
	logs := make([]storage.LogInfo, 0, len(m.GetLogs()))
	for _, l := range m.GetLogs() {
		id, err := logIDFromProto(l.GetId())
		if err != nil {
			return nil, fmt.Errorf("list logs: %w", err)
		}
		logs = append(logs, storage.LogInfo{ID: id, Label: l.GetLabel(), Bytes: l.GetBytes()})
	}
	return logs, nil
}

// Delete implements storage.Store.
func (s *Store) Delete(ctx context.Context, id storage.LogID) error {
	ctx, cancel, err := s.begin(ctx)
	defer cancel()
	if err != nil {
		return err
	}
	release, err := s.only(ctx, []storage.LogID{id})
	defer release()
	if err != nil {
		return err
	}
	m, err := s.rpc.Delete(ctx, &storagev1.DeleteRequest{Id: logIDToProto(id)})
	if err != nil {
		return callError(ctx, "delete a log", err)
	}
	if err := errorFromProto(m.GetError()); err != nil {
		return err
	}
	s.mu.Lock()
	h, ok := s.handles[id]
	delete(s.handles, id)
	s.mu.Unlock()
	if ok {
		s.forget(h)
	}
	return nil
}

// Scan implements storage.Store.
func (s *Store) Scan(ctx context.Context, req storage.ScanRequest) ([]storage.BatchInfo, error) {
	ctx, cancel, err := s.known(ctx, req.Handle)
	defer cancel()
	if err != nil {
		return nil, err
	}
	m, err := s.rpc.Scan(ctx, &storagev1.ScanRequest{
		Handle:     uint64(req.Handle),
		Offset:     req.Offset,
		UpTo:       req.UpTo,
		MaxBatches: int32(min(max(req.MaxBatches, -1), 1<<30)),
	})
	if err != nil {
		return nil, callError(ctx, "scan a log", err)
	}
	if err := errorFromProto(m.GetError()); err != nil {
		return nil, err
	}
	batches := make([]storage.BatchInfo, 0, len(m.GetBatches()))
	for _, b := range m.GetBatches() {
		batches = append(batches, batchInfoFromProto(b))
	}
	return batches, nil
}

// Truncate implements storage.Store.
func (s *Store) Truncate(ctx context.Context, h storage.Handle, leaderEpoch int32, to int64) (int64, error) {
	ctx, cancel, err := s.rewriting(ctx, h)
	defer cancel()
	if err != nil {
		return 0, err
	}
	m, err := s.rpc.Truncate(ctx, &storagev1.TruncateRequest{Handle: uint64(h), LeaderEpoch: leaderEpoch, To: to})
	if err != nil {
		return 0, callError(ctx, "truncate a log", err)
	}
	if err := errorFromProto(m.GetError()); err != nil {
		return 0, err
	}
	if s.files != nil {
		if l := s.files.log(h); l != nil {
			l.truncated(m.GetLeo())
		}
	}
	return m.GetLeo(), nil
}

// Trim implements storage.Store. It comes after the appends in flight: before
// them it could find the log's end below the new log start, and move it there.
func (s *Store) Trim(ctx context.Context, h storage.Handle, to int64) (int64, error) {
	ctx, cancel, err := s.rewriting(ctx, h)
	defer cancel()
	if err != nil {
		return 0, err
	}
	m, err := s.rpc.Trim(ctx, &storagev1.TrimRequest{Handle: uint64(h), To: to})
	if err != nil {
		return 0, callError(ctx, "trim a log", err)
	}
	return m.GetLogStart(), errorFromProto(m.GetError())
}

// Retain implements storage.Store.
func (s *Store) Retain(ctx context.Context, h storage.Handle, policy storage.RetainPolicy) (storage.RetainResult, error) {
	ctx, cancel, err := s.alone(ctx, h)
	defer cancel()
	if err != nil {
		return storage.RetainResult{}, err
	}
	m, err := s.rpc.Retain(ctx, policyToProto(h, policy))
	if err != nil {
		return storage.RetainResult{}, callError(ctx, "retain a log", err)
	}
	return storage.RetainResult{
		LogStart:     m.GetLogStart(),
		FreedBytes:   m.GetFreedBytes(),
		LogBytes:     m.GetLogBytes(),
		OldestAge:    time.Duration(m.GetOldestAgeNs()),
		FutureStamps: int(m.GetFutureStamps()),
	}, errorFromProto(m.GetError())
}

// FindTimestamp implements storage.Store.
func (s *Store) FindTimestamp(ctx context.Context, q storage.TimestampQuery) (storage.BatchInfo, bool, error) {
	ctx, cancel, err := s.known(ctx, q.Handle)
	defer cancel()
	if err != nil {
		return storage.BatchInfo{}, false, err
	}
	m, err := s.rpc.FindTimestamp(ctx, &storagev1.FindTimestampRequest{
		Handle:    uint64(q.Handle),
		Kind:      storagev1.TimestampKind(q.Kind),
		Timestamp: q.Timestamp,
		UpTo:      q.UpTo,
	})
	if err != nil {
		return storage.BatchInfo{}, false, callError(ctx, "find a timestamp", err)
	}
	if err := errorFromProto(m.GetError()); err != nil || !m.GetFound() {
		return storage.BatchInfo{}, false, err
	}
	return batchInfoFromProto(m.GetBatch()), true, nil
}

// PutBlob implements storage.Store.
func (s *Store) PutBlob(ctx context.Context, h storage.Handle, name string, b storage.Blob) error {
	ctx, cancel, err := s.known(ctx, h)
	defer cancel()
	if err != nil {
		return err
	}
	m, err := s.rpc.PutBlob(ctx, &storagev1.PutBlobRequest{
		Handle: uint64(h),
		Name:   wireText(name),
		Blob:   &storagev1.Blob{Offset: b.Offset, Data: b.Data},
	})
	if err != nil {
		return callError(ctx, "put a blob", err)
	}
	return errorFromProto(m.GetError())
}

// GetBlob implements storage.Store.
func (s *Store) GetBlob(ctx context.Context, h storage.Handle, name string) (storage.Blob, bool, error) {
	ctx, cancel, err := s.known(ctx, h)
	defer cancel()
	if err != nil {
		return storage.Blob{}, false, err
	}
	m, err := s.rpc.GetBlob(ctx, &storagev1.GetBlobRequest{Handle: uint64(h), Name: wireText(name)})
	if err != nil {
		return storage.Blob{}, false, callError(ctx, "get a blob", err)
	}
	if err := errorFromProto(m.GetError()); err != nil || !m.GetFound() {
		return storage.Blob{}, false, err
	}
	return storage.Blob{Offset: m.GetBlob().GetOffset(), Data: m.GetBlob().GetData()}, true, nil
}

// Usage implements storage.Store.
func (s *Store) Usage(ctx context.Context) (storage.Usage, error) {
	ctx, cancel, err := s.begin(ctx)
	defer cancel()
	if err != nil {
		return storage.Usage{}, err
	}
	m, err := s.rpc.Usage(ctx, &storagev1.UsageRequest{})
	if err != nil {
		return storage.Usage{}, callError(ctx, "ask for room", err)
	}
	return storage.Usage{Total: m.GetTotal(), Free: m.GetFree()}, errorFromProto(m.GetError())
}

// Files implements storage.Store: there are none, since this Store uses the
// plugin's by itself, but with CarrierLent.
func (s *Store) Files() storage.Files {
	if c := s.Capabilities(); c.Grants || c.Leases {
		return lentFiles{s}
	}
	return nil
}
