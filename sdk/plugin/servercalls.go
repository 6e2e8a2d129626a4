package plugin

import (
	"context"

	pluginv1 "github.com/brokerd/brokerd/sdk/proto/plugin/v1"
	storagev1 "github.com/brokerd/brokerd/sdk/proto/storage/v1"
	"github.com/brokerd/brokerd/sdk/storage"
)

// handlesFromProto reads handles.
func handlesFromProto(in []uint64) []storage.Handle {
	out := make([]storage.Handle, len(in))
	for i, h := range in {
		out[i] = storage.Handle(h)
	}
	return out
}

// Open implements the service Storage. Specs that cannot be read are answered
// one by one, without keeping the others from being opened.
func (s *StorageServer) Open(ctx context.Context, m *storagev1.OpenRequest) (*storagev1.OpenResponse, error) {
	results := make([]*storagev1.OpenResult, len(m.GetSpecs()))
	store, gone := s.current()
	specs := make([]storage.OpenSpec, 0, len(results))
	places := make([]int, 0, len(results)) // of each spec, in results
	for i, spec := range m.GetSpecs() {
		sp, err := openSpecFromProto(spec)
		if gone != nil {
			err = gone
		}
		if err != nil {
			results[i] = &storagev1.OpenResult{Error: errorToProto(err)}
			continue
		}
		specs, places = append(specs, sp), append(places, i)
	}
	if len(specs) > 0 {
		for i, r := range store.Open(ctx, specs) {
			results[places[i]] = openResultToProto(r)
		}
	}
	return &storagev1.OpenResponse{Results: results}, nil
}

// Close implements the service Storage.
func (s *StorageServer) Close(ctx context.Context, m *storagev1.CloseRequest) (*storagev1.CloseResponse, error) {
	errs := make([]error, len(m.GetHandles()))
	if store, err := s.current(); err != nil {
		for i := range errs {
			errs[i] = err
		}
	} else {
		errs = store.Close(ctx, handlesFromProto(m.GetHandles()))
	}
	out := &storagev1.CloseResponse{Errors: make([]*pluginv1.Error, len(errs))}
	for i, err := range errs {
		if out.Errors[i] = errorToProto(err); err == nil {
			out.Errors[i] = &pluginv1.Error{}
		}
	}
	return out, nil
}

// List implements the service Storage.
func (s *StorageServer) List(ctx context.Context, _ *storagev1.ListRequest) (*storagev1.ListResponse, error) {
	store, err := s.current()
	var logs []storage.LogInfo
	if err == nil {
		logs, err = store.List(ctx)
	}
	out := &storagev1.ListResponse{Error: errorToProto(err)}
	for _, l := range logs {
		out.Logs = append(out.Logs, &storagev1.LogInfo{Id: logIDToProto(l.ID), Label: wireText(l.Label), Bytes: l.Bytes})
	}
	return out, nil
}

// Delete implements the service Storage.
func (s *StorageServer) Delete(ctx context.Context, m *storagev1.DeleteRequest) (*storagev1.DeleteResponse, error) {
	store, err := s.current()
	var id storage.LogID
	if err == nil {
		id, err = logIDFromProto(m.GetId())
	}
	if err == nil {
		err = store.Delete(ctx, id)
	}
	return &storagev1.DeleteResponse{Error: errorToProto(err)}, nil
}

// Scan implements the service Storage.
func (s *StorageServer) Scan(ctx context.Context, m *storagev1.ScanRequest) (*storagev1.ScanResponse, error) {
	store, err := s.current()
	var batches []storage.BatchInfo
	if err == nil {
		batches, err = store.Scan(ctx, storage.ScanRequest{
			Handle:     storage.Handle(m.GetHandle()),
			Offset:     m.GetOffset(),
			UpTo:       m.GetUpTo(),
			MaxBatches: int(m.GetMaxBatches()),
		})
	}
	out := &storagev1.ScanResponse{Error: errorToProto(err)}
	for _, b := range batches {
		out.Batches = append(out.Batches, batchInfoToProto(b))
	}
	return out, nil
}

// Flush implements the service Storage.
func (s *StorageServer) Flush(ctx context.Context, m *storagev1.FlushRequest) (*storagev1.FlushResponse, error) {
	results := make([]storage.FlushResult, len(m.GetHandles()))
	if store, err := s.current(); err != nil {
		for i := range results {
			results[i].Err = err
		}
	} else {
		results = store.Flush(ctx, handlesFromProto(m.GetHandles()))
	}
	out := &storagev1.FlushResponse{}
	for _, r := range results {
		out.Results = append(out.Results, &storagev1.FlushResult{Error: errorToProto(r.Err), Durable: r.Durable})
	}
	return out, nil
}

// Truncate implements the service Storage.
func (s *StorageServer) Truncate(ctx context.Context, m *storagev1.TruncateRequest) (*storagev1.TruncateResponse, error) {
	store, err := s.current()
	var leo int64
	if err == nil {
		leo, err = store.Truncate(ctx, storage.Handle(m.GetHandle()), m.GetLeaderEpoch(), m.GetTo())
	}
	return &storagev1.TruncateResponse{Error: errorToProto(err), Leo: leo}, nil
}

// Trim implements the service Storage.
func (s *StorageServer) Trim(ctx context.Context, m *storagev1.TrimRequest) (*storagev1.TrimResponse, error) {
	store, err := s.current()
	var start int64
	if err == nil {
		start, err = store.Trim(ctx, storage.Handle(m.GetHandle()), m.GetTo())
	}
	return &storagev1.TrimResponse{Error: errorToProto(err), LogStart: start}, nil
}

// Retain implements the service Storage.
func (s *StorageServer) Retain(ctx context.Context, m *storagev1.RetainRequest) (*storagev1.RetainResponse, error) {
	store, err := s.current()
	var r storage.RetainResult
	if err == nil {
		r, err = store.Retain(ctx, storage.Handle(m.GetHandle()), policyFromProto(m))
	}
	return &storagev1.RetainResponse{
		Error:        errorToProto(err),
		LogStart:     r.LogStart,
		FreedBytes:   r.FreedBytes,
		LogBytes:     r.LogBytes,
		OldestAgeNs:  int64(r.OldestAge),
		FutureStamps: int64(r.FutureStamps),
	}, nil
}

// FindTimestamp implements the service Storage.
func (s *StorageServer) FindTimestamp(ctx context.Context, m *storagev1.FindTimestampRequest) (*storagev1.FindTimestampResponse, error) {
	store, err := s.current()
	var batch storage.BatchInfo
	var found bool
	if err == nil {
		batch, found, err = store.FindTimestamp(ctx, storage.TimestampQuery{
			Handle:    storage.Handle(m.GetHandle()),
			Kind:      storage.TimestampKind(m.GetKind()),
			Timestamp: m.GetTimestamp(),
			UpTo:      m.GetUpTo(),
		})
	}
	out := &storagev1.FindTimestampResponse{Error: errorToProto(err), Found: found}
	if found {
		out.Batch = batchInfoToProto(batch)
	}
	return out, nil
}

// PutBlob implements the service Storage.
func (s *StorageServer) PutBlob(ctx context.Context, m *storagev1.PutBlobRequest) (*storagev1.PutBlobResponse, error) {
	store, err := s.current()
	if err == nil {
		blob := storage.Blob{Offset: m.GetBlob().GetOffset(), Data: m.GetBlob().GetData()}
		err = store.PutBlob(ctx, storage.Handle(m.GetHandle()), m.GetName(), blob)
	}
	return &storagev1.PutBlobResponse{Error: errorToProto(err)}, nil
}

// GetBlob implements the service Storage.
func (s *StorageServer) GetBlob(ctx context.Context, m *storagev1.GetBlobRequest) (*storagev1.GetBlobResponse, error) {
	store, err := s.current()
	var blob storage.Blob
	var found bool
	if err == nil {
		blob, found, err = store.GetBlob(ctx, storage.Handle(m.GetHandle()), m.GetName())
	}
	return &storagev1.GetBlobResponse{
		Error: errorToProto(err),
		Found: found,
		Blob:  &storagev1.Blob{Offset: blob.Offset, Data: blob.Data},
	}, nil
}

// Usage implements the service Storage.
func (s *StorageServer) Usage(ctx context.Context, _ *storagev1.UsageRequest) (*storagev1.UsageResponse, error) {
	store, err := s.current()
	var u storage.Usage
	if err == nil {
		u, err = store.Usage(ctx)
	}
	return &storagev1.UsageResponse{Error: errorToProto(err), Total: u.Total, Free: u.Free}, nil
}
