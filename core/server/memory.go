package server

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/brokerd/brokerd/core/memory"
)

const (
	// ownBytes is what a connection may hold of requests without asking, beside the
	// buffers that it reads and sends small ones with.
	ownBytes = 4 << 10
	// connectionBytes is taken from the budget when a connection opens.
	connectionBytes = ownBytes + readBufferBytes + sendBufferBytes
	// progressBytes is how much a request or reply has to move on to count as
	// moving at all.
	progressBytes = 16 << 10
	// overdraftShare is the part of the budget for replies that wait for memory
	// though they are made already.
	overdraftShare = 16
	// connectionsShare is the part of the budget that connections take at most by
	// being open.
	connectionsShare = 3
	// plenty: while no more than this part of the shared memory is taken, large
	// requests of tried connections are not read in steps.
	plenty = 2
	// patience is how many stall timeouts the line may stand still before
	// requests that block each other are broken up.
	patience = 2
)

// errNoMemory ends a connection whose reply can't be kept.
var errNoMemory = errors.New("no memory for the reply")

// pool is the server's part of the memory budget.
//
// The shared part has a lane for connections that are not tried: those that have
// not yet moved as many bytes, in requests and replies that came through whole, as
// they want to hold. However many newcomers stall, the others have the rest.
type pool struct {
	budget    *memory.Budget
	shared    *memory.Budget
	untried   *memory.Budget // a part of shared
	overdraft *memory.Budget
	maxConns  int

	// short is sent to, without waiting, when somebody has to wait.
	short chan struct{}

	mu      sync.Mutex
	waiting map[*wait]struct{}
}

// wait is somebody in line.
type wait struct {
	hold
	since time.Time
}

// hold is memory that a request or reply has: of its connection's own, or of the
// shared part.
type hold struct {
	own     int64
	shared  int64
	untried int64 // what of shared is in the lane of the untried
}

func (h hold) plus(o hold) hold {
	return hold{h.own + o.own, h.shared + o.shared, h.untried + o.untried}
}

func (h hold) minus(o hold) hold {
	return hold{h.own - o.own, h.shared - o.shared, h.untried - o.untried}
}

func newPool(budget *memory.Budget, cfg Config) *pool {
	total := budget.Total()
	maxConns := int(min(int64(cfg.MaxConnections), total/connectionsShare/connectionBytes))
	overdraft := total / overdraftShare
	shared := total - overdraft - int64(maxConns)*connectionBytes
	return &pool{
		budget:    budget,
		shared:    memory.New(shared),
		untried:   memory.New(max(shared/2, min(shared, peakBytes(cfg.MaxRequestBytes)))),
		overdraft: memory.New(overdraft),
		maxConns:  maxConns,
		short:     make(chan struct{}, 1),
		waiting:   map[*wait]struct{}{},
	}
}

// peakBytes is what a request of n bytes needs while its last step is taken.
func peakBytes(n int32) int64 {
	return int64(memory.BufferBytes(int(n))) + int64(memory.BufferBytes(smallerStep(int(n))))
}

// try takes shared memory if it is there.
func (p *pool) try(h hold) bool {
	if !p.untried.TryAcquire(h.untried) {
		return false
	}
	if !p.shared.TryAcquire(h.shared) {
		p.untried.Release(h.untried)
		return false
	}
	if !p.budget.TryAcquire(h.shared) {
		p.shared.Release(h.shared)
		p.untried.Release(h.untried)
		return false
	}
	return true
}

// acquire takes shared memory, waiting in line.
func (p *pool) acquire(ctx context.Context, h hold) error {
	w := &wait{hold: h, since: time.Now()}
	p.mu.Lock()
	p.waiting[w] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.waiting, w)
		p.mu.Unlock()
	}()
	select {
	case p.short <- struct{}{}:
	default: // it is known already
	}
	if err := p.untried.Acquire(ctx, h.untried); err != nil {
		return err
	}
	if err := p.shared.Acquire(ctx, h.shared); err != nil {
		p.untried.Release(h.untried)
		return err
	}
	if err := p.budget.Acquire(ctx, h.shared); err != nil {
		p.shared.Release(h.shared)
		p.untried.Release(h.untried)
		return err
	}
	return nil
}

func (p *pool) release(h hold) {
	p.budget.Release(h.shared)
	p.shared.Release(h.shared)
	p.untried.Release(h.untried)
}

// shortage is what is waited for.
type shortage struct {
	waiters int
	first   wait // who came first
	wanted  hold // beyond what is free, in each lane
}

func (p *pool) shortage() shortage {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := shortage{waiters: len(p.waiting)}
	for w := range p.waiting {
		s.wanted = s.wanted.plus(w.hold)
		if s.first.since.IsZero() || w.since.Before(s.first.since) {
			s.first = *w
		}
	}
	// What the untried want beyond their lane's room, the others have no part in.
	room := p.untried.Total() - p.untried.Used()
	s.wanted.shared -= max(0, s.wanted.untried-room)
	s.wanted.shared -= p.shared.Total() - p.shared.Used()
	s.wanted.untried -= room
	return s
}

// relieve runs until ctx ends: while somebody waits for memory, it closes those
// who hold some and don't move on.
func (s *Server) relieve(ctx context.Context) {
	tick := time.NewTicker(max(s.cfg.StallTimeout/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.pool.short:
		}
		s.relieveShortage(ctx, tick.C)
	}
}

// relieveShortage returns when nobody waits any more.
func (s *Server) relieveShortage(ctx context.Context, tick <-chan time.Time) {
	since, closed := time.Now(), 0
	for {
		waiting, n := s.relieveOnce(time.Now())
		if closed == 0 && n > 0 {
			s.log.Warn("memory for clients is short, connections that stall are closed", "bytes", s.pool.shared.Total())
		}
		closed += n
		if !waiting {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
	}
	if closed > 0 {
		s.log.Info("memory for clients suffices again", "closed", closed, "after", time.Since(since))
	}
}

// holder is a connection that could be closed for what it holds.
type holder struct {
	*conn
	held    hold
	missing int // bytes of a request that wait for memory
}

// first orders holders: the untried before others, then those that will need
// most until they end, then those that hold most.
func first(a, b holder) int {
	untried := func(h holder) int64 { return min(h.held.untried, 1) }
	return cmp.Or(cmp.Compare(untried(b), untried(a)), cmp.Compare(b.missing, a.missing), cmp.Compare(b.held.shared, a.held.shared))
}

// relieveOnce reports whether anybody waits, and how many connections it closed.
func (s *Server) relieveOnce(now time.Time) (waiting bool, closed int) {
	short := s.pool.shortage()
	if short.waiters == 0 {
		return false, 0
	}
	var stalled, queued []holder
	for _, c := range s.connections() {
		st := c.standing(now, s.cfg.StallTimeout)
		short.wanted = short.wanted.minus(st.closing)
		c.hurry(now, s.cfg.StallTimeout)
		if st.stalled.shared > 0 {
			stalled = append(stalled, holder{c, st.stalled, 0})
		}
		// Closing the only one who waits would help nobody.
		if st.queued.shared > 0 && (short.waiters > 1 || st.missing == 0) {
			queued = append(queued, holder{c, st.queued, st.missing})
		}
	}
	closed = closeFirst(stalled, short.wanted, errors.New("it stalled while memory was short"))
	if closed == 0 && now.Sub(short.first.since) > patience*s.cfg.StallTimeout {
		closed = closeFirst(queued, short.gridlock(), errors.New("memory was short for all that was sent at once"))
	}
	return true, closed
}

// gridlock is what to make room for when those who wait hold what the others
// wait for: for the first in line, and at once for some of the untried, because
// they may be many that will never go on.
func (s shortage) gridlock() hold {
	const untriedAtOnce = 8
	var room hold
	if s.wanted.shared > 0 {
		room.shared = s.first.shared
	}
	if s.wanted.untried > 0 {
		room.untried = max(s.first.untried, s.wanted.untried/untriedAtOnce)
	}
	return room
}

// closeFirst closes holders until there is room enough, and says how many.
func closeFirst(holders []holder, room hold, why error) (closed int) {
	slices.SortFunc(holders, first)
	for _, h := range holders {
		if room.shared > 0 || (room.untried > 0 && h.held.untried > 0) {
			h.fail(ClosedMemory, why)
			room, closed = room.minus(h.held), closed+1
		}
	}
	return closed
}

// ask is the hold that n bytes would be, and whether it is there already.
func (c *conn) ask(n int64) (h hold, taken bool) { return c.askMore(n, 0) }

// askMore is ask for n bytes beside `beside` that are held for the same.
func (c *conn) askMore(n, beside int64) (h hold, taken bool) {
	c.mu.Lock()
	if n <= c.own {
		c.own -= n
		c.mu.Unlock()
		return hold{own: n}, true
	}
	h.shared = n
	if c.moved < n+beside {
		h.untried = n
	}
	c.mu.Unlock()
	return h, c.srv.pool.try(h)
}

// release gives a hold back. Releasing the zero hold does nothing.
func (c *conn) release(h hold) {
	if h.own > 0 {
		c.mu.Lock()
		c.own += h.own
		c.mu.Unlock()
	}
	if h.shared > 0 {
		c.srv.pool.release(h)
	}
}

// mayHaveAll says whether a request of n bytes is given all of its memory at once: to
// tried connections, while there is plenty.
func (c *conn) mayHaveAll(n int64) bool {
	c.mu.Lock()
	tried := c.moved >= n
	c.mu.Unlock()
	shared := c.srv.pool.shared
	return tried && shared.Used()+n <= shared.Total()/plenty
}

// holdFrame takes n bytes for the request that is being read, waiting in line.
func (c *conn) holdFrame(ctx context.Context, n int64) (hold, error) {
	h, taken := c.ask(n)
	if taken {
		return h, nil
	}
	c.frameQueued(true)
	defer c.frameQueued(false)
	if err := c.srv.pool.acquire(ctx, h); err != nil {
		return hold{}, err
	}
	return h, nil
}

// holdReply takes n bytes for a reply that is made already, or about to be.
func (c *conn) holdReply(ctx context.Context, n int64) (hold, error) {
	h, taken := c.ask(n)
	if taken {
		return h, nil
	}
	pool := c.srv.pool
	if !pool.overdraft.TryAcquire(n) {
		return hold{}, errNoMemory
	}
	defer pool.overdraft.Release(n)
	if err := pool.acquire(ctx, h); err != nil {
		return hold{}, err
	}
	return h, nil
}

// standing is how a connection stands while memory is short.
type standing struct {
	stalled hold // of a request or reply that doesn't move
	queued  hold // of a request that waits for more
	missing int  // bytes of such a request that are still to come
	closing hold // about to be released
}

func (c *conn) standing(now time.Time, stall time.Duration) standing {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed {
		return standing{closing: c.frame.held.plus(c.sending.held)}
	}
	c.watchSendingLocked(now)
	var st standing
	switch {
	case c.frame.queued:
		st.queued, st.missing = c.frame.held, c.frame.missing
	case now.Sub(c.frame.moved) >= stall:
		st.stalled = c.frame.held
	}
	if c.sending.on && now.Sub(c.sending.moved) >= stall {
		st.stalled = st.stalled.plus(c.sending.held)
	}
	return st
}
