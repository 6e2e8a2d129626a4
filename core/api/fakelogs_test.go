package api

import (
	"bytes"
	"context"
	"io"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// memLog is a log in memory.
type memLog struct {
	batches [][]byte
	start   int64
	leo     int64
}

func (c *cluster) log(p model.Partition) (*memLog, error) {
	reg, _, ok := c.Image().Partition(p)
	if !ok || reg.Leader != self {
		return nil, model.ErrNotLeaderOrFollower
	}
	l := c.logs[p]
	if l == nil {
		l = &memLog{}
		c.logs[p] = l
	}
	return l, nil
}

func (c *cluster) Append(_ context.Context, a model.Append, done func(model.Appended)) {
	c.mu.Lock()
	c.appends = append(c.appends, a)
	out := model.Appended{BaseOffset: -1, LogAppendTime: -1, LogStart: -1, Spent: !c.unspent}
	l, err := c.log(a.Partition)
	if err == nil {
		err = c.appendErr
	}
	if out.Err = err; err == nil {
		recordbatch.Stamp(a.Data, l.leo, 7)
		out = model.Appended{BaseOffset: l.leo, LogAppendTime: a.LogAppendTime, LogStart: l.start, LeaderEpoch: 7, Spent: !c.unspent}
		l.batches = append(l.batches, a.Data)
		l.leo += a.Batch.LastOffset - a.Batch.BaseOffset + 1
		close(c.changed)
		c.changed = make(chan struct{})
	}
	if c.hold {
		c.held = append(c.held, func() { done(out) })
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	done(out)
}

// release answers what was held, the last append first.
func (c *cluster) release() {
	c.mu.Lock()
	held := c.held
	c.held, c.hold = nil, false
	c.mu.Unlock()
	for _, f := range slices.Backward(held) {
		f()
	}
}

func (c *cluster) Fetch(ctx context.Context, f model.Fetch) *model.FetchAnswer {
	c.mu.Lock()
	c.fetches = append(c.fetches, f)
	c.mu.Unlock()
	deadline := time.NewTimer(f.MaxWait)
	defer deadline.Stop()
	for {
		c.mu.Lock()
		out, size, failed := c.fetchOnce(f)
		changed := c.changed
		c.mu.Unlock()
		if size >= f.MinBytes || failed || f.MaxWait <= 0 {
			return &model.FetchAnswer{Partitions: out}
		}
		select {
		case <-changed:
		case <-deadline.C:
			return &model.FetchAnswer{Partitions: out}
		case <-ctx.Done():
			return &model.FetchAnswer{Partitions: out}
		}
	}
}

func (c *cluster) fetchOnce(f model.Fetch) (out []model.Fetched, size int, failed bool) {
	for _, p := range f.Partitions {
		got := model.Fetched{Partition: p.Partition, HighWatermark: -1, LastStable: -1, LogStart: -1}
		l, err := c.log(p.Partition)
		if err == nil {
			err = c.fetchErr[p.Partition]
		}
		switch {
		case err != nil:
			got.Err = err
		case p.CurrentEpoch != model.NoEpoch && p.CurrentEpoch < 7:
			got.Err = model.ErrFencedLeaderEpoch
		case p.LastFetchedEpoch > 7:
			got.Diverging = &model.EpochEnd{Epoch: 7, EndOffset: l.leo}
			got.HighWatermark, got.LastStable, got.LogStart = l.leo, l.leo, l.start
		case p.Offset < l.start || p.Offset > l.leo:
			got.Err = model.ErrOffsetOutOfRange
		default:
			got.HighWatermark, got.LastStable, got.LogStart, got.LeaderEpoch = l.leo, l.leo, l.start, 7
			if got.Elsewhere = p.Elsewhere; got.Elsewhere {
				failed = true // which is told at once, too
				break
			}
			for _, b := range l.batches {
				info, _ := recordbatch.Parse(b)
				if info.LastOffset >= p.Offset && size < f.MaxBytes {
					got.Data = append(got.Data, b)
					size += len(b)
				}
			}
		}
		if c.file != nil && f.Sections && len(got.Data) > 0 {
			got.Section, got.Data = c.section(got.Data), nil
		}
		failed = failed || got.Err != nil || got.Diverging != nil
		out = append(out, got)
	}
	return out, size, failed
}

// section writes batches to the file.
func (c *cluster) section(batches [][]byte) model.Section {
	pos, err := c.file.Seek(0, io.SeekEnd)
	if err != nil {
		panic(err)
	}
	n, err := c.file.Write(bytes.Join(batches, nil))
	if err != nil {
		panic(err)
	}
	return model.Section{File: c.file, Pos: pos, Bytes: n}
}

func (c *cluster) Offsets(_ context.Context, qs []model.OffsetQuery) []model.OffsetAnswer {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]model.OffsetAnswer, len(qs))
	for i, q := range qs {
		l, err := c.log(q.Partition)
		out[i] = model.OffsetAnswer{Offset: -1, Timestamp: -1, LeaderEpoch: 7, Err: err}
		if err != nil {
			continue
		}
		switch q.Timestamp {
		case model.TimestampLatest:
			out[i].Offset = l.leo
		case model.TimestampEarliest:
			out[i].Offset = l.start
		case 404:
			out[i].Err = model.ErrOffsetNotAvailable
		default:
			out[i].Offset, out[i].Timestamp = l.leo-1, q.Timestamp
		}
	}
	return out
}

func (c *cluster) EpochEnds(_ context.Context, qs []model.EpochQuery) []model.EpochAnswer {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]model.EpochAnswer, len(qs))
	for i, q := range qs {
		l, err := c.log(q.Partition)
		switch {
		case err != nil:
			out[i].Err = err
		case q.CurrentEpoch != model.NoEpoch && q.CurrentEpoch < 7:
			out[i].Err = model.ErrFencedLeaderEpoch
		default:
			out[i].EpochEnd = model.EpochEnd{Epoch: min(q.Epoch, 7), EndOffset: l.leo}
		}
	}
	return out
}

func (c *cluster) Trim(_ context.Context, qs []model.TrimQuery) []model.TrimAnswer {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trims = append(c.trims, qs...)
	out := make([]model.TrimAnswer, len(qs))
	for i, q := range qs {
		l, err := c.log(q.Partition)
		switch {
		case err != nil:
			out[i].Err = err
		case q.Offset > l.leo:
			out[i].Err = model.ErrOffsetOutOfRange
		case q.Offset == -1:
			l.start = l.leo
		default:
			l.start = q.Offset
		}
		if out[i].Err == nil {
			out[i].LowWatermark = l.start
		}
	}
	return out
}

func (c *cluster) Producers(_ context.Context, ps []model.Partition) []model.ProducersAnswer {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]model.ProducersAnswer, len(ps))
	for i, p := range ps {
		if _, err := c.log(p); err != nil {
			out[i].Err = err
			continue
		}
		for _, a := range c.appends {
			if a.Partition == p && a.Batch.ProducerID >= 0 {
				out[i].Producers = append(out[i].Producers, model.ProducerState{
					ID: a.Batch.ProducerID, Epoch: a.Batch.ProducerEpoch, LastSequence: a.Batch.BaseSequence, LastTimestamp: a.Batch.MaxTimestamp})
			}
		}
	}
	return out
}

func (c *cluster) Directories(context.Context) []model.Directory {
	return []model.Directory{{
		Name: "default", Plugin: "mem", TotalBytes: 1000, FreeBytes: 400,
		Replicas: []model.ReplicaStatus{
			{Partition: model.Partition{Topic: topicID("orders"), Index: 1}, Bytes: 20, HighWatermark: 9, LEO: 7},
			{Partition: model.Partition{Topic: topicID("orders"), Index: 0}, Bytes: 10, Leader: true},
			{Partition: model.Partition{Topic: topicID("forgotten")}, Bytes: 5},
		},
	}, {Name: "broken", Err: io.ErrUnexpectedEOF}}
}
