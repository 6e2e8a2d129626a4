package replica

import (
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/core/replica/streamwire"
	"github.com/brokerd/brokerd/sdk/storage"
)

const (
	// messageBytes is about how large a message with batches becomes, and sliceBytes how
	// much of it one partition has at a time.
	messageBytes = 1 << 20
	sliceBytes   = 256 << 10
	// headsMax is of how many partitions one message has something.
	headsMax = 1024
	// readBytes is what is read at a time for a follower that is not at the tail, and
	// readsMax how many such reads one stream has in each shard, with what they have read
	// until it is sent: followers at the tail do not wait for those that catch up.
	readBytes = 256 << 10
	readsMax  = 2
	// piecesMax and pieceBytes are how many pieces of one partition, with how many bytes,
	// a follower may have before it has acknowledged them, but for one of any size: no more
	// than its machine takes. While there are as many, what comes becomes one larger piece.
	piecesMax  = 32
	pieceBytes = 8 << 20
	// readAgain is the wait before a read that failed is repeated.
	readAgain = 100 * time.Millisecond
	// tidingsEvery is how long a follower's knowledge of the high watermark and the log
	// start may lag where no batches carry them.
	tidingsEvery = 10 * time.Millisecond
)

// timerTidings and timerReads are of no replica.
const (
	timerTidings partition.Timer = 102
	timerReads   partition.Timer = 103
)

// subscriber is another broker's replica that follows one of this shard.
type subscriber struct {
	feed    *feed
	replica *replica
	session partition.Session
	epoch   model.BrokerEpoch // of the follower's broker
	at      int               // in feed.subscribers

	// accepted: the machine has said from where it goes on.
	accepted  bool
	leader    model.LeaderEpoch
	next      int64 // offset
	highWater int64 // as last sent
	logStart  int64 // likewise

	// pieces are those that were sent and not acknowledged, the oldest at first.
	pieces    [piecesMax]piece
	first     int
	piecesOut int
	bytesOut  int

	ready   bool // it is in feed.ready
	tidings bool // it is in feed.tidings
	held    bool // it is in feed.held
	reading bool // a read is under way
	// Of one that catches up: it is in feed.behind; or it has its turn, and may be sent a
	// slice; under which throttles, and how much of what it was sent is under way.
	waits     bool
	turn      bool
	by        throttled
	behindOut int
	// read is what was read and is not sent, nextRead where that ends, and buffer what of
	// Buffers it is in, if it is.
	read     []byte
	nextRead int64
	buffer   []byte
}

// piece is what one message had of a partition.
type piece struct {
	next  int64 // the offset after it
	bytes int
}

// feed is what one shard sends on a stream as leader. It goes round the followers that have
// something to get.
type feed struct {
	link        *link
	busy        bool // it is in Shard.feeds
	subscribers []*subscriber
	answers     []streamwire.Answer
	ends        []streamwire.End
	ready       []*subscriber // from first on, in the order of their turn
	first       int
	tidings     []*subscriber // those that may have no more to hear than offsets
	held        []*subscriber // those that wait for others' reads
	behind      []*subscriber // those that wait for their turn, in its order
	behindBytes int           // under way to those that catch up, and set aside for their turns
	until       time.Time     // before it throttles let nobody of behind pass
	reads       int           // under way, or not sent yet
}

func (s *Shard) busyFeed(f *feed) {
	if !f.busy {
		f.busy = true
		s.feeds = append(s.feeds, f)
	}
}

// subscribe takes a follower's question.
func (s *Shard) subscribe(now time.Time, l *link, a *asking) {
	f, r := l.feeds[s.index], a.replica
	if f == nil {
		return // it went down
	}
	if r.machine == nil || r.deleting || s.stopping {
		s.answerUnknown(f, r.id, a.in.Session, a.in.Epoch)
		return
	}
	if old := r.subscriberOf(a.in.Node); old != nil {
		if a.in.BrokerEpoch < old.epoch || a.in.BrokerEpoch == old.epoch && a.in.Session < old.session {
			return // it came late
		}
		s.unsubscribe(old)
	}
	sub := &subscriber{feed: f, replica: r, session: a.in.Session, epoch: a.in.BrokerEpoch, at: len(f.subscribers)}
	f.subscribers = append(f.subscribers, sub)
	r.subscribers = append(r.subscribers, sub)
	s.step(now, r, &a.in)
}

func (s *Shard) answerUnknown(f *feed, p model.Partition, session partition.Session, epoch model.LeaderEpoch) {
	f.answers = append(f.answers, streamwire.Answer{
		Partition: p, Session: session, Epoch: epoch, Verdict: partition.VerdictUnknown, End: model.EpochEnd{Epoch: model.NoEpoch, EndOffset: -1},
	})
	s.busyFeed(f)
}

func (r *replica) subscriberOf(node model.NodeID) *subscriber {
	for _, sub := range r.subscribers {
		if sub.feed.link.node == node {
			return sub
		}
	}
	return nil
}

// unsubscribe forgets a follower.
func (s *Shard) unsubscribe(sub *subscriber) {
	f, r := sub.feed, sub.replica
	last := len(f.subscribers) - 1
	f.subscribers[sub.at] = f.subscribers[last]
	f.subscribers[sub.at].at = sub.at
	f.subscribers[last] = nil
	f.subscribers = f.subscribers[:last]
	r.subscribers = slices.DeleteFunc(r.subscribers, func(o *subscriber) bool { return o == sub })
	sub.accepted = false
	s.dropRead(sub)
	s.forgetTurn(sub)
	s.resume(f)
	s.busyFeed(f) // it may have waited for credit
}

// endStream forgets a follower, and tells it so.
func (s *Shard) endStream(sub *subscriber) {
	s.unsubscribe(sub)
	sub.feed.ends = append(sub.feed.ends, streamwire.End{Partition: sub.replica.id, Session: sub.session})
}

// dropRead lets go of what was read for a follower, unless that is on its way.
func (s *Shard) dropRead(sub *subscriber) {
	if sub.read == nil {
		return
	}
	if sub.buffer != nil {
		s.tails.buffers.Put(sub.buffer)
	}
	sub.read, sub.buffer = nil, nil
	sub.feed.reads--
}

// feedDown tells the machines whose followers' stream has ended.
func (s *Shard) feedDown(now time.Time, f *feed) {
	f.link.feeds[s.index] = nil
	gone := slices.Clone(f.subscribers)
	slices.SortFunc(gone, func(a, b *subscriber) int { return byID(a.replica, b.replica) })
	for _, sub := range gone {
		s.unsubscribe(sub)
		s.step(now, sub.replica, &partition.Unsubscribed{Node: f.link.node, Session: sub.session})
	}
}

// answered performs what a machine asks for as leader.
func (s *Shard) answered(r *replica, e *partition.Effects) {
	for i := range e.Answers {
		a := &e.Answers[i]
		sub := r.subscriberOf(a.Node)
		if sub == nil || sub.session != a.Session {
			continue // its stream has ended meanwhile
		}
		sub.feed.answers = append(sub.feed.answers, streamwire.Answer{
			Partition: r.id, Session: a.Session, Epoch: a.Epoch, Verdict: a.Verdict, From: a.From, End: a.End, LogStart: a.LogStart,
		})
		s.busyFeed(sub.feed)
		if a.Verdict != partition.VerdictAccepted {
			s.unsubscribe(sub)
			continue
		}
		s.dropRead(sub)
		sub.accepted, sub.leader, sub.next, sub.highWater, sub.logStart = true, a.Epoch, a.From, -1, -1
		sub.first, sub.piecesOut, sub.bytesOut = 0, 0, 0
	}
	for i := range e.EndStreams {
		end := &e.EndStreams[i]
		if sub := r.subscriberOf(end.Node); sub != nil && sub.session == end.Session {
			s.endStream(sub)
		}
	}
	for _, sub := range r.subscribers {
		s.offer(sub, r.view.Load())
	}
}

// offer gives a follower its turn if there is something for it.
func (s *Shard) offer(sub *subscriber, v *view) {
	if !sub.accepted || sub.ready || v.Status != partition.StatusServing || v.Epoch != sub.leader {
		return
	}
	f := sub.feed
	switch {
	case sub.next < v.LEO || sub.next < v.LogStart:
		if sub.reading || sub.held || s.room(sub) == 0 || s.awaitsTurn(sub) {
			return
		}
		sub.ready = true
		f.ready = append(f.ready, sub)
		s.busyFeed(f)
	case sub.tells(v) && !sub.tidings:
		sub.tidings = true
		f.tidings = append(f.tidings, sub)
		if !s.telling {
			s.telling = true
			s.timers.Set(timerKey{timer: timerTidings}, s.now.Add(tidingsEvery))
		}
		if !slices.Contains(s.tellers, f) {
			s.tellers = append(s.tellers, f)
		}
	}
}

// tells reports whether there are offsets that the follower has not heard of.
func (sub *subscriber) tells(v *view) bool {
	return v.HighWater != sub.highWater || v.LogStart != sub.logStart
}

// sendFeeds sends what the machines have given followers to hear in this turn.
func (s *Shard) sendFeeds() {
	for i := 0; i < len(s.feeds); i++ {
		f := s.feeds[i]
		f.busy = false
		if f.link.down.Load() {
			f.answers, f.ends = f.answers[:0], f.ends[:0]
			continue
		}
		s.sendAnswers(f)
		s.sendBatches(f)
	}
	clear(s.feeds)
	s.feeds = s.feeds[:0]
}

func (s *Shard) sendAnswers(f *feed) {
	for len(f.answers) > 0 || len(f.ends) > 0 {
		out := s.host.newOutgoing(f.link)
		f.answers = writeSection(out, streamwire.KindAnswer, f.answers, streamwire.AppendAnswer)
		f.ends = writeSection(out, streamwire.KindEnd, f.ends, streamwire.AppendEnd)
		s.host.send(out)
	}
}

// sendBatches goes round those that are ready, as far as the credit goes.
func (s *Shard) sendBatches(f *feed) {
	waits := false
	s.giveTurns(f)
	for (len(f.ready) > 0 || s.giveTurns(f)) && !f.link.down.Load() {
		least := s.prepare(f.ready[f.first])
		if least == 0 {
			s.passOver(f)
			continue
		}
		least += streamwire.DataBytes + streamwire.HeadBytes
		n := f.link.credit.take(s.index, least, max(least, messageBytes))
		if n == 0 {
			waits = true
			break
		}
		out := s.host.newOutgoing(f.link)
		out.bytes = s.fill(out, f, n)
		if out.bytes < n {
			f.link.credit.giveBack(n - out.bytes)
		}
		if out.bytes > 0 {
			s.host.send(out)
		} else {
			out.done(false)
		}
	}
	s.host.wake(f.link, f.link.credit.pass(s.index, waits))
	if f.reads < readsMax && len(f.held) > 0 {
		s.resume(f)
	}
}

// shift takes the first from those that are ready.
func (f *feed) shift() {
	sub := f.ready[f.first]
	f.ready[f.first] = nil
	sub.ready = false
	if f.first++; f.first == len(f.ready) {
		f.ready, f.first = f.ready[:0], 0
	}
}

// prepare sees to it that there are batches to send, and says how large the first part of
// them is that can not be divided. 0: there are none, or a read has to bring them.
func (s *Shard) prepare(sub *subscriber) int {
	r := sub.replica
	v := r.view.Load()
	if !sub.accepted || v.Status != partition.StatusServing || v.Epoch != sub.leader {
		return 0
	}
	if sub.next < v.First {
		// What it is to get next is gone. It learns so from where the stream goes on.
		s.dropRead(sub)
		sub.next = v.LogStart
	}
	n, ok := len(sub.read), true
	if n == 0 && sub.next < v.LEO {
		n, ok = r.tail.size(sub.next, v.LEO)
	}
	if !ok {
		s.readFor(sub, v)
	}
	if n > s.room(sub) && sub.piecesOut > 0 {
		return 0 // until some of what it has is acknowledged
	}
	return n
}

// room is how many bytes a follower may be sent now, but for one piece of any size where
// it has none.
func (s *Shard) room(sub *subscriber) int {
	if sub.piecesOut >= min(piecesMax, s.cfg.Limits.InFlightBatches) {
		return 0
	}
	return max(0, int(min(pieceBytes, s.cfg.Limits.InFlightBytes))-sub.bytesOut)
}

// acknowledged takes how far a follower has come.
func (s *Shard) acknowledged(now time.Time, a *acking) {
	r := a.replica
	s.step(now, r, &a.in)
	sub := r.subscriberOf(a.in.Node)
	if sub == nil || sub.session != a.in.Session {
		return
	}
	for sub.piecesOut > 0 && sub.pieces[sub.first].next <= a.in.LEO {
		sub.bytesOut -= sub.pieces[sub.first].bytes
		s.arrived(sub, sub.pieces[sub.first].bytes)
		sub.first = (sub.first + 1) % piecesMax
		sub.piecesOut--
	}
}

// fill makes a message of at most n bytes, of which the first that is ready has at least
// some. It returns how many bytes the message has; 0: it is not to be sent.
func (s *Shard) fill(out *outgoing, f *feed, n int) int {
	head, at := streamwire.BeginData(out.head)
	start := len(out.head)
	batches := 0
	for heads := 0; heads < headsMax && len(f.ready) > 0; heads++ {
		sub := f.ready[f.first]
		least := s.prepare(sub)
		if least == 0 {
			s.passOver(f)
			continue
		}
		left := n - (len(head) - start) - batches - streamwire.HeadBytes
		if least > left {
			break
		}
		f.shift()
		v := sub.replica.view.Load()
		h := streamwire.Head{
			Partition: sub.replica.id, Session: sub.session, Epoch: sub.leader, From: sub.next, HighWater: v.HighWater, LogStart: v.LogStart,
		}
		bytes := s.take(out, sub, v, min(left, max(least, min(sliceBytes, s.room(sub)))))
		if bytes == 0 {
			continue
		}
		sub.pieces[(sub.first+sub.piecesOut)%piecesMax] = piece{sub.next, bytes}
		sub.piecesOut++
		sub.bytesOut += bytes
		if sub.turn {
			s.endTurn(sub, bytes)
		}
		h.Bytes = int32(bytes)
		head = streamwire.AppendHead(head, &h)
		batches += bytes
		sub.highWater, sub.logStart = v.HighWater, v.LogStart
		s.offer(sub, v)
	}
	streamwire.FinishData(head, at, batches)
	if batches == 0 {
		return 0 // all that was there when it began is gone
	}
	out.head = head
	return len(head) - start + batches
}

// take adds batches of one partition to a message, and says how many bytes they are.
func (s *Shard) take(out *outgoing, sub *subscriber, v *view, most int) int {
	if sub.read != nil {
		n := len(sub.read)
		out.parts = append(out.parts, sub.read)
		if sub.buffer != nil {
			out.buffers = append(out.buffers, sub.buffer)
		}
		sub.next = sub.nextRead
		sub.read, sub.buffer = nil, nil
		sub.feed.reads--
		s.resume(sub.feed)
		return n
	}
	got := &s.tailRead
	req := storage.ReadRequest{Offset: sub.next, UpTo: v.LEO, MaxBytes: most}
	if !sub.replica.tail.read(&req, got) {
		s.readFor(sub, v) // it was dropped just now
		return 0
	}
	n := got.bytes
	out.parts = append(out.parts, got.parts...)
	out.extents = append(out.extents, got.extents...)
	sub.next = got.next
	got.empty()
	return n
}

// tellFeeds sends followers the offsets that no batches have carried.
func (s *Shard) tellFeeds() {
	s.telling = false
	for _, f := range s.tellers {
		s.tellFeed(f)
	}
	clear(s.tellers)
	s.tellers = s.tellers[:0]
}

func (s *Shard) tellFeed(f *feed) {
	for all := f.tidings; len(all) > 0; {
		n := min(len(all), headsMax)
		out := s.host.newOutgoing(f.link)
		head, at := streamwire.BeginData(out.head)
		told := 0
		for _, sub := range all[:n] {
			sub.tidings = false
			v := sub.replica.view.Load()
			if !sub.accepted || v.Status != partition.StatusServing || v.Epoch != sub.leader || !sub.tells(v) {
				continue
			}
			told++
			sub.highWater, sub.logStart = v.HighWater, v.LogStart
			head = streamwire.AppendHead(head, &streamwire.Head{
				Partition: sub.replica.id, Session: sub.session, Epoch: sub.leader, From: sub.next, HighWater: v.HighWater, LogStart: v.LogStart,
			})
		}
		streamwire.FinishData(head, at, 0)
		out.head = head
		if told > 0 {
			s.host.send(out)
		} else {
			out.done(false)
		}
		all = all[n:]
	}
	clear(f.tidings)
	f.tidings = f.tidings[:0]
}
