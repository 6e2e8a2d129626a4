package group

import "time"

// slack is how far the clocks may drift apart between two looks.
const slack = time.Minute

// calendar tells the age of what is in the log by the wall clock, less what was not
// lived through: where the wall clock has gone ahead of the monotonic one, because it
// was set forward or the machine slept, and from the newest record of the log to its
// loading, when perhaps nobody coordinated the groups. Time in which no client could
// have committed does not age an offset, so that no leap of a clock expires all groups
// at once. In return offsets may be kept longer by what was left out.
type calendar struct {
	last   time.Time // the last look
	wall   int64     // by the wall clock then, in milliseconds
	lived  time.Duration
	unseen int64 // milliseconds that do not age what is from before until
	until  int64
}

// start begins with the loading of a log. newest is its newest record's timestamp.
func (c *calendar) start(now time.Time, newest int64) {
	*c = calendar{last: now, wall: now.UnixMilli()}
	if newest > 0 && c.wall-newest > slack.Milliseconds() {
		c.unseen, c.until = c.wall-newest, c.wall
	}
}

// look takes the time. After a whole retention nothing from before the last leap is
// left to be spared.
func (c *calendar) look(now time.Time, retention time.Duration) {
	c.pass(now.Sub(c.last), now.UnixMilli(), retention)
	c.last = now
}

// pass is look in numbers: the monotonic time since the last, and the wall clock.
func (c *calendar) pass(lived time.Duration, wall int64, retention time.Duration) {
	c.lived += lived
	if ahead := wall - c.wall - lived.Milliseconds(); ahead > slack.Milliseconds() {
		c.unseen += ahead
		c.until, c.lived = wall, 0
	}
	if c.lived >= retention {
		c.unseen = 0
	}
	c.wall = wall
}

// age is how old a timestamp was at the last look, in milliseconds.
func (c *calendar) age(at int64) int64 {
	if at < c.until {
		return c.wall - at - c.unseen
	}
	return c.wall - at
}
