package peer

import (
	"fmt"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

// tick does what is due, and finds out when to look again.
func (m *Machine) tick(now time.Time, out *Effects) {
	if m.next.IsZero() || now.Before(m.next) {
		return
	}
	late := now.Sub(m.next) > m.cfg.PingAfter/2
	m.next = time.Time{}
	for _, t := range m.targets {
		for u := range t.routes {
			r := &t.routes[u]
			m.timeOut(now, r, out)
			if r.link == nil {
				m.drive(now, r, out)
			}
		}
	}
	for _, l := range m.links {
		switch l.phase {
		case dialing, silent:
			m.hurry(now, l, out)
		case up:
			if late && !l.pinged.IsZero() {
				l.pinged = now // it was this node that did not run: what the peer said may lie here
			}
			m.watch(now, l, out)
		}
	}
}

// hurry ends what takes too long to become a link.
func (m *Machine) hurry(now time.Time, l *link, out *Effects) {
	due := l.since.Add(m.cfg.DialMax)
	switch {
	case now.Before(due):
		m.wake(due)
	case l.phase == dialing:
		m.close(l, causeBad, out)
	default:
		m.reject(l, fmt.Errorf("a data link that says nothing: %w", errMalformed), out)
	}
}

// watch asks a peer that says nothing whether it is there, and ends links that are dead, or
// idle.
func (m *Machine) watch(now time.Time, l *link, out *Effects) {
	m.expire(now, l)
	if r := l.route; r != nil && l.use != useStream && r.box.len() == 0 && len(r.asks) == 0 {
		idle := latest(r.usedAt, l.since).Add(m.cfg.IdleMax)
		if !now.Before(idle) {
			m.close(l, causeIdle, out)
			return
		}
		m.wake(idle)
	}
	if !l.pinged.IsZero() {
		m.judge(now, l, out)
		return
	}
	// A follower's end of a stream asks always, since it has nothing to say when its leader has
	// not; every other only when it has said something.
	if l.route == nil && l.use != useStream || !l.dirty && (l.route == nil || l.use != useStream) {
		return
	}
	if now.Before(l.pingAt) {
		m.wake(l.pingAt)
		return
	}
	l.pinged, l.dirty, l.heard = now, false, 0
	ping := message{kind: kindPing}
	if l.use != useStream {
		m.lastNumber++
		l.ping = m.lastNumber
		ping.parts, ping.bytes = [][]byte{header(kindPing, l.ping)}, headerBytes
	}
	m.push(now, l, ping, out)
	m.judge(now, l, out)
}

// proved: all that was written before the ping has arrived.
func (m *Machine) proved(now time.Time, l *link) {
	if l.pinged.IsZero() {
		return
	}
	l.pinged, l.owed, l.later = time.Time{}, l.later, 0
	l.pingAt = now.Add(m.cfg.PingAfter)
	m.wake(l.pingAt)
}

// judge ends a link whose peer does not answer a ping. What is on the way before the ping,
// and before the pong, may take its time: of the latter a link holds no more than it may.
func (m *Machine) judge(now time.Time, l *link, out *Effects) {
	due := l.pinged.Add(m.cfg.SilenceMax).Add(slow(l.owed + min(l.heard, transport.LinkBytesMax) + l.coming))
	if now.Before(due) {
		m.wake(due)
		return
	}
	out.add(Effect{Kind: Told, Event: Event{Kind: Lost, Address: l.address(), Peer: l.peer, Err: transport.Errorf(transport.ErrRetry, "node %d has not answered for %s", l.peer.NodeID, now.Sub(l.pinged))}})
	m.close(l, causeEnded, out)
}

// expire forgets questions that the owner has not answered.
func (m *Machine) expire(now time.Time, l *link) {
	for len(l.asked) > 0 {
		due := l.asked[0].at.Add(m.cfg.QuestionMax)
		if now.Before(due) {
			m.wake(due)
			return
		}
		l.asked = l.asked[1:]
	}
}

// slow is how long so many bytes take over the slowest network.
func slow(n int64) time.Duration {
	return time.Duration(n) * time.Second / slowestBytesPerSecond
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
