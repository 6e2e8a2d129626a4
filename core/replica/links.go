package replica

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/replica/streamwire"
)

var _ Receiver = (*Manager)(nil)

// link is a stream with another broker. One that was dialled is of this broker as follower,
// one that was accepted of it as leader.
type link struct {
	id      StreamID
	node    model.NodeID
	dialled bool
	down    atomic.Bool // nothing is to be sent any more

	// What each shard has of it, by shard, each the shard's own.
	feeds     []*feed     // of one that was accepted
	upstreams []*upstream // of one that was dialled

	credit credit // of one that was accepted
	grant  grant  // of one that was dialled

	traffic *traffic // with node

	parcels []*parcel // by shard, while a message is read; whoever calls StreamMessage has it

	mu      sync.Mutex
	lent    *byte // where the memory begins that StreamRoom gave last
	greeted bool
	epoch   model.BrokerEpoch // of the peer, by its hello
}

// StreamUp implements Receiver.
func (m *Manager) StreamUp(s StreamID, node model.NodeID, dialled bool) {
	l := &link{id: s, node: node, dialled: dialled, traffic: m.trafficWith(node), parcels: make([]*parcel, len(m.shards))}
	l.credit.waiters = make([]int, 0, len(m.shards))
	if dialled {
		l.upstreams = make([]*upstream, len(m.shards))
	} else {
		l.feeds = make([]*feed, len(m.shards))
	}
	m.mu.Lock()
	m.links[s] = l
	m.mu.Unlock()
	out := m.newOutgoing(l)
	out.head = streamwire.AppendHello(out.head, streamwire.Hello{
		Version: streamwire.Version, Node: m.cfg.NodeID, BrokerEpoch: model.BrokerEpoch(m.epoch.Load()), Incarnation: m.deps.Incarnation,
	})
	if dialled {
		out.head = streamwire.AppendCredit(out.head, l.grant.begin(m.window.Load()))
	}
	m.send(out)
	for _, shard := range m.shards {
		shard.loop.Complete(Input{kind: inputLinkUp, rare: &rare{link: l}})
	}
}

// StreamDown implements Receiver.
func (m *Manager) StreamDown(s StreamID) {
	l := m.link(s)
	if l == nil {
		return
	}
	l.down.Store(true)
	m.mu.Lock()
	delete(m.links, s)
	m.mu.Unlock()
	for _, shard := range m.shards {
		shard.loop.Complete(Input{kind: inputLinkDown, rare: &rare{link: l}})
	}
}

// StreamRoom implements Receiver.
func (m *Manager) StreamRoom(s StreamID, n int) []byte {
	l := m.link(s)
	if l == nil || !l.takes(n) {
		return nil
	}
	room := m.deps.Buffers.Get(n)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lent = unsafe.SliceData(room)
	return room
}

// talkBytes is the largest message that takes no credit.
const talkBytes = 1 << 20

// takes reports whether a message may be as large.
func (l *link) takes(n int) bool {
	return n <= talkBytes || l.dialled && l.grant.takes(n)
}

// StreamMessage implements Receiver.
func (m *Manager) StreamMessage(s StreamID, message []byte) {
	l := m.link(s)
	if l == nil {
		return
	}
	l.mu.Lock()
	lent := l.lent != nil && unsafe.SliceData(message) == l.lent
	l.lent = nil
	l.mu.Unlock()
	if err := m.receive(l, message, lent); err != nil {
		m.deps.Logger.Warn("a broker sent what cannot be read; its stream is ended", "broker", l.node, "err", err)
		m.end(l)
	}
}

func (m *Manager) link(s StreamID) *link {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.links[s]
}

// end ends a link. StreamDown follows.
func (m *Manager) end(l *link) {
	if !l.down.Swap(true) {
		m.deps.Streams.End(l.id)
	}
}

// outgoing is a message on its way to the network, with what holds its memory.
type outgoing struct {
	m       *Manager
	link    *link
	head    []byte // the first of parts
	parts   [][]byte
	extents []*extent
	buffers [][]byte
	bytes   int             // that credit was taken for; 0: it has no batches
	sent    func(took bool) // done, bound once
}

// writeSection writes the first of what one kind of section has to say, and returns what is
// left for another message.
func writeSection[T any](out *outgoing, kind streamwire.Kind, all []T, write func([]byte, *T) []byte) []T {
	n := min(len(all), headsMax)
	if n == 0 {
		return all
	}
	head, at := streamwire.Begin(out.head, kind)
	for i := range all[:n] {
		head = write(head, &all[i])
	}
	streamwire.Finish(head, at)
	out.head = head
	return slices.Delete(all, 0, n)
}

// partsSent bounds what a message that is used again may have grown to.
const partsSent = 1024

func (m *Manager) newOutgoing(l *link) *outgoing {
	o, ok := m.outgoing.Get().(*outgoing)
	if !ok {
		o = &outgoing{m: m}
		o.sent = o.done
	}
	o.link = l
	o.parts = append(o.parts, nil) // for head
	return o
}

// send gives a message to the network.
func (m *Manager) send(o *outgoing) {
	o.parts[0] = o.head
	if o.bytes > 0 {
		o.link.traffic.sent.Add(int64(o.bytes))
	}
	if o.link.down.Load() || !m.deps.Streams.Send(o.link.id, o.parts, o.sent) {
		o.link.down.Store(true)
		o.done(false)
	}
}

// done lets go of the message's memory. The network has it, or will not.
func (o *outgoing) done(bool) {
	for _, e := range o.extents {
		e.release()
	}
	for _, b := range o.buffers {
		o.m.deps.Buffers.Put(b)
	}
	if o.bytes > 0 {
		o.m.wake(o.link, o.link.credit.left(o.bytes))
	}
	m := o.m
	if cap(o.parts) > partsSent {
		return
	}
	clear(o.parts)
	clear(o.extents)
	clear(o.buffers)
	*o = outgoing{m: m, head: o.head[:0], parts: o.parts[:0], extents: o.extents[:0], buffers: o.buffers[:0], sent: o.sent}
	m.outgoing.Put(o)
}

// nobody stands for no shard.
const nobody = -1

// wake lets a shard try again that waits for credit.
func (m *Manager) wake(l *link, shard int) {
	if shard != nobody {
		m.shards[shard].loop.Complete(Input{kind: inputFeed, rare: &rare{link: l}})
	}
}

// reviewLinks ends the streams with brokers whose registration has ended since, by img, and
// all of them where this broker's own is another one: whoever knows it by the earlier is
// told anew. It reports whether that is so.
func (m *Manager) reviewLinks(img, old *image.Image) (anew bool) {
	if b, ok := img.Broker(m.cfg.NodeID); ok {
		before := m.epoch.Swap(int64(b.Epoch))
		anew = before != int64(b.Epoch)
	}
	for _, l := range m.allLinks() {
		if anew || old != nil && l.isOver(img, old) {
			m.end(l)
		}
	}
	return anew
}

// isOver reports whether the peer's registration that its hello spoke of has ended.
func (l *link) isOver(img, old *image.Image) bool {
	b, ok := img.Broker(l.node)
	if !ok {
		_, before := old.Broker(l.node)
		return before
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.greeted && l.epoch < b.Epoch
}

// allLinks is in the order of their beginning.
func (m *Manager) allLinks() []*link {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*link, 0, len(m.links))
	for _, l := range m.links {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b *link) int { return cmp.Compare(a.id, b.id) })
	return all
}

// noStreams is used where there is no other broker.
type noStreams struct{}

func (noStreams) Want(model.NodeID, bool)                  {}
func (noStreams) Send(StreamID, [][]byte, func(bool)) bool { return false }
func (noStreams) End(StreamID)                             {}
