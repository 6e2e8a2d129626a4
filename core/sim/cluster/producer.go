package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

const (
	// maxInFlight is what an idempotent producer may have unanswered. (KIP-98)
	maxInFlight = 5
	// requestTimeout is how long a client waits for an answer, and appendTimeout how long a
	// broker for the high watermark.
	requestTimeout = 5 * time.Second
	appendTimeout  = 3 * time.Second
)

// producer is a client that sends numbered values to one partition and retries what was
// not acknowledged, as Kafka's clients do: at whoever leads by then, on a new connection,
// in order, from the first unacknowledged batch on.
type producer struct {
	c         *cluster
	id        int
	partition model.Partition
	pid       int64 // or none: then a retry may double a batch
	acks      model.Acks
	seq       int32
	known     bool // something of it was acknowledged
	values    int  // next value
	left      int  // batches still to be made
	// epoch is the highest leader epoch that it was told: older metadata is left aside, as
	// Kafka's clients do. (KIP-320)
	epoch model.LeaderEpoch

	window []*sent
	conn   *connection
}

// sent is a batch on its way.
type sent struct {
	values []string
	data   []byte
	acked  bool
}

// connection leads to one life of a node, and carries requests and their answers in the
// order of the requests. A broken one still delivers what was under way, and its answers
// reach nobody.
type connection struct {
	n       *node
	life    *life // nil: it is not made yet
	broken  bool
	closed  bool      // likewise, and what has not arrived is lost
	arrives time.Time // of the last request
	answers time.Time // of the last answer
	waiting []*slot   // answers to come, in the order of the requests
}

// slot is the place of one answer.
type slot struct {
	b    *sent
	at   time.Time // when it arrived
	done bool
	a    model.Appended
}

// clients makes the producers.
func (c *cluster) clients() {
	for i := range c.opts.Producers {
		p := &producer{
			c: c, id: i, left: c.opts.Batches, acks: model.AcksAll, pid: int64(1000 + i),
			partition: model.Partition{Topic: c.topic, Index: int32(c.w.Rand.IntN(c.opts.Partitions))},
		}
		if i%plainProducer == plainProducer-1 {
			p.pid = model.NoProducerID
			p.acks = []model.Acks{model.AcksAll, model.AcksLeader}[c.w.Rand.IntN(2)]
		} else {
			c.check.Idempotent(i)
		}
		p.conn = &connection{}
		p.reconnect()
		c.w.After(c.w.Between(0, 20*time.Millisecond), p.fill)
		c.producers = append(c.producers, p)
	}
}

// plainProducer: every so many-th producer is not idempotent.
const plainProducer = 3

// fill sends new batches while the window has room.
func (p *producer) fill() {
	w := p.c.w
	for (p.c.faulty || p.c.last) && p.conn.life != nil && len(p.window) < maxInFlight && p.left > 0 {
		p.left--
		b := p.make()
		p.window = append(p.window, b)
		p.send(b)
		if w.Chance(3) {
			break
		}
	}
	if p.left > 0 {
		w.After(w.Between(0, p.c.opts.Pace), p.fill)
	}
}

func (p *producer) make() *sent {
	b := &sent{}
	for range 1 + p.c.w.Rand.IntN(4) {
		b.values = append(b.values, fmt.Sprintf("%d.%d", p.id, p.values))
		p.values++
	}
	b.data = p.encode(b.values)
	return b
}

// encode makes a batch, with the next sequence numbers.
func (p *producer) encode(values []string) []byte {
	records := make([]batch.Record, len(values))
	for i, v := range values {
		records[i] = batch.Record{Timestamp: p.c.w.Now().UnixMilli(), Value: []byte(v)}
	}
	opts := batch.Options{}
	if p.pid >= 0 {
		opts.Producer = &batch.Producer{ID: p.pid, Epoch: 0, Sequence: p.seq}
		p.seq += int32(len(values))
	}
	data, err := batch.Build(opts, records...)
	if err != nil {
		panic("cluster: build a batch: " + err.Error())
	}
	return data
}

// send puts a batch on the connection.
func (p *producer) send(b *sent) {
	c, w := p.conn, p.c.w
	at := w.Now().Add(w.Between(0, 2*time.Millisecond))
	if p.c.faulty && w.Chance(40) {
		at = at.Add(w.Between(0, 3*time.Second))
	}
	if at.Before(c.arrives) {
		at = c.arrives
	}
	c.arrives = at
	w.At(at, func() { p.reach(c, b) })
	w.After(requestTimeout, func() {
		if !c.broken && !b.acked && p.conn == c {
			w.Note("producer %d times out", p.id)
			p.reconnect()
		}
	})
}

// reach brings a batch to the node's host: to the process, if that is there.
func (p *producer) reach(c *connection, b *sent) {
	if c.closed {
		return
	}
	if c.life.over {
		if !c.broken && p.conn == c {
			p.reconnect()
		}
		return
	}
	c.life.do(func() {
		if !c.closed {
			p.arrive(c, b)
		}
	})
}

// arrive is the broker's side.
func (p *producer) arrive(c *connection, b *sent) {
	data := append([]byte(nil), b.data...)
	info, err := recordbatch.Parse(data)
	if err != nil {
		panic("cluster: " + err.Error())
	}
	p.c.w.Note("producer %d's %v arrives at node %d", p.id, b.values, c.n.id)
	here := &slot{b: b, at: p.c.w.Now()}
	c.waiting = append(c.waiting, here)
	c.n.manager.Append(context.Background(), model.Append{
		Partition: p.partition, Batch: info, Data: data, Acks: p.acks, Timeout: appendTimeout, LogAppendTime: -1,
	}, func(a model.Appended) {
		if a.Spent {
			clear(data) // another request is read into the same memory
		}
		if !c.life.over { // otherwise the broker died with the answer
			here.done, here.a = true, a
			p.reply(c)
		}
	})
}

// reply sends the answers whose turn it is.
func (p *producer) reply(c *connection) {
	w := p.c.w
	for len(c.waiting) > 0 && c.waiting[0].done {
		next := c.waiting[0]
		c.waiting = c.waiting[1:]
		p.tell(c, next)
		at := w.Now().Add(w.Between(0, time.Millisecond))
		if at.Before(c.answers) {
			at = c.answers
		}
		c.answers = at
		lost := p.c.faulty && w.Chance(50)
		w.At(at, func() { p.answered(c, next.b, next.a, lost) })
	}
}

// tell tells the checker what leaves a broker: an answer counts whether or not it arrives.
func (p *producer) tell(c *connection, s *slot) {
	switch {
	case s.a.Err != nil:
	case p.acks == model.AcksAll:
		p.c.check.Acknowledged(p.partition, c.n.id, s.a.LeaderEpoch, s.a.BaseOffset, s.b.values)
	default:
		p.c.weakly(c.n, p.partition, s)
	}
}

// answered is the client's side again.
func (p *producer) answered(c *connection, b *sent, a model.Appended, lost bool) {
	if c.broken || p.conn != c {
		return
	}
	if lost {
		p.c.report.LostAnswers++
		p.c.w.Note("producer %d loses an answer", p.id)
		p.reconnect()
		return
	}
	if a.Err != nil {
		p.refused(b, a)
		return
	}
	p.c.w.Note("producer %d's %v is at %d", p.id, b.values, a.BaseOffset)
	b.acked, p.known = true, true
	p.epoch = max(p.epoch, a.LeaderEpoch) // its metadata are not older than what it has lived through
	p.c.report.Acked += len(b.values)
	for len(p.window) > 0 && p.window[0].acked {
		p.window = p.window[1:]
	}
}

// retriable are the errors after which every client tries again.
var retriable = []error{
	model.ErrNotLeaderOrFollower, model.ErrLeaderNotAvailable, model.ErrStorage, model.ErrRequestTimedOut,
	model.ErrNotEnoughReplicas, model.ErrNotEnoughReplicasAfter, model.ErrUnknownTopicOrPartition, model.ErrFencedLeaderEpoch,
}

func (p *producer) refused(b *sent, a model.Appended) {
	p.c.w.Note("producer %d hears %v", p.id, a.Err)
	p.c.report.Retried++
	for _, r := range retriable {
		if errors.Is(a.Err, r) {
			p.reconnect()
			return
		}
	}
	if errors.Is(a.Err, model.ErrOutOfOrderSequence) && b != p.window[0] {
		p.reconnect() // an earlier batch was not taken: go back to it
		return
	}
	if errors.Is(a.Err, model.ErrOutOfOrderSequence) && p.c.report.Blackouts > 0 {
		p.again()
		return
	}
	p.c.check.Violate("producer %d: batch %v of partition %d is refused for good: %v", p.id, b.values, p.partition.Index, a.Err)
}

// reconnect breaks the connection and sends all that is unacknowledged again to whoever leads,
// by what some node says. What has not arrived is lost with the connection where no broker
// knows of the producer yet: it would take whatever sequence comes first. (KIP-360)
func (p *producer) reconnect() {
	w := p.c.w
	p.conn.broken, p.conn.closed = true, !p.known
	c := &connection{}
	p.conn = c
	w.After(w.Between(time.Millisecond, 100*time.Millisecond), func() {
		if p.conn != c {
			return
		}
		n := p.c.leaderOf(p.partition, &p.epoch)
		if n == nil || !n.up() {
			p.reconnect()
			return
		}
		c.n, c.life = n, n.life
		for _, b := range p.window {
			if !b.acked {
				p.send(b)
			}
		}
	})
}

// leaderOf is who leads a partition, by what some node says, unless that is older than
// what was heard before.
func (c *cluster) leaderOf(p model.Partition, heard *model.LeaderEpoch) *node {
	asked := c.someNode()
	if asked == nil || asked.img == nil {
		return nil
	}
	at, _, ok := asked.img.Partition(p)
	if !ok || at.LeaderEpoch < *heard {
		return nil
	}
	*heard = at.LeaderEpoch
	return c.node(at.Leader)
}

// node is the node that has an ID, or nil.
func (c *cluster) node(id model.NodeID) *node {
	for _, n := range c.nodes {
		if n.id == id {
			return n
		}
	}
	return nil
}
