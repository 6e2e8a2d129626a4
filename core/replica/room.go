package replica

import (
	"context"

	"github.com/brokerd/brokerd/core/model"
)

// leastRoom is what a fetch waits for before it reads, where it asks for as much.
const leastRoom = 64 << 10

// room is the memory that one fetch may fill.
type room struct {
	of    model.Room // nil: there are no bounds
	most  int        // what the fetch could fill
	size  int
	asked bool // for all that the fetch could fill
	full  bool // records were left behind for want of room
}

// newRoom is a room for f, whose answer has at most limit bytes but for a large
// first batch. It takes nothing yet.
func newRoom(f model.Fetch, limit int) room {
	most := 0
	for i := range f.Partitions {
		most = min(limit, most+max(f.Partitions[i].MaxBytes, 0))
	}
	return room{of: f.Room, most: most}
}

func (r *room) bounded() bool { return r.of != nil }

// grow makes room for `want` bytes beside those that are used, or for as many as there
// is, and says for how many. With nothing read (used is 0) it waits for `least`. Who
// comes back is given room for all that the fetch could fill, and then what is left of
// it. False: ctx ended.
func (r *room) grow(ctx context.Context, used, least, want int) (left int, ok bool) {
	if used > 0 {
		least = min(used, r.size) // what is read already is never waited for
	}
	if r.size >= used+want || (r.asked && r.size >= least) {
		return r.size - used, true
	}
	most := used + want
	if r.size > 0 {
		most = max(most, r.most)
	}
	r.asked = most >= r.most
	ok = r.reserve(ctx, least, most)
	return r.size - used, ok
}

// trim gives back what is not used. False: ctx ended.
func (r *room) trim(ctx context.Context, used int) bool {
	if r.of == nil || r.size <= used {
		return true
	}
	r.asked = false
	return r.reserve(ctx, used, used)
}

func (r *room) reserve(ctx context.Context, least, most int) bool {
	n, err := r.of.Reserve(ctx, least, most)
	if err != nil {
		r.size = 0
		return false // nobody waits for the answer
	}
	r.size = n
	return true
}

func (r *room) short() <-chan struct{} {
	if r.of == nil {
		return nil
	}
	return r.of.Short()
}
