package server

import (
	"sync"
	"time"
)

// sparseEvery is how often one kind of line is logged that clients can cause at will.
const sparseEvery = 10 * time.Second

// sparse keeps such lines from flooding the log. Its method may be called
// concurrently.
type sparse struct {
	mu    sync.Mutex
	kinds map[string]*seldom
}

type seldom struct {
	logged time.Time
	since  int // left out since then
}

// may reports whether a line of this kind is logged now, and how many were left out
// before it.
func (s *sparse) may(kind string, now time.Time) (ok bool, left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kinds[kind]
	switch {
	case k == nil:
		if s.kinds == nil {
			s.kinds = make(map[string]*seldom)
		}
		k = &seldom{}
		s.kinds[kind] = k
	case now.Sub(k.logged) < sparseEvery:
		k.since++
		return false, 0
	}
	left, k.since, k.logged = k.since, 0, now
	return true, left
}
