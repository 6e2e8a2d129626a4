package peer

import (
	"fmt"
	"testing"
	"time"
)

// A node is unreached from the first dial that fails until there is a link, and for a while
// when nobody dials it any more.
func TestUnreached(t *testing.T) {
	s := newStory(t, nil)
	see := func(when, want string) {
		t.Helper()
		if got := fmt.Sprint(s.m.Unreached(s.now)); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	s.step(&Locate{Node: 1, Endpoint: "e:1"})
	s.step(&Want{Node: 1, Wanted: true})
	see("before the first dial has ended", "[]")
	s.refuse()
	see("when it has failed", "[1]")
	for range 20 {
		s.wait(2 * time.Second)
		s.refuse()
		see("while it fails", "[1]")
	}
	s.wait(2 * time.Second)
	link := s.dialTo(1)
	see("with a link", "[]")
	s.step(&Ended{Link: link})
	s.wait(2 * time.Second)
	s.refuse()
	see("when it is lost, and fails again", "[1]")
	s.step(&Want{Node: 1})
	s.wait(unreachedFor)
	see("when it is not dialled any more", "[]")
}
