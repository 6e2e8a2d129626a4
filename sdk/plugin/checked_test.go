package plugin

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// What is known of a file is never more than was added to it, whatever runs come in
// whatever order; and places are those of batches.
func TestCheckedIsWhatWasAdded(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			places := []mark{{offset: 100, pos: 0}}
			for len(places) < 200 {
				last := places[len(places)-1]
				places = append(places, mark{offset: last.offset + 1 + r.Int64N(3), pos: last.pos + 61 + r.Int64N(markBytes)})
			}
			store := &marks{left: 1 << 20}
			c := &checked{store: store}
			added := make([]bool, len(places)) // the batch that begins there
			for range 30 {
				from := r.IntN(len(places) - 1)
				to := from + 1 + r.IntN(min(40, len(places)-1-from))
				known := c.ending(places[from].pos) >= 0 || len(c.stretches) < stretchesMax
				run := c.begin(places[from])
				for i := from; i < to; i++ {
					run.add(places[i+1])
					added[i] = added[i] || known
				}
				run.end()
				compareChecked(t, c, places, added)
			}
			if c.full {
				t.Error("places contradict each other")
			}
			if c.forget(); store.left != 1<<20 {
				t.Errorf("%d marks were not given back", 1<<20-store.left)
			}
		})
	}
}

func compareChecked(t *testing.T, c *checked, places []mark, added []bool) {
	t.Helper()
	for i := range places {
		furthest := i
		for furthest < len(places)-1 && added[furthest] {
			furthest++
		}
		if got := c.has(places[i].pos, places[furthest].pos); furthest > i && !got {
			t.Fatalf("bytes %d to %d were added and are not known", places[i].pos, places[furthest].pos)
		}
		if furthest < len(places)-1 && c.has(places[i].pos, places[furthest+1].pos) {
			t.Fatalf("bytes %d to %d are known and were not added", places[i].pos, places[furthest+1].pos)
		}
		upTo := places[(i+furthest+1)/2].offset
		end, ok := c.last(places[i].pos, 3*markBytes, places[furthest].pos, upTo)
		if !ok {
			continue
		}
		at := slices.Index(places, end)
		if at < 0 || at > furthest || at <= i || end.offset > upTo || end.pos-places[i].pos > 3*markBytes {
			t.Fatalf("a section from %+v up to %d ends at %+v", places[i], upTo, end)
		}
		if pos, ok := c.place(end.offset); ok && pos != end.pos {
			t.Fatalf("offset %d is at %d, not at %d", end.offset, pos, end.pos)
		}
	}
}

// The room for marks is bounded, and what was given back is used again.
func TestMarksAreBounded(t *testing.T) {
	store := &marks{left: 10}
	a, b := &checked{store: store}, &checked{store: store}
	long := func(c *checked) (known int64) {
		r := c.begin(mark{})
		defer r.end()
		for i := range int64(100) {
			r.add(mark{offset: i + 1, pos: (i + 1) * 2 * markBytes})
		}
		return c.stretches[0].end.pos / (2 * markBytes)
	}
	if n := long(a); n != 10 || store.left != 0 {
		t.Errorf("%d batches are known, %d marks left", n, store.left)
	}
	a.forget()
	if n := long(b); n != 10 {
		t.Errorf("%d batches are known of another file", n)
	}
}
