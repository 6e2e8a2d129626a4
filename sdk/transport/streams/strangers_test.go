package streams

import (
	"errors"
	"net"
	"testing"
	"time"
)

// TestStrangers: the oldest of too many goes, and none that is known.
func TestStrangers(t *testing.T) {
	s := newStrangers(2)
	var ends []net.Conn
	add := func() *stranger {
		near, far := net.Pipe()
		ends = append(ends, far)
		return s.add(near)
	}
	s.know(add())
	second, third, fourth := add(), add(), add()
	gone := func(i int) bool {
		_ = ends[i].SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		_, err := ends[i].Read(make([]byte, 1))
		var timeout net.Error
		return !errors.As(err, &timeout)
	}
	for i, want := range []bool{false, true, false, false} {
		if got := gone(i); got != want {
			t.Errorf("connection %d: gone is %v, want %v", i, got, want)
		}
	}
	s.remove(second)
	s.remove(third)
	s.close()
	for i, want := range []bool{true, true, false, true} {
		if got := gone(i); got != want {
			t.Errorf("after close, connection %d: gone is %v, want %v", i, got, want)
		}
	}
	s.remove(fourth)
	if s.unknown.Len() != 0 || len(s.all) != 1 {
		t.Errorf("%d and %d are kept", s.unknown.Len(), len(s.all))
	}
}
