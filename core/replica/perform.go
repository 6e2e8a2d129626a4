package replica

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// batchedCalls collects, over a burst, the calls that take many logs.
type batchedCalls struct {
	opens   map[*Directory][]*replica
	flushes map[*Directory][]*replica
	closes  map[*Directory][]*replica
	dirs    []*Directory // that occur, in the order in which they did
}

func (b *batchedCalls) add(calls *map[*Directory][]*replica, r *replica) {
	if *calls == nil {
		*calls = make(map[*Directory][]*replica)
	}
	(*calls)[r.dir] = append((*calls)[r.dir], r)
	if !slices.Contains(b.dirs, r.dir) {
		b.dirs = append(b.dirs, r.dir)
	}
}

// openBatch is how many logs one call opens, so that the first are served
// before the last are recovered.
const openBatch = 64

// perform performs what the machines asked for in this burst.
func (s *Shard) perform() {
	for len(s.dirty) > 0 {
		dirty := s.dirty
		s.dirty = s.spare[:0]
		for _, r := range dirty {
			r.dirty = false
			s.performOne(r)
		}
		clear(dirty)
		s.spare = dirty[:0]
	}
	for _, d := range s.burst.dirs {
		for logs := range slices.Chunk(s.burst.opens[d], openBatch) {
			s.exec.Go(d.ID, s.callOpen(d, logs))
		}
		if logs := s.burst.flushes[d]; len(logs) > 0 {
			s.exec.Go(d.ID, s.callFlush(d, logs))
		}
		if logs := s.burst.closes[d]; len(logs) > 0 {
			s.exec.Go(d.ID, s.callClose(d, logs))
		}
	}
	if len(s.burst.dirs) > 0 {
		s.burst = batchedCalls{}
	}
	s.sendUpstreams()
	s.sendFeeds()
	s.sendChanges()
}

// performOne performs the effects of one machine. Readers see the new view
// before clients hear the answers that rest on it.
func (s *Shard) performOne(r *replica) {
	e := &r.effects
	s.openSure(r)
	s.judge(r)
	s.calls(r, e)
	for _, t := range e.Timers {
		s.timers.Set(timerKey{r, t.Timer}, t.At)
	}
	for i := range e.Notices {
		s.notice(r, &e.Notices[i])
	}
	if news := r.publish(); news > 0 {
		s.countOffline(r, r.view.Load().Status == partition.StatusOffline)
		r.wake(news)
	}
	s.answered(r, e)
	s.following(r, e)
	if e.Alter != nil {
		s.alter(r, e.Alter)
	}
	for _, id := range e.Releases {
		s.release(id)
	}
	for i := range e.Responses {
		s.respond(&e.Responses[i])
	}
	if e.Close != nil {
		s.closeLog(r)
	}
	e.Reset()
}

// calls hands the store's part to the executor.
func (s *Shard) calls(r *replica, e *partition.Effects) {
	if r.deleting {
		return // nothing may be done to the log any more, least of all create it
	}
	if e.Open != nil {
		r.gen, r.epoch = e.Open.Gen, e.Open.Epoch
		s.open(r)
	}
	if e.Scan != nil {
		s.exec.Go(r.dir.ID, s.callScan(r, *e.Scan))
	}
	if len(e.Appends) > 0 {
		s.appends(r, e.Appends)
	}
	if len(e.Copies) > 0 {
		s.copies(r, e.Copies)
	}
	if e.Truncate != nil {
		s.truncate(r, e.Truncate)
	}
	if e.Delete != nil && e.Delete.Gen == r.gen {
		r.renewing = true
		s.deleteLog(r)
	}
	if e.Flush != nil && e.Flush.Gen == r.gen { // the answer to an earlier one would be taken for this one's
		s.burst.add(&s.burst.flushes, r)
	}
	for _, t := range e.Trims {
		s.exec.Go(r.dir.ID, s.callTrim(r, t))
	}
	if e.Retain != nil {
		s.exec.Go(r.dir.ID, s.callRetain(r, *e.Retain))
	}
	if e.Snapshot != nil {
		s.exec.Go(r.dir.ID, s.callSnapshot(r, *e.Snapshot))
	}
}

// open has the log opened, once it is deleted where it is to be.
func (s *Shard) open(r *replica) {
	if r.opensAnew = r.renewing; r.renewing {
		return
	}
	r.opens++
	s.burst.add(&s.burst.opens, r)
}

// appendCallBytes is how much goes to a store in one append: larger brings
// nothing, and delays the answer to the first.
const appendCallBytes = 1 << 20

// appends joins adjacent appends and sends them in order.
func (s *Shard) appends(r *replica, all []partition.AppendLog) {
	for len(all) > 0 {
		n, bytes := 1, int(all[0].Bytes)
		for n < len(all) && adjacent(&all[n-1], &all[n]) && bytes+int(all[n].Bytes) <= appendCallBytes {
			bytes += int(all[n].Bytes)
			n++
		}
		s.appendCall(r, all[:n], bytes)
		all = all[n:]
	}
}

func adjacent(a, b *partition.AppendLog) bool {
	return a.Gen == b.Gen && a.Epoch == b.Epoch && a.Machine == b.Machine && b.Base == a.Last+1
}

// appendCall stamps the batches and queues one call.
func (s *Shard) appendCall(r *replica, group []partition.AppendLog, bytes int) {
	if group[0].Gen != r.gen {
		return // an opening since then has settled what becomes of these
	}
	first := &group[0]
	c := s.newCall()
	c.replica, c.handle, c.bytes = r, r.handle, bytes
	c.gen, c.epoch, c.base, c.last, c.machine = first.Gen, first.Epoch, first.Base, group[len(group)-1].Last, first.Machine
	for i := range group {
		g := &group[i]
		q := s.requests[g.ID]
		info := q.appendIn.Batch
		info.BaseOffset, info.LastOffset, info.LeaderEpoch = g.Base, g.Last, g.Epoch
		q.stamp(g.Base, g.Epoch)
		q.calls++
		c.requests = append(c.requests, q)
		c.batches = append(c.batches, info)
		c.parts = append(c.parts, q.data)
		c.frames = append(c.frames, q.frame) // it is none of a copy
	}
	s.exec.Ordered(Lane{s.index, r.dir.ID}, c.run)
}

// stamp writes the leader's fields into the batch. Bytes that a store may still
// be reading, from an append under an earlier epoch, are not changed: another
// copy is.
func (q *request) stamp(base int64, epoch model.LeaderEpoch) {
	if q.stamped && q.stampedBase == base && q.stampedEpoch == epoch {
		return
	}
	if q.stamped {
		q.data, q.frame = slices.Clone(q.data), nil
	}
	recordbatch.Stamp(q.data, base, epoch)
	q.stamped, q.stampedBase, q.stampedEpoch = true, base, epoch
}

// respond answers a client.
func (s *Shard) respond(a *partition.Response) {
	q := s.requests[a.ID]
	if q.isTrim {
		q.trimmed(model.TrimAnswer{LowWatermark: a.LogStart, Err: a.Err})
	} else {
		q.done(model.Appended{
			BaseOffset: a.BaseOffset, LogAppendTime: a.LogAppendTime, LogStart: a.LogStart, LeaderEpoch: a.Epoch, Err: a.Err, Refused: a.Refused,
			Spent: q.released && q.calls == 0 && !q.stray,
		})
	}
	q.answered = true
	s.retire(q)
}

// release lets a payload go.
func (s *Shard) release(id partition.RequestID) {
	q := s.requests[id]
	q.released = true
	q.data, q.frame = nil, nil
	if !q.isCopy {
		s.host.letGo(q.weight)
	}
	s.retire(q)
}

// retire lets go of a request that nobody needs any more.
func (s *Shard) retire(q *request) {
	if !q.answered || !q.released || q.calls > 0 {
		return
	}
	id := q.id()
	s.requests[id] = nil
	s.free = append(s.free, id)
	if in := q.incoming; in != nil {
		l := in.link // it is another's as soon as the frame is dropped
		in.release()
		s.owe(l)
	}
	s.host.spent(q)
}

func (q *request) id() partition.RequestID {
	if q.isTrim {
		return q.trimIn.ID
	}
	return q.appendIn.ID
}

// closeLog closes the log of a machine that has ended or does not lead any
// more.
func (s *Shard) closeLog(r *replica) {
	if r.closed || r.handle == 0 {
		r.closed = true
		return
	}
	s.burst.add(&s.burst.closes, r)
}

func (s *Shard) countOffline(r *replica, offline bool) {
	if r.offline == offline {
		return
	}
	r.offline = offline
	if offline {
		s.host.offline(1)
	} else {
		s.host.offline(-1)
	}
}

// notice tells the log what a machine has to say.
func (s *Shard) notice(r *replica, n *partition.Notice) {
	log := s.log.With("topic", r.topic, "partition", r.id.Index, "leader_epoch", r.epoch)
	if n.Err != nil {
		log = log.With("err", n.Err)
	}
	switch n.Kind {
	case partition.NoticeLost:
		s.events.Lost(r.topic, n.To-n.From)
		log.Error("acknowledged records are gone: "+n.Text, "from", n.From, "to", n.To)
	case partition.NoticeOffline:
		log.Error("replica is offline: " + n.Text)
	case partition.NoticeReopening:
		s.events.Reopened(r.topic)
		if s.gathered(r, aboutOpening, slog.String("reason", n.Text)) {
			return
		}
		log.Warn("opening the log again: "+n.Text, "from", n.From, "to", n.To)
	case partition.NoticeMayHaveLost:
		log.Warn("records at the end may be missing: "+n.Text, "from", n.From)
	case partition.NoticeRefused:
		if s.gathered(r, aboutRefusal, slog.Any("err", n.Err)) {
			return
		}
		log.Warn("appends refused: "+n.Text, "from", n.From, "to", n.To)
	case partition.NoticeFailed:
		if s.gathered(r, aboutCalls, slog.Any("err", n.Err)) {
			return
		}
		log.Warn("could not " + n.Text + "; trying again")
	case partition.NoticeTruncated:
		log.Warn("truncating the log: "+n.Text, "from", n.From, "to", n.To)
	case partition.NoticeResigning:
		log.Warn(n.Text, "from", n.From, "to", n.To)
	case partition.NoticeOpened:
		log.Debug("log is open", "from", n.From, "to", n.To)
	}
}

// unavailable is what a client hears of a replica without a machine.
func unavailable(r *replica) error {
	if v := r.view.Load(); v != nil && !r.deleting {
		if err := v.Serving(); err != nil {
			return err
		}
	}
	return fmt.Errorf("partition %s: %w", r.id, model.ErrNotLeaderOrFollower)
}
