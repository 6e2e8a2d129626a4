package transporttest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

// eof gives the class of an end away.
func eof(err error) error {
	if errors.Is(err, transport.ErrClosed) {
		return io.EOF
	}
	return err
}

// receiving breaks Receive: it is called with another room.
func receiving(change func(l *brokenLink, room transport.Room) transport.Room) func() fault {
	return func() fault {
		return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
			return l.Link.Receive(ctx, change(l, room))
		}}
	}
}

// anyRoom gives memory for every message.
func anyRoom(_ context.Context, n int) ([]byte, error) { return make([]byte, n), nil }

func brokenRooms() []broken {
	return []broken{
		{name: "room is not asked", caughtBy: "room-once", says: "room was asked for []", fault: receiving(func(*brokenLink, transport.Room) transport.Room {
			return anyRoom
		})},
		{name: "room is asked twice", caughtBy: "room-once", says: "room was asked for [1 1]", fault: receiving(func(_ *brokenLink, room transport.Room) transport.Room {
			return func(ctx context.Context, n int) ([]byte, error) {
				if _, err := room(ctx, n); err != nil {
					return nil, err
				}
				return room(ctx, n)
			}
		})},
		{name: "room is asked for a buffer", caughtBy: "room-once", says: "room was asked for [65536]", fault: receiving(func(_ *brokenLink, room transport.Room) transport.Room {
			return func(ctx context.Context, n int) ([]byte, error) {
				data, err := room(ctx, max(n, 64<<10))
				return data[:min(n, len(data))], err
			}
		})},
		{name: "a message is received before room is asked", caughtBy: "room-first", says: "while room waits", fault: func() fault {
			return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
				early, err := l.Link.Receive(ctx, anyRoom)
				if err != nil {
					return nil, err
				}
				beside := slices.Clone(early) // where it is put together
				data, err := room(ctx, len(early))
				copy(data, early)
				copy(data, beside)
				return data, err
			}}
		}},
		{name: "an error of room loses a message", caughtBy: "room-error", says: "after an error of room", fault: func() fault {
			return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
				early, err := l.Link.Receive(ctx, anyRoom)
				if err != nil {
					return nil, err
				}
				data, err := room(ctx, len(early))
				copy(data, early)
				return data, err
			}}
		}},
		{name: "an error of room is told as another", caughtBy: "room-error", says: "and Receive gives closed", fault: func() fault {
			return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
				var refused bool
				got, err := l.Link.Receive(ctx, func(ctx context.Context, n int) ([]byte, error) {
					data, err := room(ctx, n)
					refused = err != nil
					return data, err
				})
				if refused {
					return nil, transport.Errorf(transport.ErrClosed, "there was no memory")
				}
				return got, err
			}}
		}},
		{name: "one receiver for all links", caughtBy: "room-waits", says: "on another link while room waits", fault: func() fault {
			var turn sync.Map
			return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
				gate, _ := turn.LoadOrStore(l.node, make(chan struct{}, 1))
				return l.Link.Receive(ctx, func(own context.Context, n int) ([]byte, error) {
					select {
					case gate.(chan struct{}) <- struct{}{}:
					case <-ctx.Done():
						return nil, context.Cause(ctx)
					}
					defer func() { <-gate.(chan struct{}) }()
					return room(own, n)
				})
			}}
		}},
		{name: "room has no context", caughtBy: "room-ends", says: "has not returned", fault: func() fault {
			return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
				return l.Link.Receive(ctx, func(ctx context.Context, n int) ([]byte, error) {
					limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
					defer cancel()
					return room(limit, n)
				})
			}}
		}},
		{name: "room waits for what has ended", caughtBy: "room-closed", says: "has not returned", fault: func() fault {
			return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
				return l.Link.Receive(ctx, func(_ context.Context, n int) ([]byte, error) { return room(ctx, n) })
			}}
		}},
		{name: "too small a room is a panic", caughtBy: "room-wrong", says: "panic", fault: func() fault {
			return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
				return l.Link.Receive(ctx, func(ctx context.Context, n int) ([]byte, error) {
					data, err := room(ctx, n)
					return data[:n], err
				})
			}}
		}},
		{name: "too small a room takes what fits", caughtBy: "room-wrong", says: "without an error", fault: func() fault {
			return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
				early, err := l.Link.Receive(ctx, anyRoom)
				if err != nil || room == nil {
					return nil, err
				}
				data, err := room(ctx, len(early))
				return data[:copy(data, early)], err
			}}
		}},
	}
}

// queueing breaks Send: messages that are so go through a queue without a bound.
func queueing(queues func(n int) bool) func() fault {
	return func() fault {
		return fault{
			send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
				message := slices.Concat(parts...)
				if !queues(len(message)) {
					return l.Link.Send(ctx, parts...)
				}
				l.mu.Lock()
				defer l.mu.Unlock()
				l.kept = append(l.kept, message)
				if l.n == 0 {
					l.n = 1
					go l.empty()
				}
				return nil
			},
		}
	}
}

// empty sends what is kept.
func (l *brokenLink) empty() {
	for {
		l.mu.Lock()
		if len(l.kept) == 0 {
			l.n = 0
			l.mu.Unlock()
			return
		}
		next := l.kept[0]
		l.kept = l.kept[1:]
		l.mu.Unlock()
		if l.Link.Send(context.Background(), next) != nil {
			return
		}
	}
}

func brokenMemory() []broken {
	return []broken{
		{name: "Send never waits", caughtBy: "send-waits", says: "does not wait", fault: queueing(func(int) bool { return true })},
		{name: "Send of large messages never waits", caughtBy: "send-waits-large", says: "has not waited", fault: queueing(func(n int) bool { return n > transport.LinkBytesMax })},
		{name: "a Send that has waited is forgotten", caughtBy: "send-goes-on", says: "receive a message", fault: func() fault {
			return fault{send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
				brief, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				defer cancel()
				if err := l.Link.Send(brief, parts...); brief.Err() == nil || ctx.Err() != nil {
					return err
				}
				return hang(ctx)
			}}
		}},
		{name: "what was sent is kept", caughtBy: "memory", says: "directions of links are full", fault: func() fault {
			return fault{send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
				if err := l.Link.Send(ctx, parts...); err != nil {
					return err
				}
				l.keep(slices.Concat(parts...))
				return nil
			}}
		}},
		{name: "memory is not given back", caughtBy: "memory", says: "every transport is closed", fault: func() fault {
			var pool [][]byte // of the process, not of a transport
			return fault{close: func(n *brokenNode) error {
				pool = append(pool, make([]byte, 32<<20))
				return n.Transport.Close()
			}}
		}},
		{name: "empty messages count nothing", caughtBy: "memory-empty", says: "bytes of memory are in use", fault: func() fault {
			return fault{send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
				if len(bytes.Join(parts, nil)) > 0 {
					return l.Link.Send(ctx, parts...)
				}
				l.mu.Lock()
				defer l.mu.Unlock()
				l.kept = append(l.kept, make([]byte, 0, 64)) // its header
				return nil
			}}
		}},
		{name: "each link has a large buffer", caughtBy: "memory-idle", says: "nothing is under way", fault: func() fault {
			return fault{made: func(l *brokenLink) { l.keep(make([]byte, 2<<20)) }}
		}},
	}
}

// gated breaks Send: those of one gate wait for each other.
func gated(gateOf func(l *brokenLink) int) func() fault {
	return func() fault {
		type key struct {
			node *brokenNode
			gate int
		}
		var gates sync.Map
		return fault{send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
			gate, _ := gates.LoadOrStore(key{l.node, gateOf(l)}, make(chan struct{}, 1))
			select {
			case gate.(chan struct{}) <- struct{}{}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			defer func() { <-gate.(chan struct{}) }()
			return l.Link.Send(ctx, parts...)
		}}
	}
}

func brokenLanes() []broken {
	return []broken{
		{name: "lanes share a connection", caughtBy: "lanes", says: "while lane data is full", fault: gated(func(*brokenLink) int { return 0 })},
		{name: "links of a lane share a connection", caughtBy: "lane-links", says: "while three other links", fault: gated(func(l *brokenLink) int { return int(l.Lane()) })},
		{name: "nobody receives until all is accepted", caughtBy: "lane-unaccepted", says: "links that nobody accepts", fault: func() fault {
			var open atomic.Int64
			return fault{
				made: func(l *brokenLink) {
					if l.dialled {
						open.Add(1)
						return
					}
					open.Add(-1)
				},
				receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
					if open.Load() > 0 {
						return nil, hang(ctx)
					}
					return l.Link.Receive(ctx, room)
				},
			}
		}},
		{name: "a node has 256 links at most", caughtBy: "links", says: "256", fault: func() fault {
			return fault{dial: func(ctx context.Context, n *brokenNode, to transport.Target) (transport.Link, error) {
				if n.count() > 256 {
					return nil, transport.Errorf(transport.ErrRetry, "256 links are open")
				}
				return n.Transport.Dial(ctx, to)
			}}
		}},
		{name: "two that dial each other share a link", caughtBy: "mesh", says: "dials node", fault: func() fault {
			var mu sync.Mutex
			dialled := map[[2]int32]bool{}
			return fault{dial: func(ctx context.Context, n *brokenNode, to transport.Target) (transport.Link, error) {
				mu.Lock()
				dialled[[2]int32{n.id.NodeID, to.NodeID}] = true
				other := dialled[[2]int32{to.NodeID, n.id.NodeID}]
				mu.Unlock()
				if other {
					return nil, transport.Errorf(transport.ErrRetry, "there is a link already")
				}
				return n.Transport.Dial(ctx, to)
			}}
		}},
	}
}
