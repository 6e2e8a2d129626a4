package telemetry

import (
	"testing"
	"time"
)

// tellOfRequest is what is counted of one Produce.
func tellOfRequest(s Server, a API) {
	s.RequestServed("PLAIN", 0, time.Millisecond, 1000, 100)
	a.Answered(0, 9, time.Millisecond)
	a.Produced("orders", 1, 1000)
}

func TestRequestsAreCountedWithoutAllocations(t *testing.T) {
	m := NewMetrics()
	s, a := m.Server(), m.API()
	if n := testing.AllocsPerRun(100, func() { tellOfRequest(s, a) }); n > 0 {
		t.Errorf("%v allocations a request", n)
	}
}

func BenchmarkRequest(b *testing.B) {
	m := NewMetrics()
	s, a := m.Server(), m.API()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			tellOfRequest(s, a)
		}
	})
}
