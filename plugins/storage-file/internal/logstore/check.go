package logstore

import (
	"bytes"
	"errors"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// checkAppend makes the contract's checks in its order, against the log as it
// will be after the group. repeat: the batches may be in the log already.
func (l *log) checkAppend(g *group, a *pendingAppend) (repeat bool, err error) {
	req := &a.req
	if err := l.check(req.Handle); err != nil {
		return false, err
	}
	if l.astray == req.Handle {
		return false, errAstray()
	}
	if a.behind != nil {
		return false, a.behind
	}
	if req.LeaderEpoch < g.seen {
		return false, storage.Errorf(storage.ErrFenced, "leader epoch %d is lower than %d, which the log has seen", req.LeaderEpoch, g.seen)
	}
	if req.Require < storage.SurvivesUnset || req.Require > storage.SurvivesMachine {
		return false, storage.Errorf(storage.ErrInvalid, "a file cannot make an append survive level %d", req.Require)
	}
	if req.Granted != 0 {
		return false, l.checkTold(g, a)
	}
	if err := checkBatches(req.Batches, req.BaseOffset, req.Checked, req.Data...); err != nil {
		return false, err
	}
	if last := req.Batches[len(req.Batches)-1].LeaderEpoch; last > req.LeaderEpoch {
		return false, storage.Errorf(storage.ErrInvalid, "a batch of leader epoch %d comes from leader epoch %d", last, req.LeaderEpoch)
	}
	if req.BaseOffset < g.leo {
		return true, nil
	}
	if req.BaseOffset > g.leo {
		return false, storage.Errorf(storage.ErrInvalid, "the base offset is %d but the log ends at %d", req.BaseOffset, g.leo)
	}
	if first := req.Batches[0].LeaderEpoch; first < g.epoch {
		return false, storage.Errorf(storage.ErrInvalid, "leader epoch %d falls below %d, the last batch's", first, g.epoch)
	}
	return false, l.store.reserve.admit()
}

// checkBatches checks that infos describe data, and that the batches are whole,
// intact by CRC, unless that was checked, and rise from base on.
func checkBatches(infos []storage.BatchInfo, base int64, checked bool, data ...[]byte) error {
	if len(infos) == 0 {
		return storage.Errorf(storage.ErrInvalid, "there is no batch")
	}
	if n := recordbatch.TotalBytes(data); n > segment.BytesMax {
		return storage.Errorf(storage.ErrInvalid, "%d bytes at once; a segment holds %d", n, segment.BytesMax)
	}
	chain := segment.Chain{Next: base, Gaps: true, Epoch: epochNone}
	var rest []byte
	for i := range infos {
		for len(rest) == 0 && len(data) > 0 {
			rest, data = data[0], data[1:]
		}
		info, tail, err := nextBatch(rest, checked)
		if err == nil && info != infos[i] {
			err = errors.New("it is not the one that is described")
		}
		if err == nil {
			err = chain.Check(info)
		}
		if err != nil {
			return storage.Errorf(storage.ErrInvalid, "batch %d: %v", i, err)
		}
		rest = tail
	}
	if n := recordbatch.TotalBytes(data) + len(rest); n > 0 {
		return storage.Errorf(storage.ErrInvalid, "%d bytes follow the batches described", n)
	}
	return nil
}

// nextBatch is recordbatch.Next, but for the CRC where it was checked.
func nextBatch(b []byte, checked bool) (info recordbatch.Info, rest []byte, err error) {
	if !checked {
		info, _, rest, err = recordbatch.Next(b)
		return info, rest, err
	}
	if info, err = recordbatch.Parse(b); err != nil {
		return info, nil, err
	}
	if int(info.Bytes) > len(b) {
		return info, nil, recordbatch.ErrIncomplete
	}
	return info, b[info.Bytes:], nil
}

// checkRepeat passes an append whose batches are all in the log, byte for byte.
func (l *log) checkRepeat(a *pendingAppend) error {
	wrong := storage.Errorf(storage.ErrInvalid, "the base offset is %d but the log ends at %d", a.req.BaseOffset, l.leo)
	first, last := a.req.Batches[0], a.req.Batches[len(a.req.Batches)-1]
	if first.BaseOffset < l.logStart || last.LastOffset >= l.leo {
		return wrong
	}
	got, err := l.read(l.snapshot(), storage.ReadRequest{
		Offset: first.BaseOffset, UpTo: last.LastOffset + 1, MaxBytes: int(a.bytes), AtLeastOne: true,
	})
	if err != nil {
		return l.store.class(err)
	}
	if !bytes.Equal(got.Data, bytes.Join(a.req.Data, nil)) {
		return wrong
	}
	return nil
}

// failBehind marks the appends of a handle that are queued behind a failed one.
func (l *log) failBehind(h storage.Handle, err error, taken ...[]op) {
	behind := storage.Errorf(storage.ErrInvalid, "an append before this one failed: %v", err)
	mark := func(ops []op) {
		for _, o := range ops {
			if o.append != nil && o.append.req.Handle == h && o.append.behind == nil {
				o.append.behind = behind
			}
		}
	}
	for _, ops := range taken {
		mark(ops)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	mark(l.queue)
}
