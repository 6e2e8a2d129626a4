package partition

import (
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// troubles are what goes wrong, until things are calm.
func (c *cluster) troubles() {
	var next func()
	next = func() {
		if c.calm {
			return
		}
		c.trouble()
		c.after(c.between(5, 100), next)
	}
	c.after(c.between(20, 100), next)
}

func (c *cluster) trouble() {
	h := c.hosts[c.rng.IntN(len(c.hosts))]
	if leader := c.ctl.leader; leader != model.NoNode && c.chance(0.3) {
		h = c.hosts[leader-1]
	}
	switch n := c.rng.IntN(100); {
	case n < 5:
		c.storeFalls(h)
	case n < 22:
		c.kill(h, c.chance(0.6))
	case n < 42:
		peer := c.hosts[c.rng.IntN(len(c.hosts))]
		if peer == h {
			return
		}
		c.setLink(h, peer, false)
		c.after(c.between(0, 400), func() { c.mend(h, peer) })
	case n < 57:
		c.cut(h, c.between(20, 400))
	case n < 70:
		c.ctl.move()
	case n < 75:
		c.ctl.take(h)
	case n < 83:
		if !h.pausedUntil.After(c.now) {
			h.pausedUntil = c.now.Add(c.between(10, 300))
		}
	case n < 91:
		if h.alive && !h.pausedUntil.After(c.now) && h.m.View().Status == StatusServing {
			to, v := int64(-1), h.m.View()
			// Also within a batch, which the loss of power may take from one whose log starts there.
			if n < 88 && v.HighWater > v.LogStart {
				to = v.LogStart + 1 + c.rng.Int64N(v.HighWater-v.LogStart)
			}
			c.deleted = max(c.deleted, to)
			if to < 0 {
				c.deleted = max(c.deleted, v.HighWater)
			}
			h.step(&Trim{ID: h.payloadOf(&payload{released: true}), To: to})
		}
	case n < 96:
		h.do(func() { h.step(&ReadFailed{Gen: h.m.gen, Fault: FaultGone}) })
	default:
		h.do(func() { h.step(&Restarted{}) })
	}
}

// kill ends a process, or with it the machine's power where that may be: not where what
// is committed, or may be by what was acknowledged, would be left in no other memory of
// the ISR, and on no disk.
func (c *cluster) kill(h *host, power bool) {
	if !h.alive || !c.spares(h) {
		return
	}
	h.die(power && c.mayLosePower(h))
	life := h.life
	c.after(clusterLease, func() {
		if h.life == life && !h.alive {
			c.ctl.fence(h)
		}
	})
	c.after(c.between(10, 300), func() {
		if h.life == life && !h.alive {
			h.start(true)
		}
	})
}

func (c *cluster) mayLosePower(h *host) bool {
	if c.settings.Flush == FlushAlways || h.durable >= h.leo() {
		return true
	}
	// One that has asked to be alone had all on disk that was committed.
	if c.ctl.alone && h.id == c.ctl.leader {
		return true
	}
	// One that knows that it is alone flushes before it commits more.
	if h.id == c.ctl.leader && h.m.epoch == c.ctl.epoch && h.toldEpoch == c.ctl.partitionEpoch && len(h.told) == 1 && h.hw > h.alone {
		return true
	}
	return slices.ContainsFunc(c.ctl.isr, func(id model.NodeID) bool {
		o := c.hosts[id-1]
		return o != h && !o.lacks && o.registered && !c.ctl.fenced[o.index] && !o.cutUntil.After(c.now)
	})
}

// spares says whether a broker may go: what one in sync has lost, and not yet left the ISR
// for, another one in sync has.
func (c *cluster) spares(h *host) bool {
	if !slices.ContainsFunc(c.hosts, func(o *host) bool { return o.lacks }) {
		return true
	}
	return slices.ContainsFunc(c.ctl.isr, func(id model.NodeID) bool {
		o := c.hosts[id-1]
		return o != h && !o.lacks && o.registered && !c.ctl.fenced[o.index] && !o.cutUntil.After(c.now)
	})
}

// storeFalls has the store of a broker that lives on start again, without some of what was
// not flushed.
func (c *cluster) storeFalls(h *host) {
	if !h.alive || h.absent || !c.mayLosePower(h) || !c.spares(h) {
		return
	}
	before := h.leo()
	h.losePower()
	h.gone = true
	if h.leo() < before {
		c.stats.fell++
		h.fell, h.lacks = true, true
	}
	if c.trace != nil {
		c.trace("the store of broker %d falls from %d to %d; in sync %v", h.id, before, h.leo(), c.ctl.isr)
	}
	h.in(c.between(0, 40), func() { h.step(&Restarted{}) })
}

func (c *cluster) mend(a, b *host) {
	if a.alive && b.alive {
		c.setLink(a, b, true)
	}
}

// cut keeps a broker from the controller, and the other way round.
func (c *cluster) cut(h *host, d time.Duration) {
	if !h.alive || h.cutUntil.After(c.now) || !c.spares(h) {
		return
	}
	h.cutUntil = c.now.Add(d)
	life := h.life
	if d > clusterLease {
		c.after(clusterLease, func() {
			if h.life == life {
				c.ctl.fence(h)
			}
		})
	}
	c.after(d+time.Millisecond, func() {
		if h.alive {
			c.ctl.unfence(h)
		}
	})
}

// heal lets nothing go wrong any more.
func (c *cluster) heal() {
	c.calm = true
	for _, h := range c.hosts {
		if !h.alive {
			h.start(true)
		}
	}
	for i, h := range c.hosts {
		c.ctl.give(h)
		for _, peer := range c.hosts[:i] {
			c.mend(h, peer)
		}
	}
}
