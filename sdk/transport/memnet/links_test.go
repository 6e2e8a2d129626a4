package memnet

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

func TestTargets(t *testing.T) {
	w := newWorld(t, 1, 2)
	for _, c := range []struct {
		about string
		spoil func(*transport.Target)
		class error
	}{
		{"itself", func(*transport.Target) {}, nil},
		{"any node", func(to *transport.Target) { to.NodeID = transport.AnyNode }, nil},
		{"any cluster", func(to *transport.Target) { to.ClusterID = "" }, nil},
		{"another node", func(to *transport.Target) { to.NodeID = 7 }, transport.ErrOther},
		{"another cluster", func(to *transport.Target) { to.ClusterID = "d" }, transport.ErrOther},
		{"no endpoint", func(to *transport.Target) { to.Endpoint = "" }, transport.ErrInvalid},
		{"a strange endpoint", func(to *transport.Target) { to.Endpoint = "a b" }, transport.ErrInvalid},
		{"no lane", func(to *transport.Target) { to.Lane = 0 }, transport.ErrInvalid},
		{"no id", func(to *transport.Target) { to.NodeID = -2 }, transport.ErrInvalid},
		{"an unknown endpoint", func(to *transport.Target) { to.Endpoint = "n9" }, transport.ErrRetry},
	} {
		to := transport.Target{Endpoint: "n1", Lane: transport.Control, NodeID: 1, ClusterID: "c"}
		c.spoil(&to)
		l, err := w.m.Dial(w.now, 0, to)
		w.run(0)
		if err == nil {
			err = w.fails[l]
		}
		if transport.Class(err) != c.class { //nolint:errorlint // a class is compared
			t.Errorf("%s: the error is %v, want %v", c.about, err, c.class)
		}
		w.check()
	}
}

func TestSecrets(t *testing.T) {
	w := newWorld(t, 1, 1)
	for i, secret := range []string{"s", "s", "t"} {
		id, err := w.m.AddNode(fmt.Sprintf("n%d", i+1))
		if err == nil {
			err = w.m.Start(w.now, id, Process{Identity: transport.Identity{ClusterID: "c", NodeID: int32(id)}, Secret: secret})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	l, _ := w.join(1, 2)
	if peer, _, err := w.m.Peer(l); err != nil || peer.Proof != transport.ProofMember {
		t.Fatalf("a member with the secret has proved %v (%v)", peer.Proof, err)
	}
	for _, pair := range [][2]Node{{0, 1}, {1, 0}, {1, 3}} {
		l := w.dial(pair[0], pair[1])
		w.run(0)
		wantClass(t, w.fails[l], transport.ErrDenied)
	}
	for _, to := range []transport.Target{
		{Endpoint: "n3", Lane: transport.Data, NodeID: 7},
		{Endpoint: "n3", Lane: transport.Data, NodeID: 3, ClusterID: "d"},
	} {
		l, err := w.m.Dial(w.now, 1, to)
		if err != nil {
			t.Fatal(err)
		}
		w.run(0)
		wantClass(t, w.fails[l], transport.ErrDenied) // not told who is there
	}
}

// Dials wait for a place among the links to accept, and those that find none fail.
func TestAcceptMax(t *testing.T) {
	w := newWorld(t, 1, 2)
	var dials []Link
	made := make(map[Link]bool)
	hear := func(d time.Duration) { // without accepting
		w.now = w.now.Add(d)
		for ev, ok := w.m.Due(w.now); ok; ev, ok = w.m.Due(w.now) {
			switch ev.Kind {
			case Dialled:
				made[ev.Link] = true
			case Failed:
				w.fails[ev.Link] = ev.Err
			}
		}
	}
	for range 2*AcceptMax + 5 {
		dials = append(dials, w.dial(0, 1))
	}
	hear(0)
	if len(made) != AcceptMax {
		t.Fatalf("%d links were agreed to, and none accepted", len(made))
	}
	w.check()
	for range 3 {
		if _, ok := w.m.Accept(w.now, 1); !ok {
			t.Fatal("nothing to accept")
		}
	}
	hear(0)
	if len(made) != AcceptMax+3 || !made[dials[AcceptMax+2]] {
		t.Fatalf("3 were accepted, and %d agreed to", len(made))
	}
	w.m.Close(w.now, dials[10]) // makes a place too
	w.m.Close(w.now, dials[AcceptMax+10])
	hear(0)
	if len(made) != AcceptMax+4 {
		t.Fatalf("one that was not accepted has ended, and %d were agreed to", len(made))
	}
	hear(time.Second)
	for _, l := range dials {
		if made[l] == (w.fails[l] != nil) && l != dials[AcceptMax+10] {
			t.Fatalf("a dial is made: %t, and has failed: %v", made[l], w.fails[l])
		}
		if w.fails[l] != nil {
			wantClass(t, w.fails[l], transport.ErrRetry)
		}
	}
	for {
		l, ok := w.m.Accept(w.now, 1)
		if !ok {
			break
		}
		w.m.Close(w.now, l)
	}
	hear(0)
	w.check()
}

// Links that nobody accepts hold up no dial of the other lane, which gets its place when
// one of its own lane is accepted.
func TestLanesAreAcceptedApart(t *testing.T) {
	for _, lane := range []transport.Lane{transport.Control, transport.Data} {
		w := newWorld(t, 1, 2)
		w.lazy = true
		other := transport.Control + transport.Data - lane
		for range AcceptMax + 1 {
			w.dialLane(0, 1, lane)
		}
		first := w.dialLane(0, 1, other)
		w.run(0)
		if !slices.Contains(w.links, first) || len(w.links) != AcceptMax+1 {
			t.Fatalf("many links of lane %v wait to be accepted, and one of lane %v is not made", lane, other)
		}
		for range AcceptMax {
			w.dialLane(0, 1, other)
		}
		w.run(0)
		w.check()
		made := len(w.links)
		if made != 2*AcceptMax {
			t.Fatalf("%d links wait to be accepted", made)
		}
		w.accept(1) // the oldest, of the first lane
		w.run(0)
		w.check()
		if got := len(w.links) - made - 1; got != 1 {
			t.Fatalf("one was accepted, and %d got its place", got)
		}
		w.lazy = false
		w.catchUp()
		w.run(0)
		w.check()
		if len(w.links) != 2*(2*AcceptMax+2) {
			t.Fatalf("all were accepted, and there are %d ends of %d links", len(w.links), 2*AcceptMax+2)
		}
	}
}

// Of a link that was accepted already nobody is told that it waits.
func TestAcceptAhead(t *testing.T) {
	w := newWorld(t, 1, 2)
	w.dial(0, 1)
	w.dial(0, 1)
	if ev, _ := w.m.Due(w.now); ev.Kind != Dialled {
		t.Fatalf("the first event is %v", ev.Kind)
	}
	for range 2 {
		if _, ok := w.m.Accept(w.now, 1); !ok {
			t.Fatal("both links were agreed to, and one does not wait to be accepted")
		}
	}
	for ev, ok := w.m.Due(w.now); ok; ev, ok = w.m.Due(w.now) {
		if ev.Kind != Dialled {
			t.Fatalf("both links were accepted, and %v is told", ev.Kind)
		}
	}
}

// Dials that wait for a place are refused when the node's process ends.
func TestStopRefusesDials(t *testing.T) {
	w := newWorld(t, 1, 2)
	w.lazy = true
	var dials []Link
	for range 2 * AcceptMax {
		dials = append(dials, w.dial(0, 1))
	}
	w.run(0)
	w.m.Stop(w.now, 1, Reset)
	w.run(0)
	for i, l := range dials {
		if i < AcceptMax {
			if !w.ended[l] {
				t.Fatal("a link was agreed to, its peer's process has ended, and it goes on")
			}
			continue
		}
		wantClass(t, w.fails[l], transport.ErrRefused)
	}
	w.check()
}

func TestFull(t *testing.T) {
	big := make([]byte, 2*transport.LinkBytesMax)
	w := newWorld(t, 1, 2)
	ab, ba := w.join(0, 1)
	give := func(n int) error { return w.give(ab, big[:n]) }
	must := func(n int) {
		t.Helper()
		if err := give(n); err != nil {
			t.Fatalf("send %d bytes: %v", n, err)
		}
	}
	must(transport.LinkBytesMax - 128)
	must(36) // counts 64
	wantClass(t, give(65), ErrFull)
	must(0)
	wantClass(t, give(0), ErrFull)
	must(transport.LinkBytesMax + 1)
	wantClass(t, give(transport.LinkBytesMax+1), ErrFull)
	wantClass(t, give(1), ErrFull)
	wantClass(t, w.m.Give(w.now, ab, make([]byte, transport.MessageBytesMax+1)), transport.ErrInvalid)
	w.check()
	w.send(ba, "the other way") // is not full
	w.run(0)
	if len(w.got[ba]) != 4 || w.may[ab] != 1 {
		t.Fatalf("%d messages arrived, and %d times it was told that more may be sent", len(w.got[ba]), w.may[ab])
	}
	must(transport.LinkBytesMax + 1)
	w.run(0)
	if w.may[ab] != 1 || len(w.got[ba]) != 5 {
		t.Fatal("nobody asked, and it was told that more may be sent")
	}
	w.check()
}

func TestNodes(t *testing.T) {
	w := newWorld(t, 1, 1)
	_, err := w.m.AddNode("n0")
	wantClass(t, err, transport.ErrInvalid)
	wantClass(t, w.m.Start(w.now, 0, Process{}), transport.ErrInvalid)
	w.m.Stop(w.now, 0, Reset)
	w.m.Stop(w.now, 0, Reset)
	_, err = w.m.Dial(w.now, 0, transport.Target{Endpoint: "n0", Lane: transport.Data})
	wantClass(t, err, transport.ErrClosed)
	w.start(0)
	self, other := w.join(0, 0)
	w.send(self, "to itself")
	w.run(0)
	w.has(other, "to itself")
	w.m.Stop(w.now, 0, Reset)
	w.run(0)
	w.check()
	if len(w.m.alarms) != 0 || len(w.m.unused) != 1 {
		t.Fatal("nothing runs, and something is left")
	}
	for _, l := range []Link{0, self, other, 1 << 63, ^Link(0)} {
		wantClass(t, w.m.Send(w.now, l), transport.ErrClosed)
		_, _, err := w.m.Receive(w.now, l)
		wantClass(t, err, transport.ErrClosed)
		w.m.Close(w.now, l)
	}
}

// A queue that was long keeps nothing when it is empty.
func TestRing(t *testing.T) {
	var r ring[int]
	for round := range 3 {
		for i := range 3 * ringKept {
			r.push(i)
		}
		for i := range ringKept {
			if got := r.pop(); got != i {
				t.Fatalf("round %d: popped %d, want %d", round, got, i)
			}
		}
		for i := range 2 * ringKept {
			if got, want := r.drop(), 3*ringKept-1-i; got != want {
				t.Fatalf("round %d: dropped %d, want %d", round, got, want)
			}
		}
		if len(r.buf) > ringKept {
			t.Fatalf("round %d: an empty queue keeps %d places", round, len(r.buf))
		}
		for i := range 3 * ringKept {
			r.push(i)
		}
		for range 3 * ringKept {
			r.pop()
		}
		if len(r.buf) > ringKept {
			t.Fatalf("round %d: an empty queue keeps %d places", round, len(r.buf))
		}
	}
}
