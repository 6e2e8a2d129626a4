package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/group"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// loadAgain is the wait before a log is read on which does not yield all of its
	// records yet: they are below its end, but not all committed.
	loadAgain = 20 * time.Millisecond
	// openAgain is the wait before a log is asked again whose replica is not there yet,
	// or does not know the leader epoch yet.
	openAgain = 100 * time.Millisecond
	// loadTold is how often a load that takes long is told of, and how long one waits for
	// its log before that counts as a failure.
	loadTold = 5 * time.Second
	// goneAfter is how long a topic that groups have offsets of, and that was not
	// there after a load, has to stay away for them to go: this broker may hear of a
	// topic later than the one that committed to it did.
	goneAfter = 30 * time.Second
)

// chunkBytesMax bounds what is decompressed of a log before it is replayed, but for the
// last batch. A record takes its key and value, and chunkRecordBytes.
const (
	chunkBytesMax    = 4 << 20
	chunkRecordBytes = 128
)

// passedTold bounds the places passed over that one load names; all are counted.
const passedTold = 10

// loading is how far a log has been read.
type loading struct {
	gen     group.Generation
	active  bool
	parked  bool // until appends of before are answered
	asked   bool // whether the log is open: from then on a read does not wait for that
	begun   time.Time
	told    time.Time
	next    int64
	end     int64 // -1: not known yet
	records int
	passed  int                 // batches and ranges that could not be read
	topics  map[string]struct{} // that occur
}

// chunk is a part of a log.
type chunk struct {
	gen     group.Generation
	next    int64 // where to read on
	end     int64
	waits   bool // for the log to be opened
	records []group.Record
	bytes   int // that they take, about
	passed  []error
	topics  []string
	err     error
}

// startLoad begins to read a whole log.
func (s *Shard) startLoad(now time.Time, h *hosted, gen group.Generation) {
	h.loaded = false
	h.load = loading{gen: gen, active: true, begun: now, told: now, end: -1, topics: make(map[string]struct{})}
	s.read(now, h)
}

// read asks for the next chunk.
func (s *Shard) read(now time.Time, h *hosted) {
	switch {
	case h.ended || !h.load.active:
		return
	case s.underway[h.partition] > 0:
		// What an earlier machine has asked to write may come into the log yet.
		h.load.parked = true
		s.timers.Set(timerKey{h, timerLoad}, now.Add(loadTold))
		return
	case s.loads >= loadsMax:
		s.loadQueue = append(s.loadQueue, h)
		return
	}
	s.loads++
	r := reader{source: s.source, lead: h.lead, bytes: s.cfg.ChunkBytes}
	c := &chunk{gen: h.load.gen, next: h.load.next, end: h.load.end, waits: !h.load.asked}
	s.exec.Go(s.index, func(ctx context.Context) {
		r.read(ctx, c)
		s.complete(Input{kind: inputChunk, seldom: &seldom{hosted: h, chunk: c}})
	})
}

// chunkRead replays a chunk, and reads on.
func (s *Shard) chunkRead(now time.Time, h *hosted, c *chunk) {
	s.loads--
	for len(s.loadQueue) > 0 && s.loads < loadsMax {
		next := s.loadQueue[0]
		s.loadQueue = s.loadQueue[1:]
		s.read(now, next)
	}
	l := &h.load
	if h.ended || !l.active || c.gen != l.gen {
		return
	}
	if notYet(c.err) {
		l.asked = true
		s.readAgain(now, h, openAgain, c.err)
		return
	}
	if c.err != nil {
		s.loadFailed(now, h, c.err)
		return
	}
	progress := c.next > l.next
	l.next, l.end = c.next, c.end
	l.records += len(c.records)
	for _, t := range c.topics {
		l.topics[t] = struct{}{}
	}
	for _, err := range c.passed {
		if l.passed++; l.passed <= passedTold {
			s.logOf(h).Error("records of the offsets topic cannot be read; they are passed over", "err", err)
		}
	}
	if len(c.records) > 0 {
		s.step(now, h, &group.Replay{Gen: l.gen, Records: c.records})
	}
	switch {
	case l.next >= l.end:
		s.finishLoad(now, h)
	case progress:
		s.tellProgress(now, h)
		s.read(now, h)
	default:
		s.readAgain(now, h, loadAgain, fmt.Errorf("records from offset %d to %d are not committed yet: %w", l.next, l.end-1, model.ErrOffsetNotAvailable))
	}
}

// notYet reports that a replica will soon answer, or that metadata will soon say that it
// is not to be asked: logs are opened when a broker starts, and a leader epoch reaches the
// replicas and the groups beside each other.
func notYet(err error) bool {
	return errors.Is(err, model.ErrNotLeaderOrFollower) || errors.Is(err, model.ErrOffsetNotAvailable) ||
		errors.Is(err, model.ErrUnknownLeaderEpoch) || errors.Is(err, model.ErrFencedLeaderEpoch)
}

// unpark reads what had to wait for earlier appends.
func (s *Shard) unpark(now time.Time, h *hosted) {
	h.load.parked = false
	s.timers.Cancel(timerKey{h, timerLoad})
	s.read(now, h)
}

// waited goes on with a load that has waited, or tells what it still waits for.
func (s *Shard) waited(now time.Time, h *hosted) {
	if !h.load.parked {
		s.read(now, h)
		return
	}
	s.tellFailure(now, h, fmt.Errorf("%d earlier appends are not answered yet: %w", s.underway[h.partition], model.ErrOffsetNotAvailable))
	s.timers.Set(timerKey{h, timerLoad}, now.Add(loadTold))
}

// readAgain reads on after a while, and tells of it when that takes long. The end is asked
// for anew: a store that has lost what was not committed yet would let the load wait for
// it for ever.
func (s *Shard) readAgain(now time.Time, h *hosted, after time.Duration, why error) {
	l := &h.load
	l.end = -1
	if now.Sub(l.told) >= loadTold {
		l.told = now
		s.tellFailure(now, h, why)
	}
	s.timers.Set(timerKey{h, timerLoad}, now.Add(after))
}

func (s *Shard) tellProgress(now time.Time, h *hosted) {
	if l := &h.load; now.Sub(l.told) >= loadTold {
		l.told = now
		s.logOf(h).Info("loading groups", "offset", l.next, "end", l.end, "records", l.records, "took", now.Sub(l.begun))
	}
}

// loadFailed tells the machine, which asks again.
func (s *Shard) loadFailed(now time.Time, h *hosted, err error) {
	h.load.active = false
	s.tellFailure(now, h, err)
	s.step(now, h, &group.Loaded{Gen: h.load.gen, Err: err})
}

func (s *Shard) tellFailure(now time.Time, h *hosted, err error) {
	s.events.LoadFailed()
	if times, log := s.failures.tell(now); log {
		s.logOf(h).Warn("load groups; it is tried again", "offset", h.load.next, "times", times, "err", err)
	}
}

// finishLoad begins to serve.
func (s *Shard) finishLoad(now time.Time, h *hosted) {
	l := &h.load
	l.active, h.loaded = false, true
	took := now.Sub(l.begun)
	s.events.Loaded(took)
	log := s.logOf(h).With("records", l.records, "passed_over", l.passed, "took", took)
	switch {
	case l.passed > 0:
		log.Warn("groups are loaded")
	case took >= loadTold:
		log.Info("groups are loaded")
	default:
		log.Debug("groups are loaded")
	}
	s.step(now, h, &group.Loaded{Gen: l.gen})
	s.host.serves(h.partition.Index, true)
	for t := range l.topics {
		if s.host.exists(t) {
			delete(l.topics, t)
		}
	}
	if len(l.topics) > 0 {
		s.timers.Set(timerKey{h, timerGone}, now.Add(goneAfter))
	}
}

// stillGone removes the offsets of topics that went while nobody coordinated.
func (s *Shard) stillGone(now time.Time, h *hosted) {
	var gone []string
	for t := range h.load.topics {
		if !s.host.exists(t) {
			gone = append(gone, t)
		}
	}
	h.load.topics = nil
	if h.loaded && len(gone) > 0 {
		s.logOf(h).Info("removing the offsets of topics that are gone", "topics", len(gone))
		s.step(now, h, &group.TopicsDeleted{Topics: gone})
	}
}

// reader reads chunks of one log.
type reader struct {
	source Log
	lead   lead
	bytes  int
}

// read fills in a chunk. The end that is read to holds whatever was written before
// the load: it is the log's own, not the high watermark, which is waited for.
func (r reader) read(ctx context.Context, c *chunk) {
	if c.end < 0 {
		if c.end, c.err = r.end(ctx, c.waits); c.err != nil {
			return
		}
	}
	if c.next >= c.end {
		return
	}
	f := r.fetch(ctx, c.next)
	switch {
	case f.Err == nil:
		for _, batches := range f.Data {
			if c.decode(batches); c.err != nil {
				break
			}
		}
	case errors.Is(f.Err, model.ErrOffsetOutOfRange) && f.LogStart > c.next:
		c.next = f.LogStart
	case errors.Is(f.Err, model.ErrCorruptMessage):
		r.passOver(ctx, c, f.Err)
	default:
		c.err = f.Err
	}
}

// end is where the log ends. It waits for a log that is being opened only if it is told
// to: where a store is away, those who wait would be in the way of others' logs.
func (r reader) end(ctx context.Context, waits bool) (int64, error) {
	if !waits {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 0)
		defer cancel()
	}
	a := r.source.EpochEnds(ctx, []model.EpochQuery{{Partition: r.lead.partition, CurrentEpoch: r.lead.epoch, Epoch: r.lead.epoch}})[0]
	if a.Err == nil && a.EndOffset < 0 {
		return -1, fmt.Errorf("the log does not know epoch %d: %w", r.lead.epoch, model.ErrOffsetNotAvailable)
	}
	return a.EndOffset, a.Err
}

func (r reader) fetch(ctx context.Context, offset int64) model.Fetched {
	return r.source.Fetch(ctx, model.Fetch{
		MaxBytes: r.bytes, Isolation: model.ReadUncommitted,
		Partitions: []model.FetchPartition{{
			Partition: r.lead.partition, Offset: offset, LogStart: -1, MaxBytes: r.bytes,
			CurrentEpoch: r.lead.epoch, LastFetchedEpoch: model.NoEpoch,
		}},
	}).Partitions[0]
}

// passOver finds where a damaged range ends, in few reads: groups that have lost their
// last commits go on from earlier ones, where all groups of the partition would stand
// still otherwise.
func (r reader) passOver(ctx context.Context, c *chunk, damage error) {
	bad, good := c.next, c.next
	for step := int64(1); good < c.end; step *= 2 {
		good = min(bad+step, c.end)
		readable, err := r.readable(ctx, good, c.end)
		if err != nil {
			c.err = err
			return
		}
		if readable {
			break
		}
		bad = good
	}
	for good-bad > 1 {
		middle := bad + (good-bad)/2
		readable, err := r.readable(ctx, middle, c.end)
		switch {
		case err != nil:
			c.err = err
			return
		case readable:
			good = middle
		default:
			bad = middle
		}
	}
	c.passed = append(c.passed, fmt.Errorf("offsets %d to %d: %w", c.next, good-1, damage))
	c.next = good
}

func (r reader) readable(ctx context.Context, offset, end int64) (bool, error) {
	if offset >= end {
		return true, nil
	}
	err := r.fetch(ctx, offset).Err
	if errors.Is(err, model.ErrCorruptMessage) {
		return false, nil
	}
	return err == nil, err
}

// decode takes the records of whole batches. Those that cannot be read are passed
// over: the rest of the groups is worth more. What would be too much at once is left to
// the next chunk.
func (c *chunk) decode(data []byte) {
	for len(data) > 0 && c.bytes < chunkBytesMax {
		info, err := recordbatch.Parse(data)
		if err == nil && int(info.Bytes) > len(data) {
			err = recordbatch.ErrIncomplete
		}
		if err != nil {
			c.err = fmt.Errorf("the log yields no batch at offset %d: %w", c.next, err)
			return
		}
		if info.Attributes&(recordbatch.AttrControl|recordbatch.AttrTransactional) == 0 {
			c.decodeBatch(data[:info.Bytes])
		}
		c.next = max(c.next, info.LastOffset+1)
		data = data[info.Bytes:]
	}
}

func (c *chunk) decodeBatch(b []byte) {
	from := len(c.records)
	for r, err := range batch.Records(b, 0) {
		if err != nil {
			c.records = c.records[:from]
			c.passed = append(c.passed, err)
			return
		}
		if r.Offset < c.next {
			continue // a batch begins before where it is read from
		}
		if topic, ok := topicOf(r.Key); ok && r.Value != nil {
			c.topics = append(c.topics, topic)
		}
		c.records = append(c.records, group.Record{Key: r.Key, Value: r.Value, Timestamp: r.Timestamp})
		c.bytes += len(r.Key) + len(r.Value) + chunkRecordBytes
	}
}

// topicOf is the topic of a record that holds a committed offset.
func topicOf(key []byte) (string, bool) {
	const offsetVersionMax = 1 // from 2 on, a key names a group's metadata or something else
	k := kmsg.NewOffsetCommitKey()
	if err := k.ReadFrom(key); err != nil || k.Version < 0 || k.Version > offsetVersionMax {
		return "", false
	}
	return k.Topic, true
}
