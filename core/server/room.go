package server

import (
	"context"
	"time"
)

const (
	// firstFetchBytes bounds the records of a connection's first Fetch; of later
	// ones, twice what the last one took does, so that only those who read what
	// they are sent come to hold much.
	firstFetchBytes = 256 << 10
	// besidesBytes and besidesFactor are for what a reply has besides records: so
	// much, and a multiple of its request.
	besidesBytes  = 4 << 10
	besidesFactor = 4
	// leastReserved ends the attempts to get part of what is asked for.
	leastReserved = 64 << 10
)

// room is memory for what a Fetch reads, which becomes that of its reply. It
// implements model.Room, for one goroutine.
type room struct {
	reply   *reply
	besides int64 // what the reply is expected to take beside records

	// short is made when somebody waits for it; told says that it is closed. They
	// are guarded by conn.mu.
	short chan struct{}
	told  bool
}

func (m *room) init(r *reply) {
	m.reply, m.besides = r, besidesBytes+besidesFactor*int64(r.bytesIn)
}

// hurry ends the wait of a Fetch that has had time enough to find its records.
func (c *conn) hurry(now time.Time, stall time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.fetching; r != nil && !r.room.told && now.Sub(r.since) >= stall {
		r.room.told = true
		if r.room.short != nil {
			close(r.room.short)
		}
	}
}

// Short implements model.Room.
func (m *room) Short() <-chan struct{} {
	c := m.reply.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.short == nil {
		m.short = make(chan struct{})
		if m.told {
			close(m.short)
		}
	}
	return m.short
}

// Reserve implements model.Room.
func (m *room) Reserve(ctx context.Context, least, most int) (int, error) {
	r := m.reply
	c := r.conn
	c.mu.Lock()
	most = max(least, min(most, max(firstFetchBytes, 2*c.lastFetch)))
	c.mu.Unlock()
	if most == 0 {
		c.release(r.held)
		r.held = hold{}
		return 0, nil
	}
	have, need := r.held.own+r.held.shared, int64(least)+m.besides
	for want := int64(most) + m.besides; ; want = max(need, want/2) {
		if want <= have {
			c.shrink(r, want)
			return m.size(), nil
		}
		if h, taken := c.askMore(want-have, have); taken {
			r.held = r.held.plus(h)
			return m.size(), nil
		}
		if want == need || want < leastReserved {
			break
		}
	}
	if have >= need {
		return m.size(), nil
	}
	c.release(r.held)
	r.held = hold{}
	// Records that are there can be larger than all memory, if that was lowered.
	h, taken := c.ask(min(need, c.srv.pool.untried.Total()))
	if !taken {
		if err := c.srv.pool.acquire(ctx, h); err != nil {
			return 0, err
		}
	}
	r.held = h
	return max(least, m.size()), nil
}

// size is how many bytes of records there is room for.
func (m *room) size() int {
	return int(max(0, m.reply.held.own+m.reply.held.shared-m.besides))
}
