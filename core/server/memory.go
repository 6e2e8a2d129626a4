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
	// ownBytes is what a connection may hold without asking: a request and a
	// reply of ordinary size.
	ownBytes = 8 << 10
	// connectionBytes is taken from the budget when a connection opens.
	connectionBytes = ownBytes + readBufferBytes
	// progressBytes is how much a request or reply has to move on to count as
	// moving at all.
	progressBytes = 16 << 10
	// overdraftShare is the part of the budget for replies that wait for memory
	// though they are made already.
	overdraftShare = 8
	// patience is how many stall timeouts the line may stand still before
	// requests that block each other are broken up.
	patience = 5
)

// errNoMemory ends a connection whose reply can't be kept.
var errNoMemory = errors.New("no memory for the reply")

// pool is the server's part of the memory budget.
type pool struct {
	budget    *memory.Budget
	shared    *memory.Budget
	overdraft *memory.Budget
	maxConns  int

	// short is sent to, without waiting, when somebody has to wait.
	short chan struct{}

	mu      sync.Mutex
	waiting map[*wait]struct{}
}

// wait is somebody in line.
type wait struct {
	bytes int64
	since time.Time
}

func newPool(budget *memory.Budget, maxConns int) *pool {
	total := budget.Total()
	maxConns = int(min(int64(maxConns), total/2/connectionBytes))
	overdraft := total / overdraftShare
	return &pool{
		budget:    budget,
		shared:    memory.New(total - overdraft - int64(maxConns)*connectionBytes),
		overdraft: memory.New(overdraft),
		maxConns:  maxConns,
		short:     make(chan struct{}, 1),
		waiting:   map[*wait]struct{}{},
	}
}

// try takes shared memory if there is some.
func (p *pool) try(n int64) bool {
	if !p.shared.TryAcquire(n) {
		return false
	}
	if !p.budget.TryAcquire(n) {
		p.shared.Release(n)
		return false
	}
	return true
}

// acquire takes shared memory, waiting in line.
func (p *pool) acquire(ctx context.Context, n int64) error {
	if p.try(n) {
		return nil
	}
	w := &wait{bytes: n, since: time.Now()}
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
	if err := p.shared.Acquire(ctx, n); err != nil {
		return err
	}
	if err := p.budget.Acquire(ctx, n); err != nil {
		p.shared.Release(n)
		return err
	}
	return nil
}

func (p *pool) release(n int64) {
	p.budget.Release(n)
	p.shared.Release(n)
}

// shortage tells how many bytes are waited for beyond what is free, how many
// wait, and since when.
func (p *pool) shortage() (bytes int64, waiters int, since time.Time) {
	p.mu.Lock()
	for w := range p.waiting {
		bytes += w.bytes
		if since.IsZero() || w.since.Before(since) {
			since = w.since
		}
	}
	waiters = len(p.waiting)
	p.mu.Unlock()
	return bytes - max(0, p.shared.Total()-p.shared.Used()), waiters, since
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
		for s.relieveOnce(time.Now()) {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
}

// relieveOnce reports whether anybody waits.
func (s *Server) relieveOnce(now time.Time) bool {
	wanted, waiters, since := s.pool.shortage()
	if waiters == 0 {
		return false
	}
	type holder struct {
		*conn
		bytes  int64
		waiter bool
	}
	var stalled, queued []holder
	for _, c := range s.connections() {
		st := c.standing(now, s.cfg.StallTimeout)
		wanted -= st.closing
		if st.stalled > 0 {
			stalled = append(stalled, holder{c, st.stalled, false})
		}
		if st.queued > 0 {
			queued = append(queued, holder{c, st.queued, st.waiter})
		}
	}
	most := func(a, b holder) int { return cmp.Compare(b.bytes, a.bytes) }
	slices.SortFunc(stalled, most)
	for _, h := range stalled {
		if wanted <= 0 {
			break
		}
		h.fail(ClosedMemory, errors.New("it stalled while memory was short"))
		wanted -= h.bytes
	}
	if len(stalled) > 0 || len(queued) == 0 || wanted <= 0 || now.Sub(since) <= patience*s.cfg.StallTimeout {
		return true
	}
	// Closing the only one who waits would help nobody.
	if h := slices.MinFunc(queued, most); waiters > 1 || !h.waiter {
		h.fail(ClosedMemory, errors.New("memory was short and it held most"))
	}
	return true
}

// hold is memory that somebody of a connection has: of the connection's own, or
// of the shared part.
type hold struct {
	own    int64
	shared int64
}

// tryHold takes n bytes if they are there.
func (c *conn) tryHold(n int64) (hold, bool) {
	c.mu.Lock()
	if n <= c.own {
		c.own -= n
		c.mu.Unlock()
		return hold{own: n}, true
	}
	c.mu.Unlock()
	return hold{shared: n}, c.srv.pool.try(n)
}

// release gives a hold back. Releasing the zero hold does nothing.
func (c *conn) release(h hold) {
	if h.own > 0 {
		c.mu.Lock()
		c.own += h.own
		c.mu.Unlock()
	}
	if h.shared > 0 {
		c.srv.pool.release(h.shared)
	}
}

// holdFrame takes n bytes for the request that is being read, waiting in line.
func (c *conn) holdFrame(ctx context.Context, n int64) (hold, error) {
	h, ok := c.tryHold(n)
	if ok {
		return h, nil
	}
	c.frameQueued(true)
	defer c.frameQueued(false)
	if err := c.srv.pool.acquire(ctx, n); err != nil {
		return hold{}, err
	}
	return hold{shared: n}, nil
}

// holdReply takes n bytes for a reply that is made already, or about to be.
func (c *conn) holdReply(ctx context.Context, n int64) (hold, error) {
	h, ok := c.tryHold(n)
	if ok {
		return h, nil
	}
	pool := c.srv.pool
	if !pool.overdraft.TryAcquire(n) {
		return hold{}, errNoMemory
	}
	defer pool.overdraft.Release(n)
	if err := pool.acquire(ctx, n); err != nil {
		return hold{}, err
	}
	return hold{shared: n}, nil
}

// standing is how a connection stands while memory is short, in bytes of the
// shared part.
type standing struct {
	stalled int64 // held by a request or reply that doesn't move
	queued  int64 // held by a request that waits for more, or replies behind one not made yet
	waiter  bool  // such a request is among them
	closing int64 // about to be released
}

func (c *conn) standing(now time.Time, stall time.Duration) standing {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed {
		return standing{closing: c.frame.held + c.unsentHeld}
	}
	var st standing
	switch {
	case c.frame.queued:
		st.queued, st.waiter = c.frame.held, true
	case now.Sub(c.frame.moved) >= stall:
		st.stalled += c.frame.held
	}
	switch {
	case !c.sending:
		st.queued += c.unsentHeld
	case now.Sub(c.sendMoved) >= stall:
		st.stalled += c.unsentHeld
	}
	return st
}
