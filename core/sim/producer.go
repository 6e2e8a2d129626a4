package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// maxInFlight is what an idempotent producer may have unanswered. (KIP-98)
const maxInFlight = 5

// producer is a client that sends numbered values to one partition and retries
// what was not acknowledged, as the Kafka clients do: on a new connection, in
// order, from the first unacknowledged batch on.
type producer struct {
	s         *simulation
	id        int
	partition model.Partition
	// pid is the producer ID, or none: then a retry may double a batch.
	pid    int64
	acks   model.Acks
	seq    int32
	values int // next value
	left   int // batches still to be made

	window []*sent
	conn   *connection
}

// sent is a batch on its way.
type sent struct {
	values []string
	data   []byte
	acked  bool
}

// connection carries requests and their answers in the order of the requests. A
// broken one still delivers what was under way, and its answers reach nobody. It
// ends with the life of the broker that it leads to.
type connection struct {
	open    bool
	life    int
	broken  bool
	arrives time.Time // of the last request
	answers time.Time // of the last answer
	waiting []*slot   // answers to come, in the order of the requests
}

// slot is the place of one answer.
type slot struct {
	b    *sent
	done bool
	a    model.Appended
}

func (p *producer) start() {
	p.conn = &connection{open: true, life: p.s.broker.life}
	p.s.w.After(p.s.w.Between(0, 20*time.Millisecond), p.fill)
}

// done: all was made and acknowledged.
func (p *producer) done() bool { return p.left == 0 && len(p.window) == 0 }

// fill sends new batches while the window has room.
func (p *producer) fill() {
	for p.conn.open && len(p.window) < maxInFlight && p.left > 0 {
		p.left--
		b := p.make()
		p.window = append(p.window, b)
		p.send(b)
		if p.s.w.Chance(3) {
			break
		}
	}
	if p.left > 0 {
		p.s.w.After(p.s.w.Between(0, p.s.opts.Pace), p.fill)
	}
}

func (p *producer) make() *sent {
	n := 1 + p.s.w.Rand.IntN(4)
	b := &sent{}
	records := make([]batch.Record, n)
	for i := range n {
		v := fmt.Sprintf("%d.%d", p.id, p.values)
		p.values++
		b.values = append(b.values, v)
		records[i] = batch.Record{Timestamp: p.s.w.Now().UnixMilli(), Value: []byte(v)}
	}
	opts := batch.Options{}
	if p.pid >= 0 {
		opts.Producer = &batch.Producer{ID: p.pid, Epoch: 0, Sequence: p.seq}
		p.seq += int32(n)
	}
	data, err := batch.Build(opts, records...)
	if err != nil {
		panic("sim: build a batch: " + err.Error())
	}
	b.data = data
	return b
}

// send puts a batch on the connection.
func (p *producer) send(b *sent) {
	c := p.conn
	at := p.s.w.Now().Add(p.s.w.Between(0, 2*time.Millisecond))
	if p.s.f.On && p.s.w.Chance(40) {
		at = at.Add(p.s.w.Between(0, 3*time.Second))
	}
	if at.Before(c.arrives) {
		at = c.arrives
	}
	c.arrives = at
	p.s.w.At(at, func() { p.arrive(c, b) })
	p.s.w.After(5*time.Second, func() {
		if !c.broken && !b.acked && p.conn == c {
			p.s.w.Note("producer %d times out", p.id)
			p.reconnect()
		}
	})
}

// arrive is the broker's side.
func (p *producer) arrive(c *connection, b *sent) {
	br := p.s.broker
	if !br.up || c.life != br.life {
		if !c.broken && p.conn == c {
			p.reconnect()
		}
		return
	}
	life := br.life
	data := append([]byte(nil), b.data...)
	info, err := recordbatch.Parse(data)
	if err != nil {
		panic("sim: " + err.Error())
	}
	p.s.w.Note("producer %d's %v arrives", p.id, b.values)
	here := &slot{b: b}
	c.waiting = append(c.waiting, here)
	br.manager.Append(context.Background(), model.Append{
		Partition: p.partition, Batch: info, Data: data, Acks: p.acks, Timeout: 3 * time.Second, LogAppendTime: -1,
	}, func(a model.Appended) {
		if a.Spent {
			clear(data) // another request is read into the same memory
		}
		if life == br.life { // otherwise the broker died with the answer
			here.done, here.a = true, a
			p.reply(c)
		}
	})
}

// reply sends the answers whose turn it is.
func (p *producer) reply(c *connection) {
	for len(c.waiting) > 0 && c.waiting[0].done {
		next := c.waiting[0]
		c.waiting = c.waiting[1:]
		at := p.s.w.Now().Add(p.s.w.Between(0, time.Millisecond))
		if at.Before(c.answers) {
			at = c.answers
		}
		c.answers = at
		lost := p.s.f.On && p.s.w.Chance(50)
		p.s.w.At(at, func() { p.answered(c, next.b, next.a, lost) })
	}
}

// answered is the client's side again.
func (p *producer) answered(c *connection, b *sent, a model.Appended, lost bool) {
	if c.broken || p.conn != c {
		return
	}
	if lost {
		p.s.report.LostAnswers++
		p.s.w.Note("producer %d loses an answer", p.id)
		p.reconnect()
		return
	}
	if a.Err != nil {
		p.refused(b, a)
		return
	}
	p.s.w.Note("producer %d's %v is at %d", p.id, b.values, a.BaseOffset)
	if p.acks == model.AcksAll {
		p.s.check.acknowledged(p.partition, a.BaseOffset, b.values)
	}
	b.acked = true
	p.s.report.Acked += len(b.values)
	for len(p.window) > 0 && p.window[0].acked {
		p.window = p.window[1:]
	}
}

// retriable are the errors after which every client tries again.
var retriable = []error{
	model.ErrNotLeaderOrFollower, model.ErrLeaderNotAvailable, model.ErrStorage, model.ErrRequestTimedOut,
	model.ErrNotEnoughReplicas, model.ErrNotEnoughReplicasAfter,
}

func (p *producer) refused(b *sent, a model.Appended) {
	p.s.w.Note("producer %d hears %v", p.id, a.Err)
	p.s.report.Retried++
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
	p.s.check.violate("producer %d: batch %v of partition %d is refused for good: %v", p.id, b.values, p.partition.Index, a.Err)
}

// reconnect breaks the connection and sends all that is unacknowledged again.
func (p *producer) reconnect() {
	p.conn.broken = true
	c := &connection{}
	p.conn = c
	p.s.w.After(p.s.w.Between(time.Millisecond, 60*time.Millisecond), func() {
		if p.conn != c {
			return
		}
		if !p.s.broker.up {
			p.reconnect()
			return
		}
		c.open, c.life = true, p.s.broker.life
		for _, b := range p.window {
			if !b.acked {
				p.send(b)
			}
		}
	})
}
