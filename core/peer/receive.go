package peer

import (
	"fmt"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/transport"
)

// accepted: a peer has made a link.
func (m *Machine) accepted(now time.Time, in *Accepted, out *Effects) {
	l := &link{id: in.Link, peer: in.Peer, lane: in.Lane, phase: up, since: now, heardAt: now, box: &outbox{}}
	if in.Lane != transport.Control {
		l.phase, l.use = silent, useUnknown
		m.wake(now.Add(m.cfg.DialMax))
	}
	m.addLink(l)
	if m.stopped {
		m.close(l, causeIdle, out)
		return
	}
	if err := m.check(in.Peer); err != nil {
		m.reject(l, err, out)
		return
	}
	m.makePlace(l, out)
	if l.phase == closing {
		return
	}
	// Whoever dials is there: what waits for it need not wait longer.
	if t := m.byNode[model.NodeID(in.Peer.NodeID)]; t != nil {
		for u := range t.routes {
			if r := &t.routes[u]; r.link == nil && now.Before(r.dialAt) {
				r.dialAt = now
				m.drive(now, r, out)
			}
		}
	}
}

// makePlace ends the oldest link of a node that has many, so that those which are dead, and
// not known to be, do not keep others out.
func (m *Machine) makePlace(l *link, out *Effects) {
	all, same := 0, 0
	var oldest *link
	for _, other := range m.links {
		if other.route != nil || other.phase == closing {
			continue
		}
		all++
		if other.peer.NodeID == l.peer.NodeID && other.lane == l.lane {
			if same++; oldest == nil {
				oldest = other
			}
		}
	}
	switch {
	case same > acceptedMax:
		m.close(oldest, causeEnded, out)
	case all > acceptedAllMax:
		m.reject(l, fmt.Errorf("%d links of peers are open: %w", all-1, ErrBusy), out)
	}
}

// received: a message has come.
func (m *Machine) received(now time.Time, in *Received, out *Effects) {
	l := m.byLink[in.Link]
	if l == nil || l.phase == closing || l.phase == dialing {
		return
	}
	l.heardAt, l.coming = now, 0
	l.heard += int64(len(in.Data))
	switch {
	case l.phase == silent:
		m.begin(l, in.Data, out)
	case l.use == useStream:
		m.streamed(now, l, in.Data, out)
	default:
		m.take(now, l, in.Data, out)
	}
}

// begin reads what a data link is for.
func (m *Machine) begin(l *link, data []byte, out *Effects) {
	k, _, body, err := parse(data)
	if err == nil && (body != nil || k != kindBulk && k != kindStream) {
		err = fmt.Errorf("a data link that begins with %d bytes of kind %d: %w", len(data), k, errMalformed)
	}
	if err != nil {
		m.reject(l, err, out)
		return
	}
	l.phase, l.use = up, useBulk
	if k == kindStream {
		l.use = useStream
		m.streamUp(l, out)
	}
}

// streamed takes a message of a stream.
func (m *Machine) streamed(now time.Time, l *link, data []byte, out *Effects) {
	switch len(data) {
	case 0:
		m.push(now, l, message{kind: kindPong, parts: [][]byte{{0}}, bytes: 1}, out)
	case 1:
		m.proved(now, l)
	default:
		out.add(Effect{Kind: StreamMessage, Link: l.id, Stream: l.stream, Message: data})
	}
}

// take takes a message of a control or bulk link.
func (m *Machine) take(now time.Time, l *link, data []byte, out *Effects) {
	k, number, body, err := parse(data)
	if err != nil {
		m.reject(l, err, out)
		return
	}
	switch k {
	case kindPing:
		m.push(now, l, message{kind: kindPong, parts: [][]byte{header(kindPong, number)}, bytes: headerBytes}, out)
	case kindPong:
		if number == l.ping {
			m.proved(now, l)
		}
	case kindPost, kindQuestion:
		switch {
		case l.route != nil:
			m.reject(l, fmt.Errorf("a message of kind %d over a link that this node has dialled: %w", k, errMalformed), out)
		case k == kindPost:
			out.add(Effect{Kind: Posted, Peer: l.peer, Message: body})
		case len(l.asked) < questionsMax: // who asks more hears nothing
			m.lastQuestion++
			l.asked = append(l.asked, asked{id: m.lastQuestion, number: number, at: now})
			m.wake(now.Add(m.cfg.QuestionMax))
			out.add(Effect{Kind: Asked, Link: l.id, Question: m.lastQuestion, Peer: l.peer, Message: body})
		}
	case kindAnswer:
		if l.route == nil {
			m.reject(l, fmt.Errorf("an answer to nothing: %w", errMalformed), out)
			return
		}
		m.answered(now, l, number, body, out)
	}
}

// answer sends an owner's answer back the way that its question came.
func (m *Machine) answer(now time.Time, in *Answer, out *Effects) {
	for _, l := range m.links {
		i := slices.IndexFunc(l.asked, func(a asked) bool { return a.id == in.Question })
		if i < 0 {
			continue
		}
		number := l.asked[i].number
		l.asked = slices.Delete(l.asked, i, i+1)
		n := headerBytes + len(in.Answer)
		if l.phase != up || n > ControlBytesMax {
			return
		}
		m.push(now, l, message{kind: kindAnswer, parts: [][]byte{header(kindAnswer, number), in.Answer}, bytes: n}, out)
		return
	}
}
