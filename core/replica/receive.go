package replica

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/core/replica/streamwire"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// parcel is what one message has for the replicas of one shard. The shard gives it back.
type parcel struct {
	link     *link
	asks     []asking
	answers  []answering
	batches  []copying
	damages  []damaging
	acks     []acking
	strayAsk []streamwire.Subscribe // of partitions that are not here
}

type asking struct {
	replica *replica
	in      partition.Subscribe
}

type answering struct {
	replica *replica
	in      partition.Subscribed
}

type copying struct {
	replica *replica
	payload *request
	in      partition.Replicate
}

type damaging struct {
	replica *replica
	in      partition.Damaged
}

type acking struct {
	replica *replica
	in      partition.Acknowledged
}

// parcelKept bounds what a parcel that is used again may have grown to.
const parcelKept = 4096

func (m *Manager) newParcel(l *link) *parcel {
	p, ok := m.parcels.Get().(*parcel)
	if !ok {
		p = &parcel{}
	}
	p.link = l
	return p
}

// unpacked implements host.
func (m *Manager) unpacked(p *parcel) {
	if cap(p.asks)+cap(p.answers)+cap(p.batches)+cap(p.acks) > parcelKept {
		return
	}
	clear(p.asks)
	clear(p.answers)
	clear(p.batches)
	clear(p.damages)
	clear(p.acks)
	*p = parcel{
		asks: p.asks[:0], answers: p.answers[:0], batches: p.batches[:0], damages: p.damages[:0], acks: p.acks[:0], strayAsk: p.strayAsk[:0],
	}
	m.parcels.Put(p)
}

// incoming is the memory of a message with batches. It counts against what its sender was
// granted until nobody has any of them for a store, and is used again when the tails of
// logs have none either.
type incoming struct {
	m       *Manager
	link    *link
	frame   *model.Frame
	message []byte
	lent    bool         // message is of Buffers
	holders atomic.Int32 // payloads, and whoever reads the message
}

func (m *Manager) newIncoming(l *link, message []byte, lent bool) *incoming {
	in, ok := m.incomings.Get().(*incoming)
	if !ok {
		in = &incoming{m: m}
		in.frame = model.NewFrame(0, in.free)
	}
	in.link, in.message, in.lent = l, message, lent
	in.frame.Bytes = cap(message)
	in.hold()
	return in
}

func (in *incoming) hold() {
	in.holders.Add(1)
	in.frame.Keep()
}

// release is for one who held it, but for the frame.
func (in *incoming) release() {
	if in.holders.Add(-1) == 0 {
		in.link.grant.release(len(in.message))
	}
}

// free is for the last who held the frame.
func (in *incoming) free() {
	if in.lent {
		in.m.deps.Buffers.Put(in.message)
	}
	in.link, in.message = nil, nil
	in.m.incomings.Put(in)
}

// delivery is a message that is being read.
type delivery struct {
	m        *Manager
	link     *link
	message  []byte
	lent     bool
	incoming *incoming // nil while there were no batches
	replicas map[model.Partition]*replica
	parcels  []*parcel // by shard
}

// receive reads a message and gives its parts to the shards, up to what cannot be read.
func (m *Manager) receive(l *link, message []byte, lent bool) error {
	d := delivery{m: m, link: l, message: message, lent: lent, replicas: *m.replicas.Load(), parcels: l.parcels}
	var err error
	for rest := message; len(rest) > 0 && err == nil; {
		var s streamwire.Section
		if s, rest, err = streamwire.Next(rest); err == nil {
			err = d.section(s)
		}
	}
	if d.incoming != nil {
		d.incoming.release()
		d.incoming.frame.Drop()
		d.parcel(m.shards[0]) // who tells what is released, if nobody else has any of it
	} else if lent {
		m.deps.Buffers.Put(message)
	}
	for i, p := range d.parcels {
		if p != nil {
			d.parcels[i] = nil
			m.shards[i].loop.Complete(Input{kind: inputParcel, parcel: p})
		}
	}
	return err
}

func (d *delivery) parcel(s *Shard) *parcel {
	if d.parcels[s.index] == nil {
		d.parcels[s.index] = d.m.newParcel(d.link)
	}
	return d.parcels[s.index]
}

var (
	errNoHello    = fmt.Errorf("%w: the first section is no hello", streamwire.ErrMalformed)
	errNotItsPart = fmt.Errorf("%w: a section that the other side sends", streamwire.ErrMalformed)
	errOther      = errors.New("another node than the link's says hello")
	errOverdrawn  = errors.New("more than was granted has been sent")
)

func (d *delivery) section(s streamwire.Section) error {
	if s.Kind == streamwire.KindHello {
		return d.hello(s.Body)
	}
	if !d.link.greeted {
		return errNoHello
	}
	switch s.Kind {
	case streamwire.KindAnswer, streamwire.KindData, streamwire.KindEnd:
		if !d.link.dialled {
			return errNotItsPart
		}
	default:
		if d.link.dialled {
			return errNotItsPart
		}
	}
	switch s.Kind {
	case streamwire.KindCredit:
		return d.credit(s.Body)
	case streamwire.KindSubscribe:
		return d.subscribe(s.Body)
	case streamwire.KindAnswer:
		return d.answer(s.Body)
	case streamwire.KindData:
		return d.data(s.Body)
	case streamwire.KindAck:
		return d.ack(s.Body)
	case streamwire.KindEnd:
		return d.end(s.Body)
	}
	return nil
}

func (d *delivery) hello(body []byte) error {
	h, err := streamwire.ReadHello(body)
	if err != nil {
		return err
	}
	l := d.link
	if h.Node != l.node {
		return fmt.Errorf("%w: %d", errOther, h.Node)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.greeted {
		return fmt.Errorf("%w: a second hello", streamwire.ErrMalformed)
	}
	l.greeted, l.epoch = true, h.BrokerEpoch
	return nil
}

func (d *delivery) credit(body []byte) error {
	c, err := streamwire.ReadCredit(body)
	if err != nil {
		return err
	}
	next, ok := d.link.credit.granted(c)
	if !ok {
		return fmt.Errorf("%w: more is released than was sent", streamwire.ErrMalformed)
	}
	d.m.wake(d.link, next)
	return nil
}

func (d *delivery) subscribe(body []byte) error {
	for len(body) > 0 {
		e, rest, err := streamwire.ReadSubscribe(body)
		if err != nil {
			return err
		}
		body = rest
		r := d.replicas[e.Partition]
		if r == nil {
			p := d.parcel(d.m.shardOf(e.Partition))
			p.strayAsk = append(p.strayAsk, e)
			continue
		}
		p := d.parcel(r.shard)
		p.asks = append(p.asks, asking{r, partition.Subscribe{
			Node: d.link.node, BrokerEpoch: d.link.epoch, Session: e.Session, Epoch: e.Epoch, PartitionEpoch: e.PartitionEpoch,
			LEO: e.LEO, Counted: e.Counted, LastEpoch: e.LastEpoch, LogStart: e.LogStart,
		}})
	}
	return nil
}

func (d *delivery) answer(body []byte) error {
	for len(body) > 0 {
		e, rest, err := streamwire.ReadAnswer(body)
		if err != nil {
			return err
		}
		body = rest
		if r := d.replicas[e.Partition]; r != nil {
			p := d.parcel(r.shard)
			p.answers = append(p.answers, answering{r, partition.Subscribed{
				Node: d.link.node, Session: e.Session, Epoch: e.Epoch, Verdict: e.Verdict, End: e.End, LogStart: e.LogStart,
			}})
		}
	}
	return nil
}

func (d *delivery) ack(body []byte) error {
	for len(body) > 0 {
		e, rest, err := streamwire.ReadAck(body)
		if err != nil {
			return err
		}
		body = rest
		if r := d.replicas[e.Partition]; r != nil {
			p := d.parcel(r.shard)
			p.acks = append(p.acks, acking{r, partition.Acknowledged{
				Node: d.link.node, Session: e.Session, Epoch: e.Epoch, PartitionEpoch: e.PartitionEpoch, LEO: e.LEO,
			}})
		}
	}
	return nil
}

var errEnded = errors.New("the leader has ended the stream")

func (d *delivery) end(body []byte) error {
	for len(body) > 0 {
		e, rest, err := streamwire.ReadEnd(body)
		if err != nil {
			return err
		}
		body = rest
		if r := d.replicas[e.Partition]; r != nil {
			d.damaged(r, e.Session, errEnded)
		}
	}
	return nil
}

func (d *delivery) damaged(r *replica, session partition.Session, err error) {
	p := d.parcel(r.shard)
	p.damages = append(p.damages, damaging{r, partition.Damaged{Session: session, Err: err}})
}

// data looks through batches, on the goroutine on which they arrive. Those that are damaged
// are so for their partition alone.
func (d *delivery) data(body []byte) error {
	heads, batches, err := streamwire.ReadData(body)
	if err != nil {
		return err
	}
	if len(batches) > 0 && d.incoming == nil {
		if !d.link.grant.receive(len(d.message)) {
			return errOverdrawn
		}
		d.link.traffic.received.Add(int64(len(d.message)))
		d.incoming = d.m.newIncoming(d.link, d.message, d.lent)
	}
	for len(heads) > 0 {
		var h streamwire.Head
		if h, heads, err = streamwire.ReadHead(heads); err != nil {
			return err
		}
		payload := batches[:h.Bytes:h.Bytes]
		batches = batches[h.Bytes:]
		if r := d.replicas[h.Partition]; r != nil {
			d.copied(r, &h, payload)
		}
	}
	return nil
}

func (d *delivery) copied(r *replica, h *streamwire.Head, payload []byte) {
	q := d.m.newRequest()
	var err error
	if q.infos, err = appendInfos(q.infos[:0], payload); err != nil {
		d.m.spent(q)
		d.damaged(r, h.Session, fmt.Errorf("batches from %d on: %w", h.From, err))
		return
	}
	q.isCopy = true
	if len(payload) > 0 {
		d.incoming.hold()
		q.data, q.incoming, q.frame, q.keeps = payload, d.incoming, d.incoming.frame, d.incoming.frame
	}
	p := d.parcel(r.shard)
	p.batches = append(p.batches, copying{r, q, partition.Replicate{
		Session: h.Session, Epoch: h.Epoch, From: h.From, Batches: q.infos, HighWater: h.HighWater, LogStart: h.LogStart,
	}})
}

// appendInfos checks whole batches, back to back.
func appendInfos(infos []recordbatch.Info, payload []byte) ([]recordbatch.Info, error) {
	for len(payload) > 0 {
		info, _, rest, err := recordbatch.Next(payload)
		if err != nil {
			return infos, err
		}
		infos, payload = append(infos, info), rest
	}
	return infos, nil
}
