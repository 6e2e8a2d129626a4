package logstore

import "github.com/brokerd/brokerd/plugins/storage-file/internal/segment"

// walkKept is the most memory of a walk that is used again.
const walkKept = 1 << 20

// lendBuffer lends a walk memory that another has used, until what it returns is called.
func (s *Store) lendBuffer(w *segment.Walk) (end func()) {
	buf, ok := s.buffers.Get().(*[]byte)
	if !ok {
		buf = new([]byte)
	}
	w.Use(*buf)
	return func() {
		if *buf = w.Buffer(); cap(*buf) <= walkKept {
			s.buffers.Put(buf)
		}
	}
}
