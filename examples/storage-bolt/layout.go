package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// The names of buckets and keys; see the package comment.
var (
	storeBucket  = []byte("store")
	identityKey  = []byte("identity")
	directoryKey = []byte("directory")

	logsBucket    = []byte("logs")
	metaKey       = []byte("meta")
	batchesBucket = []byte("batches")
	blobsBucket   = []byte("blobs")
)

// meta is what is kept of a log beside its batches.
type meta struct {
	Label string `json:"label"`
	Start int64  `json:"start"` // log start offset
	End   int64  `json:"end"`   // LEO
	Bytes int64  `json:"bytes"` // of the batches
}

// logBucket is a log within a transaction. Its Bucket is nil if there is no such
// log.
type logBucket struct{ *bolt.Bucket }

// key is the name of a log's bucket: sixteen bytes of topic, four of partition.
func key(id storage.LogID) []byte {
	return binary.BigEndian.AppendUint32(append([]byte(nil), id.Topic[:]...), uint32(id.Partition))
}

// logOf is the log whose bucket has that key.
func logOf(key []byte) (id storage.LogID) {
	copy(id.Topic[:], key)
	id.Partition = int32(binary.BigEndian.Uint32(key[len(id.Topic):]))
	return id
}

func findLog(tx *bolt.Tx, id storage.LogID) logBucket {
	return logBucket{tx.Bucket(logsBucket).Bucket(key(id))}
}

func createLog(tx *bolt.Tx, id storage.LogID, label string) (logBucket, error) {
	b, err := tx.Bucket(logsBucket).CreateBucket(key(id))
	if err != nil {
		return logBucket{}, err
	}
	for _, name := range [][]byte{batchesBucket, blobsBucket} {
		if _, err := b.CreateBucket(name); err != nil {
			return logBucket{}, err
		}
	}
	l := logBucket{b}
	return l, l.setMeta(meta{Label: label})
}

func (l logBucket) meta() (meta, error) {
	var m meta
	if err := json.Unmarshal(l.Get(metaKey), &m); err != nil {
		return meta{}, storage.Errorf(storage.ErrCorrupt, "what is kept of a log cannot be read: %v", err)
	}
	return m, nil
}

func (l logBucket) setMeta(m meta) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode what is kept of a log: %w", err)
	}
	return l.Put(metaKey, b)
}

func (l logBucket) batches() *bolt.Bucket { return l.Bucket.Bucket(batchesBucket) }
func (l logBucket) blobs() *bolt.Bucket   { return l.Bucket.Bucket(blobsBucket) }

// row is a batch as it lies in the file: under its base offset, behind the time
// at which it was written (8 bytes, milliseconds since 1970).
type row struct {
	storage.BatchInfo
	written int64
	batch   []byte // belongs to the transaction
}

const writtenBytes = 8

func offsetKey(offset int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(offset)) }

func encodeRow(r row) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(r.written)), r.batch...)
}

// decodeRow reads a row, and with crc true checks the bytes of its records too.
func decodeRow(k, v []byte, crc bool) (row, error) {
	at := int64(binary.BigEndian.Uint64(k))
	if len(v) < writtenBytes {
		return row{}, storage.Errorf(storage.ErrCorrupt, "the batch at offset %d is missing", at)
	}
	r := row{written: int64(binary.BigEndian.Uint64(v)), batch: v[writtenBytes:]}
	var err error
	if r.BatchInfo, err = recordbatch.Parse(r.batch); err == nil && crc {
		err = recordbatch.CheckCRC(r.batch)
	}
	switch {
	case err != nil:
		return row{}, storage.Errorf(storage.ErrCorrupt, "the batch at offset %d: %v", at, err)
	case r.BaseOffset != at || int(r.Bytes) != len(r.batch):
		return row{}, storage.Errorf(storage.ErrCorrupt, "the batch at offset %d has the header of another", at)
	}
	return r, nil
}

// before returns the last batch that begins below offset. There is none when its
// leader epoch is -1.
func (l logBucket) before(offset int64) (row, error) {
	c := l.batches().Cursor()
	at, _ := c.Seek(offsetKey(offset))
	k, v := c.Last()
	if at != nil {
		c.Seek(at)
		k, v = c.Prev()
	}
	if k == nil {
		return row{BatchInfo: storage.BatchInfo{LastOffset: -1, LeaderEpoch: -1}}, nil
	}
	return decodeRow(k, v, false)
}

// each calls f for the batches from the one that holds offset on, or the first
// after it, until f says that it has enough.
func (l logBucket) each(offset int64, crc bool, f func(row) (more bool, err error)) error {
	before, err := l.before(offset)
	if err != nil {
		return err
	}
	if before.LastOffset >= offset {
		offset = before.BaseOffset
	}
	c := l.batches().Cursor()
	for k, v := c.Seek(offsetKey(offset)); k != nil; k, v = c.Next() {
		r, err := decodeRow(k, v, crc)
		if err != nil {
			return err
		}
		if more, err := f(r); err != nil || !more {
			return err
		}
	}
	return nil
}

// rows returns the batches that hold an offset in [from, to).
func (l logBucket) rows(from, to int64) ([]row, error) {
	var rows []row
	err := l.each(from, false, func(r row) (bool, error) {
		if r.BaseOffset >= to {
			return false, nil
		}
		rows = append(rows, r)
		return true, nil
	})
	return rows, err
}

// put writes batches, and counts them.
func (l logBucket) put(m *meta, rows []row) error {
	b := l.batches()
	b.FillPercent = 1 // keys nearly always rise
	for _, r := range rows {
		if err := b.Put(offsetKey(r.BaseOffset), encodeRow(r)); err != nil {
			return err
		}
		m.Bytes += int64(r.Bytes)
	}
	return nil
}

// drop deletes batches, and counts them.
func (l logBucket) drop(m *meta, rows []row) error {
	for _, r := range rows {
		if err := l.batches().Delete(offsetKey(r.BaseOffset)); err != nil {
			return err
		}
		m.Bytes -= int64(r.Bytes)
	}
	return nil
}
