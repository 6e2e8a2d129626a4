package main

import (
	"bytes"
	"context"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// Append implements storage.Store.
func (s *store) Append(_ context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
	var result storage.AppendResult
	s.enqueue(op{
		run: func(tx *bolt.Tx) (err error) {
			result, err = s.appendIn(tx, &req)
			return err
		},
		done: func(err error) {
			if err != nil {
				result = storage.AppendResult{}
			}
			done(result, err)
		},
		shares: true,
	})
}

// appendIn makes the checks in the contract's order, then the change.
func (s *store) appendIn(tx *bolt.Tx, req *storage.AppendRequest) (storage.AppendResult, error) {
	h, err := s.lookup(req.Handle)
	if err != nil {
		return storage.AppendResult{}, err
	}
	if req.LeaderEpoch < h.log.seen {
		return storage.AppendResult{}, fencedEpoch(req.LeaderEpoch, h.log.seen)
	}
	rows, err := split(req.Batches, bytes.Join(req.Data, nil))
	if err != nil {
		return storage.AppendResult{}, err
	}
	l := findLog(tx, h.log.id)
	m, err := l.meta()
	if err != nil {
		return storage.AppendResult{}, err
	}
	if err := checkAppend(req, rows); err != nil {
		return storage.AppendResult{}, err
	}
	repeat, err := l.holds(rows)
	if err != nil {
		return storage.AppendResult{}, err
	}
	if !repeat {
		if err := s.extend(l, &m, req.BaseOffset, rows); err != nil {
			return storage.AppendResult{}, err
		}
	}
	h.log.seen = req.LeaderEpoch
	return storage.AppendResult{LEO: m.End, Survives: storage.SurvivesMachine, Durable: m.End}, nil
}

// extend puts batches at the end of the log.
func (s *store) extend(l logBucket, m *meta, base int64, rows []row) error {
	if base != m.End {
		return storage.Errorf(storage.ErrInvalid, "the base offset is %d but the log ends at %d", base, m.End)
	}
	last, err := l.before(m.End)
	if err != nil {
		return err
	}
	if first := rows[0].LeaderEpoch; first < last.LeaderEpoch {
		return storage.Errorf(storage.ErrInvalid, "leader epoch %d falls below %d, the last batch's", first, last.LeaderEpoch)
	}
	if err := s.take(rows); err != nil {
		return err
	}
	if err := l.put(m, rows); err != nil {
		return err
	}
	m.End = rows[len(rows)-1].LastOffset + 1
	return l.setMeta(*m)
}

// take says whether there is room for batches, and counts them as taken until
// the end of the transaction.
func (s *store) take(rows []row) error {
	need := int64(0)
	for _, r := range rows {
		need += int64(r.Bytes)
	}
	usage, err := s.free()
	if err != nil {
		return err
	}
	if need > usage.Free {
		return storage.Errorf(storage.ErrFull, "%d bytes are free and %d are needed", usage.Free, need)
	}
	s.taken += need
	return nil
}

// checkAppend checks what a request asks for, apart from its place in the log.
func checkAppend(req *storage.AppendRequest, rows []row) error {
	if req.Require < storage.SurvivesUnset || req.Require > storage.SurvivesMachine {
		return storage.Errorf(storage.ErrInvalid, "the store cannot make an append survive level %d", req.Require)
	}
	if len(rows) == 0 {
		return storage.Errorf(storage.ErrInvalid, "the append has no batch")
	}
	if first := rows[0].BaseOffset; first < req.BaseOffset {
		return storage.Errorf(storage.ErrInvalid, "the first batch is at %d, below the base offset %d", first, req.BaseOffset)
	}
	if last := rows[len(rows)-1].LeaderEpoch; last > req.LeaderEpoch {
		return storage.Errorf(storage.ErrInvalid, "a batch of leader epoch %d comes from leader epoch %d", last, req.LeaderEpoch)
	}
	return nil
}

// split finds the batches that infos describe in data, which it keeps, and
// checks that they are intact and in order.
func split(infos []storage.BatchInfo, data []byte) ([]row, error) {
	now := time.Now().UnixMilli()
	rows := make([]row, 0, min(len(infos), len(data)/recordbatch.MinBytes))
	for i, want := range infos {
		info, batch, rest, err := recordbatch.Next(data)
		switch {
		case err != nil:
			return nil, storage.Errorf(storage.ErrInvalid, "batch %d: %v", i, err)
		case info != want:
			return nil, storage.Errorf(storage.ErrInvalid, "batch %d is not the one that is described", i)
		case i > 0 && info.BaseOffset <= infos[i-1].LastOffset:
			return nil, storage.Errorf(storage.ErrInvalid, "batch %d begins at %d, inside the one before", i, info.BaseOffset)
		case i > 0 && info.LeaderEpoch < infos[i-1].LeaderEpoch:
			return nil, storage.Errorf(storage.ErrInvalid, "the leader epoch of batch %d falls", i)
		}
		rows = append(rows, row{BatchInfo: info, written: now, batch: batch})
		data = rest
	}
	if len(data) > 0 {
		return nil, storage.Errorf(storage.ErrInvalid, "%d bytes follow the batches described", len(data))
	}
	return rows, nil
}

// holds says whether the log has all these batches, one after the other, byte
// for byte.
func (l logBucket) holds(rows []row) (bool, error) {
	same := 0
	err := l.each(rows[0].BaseOffset, false, func(r row) (bool, error) {
		if !bytes.Equal(r.batch, rows[same].batch) {
			return false, nil
		}
		same++
		return same < len(rows), nil
	})
	return same == len(rows), err
}

func fencedEpoch(epoch, seen int32) error {
	return storage.Errorf(storage.ErrFenced, "leader epoch %d is lower than %d, which the log has seen", epoch, seen)
}
