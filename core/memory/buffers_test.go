package memory_test

import (
	"testing"

	"github.com/brokerd/brokerd/core/memory"
	"pgregory.net/rapid"
)

// A buffer has the length that was asked for, and takes little more.
func TestBufferSizes(t *testing.T) {
	b := memory.NewBuffers(1 << 30)
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
	b := memory.NewBuffers(1 << 30)
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

// Who takes a roomy one is lent what is idle, if it is less than twice as large; its
// capacity tells what it takes, and nothing of it is lost when it is given back.
func TestRoomyBuffers(t *testing.T) {
	for _, c := range []struct {
		idle, n, want int
	}{
		{1 << 20, 1 << 20, 1 << 20},
		{1 << 20, 900_000, 1 << 20},
		{1 << 20, 700_000, 1 << 20},
		{1 << 20, 500_000, 512 << 10}, // too large for it
		{1 << 20, 1<<20 + 1, 5 << 18}, // too small
		{8 << 20, 7 << 20, 8 << 20},
		{8 << 20, 9 << 20, 9 << 20}, // beyond what is pooled
	} {
		b := memory.NewBuffers(1 << 30)
		b.Put(b.Get(c.idle))
		before := b.Idle()
		got := b.GetRoomy(c.n)
		if len(got) != c.n || cap(got) != c.want {
			t.Errorf("of %d idle: %d of %d bytes for %d, not of %d", c.idle, len(got), cap(got), c.n, c.want)
		}
		if c.want == c.idle {
			before -= int64(c.idle)
		}
		if b.Idle() != before {
			t.Errorf("%d bytes are idle after %d were lent for %d, not %d", b.Idle(), cap(got), c.n, before)
		}
		if exact := b.Get(c.n); cap(exact) != memory.BufferBytes(c.n) {
			t.Errorf("%d bytes for %d where no roomy one was asked for", cap(exact), c.n)
		}
		b.Put(got)
		if c.want == c.idle && b.Idle() != int64(c.idle) {
			t.Errorf("%d bytes are idle after one of %d was given back", b.Idle(), c.idle)
		}
	}
}

// No buffer is with two borrowers.
func TestBuffersAreLentOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := memory.NewBuffers(1 << 30)
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

// What is given back at once, of whatever sizes, is kept up to the limit and no further;
// what was borrowed lately goes before what nobody needs.
func TestBuffersKeepNoMoreThanTheirLimit(t *testing.T) {
	const limit, large, small = 8 << 20, 1 << 20, 64 << 10
	b := memory.NewBuffers(limit)
	giveBack := func(n, size int) {
		out := make([][]byte, n)
		for i := range out {
			out[i] = b.Get(size)
		}
		for _, buf := range out {
			b.Put(buf)
			if b.Idle() > limit {
				t.Fatalf("%d bytes are idle, %d allowed", b.Idle(), limit)
			}
		}
	}
	giveBack(20, large)
	if b.Idle() != limit {
		t.Fatalf("%d bytes of 20 MiB are kept", b.Idle())
	}
	giveBack(20, small) // the large ones have just been needed
	if b.Idle() != limit {
		t.Fatalf("%d bytes are kept", b.Idle())
	}
	b.Trim() // begins to count
	giveBack(20, small)
	if want := int64(20 * small); b.Idle() != want {
		t.Errorf("%d bytes are kept, want the %d that were needed last", b.Idle(), want)
	}
	rapid.Check(t, func(t *rapid.T) {
		b := memory.NewBuffers(limit)
		var held [][]byte
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			switch n := rapid.IntRange(0, 9<<20).Draw(t, "n"); {
			case n%3 == 0 && len(held) > 0:
				b.Put(held[0])
				held = held[1:]
			case n%17 == 0:
				b.Trim()
			default:
				held = append(held, b.Get(n))
			}
			if b.Idle() < 0 || b.Idle() > limit {
				t.Fatalf("%d bytes are idle", b.Idle())
			}
		}
	})
}

// A trim takes what nobody needed since the last one, and leaves what was needed.
func TestBuffersAreTrimmed(t *testing.T) {
	const size = 1 << 20
	b := memory.NewBuffers(1 << 30)
	var all [][]byte
	for range 10 {
		all = append(all, b.Get(size))
	}
	for _, buf := range all {
		b.Put(buf)
	}
	b.Trim()
	for range 5 { // two are needed, again and again
		one, two := b.Get(size), b.Get(size)
		b.Put(one)
		b.Put(two)
	}
	for i, want := range []int64{2 * size, 0, 0} {
		if b.Trim(); b.Idle() != want {
			t.Errorf("trim %d leaves %d bytes, want %d", i+2, b.Idle(), want)
		}
	}
}
