package replica

import (
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/partition"
)

// catchUpBytes is about how much one stream carries at a time, of each shard, for replicas
// that catch up: what goes to those in sync waits behind no more than that.
const catchUpBytes = 2 << 20

// timerThrottle is of no replica.
const timerThrottle partition.Timer = 104

// awaitsTurn reports whether a follower is to wait before it is sent more. Those on which the
// high watermark rests never wait; the others have their turn one after the other, each for
// one slice.
func (s *Shard) awaitsTurn(sub *subscriber) bool {
	f := sub.feed
	if sub.replica.machine.Counts(f.link.node) {
		s.leaveLine(sub)
		return false
	}
	if sub.turn {
		return false
	}
	s.dropRead(sub) // others may read meanwhile
	by := sub.replica.throttled.of(f.link.node)
	switch {
	case sub.waits && sub.by == by:
		return true
	case sub.waits: // it keeps its place
		s.throttles.use(sub.by, f.link.node, s.index, -1)
	default:
		sub.waits = true
		f.behind = append(f.behind, sub)
	}
	sub.by = by
	s.throttles.use(by, f.link.node, s.index, 1)
	f.until = time.Time{}
	s.busyFeed(f)
	return true
}

// leaveLine is for one that waits no more.
func (s *Shard) leaveLine(sub *subscriber) {
	if !sub.waits {
		return
	}
	f := sub.feed
	sub.waits = false
	at := slices.Index(f.behind, sub)
	f.behind = slices.Delete(f.behind, at, at+1)
	s.throttles.use(sub.by, f.link.node, s.index, -1)
}

// giveTurns makes those ready who have waited for long enough, and reports whether there are
// any.
func (s *Shard) giveTurns(f *feed) (gave bool) {
	if len(f.behind) == 0 || f.behindBytes >= catchUpBytes || s.now.Before(f.until) {
		return false
	}
	var first time.Time // when the first of those is due that a throttle holds back
	held := false
	line := f.behind
	f.behind = f.behind[:0]
	for i, sub := range line {
		if f.behindBytes >= catchUpBytes {
			f.behind = append(f.behind, line[i:]...)
			break
		}
		at, ever := s.throttles.begin(sub.by, f.link.node, s.index, s.now, sliceBytes)
		if ever && !at.After(s.now) {
			sub.waits, sub.turn, gave = false, true, true
			f.behindBytes += sliceBytes
			sub.ready = true
			f.ready = append(f.ready, sub)
			continue
		}
		f.behind = append(f.behind, sub)
		held = true
		if ever && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	clear(line[len(f.behind):])
	if held {
		s.holdBack(f, first)
	}
	return gave
}

// holdBack has a stream looked at again when a throttle lets more pass, and when the rates
// have changed; zero: only then.
func (s *Shard) holdBack(f *feed, at time.Time) {
	f.until = at
	if at.IsZero() {
		f.until = s.now.Add(time.Hour) // or sooner, when letPass says so
	}
	if !slices.Contains(s.heldBack, f) {
		s.heldBack = append(s.heldBack, f)
	}
	if !at.IsZero() && (s.letGoAt.IsZero() || at.Before(s.letGoAt)) {
		s.letGoAt = at
		s.timers.Set(timerKey{timer: timerThrottle}, at)
	}
}

// letPass looks again at the streams that throttles have held back.
func (s *Shard) letPass() {
	s.letGoAt = time.Time{}
	for _, f := range s.heldBack {
		f.until = time.Time{}
		s.busyFeed(f)
	}
	clear(s.heldBack)
	s.heldBack = s.heldBack[:0]
}

// endTurn counts what a follower was sent in its turn.
func (s *Shard) endTurn(sub *subscriber, sent int) {
	f := sub.feed
	sub.turn = false
	sub.behindOut += sent
	f.behindBytes += sent - sliceBytes
	s.throttles.end(sub.by, f.link.node, s.index, s.now, sliceBytes, sent)
	s.throttles.use(sub.by, f.link.node, s.index, -1)
	f.until = time.Time{} // more may pass now, if less was sent than was set aside
	if len(f.behind) > 0 {
		s.busyFeed(f)
	}
}

// passOver takes the first of those that are ready, for whom there is nothing to send now.
func (s *Shard) passOver(f *feed) {
	sub := f.ready[f.first]
	f.shift()
	if sub.turn && !sub.reading && !sub.held && sub.read == nil {
		s.endTurn(sub, 0)
	}
}

// arrived counts what a follower has acknowledged of what it was sent while it caught up.
func (s *Shard) arrived(sub *subscriber, bytes int) {
	n := min(bytes, sub.behindOut)
	if n == 0 {
		return
	}
	f := sub.feed
	sub.behindOut -= n
	f.behindBytes -= n
	if len(f.behind) > 0 {
		s.busyFeed(f)
	}
}

// forgetTurn is for a follower whose stream ends.
func (s *Shard) forgetTurn(sub *subscriber) {
	s.leaveLine(sub)
	if sub.turn {
		s.endTurn(sub, 0)
	}
	s.arrived(sub, sub.behindOut)
}
