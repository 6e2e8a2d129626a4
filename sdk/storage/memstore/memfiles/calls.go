package memfiles

import (
	"context"

	"github.com/brokerd/brokerd/sdk/storage"
)

// What the memstore alone answers.

// List implements storage.Store.
func (s *Store) List(ctx context.Context) ([]storage.LogInfo, error) {
	defer s.enter()()
	return s.inner.List(ctx)
}

// Read implements storage.Store.
func (s *Store) Read(ctx context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
	defer s.enter()()
	return s.inner.Read(ctx, req)
}

// Scan implements storage.Store.
func (s *Store) Scan(ctx context.Context, req storage.ScanRequest) ([]storage.BatchInfo, error) {
	defer s.enter()()
	return s.inner.Scan(ctx, req)
}

// FindTimestamp implements storage.Store.
func (s *Store) FindTimestamp(ctx context.Context, q storage.TimestampQuery) (storage.BatchInfo, bool, error) {
	defer s.enter()()
	return s.inner.FindTimestamp(ctx, q)
}

// PutBlob implements storage.Store.
func (s *Store) PutBlob(ctx context.Context, h storage.Handle, name string, b storage.Blob) error {
	defer s.enter()()
	return s.inner.PutBlob(ctx, h, name, b)
}

// GetBlob implements storage.Store.
func (s *Store) GetBlob(ctx context.Context, h storage.Handle, name string) (storage.Blob, bool, error) {
	defer s.enter()()
	return s.inner.GetBlob(ctx, h, name)
}

// Usage implements storage.Store.
func (s *Store) Usage(ctx context.Context) (storage.Usage, error) {
	defer s.enter()()
	return s.inner.Usage(ctx)
}
