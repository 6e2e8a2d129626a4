package memnet

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

const ms = time.Millisecond

// exactly is a range of one time.
func exactly(d time.Duration) Range { return Range{Min: d, Max: d} }

func wantClass(t *testing.T, err, class error) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Fatalf("the error is %v, want %v", err, class)
	}
}

func TestDelayAndBandwidth(t *testing.T) {
	w := newWorld(t, 1, 2)
	ab, ba := w.join(0, 1)
	w.m.SetFaults(w.now, 0, 1, Faults{Delay: exactly(5 * ms), BytesPerSecond: 1000})
	w.send(ab, "ten bytes.") // 10 ms on the way
	w.send(ab, "ten bytes.")
	w.send(ba, "back")
	w.run(0)
	w.has(ab, "back")
	w.run(14 * ms)
	w.has(ba)
	w.run(ms)
	w.has(ba, "ten bytes.")
	w.run(9 * ms)
	w.has(ba, "ten bytes.")
	w.run(ms)
	w.has(ba, "ten bytes.", "ten bytes.")
}

// Some messages are late, and those behind them on their link too.
func TestLate(t *testing.T) {
	w := newWorld(t, 2, 2)
	ab, ba := w.join(0, 1)
	w.m.SetFaults(w.now, 0, 1, Faults{Delay: exactly(ms), Late: exactly(time.Second), LateChance: 0.1})
	waits := 0
	for i := range 100 {
		w.send(ab, fmt.Sprint(i))
		w.run(ms)
		if len(w.got[ba]) <= i {
			waits++
			w.run(time.Second - ms)
		}
		if len(w.got[ba]) != i+1 {
			t.Fatalf("%d were sent, and after the longest time %d have arrived", i+1, len(w.got[ba]))
		}
	}
	if waits < 3 || waits > 30 {
		t.Fatalf("a tenth is late, and of 100 %d are", waits)
	}
}

// What is under way on a link arrives after a newer one of the same pair was made and used,
// also when its sender has closed it, or died.
func TestOldLinksAreLate(t *testing.T) {
	for _, act := range []string{"lives", "closes", "dies", "dies silently"} {
		late := 0
		for seed := range uint64(40) {
			w := newWorld(t, seed, 2)
			ab, ba := w.join(0, 1)
			w.m.SetFaults(w.now, 0, 1, Faults{Delay: exactly(time.Hour)})
			w.send(ab, "old")
			switch act {
			case "closes":
				w.m.Close(w.now, ab)
			case "dies":
				w.m.Stop(w.now, 0, Reset)
				w.start(0)
			case "dies silently":
				w.m.Stop(w.now, 0, Silent)
				w.start(0)
			}
			w.m.SetFaults(w.now, 0, 1, Faults{})
			ab2, ba2 := w.join(0, 1)
			w.send(ab2, "new")
			w.run(0)
			w.has(ba2, "new")
			w.has(ba)
			w.run(time.Hour)
			w.check()
			if len(w.got[ba]) == 0 {
				continue
			}
			w.has(ba, "old")
			late++
		}
		if late == 0 || (act == "lives" && late < 40) {
			t.Errorf("the sender %s, and of 40 messages under way %d arrive late", act, late)
		}
	}
}

func TestOneWayCut(t *testing.T) {
	w := newWorld(t, 1, 2)
	ab, ba := w.join(0, 1)
	w.m.SetFaults(w.now, 0, 1, Faults{Cut: true})
	for i := range 5 {
		w.send(ab, fmt.Sprint(i))
		w.send(ba, fmt.Sprint(i))
	}
	there, back := w.dial(0, 1), w.dial(1, 0)
	w.run(time.Second)
	w.has(ba)
	w.has(ab, "0", "1", "2", "3", "4")
	wantClass(t, w.fails[there], transport.ErrRetry)
	wantClass(t, w.fails[back], transport.ErrRetry)

	w.m.Heal(w.now)
	w.send(ab, "after") // others were lost before it
	w.send(ba, "5")
	w.run(time.Hour)
	w.has(ba)
	w.has(ab, "0", "1", "2", "3", "4", "5")
	ab, ba = w.join(0, 1)
	w.send(ab, "on a new link")
	w.run(0)
	w.has(ba, "on a new link")
}

// What is under way when a cut begins is lost too, and nothing that was sent behind it arrives.
func TestCutTakesWhatIsUnderWay(t *testing.T) {
	w := newWorld(t, 1, 2)
	ab, ba := w.join(0, 1)
	w.faults(0, 1, Faults{Delay: exactly(10 * ms)})
	w.send(ab, "arrives")
	w.run(5 * ms)
	w.send(ab, "is lost")
	w.run(5 * ms)
	w.faults(0, 1, Faults{Cut: true})
	w.run(3 * ms)
	w.m.Heal(w.now)
	w.run(time.Hour)
	w.has(ba, "arrives", "is lost") // the cut was over before

	w.faults(0, 1, Faults{Delay: exactly(10 * ms)})
	w.send(ab, "is lost")
	w.run(ms)
	w.send(ab, "comes behind")
	w.run(8 * ms)
	w.faults(0, 1, Faults{Cut: true})
	w.run(ms)
	w.m.Heal(w.now)
	w.run(time.Hour)
	w.has(ba, "arrives", "is lost")
	w.check()
	if w.m.Held() != 0 {
		t.Fatalf("%d bytes are held that nobody will hear of", w.m.Held())
	}
}

// What is sent during a cut is lost also where it would arrive after it.
func TestCutTakesWhatIsSent(t *testing.T) {
	w := newWorld(t, 1, 2)
	ab, ba := w.join(0, 1)
	w.m.SetFaults(w.now, 0, 1, Faults{Cut: true, Delay: exactly(10 * ms)})
	w.send(ab, "is lost")
	w.m.Heal(w.now)
	w.run(time.Hour)
	w.has(ba)
}

// Who has not heard that a link is over hears it when he uses the link.
func TestEndsThatAreLost(t *testing.T) {
	for seed := range uint64(10) {
		w := newWorld(t, seed, 2)
		ab, ba := w.join(0, 1)
		w.m.SetFaults(w.now, 0, 1, Faults{Delay: exactly(ms)})
		w.send(ab, "is lost")
		w.m.SetFaults(w.now, 0, 1, Faults{Cut: true})
		w.m.Close(w.now, ab)
		w.check()
		w.m.SetFaults(w.now, 1, 0, Faults{Delay: exactly(ms)})
		dials := w.dial(0, 1)
		w.m.Heal(w.now)
		w.run(time.Hour)
		if w.ended[ba] {
			t.Fatalf("seed %d: the end of a link was lost, and is heard of", seed)
		}
		wantClass(t, w.fails[dials], transport.ErrRetry)
		w.send(ba, "is anybody there?")
		w.run(0)
		if !w.ended[ba] {
			t.Fatalf("seed %d: a link is over, and its other end is not told when it sends", seed)
		}

		// Likewise a link whose dialling was given up before it was agreed to.
		w.m.SetFaults(w.now, 1, 0, Faults{Delay: exactly(ms)})
		dials = w.dial(0, 1)
		w.run(0)
		w.m.SetFaults(w.now, 0, 1, Faults{Cut: true})
		w.m.Close(w.now, dials)
		w.m.Heal(w.now)
		w.run(0)
		if !slices.Contains(w.links, dials^1) || w.ended[dials^1] {
			t.Fatalf("seed %d: there is no link that one end has given up", seed)
		}
		w.run(ms)
		if !w.ended[dials^1] {
			t.Fatalf("seed %d: a link was agreed to that nobody wants any more, and is not over", seed)
		}
		w.check()
	}
}

func TestHoldLosesNothing(t *testing.T) {
	w := newWorld(t, 1, 2)
	ab, ba := w.join(0, 1)
	w.m.SetFaults(w.now, 0, 1, Faults{Hold: true})
	w.send(ab, "a")
	w.send(ab, "b")
	w.send(ba, "back")
	held := w.dial(0, 1)
	w.run(500 * ms)
	w.has(ba)
	w.has(ab, "back")
	w.m.SetFaults(w.now, 0, 1, Faults{})
	w.run(0)
	w.has(ba, "a", "b")
	if w.fails[held] != nil || !slices.Contains(w.links, held) {
		t.Fatalf("a dial was held, and is not made: %v", w.fails[held])
	}
}

func TestPause(t *testing.T) {
	w := newWorld(t, 1, 2)
	ab, ba := w.join(0, 1)
	w.m.Pause(1)
	w.send(ab, "a")
	w.send(ba, "sent before the pause")
	dials := w.dial(0, 1)
	w.run(500 * ms)
	w.has(ba)
	w.has(ab, "sent before the pause")
	if _, up := w.peers[dials^1]; up {
		t.Fatal("a paused node has a new link")
	}
	w.m.Resume(w.now, 1)
	w.run(0)
	w.has(ba, "a")
	if !slices.Contains(w.links, dials) {
		t.Fatal("a dial that waited for the end of a pause is not made")
	}

	w.m.Pause(1)
	w.dial(1, 0) // its time-out waits too
	w.run(time.Hour)
	w.m.Resume(w.now, 1)
	w.run(0)
	w.check()

	w.m.Pause(1)
	w.m.Stop(w.now, 1, Reset)
	w.run(0)
	w.start(1) // as another process, which nobody has paused
	w.join(0, 1)
}

func TestCrashWithReset(t *testing.T) {
	w := newWorld(t, 1, 3)
	_, ba := w.join(0, 1)
	ac, ca := w.join(0, 2)
	w.m.Close(w.now, ac)
	w.run(0)
	w.m.Stop(w.now, 0, Reset)
	w.run(0)
	if !w.ended[ba] || !w.ended[ca] {
		t.Fatal("a process has ended, and its links go on at its peers")
	}
	dials := w.dial(1, 0)
	w.run(0)
	wantClass(t, w.fails[dials], transport.ErrRefused)
	w.start(0)
	w.join(1, 0)
	w.check()
}

func TestCrashInSilence(t *testing.T) {
	w := newWorld(t, 1, 2)
	_, ba := w.join(0, 1)
	w.m.Stop(w.now, 0, Silent)
	w.send(ba, "nobody is there")
	w.run(0)
	w.send(ba, "still not")
	dials := w.dial(1, 0)
	w.run(time.Hour)
	if w.ended[ba] {
		t.Fatal("a host is gone without a word, and its peer knows")
	}
	wantClass(t, w.fails[dials], transport.ErrRetry)
	w.start(0)
	w.run(time.Hour)
	if w.ended[ba] {
		t.Fatal("a host is back, and its peer knows before it has asked")
	}
	w.send(ba, "and now?")
	w.run(0)
	if !w.ended[ba] {
		t.Fatal("a host is back, and does not say that a link of its old life is over")
	}
	w.check()
	if len(w.m.unused) != len(w.m.pairs) {
		t.Fatal("all links are over, and one is not forgotten")
	}
}

func TestLossEndsLinksOrNot(t *testing.T) {
	ends, silent := 0, 0
	for seed := range uint64(100) {
		w := newWorld(t, seed, 2)
		ab, ba := w.join(0, 1)
		w.m.SetFaults(w.now, 0, 1, Faults{LoseChance: 0.2, EndChance: 0.5, EndAfter: Range{Max: time.Second}})
		var sent []string
		for i := range 100 {
			if w.ended[ab] {
				break
			}
			sent = append(sent, fmt.Sprint(i))
			w.send(ab, sent[i])
			w.run(ms)
		}
		w.run(time.Second)
		n := len(w.got[ba])
		if n == len(sent) {
			t.Fatalf("seed %d: nothing is lost", seed)
		}
		w.has(ba, sent[:n]...)
		if w.ended[ab] != w.ended[ba] {
			t.Fatalf("seed %d: a link has ended at one end alone", seed)
		}
		if w.ended[ab] {
			ends++
		} else {
			silent++
		}
		w.check()
	}
	if ends < 30 || silent < 30 {
		t.Fatalf("of 100 links that lost a message %d ended and %d fell silent", ends, silent)
	}
}

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

func TestSloppy(t *testing.T) {
	w := newWorld(t, 1, 2)
	ab, ba := w.join(0, 1)
	count := func(s Sloppy) (in, sorted []string) {
		w.got[ba] = nil
		w.m.SetFaults(w.now, 0, 1, Faults{Delay: exactly(ms), Sloppy: s})
		for i := range 1000 {
			w.send(ab, fmt.Sprintf("%04d", i))
		}
		w.run(time.Second)
		w.check()
		for _, data := range w.got[ba] {
			in = append(in, string(data))
			clear(data) // it is ours alone
		}
		return in, slices.Sorted(slices.Values(in))
	}
	if in, sorted := count(Sloppy{DropChance: 0.1}); len(in) < 800 || len(in) > 950 || !slices.Equal(in, sorted) {
		t.Errorf("a tenth is dropped, and %d of 1000 arrive", len(in))
	}
	if in, sorted := count(Sloppy{TwiceChance: 0.1}); len(in) < 1050 || len(in) > 1200 || !slices.Equal(in, sorted) {
		t.Errorf("a tenth comes twice, and %d of 1000 arrive", len(in))
	}
	if in, sorted := count(Sloppy{SwapChance: 0.1}); len(in) != 1000 || slices.Equal(in, sorted) || len(slices.Compact(sorted)) != 1000 {
		t.Errorf("a tenth changes places, and %d of 1000 arrive", len(in))
	}
	if in, _ := count(Sloppy{}); len(in) != 1000 {
		t.Errorf("the network is sloppy no more, and %d of 1000 arrive", len(in))
	}
	// What makes and ends links keeps its place.
	w.m.Heal(w.now)
	w.m.SetFaults(w.now, 1, 0, Faults{Delay: exactly(ms), Sloppy: Sloppy{SwapChance: 1}})
	dials := w.dial(0, 1)
	w.run(0)
	w.send(dials^1, "behind the agreement")
	w.run(ms)
	w.has(dials, "behind the agreement")
	if e, _ := w.m.find(ab); w.m.end(e).sent != 0 {
		t.Errorf("everything was received, and %d bytes count", w.m.end(e).sent)
	}
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
