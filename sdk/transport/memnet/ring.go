package memnet

// ringKept is how many places a ring keeps when it is emptied for another use.
const ringKept = 64

// ring is a queue in an array that is used again and again.
type ring[T any] struct {
	buf  []T
	head int
	n    int
}

// at returns the i-th of the queue.
func (r *ring[T]) at(i int) *T { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

func (r *ring[T]) push(v T) {
	if r.n == len(r.buf) {
		r.grow()
	}
	r.n++
	*r.at(r.n - 1) = v
}

func (r *ring[T]) pop() T {
	first := r.at(0)
	v := *first
	*first = *new(T)
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	return v
}

// drop takes the last of the queue.
func (r *ring[T]) drop() T {
	last := r.at(r.n - 1)
	v := *last
	*last = *new(T)
	r.n--
	return v
}

// reset forgets an array that one use made large. The ring is empty.
func (r *ring[T]) reset() {
	r.head = 0
	if len(r.buf) > ringKept {
		r.buf = nil
	}
}

func (r *ring[T]) grow() {
	wider := make([]T, max(4, 2*len(r.buf)))
	for i := range r.n {
		wider[i] = *r.at(i)
	}
	r.buf, r.head = wider, 0
}
