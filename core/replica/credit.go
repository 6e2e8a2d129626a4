package replica

import (
	"slices"
	"sync"

	"github.com/brokerd/brokerd/core/replica/streamwire"
)

// unsentMax is how many bytes of batches of one stream may be given to the network that it
// has not taken yet, but for one large message.
const unsentMax = 4 << 20

// credit is what a leader may send over one stream. What counts are whole messages, of
// those that have batches. A message that is larger than all that the follower grants goes
// when nothing else is under way.
//
// The shards share it. Those for whom there is too little wait in line, so that a large
// batch is not passed for ever by small ones.
type credit struct {
	mu       sync.Mutex
	window   int64
	sent     int64
	released int64
	unsent   int64
	waiters  []int // shards
	woken    bool  // the first of waiters is about to try
	blocked  bool  // he has tried, and nothing has changed since
}

// take takes at least `least` bytes and up to `most`. 0: there are too few; the shard is
// woken when it is to try again.
func (c *credit) take(shard, least, most int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := len(c.waiters) == 0 || c.waiters[0] == shard
	under := c.sent - c.released
	left := min(c.window-under, int64(most))
	if under == 0 {
		left = max(left, int64(least))
	}
	if !first || c.unsent >= unsentMax || left < int64(least) {
		if !slices.Contains(c.waiters, shard) {
			c.waiters = append(c.waiters, shard)
		}
		if first {
			c.woken, c.blocked = false, true
		}
		return 0
	}
	if len(c.waiters) > 0 {
		c.waiters = slices.Delete(c.waiters, 0, 1)
		c.woken = false
	}
	c.sent += left
	c.unsent += left
	return int(left)
}

// share is at most `most`, and so little that it can go beside other messages.
func (c *credit) share(most int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int(max(1, min(int64(most), c.window/2)))
}

// giveBack gives back what was taken and is not used.
func (c *credit) giveBack(bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent -= int64(bytes)
	c.unsent -= int64(bytes)
	c.blocked = false
}

// pass is for a shard that has tried, and has nothing to send any more, unless it waits.
// It returns whom to wake.
func (c *credit) pass(shard int, waits bool) (next int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := slices.Index(c.waiters, shard); at >= 0 && !waits {
		c.waiters = slices.Delete(c.waiters, at, at+1)
		if at == 0 {
			c.woken, c.blocked = false, false
		}
	}
	return c.nextLocked()
}

// nextLocked is whom to wake.
func (c *credit) nextLocked() int {
	if len(c.waiters) == 0 || c.woken || c.blocked {
		return nobody
	}
	c.woken = true
	return c.waiters[0]
}

// left counts bytes that the network has taken, or never will. It returns whom to wake.
func (c *credit) left(bytes int) (next int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsent -= int64(bytes)
	c.blocked = false
	return c.nextLocked()
}

// granted takes what the follower says, who may say less than before where two of its
// shards have spoken at once. It returns whom to wake; false: it has released what was not
// sent.
func (c *credit) granted(g streamwire.Credit) (next int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	released := int64(g.Released)
	if released > c.sent {
		return nobody, false
	}
	if released < c.released {
		return nobody, true
	}
	c.released, c.window, c.blocked = released, int64(g.Window), false
	return c.nextLocked(), true
}

// grant is what a follower has granted its leader on one stream, and what it has of it.
type grant struct {
	mu       sync.Mutex
	window   int64 // as last told
	most     int64 // the largest that was told
	received int64
	released int64
	told     int64 // of released
}

// begin is the first grant.
func (g *grant) begin(window int64) streamwire.Credit {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.window, g.most = window, window
	return streamwire.Credit{Window: uint64(window)}
}

// takes reports whether a message of n bytes with batches is within what was granted.
func (g *grant) takes(n int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.takesLocked(n)
}

func (g *grant) takesLocked(n int) bool {
	// By what the leader knows: what it was not told of is not released.
	under := g.received - g.told
	return under == 0 || under+int64(n) <= g.most
}

// receive counts a message with batches. False: it is more than was granted.
func (g *grant) receive(n int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.takesLocked(n) {
		return false
	}
	g.received += int64(n)
	return true
}

// release counts a message that is done with.
func (g *grant) release(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.released += int64(n)
}

// news is what is to be told to the leader, whose window is to be as given, if anything.
func (g *grant) news(window int64) (c streamwire.Credit, is bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.released == g.told && g.window == window {
		return streamwire.Credit{}, false
	}
	g.told, g.window = g.released, window
	g.most = max(g.most, window)
	return streamwire.Credit{Released: uint64(g.told), Window: uint64(window)}, true
}
