package main

import (
	"bytes"
	"context"
	"encoding/binary"

	"github.com/brokerd/brokerd/sdk/storage"
)

// offsetBytes stand before a blob's data: the offset that it describes.
const offsetBytes = 8

// PutBlob implements storage.Store. A blob that is ahead of its log is refused,
// so that there never is one.
func (s *store) PutBlob(_ context.Context, id storage.Handle, name string, b storage.Blob) error {
	return s.changeLog(id, func(l logBucket, _ *handle) error {
		m, err := l.meta()
		if err != nil {
			return err
		}
		switch {
		case !storage.ValidBlobName(name):
			return storage.Errorf(storage.ErrInvalid, "%q cannot name a blob", name)
		case len(b.Data) > storage.MaxBlobBytes:
			return storage.Errorf(storage.ErrInvalid, "a blob of %d bytes; at most %d fit", len(b.Data), storage.MaxBlobBytes)
		case len(b.Data) == 0:
			return l.blobs().Delete([]byte(name))
		case b.Offset > m.End:
			return storage.Errorf(storage.ErrInvalid, "the blob describes the log up to %d, and it ends at %d", b.Offset, m.End)
		}
		return l.blobs().Put([]byte(name), append(offsetKey(b.Offset), b.Data...))
	})
}

// GetBlob implements storage.Store.
func (s *store) GetBlob(_ context.Context, id storage.Handle, name string) (b storage.Blob, found bool, err error) {
	if !storage.ValidBlobName(name) {
		return storage.Blob{}, false, storage.Errorf(storage.ErrInvalid, "%q cannot name a blob", name)
	}
	err = s.view(id, func(l logBucket) error {
		v := l.blobs().Get([]byte(name))
		if found = len(v) >= offsetBytes; found {
			b = storage.Blob{Offset: int64(binary.BigEndian.Uint64(v)), Data: bytes.Clone(v[offsetBytes:])}
		}
		return nil
	})
	return b, found, err
}

// dropBlobsAhead deletes what describes more than the log up to end.
func (l logBucket) dropBlobsAhead(end int64) error {
	var ahead [][]byte
	err := l.blobs().ForEach(func(k, v []byte) error {
		if len(v) < offsetBytes || int64(binary.BigEndian.Uint64(v)) > end {
			ahead = append(ahead, k)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range ahead {
		if err := l.blobs().Delete(name); err != nil {
			return err
		}
	}
	return nil
}
