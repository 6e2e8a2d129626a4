package server

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Nothing is timed per request. All connections are looked at now and then, and what
// has lasted too long since it was first seen is ended: up to a sweep, or two, later
// than the configuration says, and never sooner.
const (
	sweepsPerTimeout = 8
	sweepMin         = time.Millisecond
	sweepMax         = time.Second
)

var (
	errIdle      = errors.New("no request came in time")
	errSlowFrame = errors.New("a request did not move on")
)

// sweep runs until ctx ends.
func (s *Server) sweep(ctx context.Context) {
	every := min(s.cfg.IdleTimeout, s.cfg.FrameTimeout, s.cfg.WriteTimeout) / sweepsPerTimeout
	tick := time.NewTicker(min(max(every, sweepMin), sweepMax))
	defer tick.Stop()
	var all []*conn
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			all = s.appendConnections(all[:0])
			for _, c := range all {
				c.watch(now)
			}
			clear(all)
			s.workers.trim()
			s.large.Trim()
		}
	}
}

// idle is how a connection stands between requests.
type idle struct {
	begun int       // conn.begun when it was last looked at
	since time.Time // it was first seen so; zero while requests are in flight
}

// sending is a reply on its way.
type sending struct {
	on    bool
	count int  // of writes, so that one is told from the next
	held  hold // of what is sent
	// moved is when the write that was counted seen was first looked at, or has moved
	// progressBytes since; some bytes may have moved after it.
	seen  int
	moved time.Time
	bytes int64
}

// watch ends the connection if it has been idle, or in the middle of a request or
// reply, for too long.
func (c *conn) watch(now time.Time) {
	cfg := &c.srv.cfg
	c.mu.Lock()
	c.watchSendingLocked(now)
	idle := c.watchIdleLocked(now)
	f := c.frame
	slow := !c.draining && !f.moved.IsZero() && !f.queued && now.Sub(f.moved) >= cfg.FrameTimeout
	c.mu.Unlock()
	switch {
	case slow:
		c.fail(ClosedSlow, fmt.Errorf("read request: %w", errSlowFrame))
	case idle:
		c.fail(ClosedIdle, errIdle)
	}
}

// watchIdleLocked says whether no request has come for too long. A connection that
// waits for replies, or sends a request, is not idle.
func (c *conn) watchIdleLocked(now time.Time) bool {
	i := &c.idle
	if c.inFlight > 0 || c.draining || !c.frame.moved.IsZero() || i.since.IsZero() || i.begun != c.begun {
		i.since, i.begun = now, c.begun
		return false
	}
	return now.Sub(i.since) >= c.srv.cfg.IdleTimeout
}

// watchSendingLocked interrupts a write that has lasted since it was last looked at,
// so that who writes sees how much of it has moved.
func (c *conn) watchSendingLocked(now time.Time) {
	s := &c.sending
	switch {
	case !s.on:
	case s.seen != s.count:
		s.seen, s.moved, s.bytes = s.count, now, 0
	default:
		_ = c.nc.SetWriteDeadline(longAgo()) // fails only where it is closed
	}
}

// beginSending says whether replies may be sent.
func (c *conn) beginSending(batch []*reply) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed || c.ended {
		return false
	}
	c.sending.on = true
	c.sending.count++
	for _, r := range batch {
		c.sending.held = c.sending.held.plus(r.held)
	}
	return true
}

// sendingHolds says that more is held for what is sent.
func (c *conn) sendingHolds(more hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sending.held = c.sending.held.plus(more)
}

// sendingMoves counts n bytes that were written until the write was interrupted, and
// says whether it moves at all.
func (c *conn) sendingMoves(n int64, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.sending
	if s.seen != s.count { // the interrupt was meant for the write before
		s.seen, s.moved, s.bytes = s.count, now, 0
	}
	if s.bytes += n; s.bytes >= progressBytes {
		s.moved, s.bytes = now, 0
	}
	_ = c.nc.SetWriteDeadline(time.Time{}) // fails only where it is closed
	return now.Sub(s.moved) < c.srv.cfg.WriteTimeout
}
