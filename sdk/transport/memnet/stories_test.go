package memnet

import (
	"errors"
	"fmt"
	"math"
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

// Times may be whatever a caller has, and are as long as a century.
func TestTimesAreLong(t *testing.T) {
	for _, start := range []time.Time{{}, time.Unix(0, 0), began} {
		for _, delay := range []time.Duration{time.Hour, longest, math.MaxInt64} {
			w := &world{
				t: t, m: New(Options{DialTimeout: math.MaxInt64}), now: start,
				peers: make(map[Link]Node), got: make(map[Link][][]byte), fails: make(map[Link]error),
			}
			for id := range Node(2) {
				if _, err := w.m.AddNode(fmt.Sprintf("n%d", id)); err != nil {
					t.Fatal(err)
				}
				w.start(id)
			}
			w.m.SetFaults(w.now, 0, 1, Faults{Delay: exactly(delay), LateChance: 0.5, Late: Range{Max: math.MaxInt64}})
			dials := w.dial(0, 1)
			if ev, ok := w.m.Due(w.now); ok {
				t.Fatalf("from %v, a way takes %v, and at once %v is told", start, delay, ev.Kind)
			}
			next, ok := w.m.Next()
			if least := start.Add(time.Minute); !ok || next.Before(least) || next.After(start.Add(longest)) {
				t.Fatalf("from %v, a way takes %v, and something is due at %v (%t)", start, delay, next, ok)
			}
			w.m.SetFaults(w.now, 0, 1, Faults{})
			w.run(longest)
			if w.fails[dials] == nil && !slices.Contains(w.links, dials) {
				t.Fatalf("from %v, a way takes %v, and after a century nothing has come of a dial", start, delay)
			}
			w.check()
		}
	}
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
