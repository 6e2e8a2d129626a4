package memstore

import (
	"bytes"
	"context"

	"github.com/brokerd/brokerd/sdk/storage"
)

// PutBlob implements storage.Store.
func (s *Store) PutBlob(_ context.Context, id storage.Handle, name string, b storage.Blob) error {
	return s.do(s.op(OpPutBlob, id, b.Offset, len(b.Data)), func() error {
		h, err := s.lookup(id)
		if err != nil {
			return err
		}
		switch {
		case !storage.ValidBlobName(name):
			return storage.Errorf(storage.ErrInvalid, "%q cannot name a blob", name)
		case len(b.Data) > storage.MaxBlobBytes:
			return storage.Errorf(storage.ErrInvalid, "a blob of %d bytes; at most %d fit", len(b.Data), storage.MaxBlobBytes)
		}
		blobs := h.log.disk.blobs
		if len(b.Data) == 0 {
			delete(blobs, name)
			return nil
		}
		if err := s.disk.room(int64(len(b.Data) - len(blobs[name].Data))); err != nil {
			return err
		}
		blobs[name] = storage.Blob{Offset: b.Offset, Data: bytes.Clone(b.Data)}
		return nil
	})
}

// GetBlob implements storage.Store.
func (s *Store) GetBlob(_ context.Context, id storage.Handle, name string) (storage.Blob, bool, error) {
	var blob storage.Blob
	found := false
	err := s.do(s.op(OpGetBlob, id, 0, 0), func() error {
		h, err := s.lookup(id)
		if err != nil {
			return err
		}
		if !storage.ValidBlobName(name) {
			return storage.Errorf(storage.ErrInvalid, "%q cannot name a blob", name)
		}
		blob, found = h.log.disk.blobs[name]
		found = found && blob.Offset <= h.log.disk.end
		return nil
	})
	if err != nil || !found {
		return storage.Blob{}, false, err
	}
	return storage.Blob{Offset: blob.Offset, Data: bytes.Clone(blob.Data)}, true, nil
}
