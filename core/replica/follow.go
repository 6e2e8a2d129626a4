package replica

import (
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/core/replica/streamwire"
)

// upstream is a node that leads partitions of which one shard has followers.
type upstream struct {
	node      model.NodeID
	link      *link // nil while there is none
	followers map[*replica]struct{}

	busy          bool // it is in Shard.upstreams
	subscriptions []streamwire.Subscribe
	acks          []streamwire.Ack
}

func (s *Shard) upstreamOf(node model.NodeID) *upstream {
	u := s.leaders[node]
	if u == nil {
		u = &upstream{node: node, followers: make(map[*replica]struct{})}
		s.leaders[node] = u
	}
	return u
}

func (s *Shard) busyUpstream(u *upstream) {
	if !u.busy {
		u.busy = true
		s.upstreams = append(s.upstreams, u)
	}
}

// follow makes a replica one of those that follow a node; NoNode: of none.
func (s *Shard) follow(now time.Time, r *replica, leader model.NodeID) {
	if r.upstream != nil && r.upstream.node == leader {
		return
	}
	if old := r.upstream; old != nil {
		r.upstream = nil
		if old.link != nil {
			s.step(now, r, &partition.Reached{Node: old.node})
		}
		if delete(old.followers, r); len(old.followers) == 0 && old.link == nil && !old.busy {
			delete(s.leaders, old.node)
		}
	}
	if leader == model.NoNode {
		return
	}
	u := s.upstreamOf(leader)
	r.upstream = u
	u.followers[r] = struct{}{}
	if u.link != nil {
		s.step(now, r, &partition.Reached{Node: leader, Up: true})
	}
}

// linkUp takes a link. One that was dialled takes the place of the one before, if that has
// not been seen to end yet.
func (s *Shard) linkUp(now time.Time, l *link) {
	if !l.dialled {
		l.feeds[s.index] = &feed{link: l}
		return
	}
	u := s.upstreamOf(l.node)
	if u.link != nil {
		s.upstreamDown(now, u)
	}
	u.link = l
	l.upstreams[s.index] = u
	s.reached(now, u)
}

func (s *Shard) linkDown(now time.Time, l *link) {
	if !l.dialled {
		if f := l.feeds[s.index]; f != nil {
			s.feedDown(now, f)
		}
		return
	}
	if u := l.upstreams[s.index]; u != nil && u.link == l {
		s.upstreamDown(now, u)
		if len(u.followers) == 0 && !u.busy {
			delete(s.leaders, u.node)
		}
	}
}

func (s *Shard) upstreamDown(now time.Time, u *upstream) {
	u.link = nil
	u.subscriptions, u.acks = u.subscriptions[:0], u.acks[:0]
	s.reached(now, u)
}

func (s *Shard) reached(now time.Time, u *upstream) {
	all := make([]*replica, 0, len(u.followers))
	for r := range u.followers {
		all = append(all, r)
	}
	slices.SortFunc(all, byID)
	for _, r := range all {
		s.step(now, r, &partition.Reached{Node: u.node, Up: u.link != nil})
	}
}

// unpack gives the parts of a message to the machines.
func (s *Shard) unpack(now time.Time, p *parcel) {
	for i := range p.strayAsk {
		if f := p.link.feeds[s.index]; f != nil {
			e := &p.strayAsk[i]
			s.answerUnknown(f, e.Partition, e.Session, e.Epoch)
		}
	}
	for i := range p.asks {
		s.subscribe(now, p.link, &p.asks[i])
	}
	for i := range p.answers {
		s.step(now, p.answers[i].replica, &p.answers[i].in)
	}
	for i := range p.damages {
		s.step(now, p.damages[i].replica, &p.damages[i].in)
	}
	for i := range p.batches {
		s.copied(now, &p.batches[i])
	}
	for i := range p.acks {
		s.acknowledged(now, &p.acks[i])
	}
	s.owe(p.link)
	s.host.unpacked(p)
}

// copied gives batches from a leader their number, and the machine their headers.
func (s *Shard) copied(now time.Time, c *copying) {
	q, r := c.payload, c.replica
	id := s.number(q)
	q.appendIn.ID, q.answered = id, true
	if r.machine == nil || r.deleting {
		s.release(id)
		return
	}
	c.in.ID = id
	s.step(now, r, &c.in)
}

// owe has it told to a leader, after this turn, what it may send again.
func (s *Shard) owe(l *link) {
	if l.dialled && l.upstreams[s.index] != nil && l.upstreams[s.index].link == l {
		s.busyUpstream(l.upstreams[s.index])
	}
}

// following performs what a machine asks for as follower.
func (s *Shard) following(r *replica, e *partition.Effects) {
	if q := e.Subscription; q != nil {
		if u := s.leaders[q.Leader]; u != nil && u.link != nil {
			u.subscriptions = append(u.subscriptions, streamwire.Subscribe{
				Partition: r.id, Session: q.Session, Epoch: q.Epoch, PartitionEpoch: q.PartitionEpoch,
				LEO: q.LEO, Counted: q.Counted, LastEpoch: q.LastEpoch, LogStart: q.LogStart,
			})
			s.busyUpstream(u)
		}
	}
	if a := e.Ack; a != nil {
		if u := s.leaders[a.Leader]; u != nil && u.link != nil {
			u.acks = append(u.acks, streamwire.Ack{Partition: r.id, Session: a.Session, Epoch: a.Epoch, PartitionEpoch: a.PartitionEpoch, LEO: a.LEO})
			s.busyUpstream(u)
		}
	}
}

// sendUpstreams tells leaders what this turn has brought.
func (s *Shard) sendUpstreams() {
	for i := 0; i < len(s.upstreams); i++ {
		u := s.upstreams[i]
		u.busy = false
		if u.link == nil {
			if len(u.followers) == 0 {
				delete(s.leaders, u.node)
			}
			continue
		}
		s.sendUpstream(u)
	}
	clear(s.upstreams)
	s.upstreams = s.upstreams[:0]
}

func (s *Shard) sendUpstream(u *upstream) {
	for {
		credit, news := u.link.grant.news(s.host.windowNow())
		if !news && len(u.subscriptions) == 0 && len(u.acks) == 0 {
			return
		}
		out := s.host.newOutgoing(u.link)
		if news {
			out.head = streamwire.AppendCredit(out.head, credit)
		}
		u.subscriptions = writeSection(out, streamwire.KindSubscribe, u.subscriptions, streamwire.AppendSubscribe)
		u.acks = writeSection(out, streamwire.KindAck, u.acks, streamwire.AppendAck)
		s.host.send(out)
	}
}
