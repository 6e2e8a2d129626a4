package memnet

// ringKept is how many places a ring keeps when it is empty.
const ringKept = 1024

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
	r.shrink()
	return v
}

// drop takes the last of the queue.
func (r *ring[T]) drop() T {
	last := r.at(r.n - 1)
	v := *last
	*last = *new(T)
	r.n--
	r.shrink()
	return v
}

// shrink forgets the array of a queue that was long and is empty.
func (r *ring[T]) shrink() {
	if r.n == 0 && len(r.buf) > ringKept {
		*r = ring[T]{}
	}
}

func (r *ring[T]) grow() {
	wider := make([]T, max(4, 2*len(r.buf)))
	for i := range r.n {
		wider[i] = *r.at(i)
	}
	r.buf, r.head = wider, 0
}
