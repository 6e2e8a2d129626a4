package coordinator

import (
	"context"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/group"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

const (
	// batchBytesDefault is Kafka's limit of a batch, until metadata says another.
	batchBytesDefault = 1<<20 + 12
	// recordBytesMax is what a record takes beside its key and its value: lengths and
	// deltas, as varints.
	recordBytesMax = 40
	// appendTimeout is longer than any append is under way: one whose time is up has
	// an open outcome, and a machine whose writes have that has to read its whole log
	// again. Clients are told by their own deadlines.
	appendTimeout = 365 * 24 * time.Hour
)

// writing is what one partition's machine has asked to write.
type writing struct {
	queue   []queuedWrite // not sent yet
	sent    []*appending  // not told yet, in order
	sending int           // of them under way
	held    bool          // waits for room in the shard
}

// idle: nothing is asked that has no answer.
func (w *writing) idle() bool { return len(w.queue) == 0 && len(w.sent) == 0 }

// queuedWrite is one write. The machine bounds how many there are.
type queuedWrite struct {
	group.Write
	bytes int
}

// appending is one batch of adjacent writes. It is used again when its bytes are.
type appending struct {
	shard  *Shard
	run    func(context.Context) // append, bound once
	took   func(model.Appended)  // answered, bound once
	hosted *hosted
	gen    group.Generation
	epoch  model.LeaderEpoch
	writes []group.WriteID
	ask    model.Append
	data   []byte
	done   bool
	result model.Appended
}

// appendingsKept is how many appendings a shard keeps for use, and appendingBytes of how
// many bytes one may be.
const (
	appendingsKept = 16
	appendingBytes = 64 << 10
)

func (s *Shard) newAppending() *appending {
	if n := len(s.idle); n > 0 {
		a := s.idle[n-1]
		s.idle = s.idle[:n-1]
		return a
	}
	a := &appending{shard: s}
	a.run, a.took = a.append, a.answered
	return a
}

// putAppending keeps an appending for use, unless somebody may still look at its bytes.
func (s *Shard) putAppending(a *appending) {
	if !a.result.Spent || len(s.idle) == appendingsKept || cap(a.data) > appendingBytes {
		return
	}
	*a = appending{shard: s, run: a.run, took: a.took, writes: a.writes[:0], data: a.data[:0]}
	s.idle = append(s.idle, a)
}

// append appends the batch, where it may wait.
func (a *appending) append(ctx context.Context) { a.shard.source.Append(ctx, a.ask, a.took) }

// answered brings the answer to the shard.
func (a *appending) answered(r model.Appended) {
	a.result = r
	a.shard.complete(Input{kind: inputAppended, append: a})
}

// add queues what a machine has asked for.
func (w *writing) add(writes []group.Write) {
	for i := range writes {
		w.queue = append(w.queue, queuedWrite{Write: writes[i], bytes: sizeOf(writes[i].Records)})
	}
}

func sizeOf(records []group.Record) int {
	n := 0
	for i := range records {
		n += len(records[i].Key) + len(records[i].Value) + recordBytesMax
	}
	return n
}

// send packs what waits into batches and hands them to the executor.
func (s *Shard) send(now time.Time, h *hosted) {
	w := &h.writes
	for len(w.queue) > 0 && w.sending < appendsEach {
		if s.appends >= appendsMax {
			if !w.held {
				w.held = true
				s.held = append(s.held, h)
			}
			break
		}
		a, err := s.pack(h)
		w.sent = append(w.sent, a)
		if err != nil {
			a.done, a.result = true, model.Appended{Err: err, Refused: true, Spent: true}
		}
	}
	s.tell(now, h)
}

// sendHeld goes on with those that waited for room.
func (s *Shard) sendHeld(now time.Time) {
	for len(s.held) > 0 && s.appends < appendsMax {
		h := s.held[0]
		s.held = s.held[1:]
		h.writes.held = false
		if !h.ended {
			s.send(now, h)
		}
	}
}

// pack takes as many writes from the queue as fit into one batch, at least one,
// and begins to append it. With an error nothing was begun.
func (s *Shard) pack(h *hosted) (*appending, error) {
	w := &h.writes
	first := &w.queue[0]
	a := s.newAppending()
	a.hosted, a.gen, a.epoch = h, first.Gen, first.Epoch
	b := s.builder
	b.Reset()
	var failed error
	for len(w.queue) > 0 {
		q := &w.queue[0]
		if len(a.writes) > 0 && (q.Gen != a.gen || q.Epoch != a.epoch ||
			recordbatch.HeaderBytes+b.Bytes()+q.bytes > s.batchBytes) {
			break
		}
		for i := range q.Records {
			if err := b.Add(batch.Record{Key: q.Records[i].Key, Value: q.Records[i].Value, Timestamp: q.Records[i].Timestamp}); err != nil && failed == nil {
				failed = err
			}
		}
		a.writes = append(a.writes, q.ID)
		w.queue[0] = queuedWrite{}
		w.queue = dropFirst(w.queue)
	}
	if failed != nil {
		return a, failed
	}
	if b.Len() == 0 {
		a.done, a.result = true, model.Appended{Spent: true}
		return a, nil
	}
	data, err := b.AppendBatch(a.data[:0])
	if err == nil && len(data) > s.batchBytes {
		err = fmt.Errorf("a write of %d bytes to partition %d of %s, whose batches have at most %d (max.message.bytes): %w",
			len(data), h.partition.Index, model.OffsetsTopic, s.batchBytes, model.ErrMessageTooLarge)
	}
	if err != nil {
		return a, err
	}
	info, err := recordbatch.Parse(data)
	if err != nil {
		return a, fmt.Errorf("build a batch: %w", err)
	}
	a.data = data
	a.ask = model.Append{
		Partition: h.partition, Batch: info, Data: data, Acks: model.AcksAll, Timeout: appendTimeout, LogAppendTime: -1, Under: &a.epoch,
	}
	s.appends++
	s.underway[h.partition]++
	h.writes.sending++
	s.exec.Ordered(s.index, a.run)
	return a, nil
}

// dropFirst takes the first of a queue, whose room is used again when it is empty.
func dropFirst[T any](queue []T) []T {
	if len(queue) > 1 {
		return queue[1:]
	}
	return queue[:0]
}

// appended takes the answer to one batch.
func (s *Shard) appended(now time.Time, a *appending) {
	h := a.hosted
	s.appends--
	h.writes.sending--
	if s.underway[h.partition]--; s.underway[h.partition] == 0 {
		delete(s.underway, h.partition)
		if next := s.hosted[h.partition.Index]; next != nil && next.partition == h.partition && next.load.parked {
			s.unpark(now, next)
		}
	}
	a.done = true
	if !h.ended {
		s.tell(now, h)
	}
	if !h.ended {
		s.send(now, h)
	}
}

// tell gives the machine the answers that have come, in the order of its writes.
func (s *Shard) tell(now time.Time, h *hosted) {
	w := &h.writes
	for len(w.sent) > 0 && w.sent[0].done {
		a := w.sent[0]
		w.sent[0] = nil
		w.sent = dropFirst(w.sent)
		if a.result.Err != nil && !a.result.Refused {
			s.logOf(h).Warn("whether groups' records were written is not known; reading the log again", "err", a.result.Err)
			s.again(now, h)
			return
		}
		for _, id := range a.writes {
			s.written = group.Written{Gen: a.gen, ID: id, Err: a.result.Err}
			s.step(now, h, &s.written)
		}
		s.putAppending(a)
	}
}
