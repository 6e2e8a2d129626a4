package logstore

import (
	"path"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/openfiles"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
)

// A copy of a segment's first bytes is written and synced under a temporary name, which
// an opening removes, and takes the segment's place by a rename. Until then it can be
// dropped, and the log is as it was.

// copySegment puts a copy of a segment's first bytes in its place, synced but for
// its name. The copy is acquired, and so is the segment, whose file stays as it is.
// After an error there is no copy.
func copySegment(fs *openfiles.Cache, dir string, seg *segment.Segment, bytes int64) (*segment.Segment, error) {
	fresh, err := writeCopy(fs, dir, seg, bytes)
	if err != nil {
		return nil, err
	}
	if err := placeCopy(fs, dir, fresh); err != nil {
		dropCopy(fs, fresh)
		return nil, err
	}
	return fresh, nil
}

// writeCopy writes a copy of a segment's first bytes under its temporary name, and
// syncs it. It is acquired, to be placed or dropped; after an error there is none.
func writeCopy(fs *openfiles.Cache, dir string, seg *segment.Segment, bytes int64) (*segment.Segment, error) {
	fresh, err := segment.CreateCleaned(fs, dir, seg.Base())
	if err != nil {
		return nil, err
	}
	err = copyFile(fresh.File(), seg.File(), bytes)
	if err == nil {
		err = fresh.File().Sync()
	}
	if err != nil {
		dropCopy(fs, fresh)
		return nil, err
	}
	return fresh, nil
}

// placeCopy gives a copy the name of its segment, which is not durable yet.
func placeCopy(fs *openfiles.Cache, dir string, fresh *segment.Segment) error {
	if err := fs.Rename(fresh.FileName(), path.Join(dir, segment.Name(fresh.Base(), segment.LogSuffix))); err != nil {
		return err
	}
	fresh.Renamed()
	return nil
}

// dropCopy removes a copy that was not placed.
func dropCopy(fs *openfiles.Cache, fresh *segment.Segment) {
	_ = fs.Remove(fresh.FileName()) // else at the next opening
	fresh.Release()
	fresh.Retire()
}

// copyBytes is what is copied at once.
const copyBytes = 1 << 20

// copyFile writes the first bytes of one file to the same place of another, or over
// themselves.
func copyFile(to, from vfs.File, bytes int64) error {
	buf := make([]byte, min(bytes, copyBytes))
	for at := int64(0); at < bytes; {
		b := buf[:min(bytes-at, copyBytes)]
		if _, err := from.ReadAt(b, at); err != nil {
			return err
		}
		if _, err := to.WriteVecAt([][]byte{b}, at); err != nil {
			return err
		}
		at += int64(len(b))
	}
	return nil
}
