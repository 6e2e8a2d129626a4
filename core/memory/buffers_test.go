package memory_test

import (
	"testing"

	"github.com/brokerd/brokerd/core/memory"
	"pgregory.net/rapid"
)

// A buffer has the length that was asked for, and takes little more.
func TestBufferSizes(t *testing.T) {
	b := memory.NewBuffers()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(0, 10_000), rapid.IntRange(0, 20<<20)).Draw(t, "n")
		buf := b.Get(n)
		if len(buf) != n || cap(buf) != memory.BufferBytes(n) || cap(buf) > max(n+n/4+1, 4<<10) {
			t.Fatalf("%d of %d bytes for %d", len(buf), cap(buf), n)
		}
		b.Put(buf)
		if fits := memory.BufferBytesWithin(n); fits > n || fits > 0 && memory.BufferBytes(fits) > n || memory.BufferBytes(fits+1) <= n {
			t.Fatalf("%d bytes are the most that fit %d", fits, n)
		}
	})
}

// What was given back is lent again, whatever of it is in use, and foreign slices do no harm.
func TestBuffersAreLentAgain(t *testing.T) {
	b := memory.NewBuffers()
	buf := b.Get(100_000)
	buf = append(buf[:0], "once"...)
	b.Put(buf[:2])
	b.Put(nil)
	b.Put(make([]byte, 77))
	allocs := testing.AllocsPerRun(100, func() {
		again := b.Get(99_000)
		if len(again) != 99_000 || cap(again) != cap(buf) {
			t.Fatalf("%d of %d bytes", len(again), cap(again))
		}
		b.Put(again)
	})
	if !raceEnabled && allocs > 0.5 {
		t.Errorf("%.1f allocations for each loan", allocs)
	}
}

// No buffer is with two borrowers.
func TestBuffersAreLentOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := memory.NewBuffers()
		out := map[*byte]bool{}
		var held [][]byte
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "give back") {
				last := held[len(held)-1]
				held = held[:len(held)-1]
				delete(out, &last[0])
				b.Put(last)
				continue
			}
			buf := b.Get(rapid.IntRange(1, 40_000).Draw(t, "n"))
			if out[&buf[0]] {
				t.Fatal("lent twice")
			}
			out[&buf[0]] = true
			held = append(held, buf)
		}
	})
}
