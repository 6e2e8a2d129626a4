package peer

import (
	"fmt"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/transport"
)

// target is a node, or an endpoint, that this node has something for.
type target struct {
	node     model.NodeID // NoNode: whoever is at the endpoint
	endpoint string       // empty: nobody knows
	routes   [uses]route
	// failedAt is when the last dial has failed; zero: none has since one came to a link.
	failedAt time.Time
}

// route is one way to a target, for one use: at most one link, which this node dials when it
// is needed.
type route struct {
	target *target
	use    use
	link   *link // until it has failed or ended
	box    outbox
	asks   []*ask // without an answer, in the order of asking
	wanted bool   // of a stream: somebody wants it
	probe  bool   // one dial is to find out whether the peer is gone
	tries  int    // dials that have failed since a link stood
	dialAt time.Time
	usedAt time.Time
}

// ask is a question that waits for its answer.
type ask struct {
	number uint64
	due    time.Time
	done   func([]byte, error)
	link   *link // that it was written on; nil: it waits
	at     time.Time
}

func (t *target) address() model.Address { return model.Address{Endpoint: t.endpoint, Node: t.node} }

// find returns the target of an address, made if need be; nil where there are too many.
func (m *Machine) find(now time.Time, to model.Address) *target {
	t := m.byEndpoint[to.Endpoint]
	if to.Node != model.NoNode {
		t = m.byNode[to.Node]
	}
	if to.Endpoint == "" && to.Node != model.NoNode {
		to.Endpoint = m.book[to.Node]
	}
	if t == nil {
		return m.newTarget(to)
	}
	if to.Endpoint != "" {
		m.move(now, t, to.Endpoint)
	}
	return t
}

func (m *Machine) newTarget(to model.Address) *target {
	if len(m.targets) >= targetsMax && !m.forget() {
		return nil
	}
	t := &target{node: to.Node, endpoint: to.Endpoint}
	for u := range t.routes {
		t.routes[u].target, t.routes[u].use = t, use(u)
	}
	m.targets = append(m.targets, t)
	if to.Node != model.NoNode {
		m.byNode[to.Node] = t
	} else {
		m.byEndpoint[to.Endpoint] = t
	}
	return t
}

// move says where a target is now. The next dial goes there, soon.
func (m *Machine) move(now time.Time, t *target, endpoint string) {
	if t.endpoint == endpoint {
		return
	}
	t.endpoint = endpoint
	for u := range t.routes {
		r := &t.routes[u]
		if soon := now.Add(m.cfg.BackoffMin); r.dialAt.After(soon) {
			r.dialAt = soon
		}
	}
	m.wake(now)
}

// forget makes room for a target, by forgetting those that nothing is left of.
func (m *Machine) forget() bool {
	before := len(m.targets)
	m.targets = slices.DeleteFunc(m.targets, func(t *target) bool {
		for u := range t.routes {
			if r := &t.routes[u]; r.link != nil || r.needed() {
				return false
			}
		}
		if t.node != model.NoNode {
			delete(m.byNode, t.node)
		} else {
			delete(m.byEndpoint, t.endpoint)
		}
		return true
	})
	return len(m.targets) < before
}

// needed says whether there should be a link.
func (r *route) needed() bool { return r.wanted || r.probe || r.box.len() > 0 || len(r.asks) > 0 }

func (m *Machine) locate(now time.Time, in *Locate, out *Effects) {
	if in.Endpoint == "" {
		delete(m.book, in.Node)
	} else {
		m.book[in.Node] = in.Endpoint
	}
	if t := m.byNode[in.Node]; t != nil && in.Endpoint != "" {
		m.move(now, t, in.Endpoint)
		for u := range t.routes {
			m.drive(now, &t.routes[u], out)
		}
	}
}

func (m *Machine) want(now time.Time, in *Want, out *Effects) {
	if in.Wanted && (m.stopped || in.Node < 0 || in.Node == model.NodeID(m.cfg.Identity.NodeID)) {
		return
	}
	t := m.byNode[in.Node]
	if t == nil && in.Wanted {
		t = m.find(now, model.Address{Node: in.Node})
	}
	if t == nil {
		return
	}
	r := &t.routes[useStream]
	r.wanted = in.Wanted
	if !r.wanted && r.link != nil {
		m.close(r.link, causeEnded, out)
	}
	m.drive(now, r, out)
}

func (m *Machine) post(now time.Time, in *Post, out *Effects) {
	u, most := useControl, ControlBytesMax
	if in.Bulk {
		u, most = useBulk, BulkBytesMax
	}
	n := headerBytes + len(in.Message)
	if n > most {
		return
	}
	r, err := m.routeTo(now, in.To, u)
	if err != nil || !r.box.makeRoom(n, m.cfg.QueueBytesMax) {
		return
	}
	r.box.push(message{kind: kindPost, parts: [][]byte{header(kindPost, 0), in.Message}, bytes: n, at: now})
	m.drive(now, r, out)
}

// routeTo finds the way to an address.
func (m *Machine) routeTo(now time.Time, to model.Address, u use) (*route, error) {
	if m.stopped {
		return nil, errStopped
	}
	if to.Node == model.NodeID(m.cfg.Identity.NodeID) {
		return nil, ErrSelf
	}
	if to.Node < model.NoNode || to.Node == model.NoNode && to.Endpoint == "" {
		return nil, ErrUnknown
	}
	t := m.find(now, to)
	switch {
	case t == nil:
		return nil, ErrBusy
	case t.endpoint == "":
		return nil, ErrUnknown
	}
	r := &t.routes[u]
	r.usedAt = now
	return r, nil
}

func (m *Machine) ask(now time.Time, in *Ask, out *Effects) {
	n := headerBytes + len(in.Question)
	r, err := m.routeTo(now, in.To, useControl)
	switch {
	case err != nil:
	case n > ControlBytesMax:
		err = transport.Errorf(transport.ErrInvalid, "a question of %d bytes; at most %d fit", n, ControlBytesMax)
	case len(r.asks) >= asksMax || !r.box.makeRoom(n, m.cfg.QueueBytesMax):
		err = ErrBusy
	}
	if err != nil {
		out.add(Effect{Kind: Answered, Done: in.Done, Err: fmt.Errorf("ask %s: %w", name(in.To), err)})
		return
	}
	m.lastNumber++
	r.asks = append(r.asks, &ask{number: m.lastNumber, due: now.Add(max(in.Timeout, 0)), done: in.Done})
	r.box.push(message{kind: kindQuestion, parts: [][]byte{header(kindQuestion, m.lastNumber), in.Question}, bytes: n, at: now, number: m.lastNumber})
	m.wake(now.Add(max(in.Timeout, 0)))
	m.drive(now, r, out)
}

func name(to model.Address) string {
	if to.Node == model.NoNode {
		return "who is at " + to.Endpoint
	}
	return fmt.Sprintf("node %d", to.Node)
}

// drive does for a route what is to be done now: it dials, or writes.
func (m *Machine) drive(now time.Time, r *route, out *Effects) {
	if r.link != nil {
		m.pump(now, r.link, out)
		return
	}
	if !r.needed() || r.target.endpoint == "" || m.stopped {
		return
	}
	if now.Before(r.dialAt) {
		m.wake(r.dialAt)
		return
	}
	lane := transport.Data
	if r.use == useControl {
		lane = transport.Control
	}
	m.lastLink += 2
	l := &link{id: m.lastLink, lane: lane, use: r.use, phase: dialing, route: r, since: now, box: &r.box}
	if r.use == useStream {
		l.box = &outbox{}
	}
	r.link = l
	m.addLink(l)
	m.wake(now.Add(m.cfg.DialMax))
	out.add(Effect{Kind: Dial, Link: l.id, Target: transport.Target{
		Endpoint: r.target.endpoint, Lane: lane, NodeID: int32(r.target.node),
	}})
}

func (m *Machine) dialled(now time.Time, in *Dialled, out *Effects) {
	l := m.byLink[in.Link]
	if l == nil || l.phase != dialing {
		return
	}
	r := l.route
	l.peer, l.phase, l.since, l.heardAt = in.Peer, up, now, now
	err := m.check(in.Peer)
	if err == nil && r.target.node != model.NoNode && r.target.node != model.NodeID(in.Peer.NodeID) {
		err = transport.Errorf(transport.ErrOther, "node %d answers for node %d", in.Peer.NodeID, r.target.node)
	}
	if err != nil {
		m.giveUp(r, err, out)
		m.reject(l, err, out)
		return
	}
	out.add(Effect{Kind: Told, Event: Event{Kind: Reached, Address: r.target.address(), Peer: in.Peer}})
	r.probe, r.target.failedAt = false, time.Time{}
	l.pingAt = now.Add(m.cfg.PingAfter)
	m.wake(l.pingAt)
	switch r.use {
	case useStream:
		m.hello(now, l, kindStream, out)
		m.streamUp(l, out)
	case useBulk:
		m.hello(now, l, kindBulk, out)
		r.box.dropOld(now.Add(-m.cfg.PostMax))
	default:
		r.box.dropOld(now.Add(-m.cfg.PostMax))
	}
	m.pump(now, l, out)
}

// hello says what a data link is for, before anything else is written.
func (m *Machine) hello(now time.Time, l *link, k kind, out *Effects) {
	waiting := *l.box
	*l.box = outbox{}
	l.box.push(message{kind: k, parts: [][]byte{header(k, 0)}, bytes: headerBytes, at: now})
	m.pump(now, l, out)
	for i := range waiting.len() {
		l.box.push(*waiting.at(i))
	}
}

func (m *Machine) streamUp(l *link, out *Effects) {
	m.lastStream++
	l.stream = m.lastStream
	m.streams[l.stream] = l
	out.add(Effect{Kind: StreamUp, Link: l.id, Stream: l.stream, Peer: l.peer, Was: l.route != nil})
}

// failed: a dial has come to nothing.
func (m *Machine) failed(now time.Time, in *Failed, out *Effects) {
	l := m.byLink[in.Link]
	if l == nil {
		return
	}
	m.dropLink(l)
	if l.route == nil {
		return
	}
	r := l.route
	r.link = nil
	err := in.Err
	if l.phase == closing { // it was given up, whatever the transport made of that
		if !r.needed() {
			r.probe = false
			return
		}
		err = transport.Errorf(transport.ErrRetry, "%s has not answered within %s", name(r.target.address()), m.cfg.DialMax)
	}
	r.target.failedAt = now
	event := Event{Kind: Unreached, Address: r.target.address(), Err: err}
	class := transport.Class(err)
	if class == transport.ErrRefused { //nolint:errorlint // Class gives the value itself
		event.Kind = Refused
	}
	out.add(Effect{Kind: Told, Event: event})
	if class != transport.ErrRetry { //nolint:errorlint // as above
		m.giveUp(r, err, out)
	}
	m.backOff(now, r)
	m.drive(now, r, out)
}

// backOff puts the next dial off, the longer the more have failed.
func (m *Machine) backOff(now time.Time, r *route) {
	pause := m.cfg.BackoffMax
	if r.tries < 30 {
		pause = min(pause, m.cfg.BackoffMin<<r.tries)
	}
	r.tries++
	r.probe = false
	r.box.dropOld(now.Add(-m.cfg.PostMax))
	r.dialAt = now.Add(pause/2 + time.Duration(m.rand.Int64N(int64(pause/2)+1)))
}

// unlink says what follows for a route when its link has ended.
func (m *Machine) unlink(now time.Time, l *link, out *Effects) {
	r := l.route
	r.link = nil
	r.box.dropPings()
	m.endAsks(r, l, transport.Errorf(transport.ErrClosed, "the link to node %d has ended before the answer", l.peer.NodeID), out)
	if l.phase != closing {
		out.add(Effect{Kind: Told, Event: Event{Kind: Lost, Address: r.target.address(), Peer: l.peer}})
		r.probe = r.use == useControl && !m.stopped
	}
	switch {
	case l.why == causeIdle:
	case l.why != causeBad && now.Sub(l.since) >= m.cfg.StoodMin:
		r.tries, r.dialAt = 0, now
	default:
		probe := r.probe
		m.backOff(now, r)
		r.probe = probe
	}
	m.drive(now, r, out)
}

// endAsks ends the questions that were written on a link, since their answers come no more.
func (m *Machine) endAsks(r *route, l *link, err error, out *Effects) {
	r.asks = slices.DeleteFunc(r.asks, func(a *ask) bool {
		if a.link != l {
			return false
		}
		out.add(Effect{Kind: Answered, Done: a.done, Err: err})
		return true
	})
}

// giveUp ends every question of a route.
func (m *Machine) giveUp(r *route, err error, out *Effects) {
	for _, a := range r.asks {
		r.box.dropQuestion(a.number)
		out.add(Effect{Kind: Answered, Done: a.done, Err: fmt.Errorf("ask %s: %w", name(r.target.address()), err)})
	}
	clear(r.asks)
	r.asks = r.asks[:0]
}

// written: a question is on its way over a link.
func (r *route) written(now time.Time, number uint64, l *link) {
	for _, a := range r.asks {
		if a.number == number {
			a.link, a.at = l, now
			return
		}
	}
}

// answered: an answer has come on a link.
func (m *Machine) answered(now time.Time, l *link, number uint64, answer []byte, out *Effects) {
	r := l.route
	i := slices.IndexFunc(r.asks, func(a *ask) bool { return a.number == number && a.link == l })
	if i < 0 || now.After(r.asks[i].due) {
		return // late, or twice
	}
	out.add(Effect{Kind: Answered, Done: r.asks[i].done, Message: answer, Peer: l.peer})
	r.asks = slices.Delete(r.asks, i, i+1)
}

// timeOut ends the questions that have waited too long.
func (m *Machine) timeOut(now time.Time, r *route, out *Effects) {
	r.asks = slices.DeleteFunc(r.asks, func(a *ask) bool {
		if now.Before(a.due) {
			m.wake(a.due)
			return false
		}
		r.box.dropQuestion(a.number)
		if l := a.link; l != nil && l.heardAt.Before(a.at) && now.Sub(a.at) >= m.cfg.PingAfter {
			m.close(l, causeEnded, out) // it says nothing at all: what is asked next goes another way
		}
		out.add(Effect{Kind: Answered, Done: a.done, Err: fmt.Errorf("ask %s: %w", name(r.target.address()), model.ErrRequestTimedOut)})
		return true
	})
}
