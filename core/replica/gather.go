package replica

import (
	"log/slog"
	"time"
)

// gatherFor is how long lines of one kind about one store are gathered, after the
// first of them was logged.
const gatherFor = 10 * time.Second

// The kinds of lines that are gathered, as they are told together.
const (
	aboutCalls   = "what was tried on logs failed; it is tried again"
	aboutOpening = "logs were opened again"
	aboutRefusal = "appends were refused"
	aboutDeletes = "logs could not be deleted; trying again"
)

// gathering is lines of one kind about one store that are told together: a plugin
// that dies concerns every partition that it holds.
type gathering struct {
	dir      *Directory
	about    string
	until    time.Time
	times    int
	replicas map[*replica]struct{}
	last     slog.Attr
}

// gathered reports whether such a line about the store was logged a short while
// ago. Then this one is not to be: it is counted.
func (s *Shard) gathered(r *replica, about string, last slog.Attr) bool {
	now := s.host.clockNow()
	for _, g := range s.gatherings {
		if g.dir == r.dir && g.about == about {
			g.times++
			g.replicas[r] = struct{}{}
			g.last = last
			return true
		}
	}
	g := &gathering{dir: r.dir, about: about, until: now.Add(gatherFor), replicas: make(map[*replica]struct{})}
	s.gatherings = append(s.gatherings, g)
	if len(s.gatherings) == 1 {
		s.timers.Set(timerKey{timer: timerGather}, g.until)
	}
	return false
}

// tellGathered logs what was gathered until now. Where lines keep coming, they are
// gathered on.
func (s *Shard) tellGathered(now time.Time) {
	kept := s.gatherings[:0]
	for _, g := range s.gatherings {
		if g.until.After(now) {
			kept = append(kept, g)
			continue
		}
		if g.times == 0 {
			continue
		}
		s.tellOne(g)
		g.until, g.times = now.Add(gatherFor), 0
		clear(g.replicas)
		kept = append(kept, g)
	}
	clear(s.gatherings[len(kept):])
	s.gatherings = kept
	if len(kept) > 0 {
		next := kept[0].until
		for _, g := range kept {
			if g.until.Before(next) {
				next = g.until
			}
		}
		s.timers.Set(timerKey{timer: timerGather}, next)
	}
}

func (s *Shard) tellOne(g *gathering) {
	s.log.Warn(g.about, "directory", g.dir.Name, "partitions", len(g.replicas), "times", g.times, g.last)
}

// tellRest logs what is left when the shard has ended.
func (s *Shard) tellRest() {
	for _, g := range s.gatherings {
		if g.times > 0 {
			s.tellOne(g)
		}
	}
	s.gatherings = nil
}
