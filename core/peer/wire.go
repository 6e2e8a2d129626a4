package peer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/brokerd/brokerd/sdk/transport"
)

// smallBytes is up to what a message takes no part of the memory budget: each link has one
// arriving at a time, and their number is bounded. So a heartbeat never waits for a snapshot.
const smallBytes = 64 << 10

// wire is a link of a transport, with a goroutine that reads and one that writes.
type wire struct {
	links  *Links
	id     LinkID
	target transport.Target // where it is dialled
	link   transport.Link
	wrote  chan struct{} // something is to be written

	// The lock of Links guards these.
	writes [][][]byte
	over   bool // it is given up
	cancel func()

	// The goroutine that reads has these.
	held  int64 // of the memory budget
	small [StreamMessageBytesLeast]byte
	got   Received
	// The one that writes has this.
	sent Sent
}

// write queues a message. The caller holds the lock. The machine bounds what there is.
func (w *wire) write(parts [][]byte) {
	w.writes = append(w.writes, parts)
	select {
	case w.wrote <- struct{}{}:
	default:
	}
}

// giveUp ends the link, or its dialling. The caller holds the lock.
func (w *wire) giveUp() {
	w.over = true
	if w.cancel != nil {
		w.cancel()
	}
}

// serve tells the machine of a link that is made, and then all that comes, until it ends.
func (w *wire) serve(ctx context.Context, made Input) {
	w.links.step(made)
	var writer sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	writer.Go(func() {
		if err := w.writeAll(ctx); !errors.Is(err, transport.ErrClosed) {
			cancel()
		}
	})
	w.readAll(ctx)
	cancel()
	_ = w.link.Close() // whether it had ended before does not matter
	writer.Wait()
	w.release()
	w.links.drop(w)
	w.links.step(&Ended{Link: w.id})
}

func (w *wire) readAll(ctx context.Context) {
	w.got.Link = w.id
	for {
		data, err := w.link.Receive(ctx, w.room)
		if err != nil {
			return
		}
		w.got.Data = data
		w.links.step(&w.got)
		w.got.Data = nil
		w.release()
	}
}

// room gives memory for a message: its owner's, or some of the budget.
func (w *wire) room(ctx context.Context, n int) ([]byte, error) {
	x := w.links
	x.mu.Lock()
	most := x.machine.MessageBytesMax(w.id)
	stream, isStream := x.machine.Stream(w.id)
	owner := x.owners[stream]
	if n > smallBytes {
		x.machine.Step(x.deps.Clock.Now(), &Arriving{Link: w.id, Bytes: n}, &x.effects)
	}
	x.unlock()
	switch {
	case n > most:
		return nil, fmt.Errorf("a message of %d bytes, and at most %d may come: %w", n, most, errMalformed)
	case isStream && n < len(w.small):
		return w.small[:n], nil
	case isStream:
		if owner == nil {
			return nil, fmt.Errorf("stream %d has no owner: %w", stream, errMalformed)
		}
		if memory := owner.StreamRoom(stream, n); memory != nil {
			return memory, nil
		}
		return nil, fmt.Errorf("a message of %d bytes, which was not granted: %w", n, errMalformed)
	case n > smallBytes:
		if err := x.deps.Memory.Acquire(ctx, int64(n)); err != nil {
			return nil, fmt.Errorf("receive a message: %w", err)
		}
		w.held = int64(n)
	}
	return make([]byte, n), nil
}

func (w *wire) release() {
	if w.held > 0 {
		w.links.deps.Memory.Release(w.held)
		w.held = 0
	}
}

// writeAll writes what the machine asks for, from the memory where it is.
func (w *wire) writeAll(ctx context.Context) error {
	w.sent.Link = w.id
	var some [][][]byte
	for {
		select {
		case <-w.wrote:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for some = w.takeWrites(some); len(some) > 0; some = w.takeWrites(some) {
			for i, parts := range some {
				if err := w.link.Send(ctx, parts...); err != nil {
					return err
				}
				some[i] = nil
				w.links.step(&w.sent)
			}
		}
	}
}

// takeWrites takes all that is to be written, and leaves the room of what was.
func (w *wire) takeWrites(done [][][]byte) [][][]byte {
	w.links.mu.Lock()
	defer w.links.mu.Unlock()
	some := w.writes
	w.writes = done[:0]
	return some
}
