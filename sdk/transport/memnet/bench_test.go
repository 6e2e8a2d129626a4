package memnet

import (
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

// busy is five nodes, with a link of each lane for each pair, over ways that delay.
func busy(t failer) (m *Machine, links []Link) {
	w := newWorld(t, 1, 5)
	for from := range Node(5) {
		for to := range from {
			for range 2 {
				ab, ba := w.join(from, to)
				links = append(links, ab, ba)
			}
		}
	}
	for from := range Node(5) {
		for to := range from {
			w.faults(from, to, Faults{Delay: Range{Max: 10 * ms}})
		}
	}
	return w.m, links
}

// exchange lets every link carry a message some times; each message is one event.
func exchange(t failer, m *Machine, links []Link, now time.Time, rounds int, message []byte) (end time.Time, events int) {
	for range rounds {
		for _, l := range links {
			if err := m.Give(now, l, message); err != nil {
				t.Fatalf("send: %v", err)
			}
		}
		now = now.Add(ms)
		for ev, ok := m.Due(now); ok; ev, ok = m.Due(now) {
			if _, ok, err := m.Receive(now, ev.Link); !ok || err != nil {
				t.Fatalf("receive: %v", err)
			}
			events++
		}
	}
	return now, events
}

// What a simulator does a million times allocates nothing but the messages' own copies,
// and is forgotten with its link.
func TestEventsDoNotAllocate(t *testing.T) {
	m, links := busy(t)
	message := make([]byte, 100)
	now, _ := exchange(t, m, links, began, 100, message)
	if n := testing.AllocsPerRun(20, func() { now, _ = exchange(t, m, links, now, 10, message) }); n > 0 {
		t.Errorf("%v allocations for %d messages", n, 10*len(links))
	}
	if n := testing.AllocsPerRun(100, func() {
		if err := m.Send(now, links[0], message, message); err != nil {
			t.Fatalf("send: %v", err)
		}
		now = now.Add(10 * ms)
		for ev, ok := m.Due(now); ok; ev, ok = m.Due(now) {
			if _, _, err := m.Receive(now, ev.Link); err != nil {
				t.Fatalf("receive: %v", err)
			}
		}
	}); n > 1 {
		t.Errorf("%v allocations to copy a message", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		l, err := m.Dial(now, 0, transport.Target{Endpoint: "n1", Lane: transport.Data, NodeID: 1})
		if err != nil {
			t.Fatalf("dial: %v", err)
		}
		for range 4 {
			now = now.Add(10 * ms)
			for ev, ok := m.Due(now); ok; ev, ok = m.Due(now) {
				if ev.Kind == Incoming {
					m.Accept(now, ev.Node)
				}
			}
		}
		m.Close(now, l)
	}); n > 0 {
		t.Errorf("%v allocations for a dial", n)
	}
}

func BenchmarkEvents(b *testing.B) {
	m, links := busy(b)
	message := make([]byte, 100)
	b.ReportAllocs()
	b.ResetTimer()
	now, events := began, 0
	for events < b.N {
		var n int
		now, n = exchange(b, m, links, now, 10, message)
		events += n
	}
}
