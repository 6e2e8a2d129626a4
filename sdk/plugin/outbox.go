package plugin

import (
	"context"
	"runtime"
	"slices"
	"sync"
)

// outbox is the units that wait to be sent over a transport's lane: those of the control
// lane, and calls, before those of data. Who puts units into it bounds how many they are.
type outbox struct {
	wake chan struct{}

	mu     sync.Mutex
	urgent tunits
	bulk   tunits
	closed bool
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// put queues a unit. It never waits. After close the unit is dropped.
func (o *outbox) put(u *tunit, urgent bool) {
	o.mu.Lock()
	closed := o.closed
	switch {
	case closed:
	case urgent:
		o.urgent = append(o.urgent, u)
	default:
		o.bulk = append(o.bulk, u)
	}
	o.mu.Unlock()
	if closed {
		u.done()
		return
	}
	nudge(o.wake)
}

// send sends units until ctx ends or the link breaks.
func (o *outbox) send(ctx context.Context, to link) error {
	var batch tunits
	for {
		select {
		case <-o.wake:
		case <-ctx.Done():
			return nil
		}
		runtime.Gosched() // so that those who are about to put a unit share a system call
		for o.take(&batch) {
			err := to.send(&batch)
			for i, u := range batch {
				u.done()
				batch[i] = nil
			}
			batch = batch[:0]
			if err != nil {
				return err
			}
		}
	}
}

// take moves into batch what is urgent, and as much of the rest as goes together.
func (o *outbox) take(batch *tunits) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	*batch = append(*batch, o.urgent...)
	clear(o.urgent)
	o.urgent = o.urgent[:0]
	n, bytes := 0, 0
	for ; n < len(o.bulk) && bytes < coalesceBytes; n++ {
		bytes += o.bulk.size(n)
	}
	*batch = append(*batch, o.bulk[:n]...)
	rest := copy(o.bulk, o.bulk[n:])
	clear(o.bulk[rest:])
	o.bulk = o.bulk[:rest]
	return len(*batch) > 0
}

// close drops what waits, and what comes.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	left := slices.Concat(o.urgent, o.bulk)
	o.urgent, o.bulk = nil, nil
	o.mu.Unlock()
	for _, u := range left {
		u.done()
	}
}
