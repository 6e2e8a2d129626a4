package memnet

// depart sends something from an end towards the other.
func (m *Machine) depart(e int32, it item) {
	s := m.end(e)
	w := &m.ways[s.node][m.end(e^1).node]
	if it.kind == finish {
		s.over = true
	}
	if it.kind == message && s.lost {
		// It does not arrive, but who is not there any more may say so.
		if s.probing || s.over {
			return
		}
		s.probing = true
		it = item{kind: probe}
	}
	if w.Cut || (it.kind == message && m.chance(w.LoseChance)) {
		m.lose(e, it.kind)
		return
	}
	it.at = max(s.last, m.travel(w, laneIndex(s.lane), len(it.data)))
	s.last = it.at
	s.out.push(it)
	m.held += int64(len(it.data))
	if s.out.n == 1 {
		m.set(e, arrival, it.at)
	}
}

// lose loses something that an end has sent.
func (m *Machine) lose(e int32, kind itemKind) {
	s := m.end(e)
	switch kind {
	case finish:
		s.over = false
		return
	case probe:
		s.probing = false
		return
	}
	if s.lost {
		return
	}
	s.lost = true
	if w := &m.ways[s.node][m.end(e^1).node]; s.state == open && m.chance(w.EndChance) {
		m.set(e, expiry, m.now+m.between(w.EndAfter))
	}
}

// purge takes what nobody will hear, since something before it was lost: all that is
// under way from an end but the end of the link, or what asks for it.
func (m *Machine) purge(e int32) {
	s := m.end(e)
	if !s.lost || s.out.n == 0 {
		return
	}
	last := *s.out.at(s.out.n - 1)
	m.clear(e)
	if last.kind == finish || last.kind == probe {
		s.out.push(last)
		m.set(e, arrival, last.at)
	}
}

// clear takes all that is under way from an end.
func (m *Machine) clear(e int32) {
	s := m.end(e)
	for s.out.n > 0 {
		m.held -= int64(len(s.out.pop().data))
	}
	m.unset(e, arrival)
}

// die ends a link as one end has it, with the process that had it.
func (m *Machine) die(e int32, how Death) {
	s := m.end(e)
	switch {
	case s.state == absent || s.state == left:
		return
	case s.state == asked && how == Reset:
		m.depart(e, item{kind: refuse, err: m.nodes[s.node].nobody()})
	case how == Reset:
		m.hangUp(e)
	default:
		// What was in the host's memory is gone, and the rest is under way.
		for keep := m.rand.IntN(s.out.n + 1); s.out.n > keep; {
			m.held -= int64(len(s.out.drop().data))
		}
		if s.out.n == 0 {
			m.unset(e, arrival)
		}
	}
	m.leave(e)
}

// leave ends an end for whom it belonged to, and forgets the link when neither end is
// anybody's.
func (m *Machine) leave(e int32) {
	end := m.end(e)
	if other := m.end(e ^ 1); other.state == asked { // it is not to wait for nothing
		take(&m.nodes[other.node].dials, e^1)
		other.state = absent
	}
	end.state = left
	for end.in.n > 0 {
		m.held -= int64(len(end.in.pop()))
	}
	m.unset(e, wake)
	m.unset(e, expiry)
	node, queued, lane := end.node, end.queued, laneIndex(end.lane)
	end.queued = false
	if s := m.end(e ^ 1).state; s == absent || s == left {
		m.free(e)
	}
	if queued && take(&m.nodes[node].accepts, e) {
		m.nodes[node].queued[lane]--
		m.admit(node)
	}
}

// alloc makes a pair of ends, and returns the first.
func (m *Machine) alloc() int32 {
	if n := len(m.unused); n > 0 {
		e := m.unused[n-1]
		m.unused = m.unused[:n-1]
		return e
	}
	e := int32(2 * len(m.pairs))
	m.pairs = append(m.pairs, &pair{})
	for _, e := range [2]int32{e, e + 1} {
		m.end(e).reset()
	}
	return e
}

// free makes the pair of an end one that is not used.
func (m *Machine) free(e int32) {
	e &^= 1
	for _, e := range [2]int32{e, e + 1} {
		m.clear(e)
		m.delist(e)
		m.end(e).reset()
	}
	m.unused = append(m.unused, e)
}

// reset makes an end new, but for the arrays of its rings. It has no alarm set.
func (s *end) reset() {
	gen := s.gen + 1
	if gen == 0 {
		gen = 1 // no Link is zero
	}
	*s = end{gen: gen, out: s.out, in: s.in, want: -1, place: [alarmKinds]int32{unset, unset, unset}}
}

// enlist gives an end to a node.
func (m *Machine) enlist(e int32, id Node) {
	s, n := m.end(e), &m.nodes[id]
	s.node, s.prev, s.next = id, n.last, unset
	if n.last >= 0 {
		m.end(n.last).next = e
	} else {
		n.first = e
	}
	n.last = e
}

// delist takes it back.
func (m *Machine) delist(e int32) {
	s := m.end(e)
	n := &m.nodes[s.node]
	if s.prev >= 0 {
		m.end(s.prev).next = s.next
	} else {
		n.first = s.next
	}
	if s.next >= 0 {
		m.end(s.next).prev = s.prev
	} else {
		n.last = s.prev
	}
}
