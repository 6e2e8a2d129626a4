package streams

import (
	"container/list"
	"net"
	"sync"
)

// stranger is a connection of which no link was made yet.
type stranger struct {
	conn  net.Conn
	place *list.Element // nil: it has proved what is demanded, and goes for nobody
}

// strangers are connections of which no link was made yet.
type strangers struct {
	max int // of those that have proved nothing

	mu      sync.Mutex
	unknown *list.List // of *stranger, those; the oldest first
	all     map[*stranger]struct{}
	closed  bool
}

func newStrangers(most int) *strangers {
	return &strangers{max: most, unknown: list.New(), all: make(map[*stranger]struct{})}
}

// add keeps a connection in mind, and closes the oldest if they are too many. Who uses one
// that is closed finds out.
func (s *strangers) add(conn net.Conn) *stranger {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close()
	}
	if s.unknown.Len() >= s.max {
		oldest := s.unknown.Remove(s.unknown.Front()).(*stranger)
		oldest.place = nil
		_ = oldest.conn.Close()
	}
	n := &stranger{conn: conn}
	n.place = s.unknown.PushBack(n)
	s.all[n] = struct{}{}
	return n
}

// know counts a connection no more among those that have proved nothing.
func (s *strangers) know(n *stranger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(n)
}

// remove forgets a connection.
func (s *strangers) remove(n *stranger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(n)
	delete(s.all, n)
}

func (s *strangers) forget(n *stranger) {
	if n.place != nil {
		s.unknown.Remove(n.place)
		n.place = nil
	}
}

// close closes every connection, and those that come.
func (s *strangers) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for n := range s.all {
		_ = n.conn.Close()
	}
}
