package logstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/sealed"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

const (
	// blobOffsetBytes lead a blob's payload: the offset that it describes.
	blobOffsetBytes = 8
	// frameHeadBytes lead the payload in a sealed file.
	frameHeadBytes = 12
)

func (l *log) blobPath(name string) string {
	return path.Join(l.dir, blobsName, name+blobSuffix)
}

// PutBlob implements storage.Store.
func (s *Store) PutBlob(ctx context.Context, h storage.Handle, name string, b storage.Blob) error {
	l, err := s.lookup(h)
	if err != nil {
		return err
	}
	switch {
	case !storage.ValidBlobName(name):
		return storage.Errorf(storage.ErrInvalid, "%q cannot name a blob", name)
	case len(b.Data) > storage.MaxBlobBytes:
		return storage.Errorf(storage.ErrInvalid, "a blob of %d bytes; at most %d fit", len(b.Data), storage.MaxBlobBytes)
	}
	return l.doAs(ctx, h, func() error {
		if len(b.Data) == 0 {
			return s.class(l.removeBlob(name))
		}
		if err := s.reserve.admit(); err != nil {
			return err
		}
		return s.class(l.putBlob(name, b))
	})
}

func (l *log) putBlob(name string, b storage.Blob) error {
	fs := l.store.fs
	if err := fs.Mkdir(path.Join(l.dir, blobsName)); err == nil {
		if err := fs.SyncDir(l.dir); err != nil {
			return fmt.Errorf("sync directory: %w", err)
		}
	} else if !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make directory of blobs: %w", err)
	}
	payload := binary.BigEndian.AppendUint64(make([]byte, 0, blobOffsetBytes+len(b.Data)), uint64(b.Offset))
	return sealed.Replace(fs, l.blobPath(name), blobKind, append(payload, b.Data...))
}

func (l *log) removeBlob(name string) error {
	err := l.store.fs.Remove(l.blobPath(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove blob: %w", err)
	}
	return l.store.fs.SyncDir(path.Join(l.dir, blobsName))
}

// GetBlob implements storage.Store.
func (s *Store) GetBlob(ctx context.Context, h storage.Handle, name string) (storage.Blob, bool, error) {
	var blob storage.Blob
	found := false
	err := s.viewed(ctx, h, func(l *log, v *view) error {
		if !storage.ValidBlobName(name) {
			return storage.Errorf(storage.ErrInvalid, "%q cannot name a blob", name)
		}
		p, err := sealed.Read(s.fs, l.blobPath(name), blobKind, blobOffsetBytes+storage.MaxBlobBytes)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if errors.Is(err, sealed.ErrDamaged) || err == nil && len(p) < blobOffsetBytes {
			return storage.Errorf(storage.ErrCorrupt, "blob %s: %v", name, err)
		}
		if err != nil {
			return fmt.Errorf("read blob: %w", err)
		}
		blob = storage.Blob{Offset: int64(binary.BigEndian.Uint64(p)), Data: p[blobOffsetBytes:]}
		found = blob.Offset <= v.leo
		return nil
	})
	if err != nil || !found {
		return storage.Blob{}, false, err
	}
	return blob, true, nil
}

// dropBlobsAbove removes the blobs that describe more than leo, durably.
func (l *log) dropBlobsAbove(leo int64) error {
	fs := l.store.fs
	dir := path.Join(l.dir, blobsName)
	entries, err := fs.List(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list blobs: %w", err)
	}
	dropped := false
	for _, e := range entries {
		name := path.Join(dir, e.Name)
		if strings.HasSuffix(e.Name, blobSuffix) {
			offset, err := blobOffset(fs, name)
			if err != nil {
				return fmt.Errorf("read blob: %w", err)
			}
			if offset <= leo {
				continue
			}
		}
		if err := fs.Remove(name); err != nil {
			return fmt.Errorf("remove blob: %w", err)
		}
		dropped = true
	}
	if !dropped {
		return nil
	}
	return fs.SyncDir(dir)
}

// blobOffset reads the offset of a blob without the rest. A file that is too
// short is damaged, and stays for GetBlob to say so.
func blobOffset(fs vfs.FS, name string) (int64, error) {
	f, err := fs.Open(name, vfs.Existing)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // only read
	b := make([]byte, blobOffsetBytes)
	if _, err := f.ReadAt(b, frameHeadBytes); err != nil {
		if errors.Is(err, io.EOF) {
			return 0, nil
		}
		return 0, err
	}
	return int64(binary.BigEndian.Uint64(b)), nil
}
