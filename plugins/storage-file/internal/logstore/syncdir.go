package logstore

import "sync"

// sharedSync makes one sync of a directory serve all who ask for it before it
// begins: creating a thousand logs needs some tens.
type sharedSync struct {
	sync func() error
	turn chan struct{} // holds a token while a sync is under way

	mu   sync.Mutex
	next *syncRound // not begun
}

type syncRound struct {
	done chan struct{}
	err  error // set before done is closed
}

func newSharedSync(sync func() error) *sharedSync {
	return &sharedSync{sync: sync, turn: make(chan struct{}, 1)}
}

// do returns when a sync that began after the call has ended.
func (s *sharedSync) do() error {
	s.mu.Lock()
	r := s.next
	if r != nil {
		s.mu.Unlock()
		<-r.done
		return r.err
	}
	r = &syncRound{done: make(chan struct{})}
	s.next = r
	s.mu.Unlock()

	s.turn <- struct{}{}
	s.mu.Lock()
	s.next = nil
	s.mu.Unlock()
	r.err = s.sync()
	<-s.turn
	close(r.done)
	return r.err
}
