package partition

// ring is a first-in, first-out queue that reuses its room.
type ring[T any] struct {
	buf  []T
	head int
	n    int
}

func (r *ring[T]) len() int { return r.n }

// at returns the i-th from the front.
func (r *ring[T]) at(i int) *T { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

// push adds a zero value at the end and returns it to be filled in.
func (r *ring[T]) push() *T {
	if r.n == len(r.buf) {
		r.grow()
	}
	r.n++
	return r.at(r.n - 1)
}

// drop removes the front.
func (r *ring[T]) drop() {
	var zero T
	r.buf[r.head] = zero
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
}

// dropLast removes the end.
func (r *ring[T]) dropLast() {
	var zero T
	*r.at(r.n - 1) = zero
	r.n--
}

// keep keeps those for which want is true, in order.
func (r *ring[T]) keep(want func(*T) bool) {
	kept := 0
	for i := 0; i < r.n; i++ {
		if want(r.at(i)) {
			if kept != i {
				*r.at(kept) = *r.at(i)
			}
			kept++
		}
	}
	for r.n > kept {
		r.dropLast()
	}
}

// grow doubles the room; it is a power of two.
func (r *ring[T]) grow() {
	buf := make([]T, max(8, 2*len(r.buf)))
	for i := 0; i < r.n; i++ {
		buf[i] = *r.at(i)
	}
	r.buf, r.head = buf, 0
}
