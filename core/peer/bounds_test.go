package peer

import (
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/transport"
)

// The links of all peers are bounded, whoever they say they are.
func TestAllPeersAreBounded(t *testing.T) {
	s := newStory(t, nil)
	for i := range acceptedAllMax + 10 {
		p := node1()
		p.NodeID = int32(1 + i)
		s.step(&Accepted{Link: LinkID(2 + 2*i), Peer: p, Lane: transport.Control})
	}
	closed := s.take(CloseLink)
	if len(closed) != 10 || closed[0].Link != 2+2*acceptedAllMax {
		t.Fatalf("%d links were closed: %+v", len(closed), closed)
	}
}

// A peer that asks and does not read is hung up on.
func TestPongsAreBounded(t *testing.T) {
	s := newStory(t, func(c *Config) { c.QueueBytesMax = 1000 })
	s.accept(2, transport.Control)
	for range 100 {
		s.receive(2, header(kindPing, 1))
	}
	if s.one(CloseLink); s.m.links[0].box.bytes > 1000 {
		t.Fatalf("%d bytes wait", s.m.links[0].box.bytes)
	}
}

// Where nobody listens, posts are dropped with time, and nobody dials for them.
func TestPostsToNobody(t *testing.T) {
	s := newStory(t, nil)
	s.step(&Post{To: address(1), Message: []byte("one")})
	dials := 0
	for range 100 {
		for _, e := range s.take(Dial) {
			dials++
			s.step(&Failed{Link: e.Link, Err: transport.Errorf(transport.ErrRetry, "nobody answers")})
		}
		s.wait(100 * time.Millisecond)
	}
	if dials < 3 || dials > 10 {
		t.Errorf("%d dials", dials)
	}
	if _, ok := s.m.Deadline(); ok {
		t.Error("something is still due")
	}
}

// A question whose time is over is not put any more.
func TestLateQuestions(t *testing.T) {
	s := newStory(t, nil)
	s.ask("one")
	s.wait(1500 * time.Millisecond)
	s.ask("two")
	s.wait(time.Second)
	if all := s.written(s.dialTo(1)); len(all) != 1 || string(all[0][headerBytes:]) != "two" {
		t.Fatalf("written: %q", all)
	}
}

// Targets are bounded, and forgotten when nothing is left of them.
func TestTargetsAreBounded(t *testing.T) {
	s := newStory(t, nil)
	for i := range 3 * targetsMax {
		s.step(&Post{To: address(model.NodeID(1 + i%(targetsMax+5))), Message: []byte("hello")})
	}
	dials := s.take(Dial)
	if len(dials) != targetsMax || len(s.m.targets) != targetsMax {
		t.Fatalf("%d are dialled, and %d known", len(dials), len(s.m.targets))
	}
	s.wait(1100 * time.Millisecond)
	for _, e := range dials {
		s.step(&Failed{Link: e.Link, Err: transport.Errorf(transport.ErrRetry, "nobody answers")})
	}
	s.step(&Post{To: address(targetsMax + 9), Message: []byte("hello")})
	if s.one(Dial); len(s.m.targets) != 1 {
		t.Fatalf("%d targets are known", len(s.m.targets))
	}
}

// What was about a link is not written on the next.
func TestPingsStayOnTheirLink(t *testing.T) {
	s := newStory(t, nil)
	s.step(&Post{To: address(1), Message: make([]byte, 2*windowBytes), Bulk: true})
	link := s.dialTo(1)
	s.take(Write) // which are not taken
	s.wait(time.Second)
	s.none(Write) // a ping waits for its turn
	s.step(&Ended{Link: link})
	s.step(&Post{To: address(1), Message: []byte("next"), Bulk: true})
	all := s.written(s.dialTo(1))
	if len(all) != 2 || all[0][1] != byte(kindBulk) || string(all[1][headerBytes:]) != "next" {
		t.Fatalf("written: %q", all)
	}
}

// A pong proves what was written before its ping, and nothing else proves it.
func TestProof(t *testing.T) {
	s := newStory(t, nil)
	s.step(&Post{To: address(1), Message: []byte("one")})
	link := s.dialTo(1)
	s.written(link)
	s.wait(time.Second)
	_, number, _, _ := parse(s.written(link)[0])
	s.receive(link, header(kindPong, number-1))
	s.receive(link, header(kindAnswer, number))
	s.wait(4*time.Second + time.Millisecond)
	s.one(CloseLink)
}

// What comes before a pong may take its time, as much as a link holds and no more.
func TestPongBehindRecords(t *testing.T) {
	for heard, most := range map[int]time.Duration{
		1 << 20: 5 * time.Second, 8 << 20: 12 * time.Second, 100 << 20: 20 * time.Second,
	} {
		s := newStory(t, nil)
		s.step(&Locate{Node: 1, Endpoint: "n1"})
		s.step(&Want{Node: 1, Wanted: true})
		link := s.dialTo(1)
		s.written(link)
		s.wait(time.Second)
		s.written(link)
		begun := s.now
		record := make([]byte, 1<<20)
		for range heard >> 20 {
			s.step(&Received{Link: link, Data: record})
		}
		for s.now.Sub(begun) < time.Minute && len(s.take(CloseLink)) == 0 {
			s.wait(100 * time.Millisecond)
		}
		if took := s.now.Sub(begun); took < most || took > most+200*time.Millisecond {
			t.Errorf("a link was ended after %s, having brought %d bytes; want %s", took, heard, most)
		}
	}
}

// A message that is arriving is heard of.
func TestArriving(t *testing.T) {
	s := newStory(t, nil)
	s.step(&Locate{Node: 1, Endpoint: "n1"})
	s.step(&Want{Node: 1, Wanted: true})
	link := s.dialTo(1)
	s.written(link)
	s.step(&Arriving{Link: link, Bytes: 64 << 20})
	s.wait(time.Minute)
	s.none(CloseLink)
	s.wait(10 * time.Second)
	s.one(CloseLink)
}

// A stream that its owner has ended takes nothing.
func TestEndedStreamTakesNothing(t *testing.T) {
	s := newStory(t, nil)
	s.accept(2, transport.Data)
	s.receive(2, header(kindStream, 0))
	stream := s.one(StreamUp).Stream
	s.step(&End{Stream: stream})
	s.one(CloseLink)
	var out Effects
	if s.m.Send(s.now, stream, [][]byte{[]byte("late")}, func(bool) { t.Error("it was settled") }, &out) {
		t.Error("it was taken")
	}
	s.step(&Ended{Link: 2})
	s.none(Settled)
}
