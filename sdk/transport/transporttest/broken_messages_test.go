package transporttest_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

// sending breaks Send: the message, as one, goes through change, and its results are sent.
func sending(change func(l *brokenLink, message []byte) [][]byte) func() fault {
	return func() fault {
		return fault{send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
			for _, message := range change(l, slices.Concat(parts...)) {
				if err := l.Link.Send(ctx, message); err != nil {
					return err
				}
			}
			return nil
		}}
	}
}

// refusing breaks Send: messages that are so are refused.
func refusing(refuse func(n int) error) func() fault {
	return func() fault {
		return fault{send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
			if err := refuse(len(slices.Concat(parts...))); err != nil {
				return err
			}
			return l.Link.Send(ctx, parts...)
		}}
	}
}

func brokenMessages() []broken {
	return []broken{
		{name: "one way only", caughtBy: "both-ways", says: "receive a message that was sent", fault: sending(func(l *brokenLink, m []byte) [][]byte {
			if !l.dialled {
				return nil
			}
			return [][]byte{m}
		})},
		{name: "empty messages are left out", caughtBy: "empty", says: "an empty message was sent", fault: sending(func(_ *brokenLink, m []byte) [][]byte {
			if len(m) == 0 {
				return nil
			}
			return [][]byte{m}
		})},
		{name: "each part is a message", caughtBy: "empty", says: "in 0 parts, and 10 bytes came", fault: func() fault {
			return fault{send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
				for _, part := range parts {
					if err := l.Link.Send(ctx, part); err != nil {
						return err
					}
				}
				return nil
			}}
		}},
		{name: "a thousand parts at most", caughtBy: "parts", says: "in 1025 parts", fault: func() fault {
			return fault{send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
				return l.Link.Send(ctx, parts[:min(len(parts), 1024)]...)
			}}
		}},
		{name: "Send changes the list of parts", caughtBy: "parts", says: "changed part", fault: func() fault {
			return fault{send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
				err := l.Link.Send(ctx, parts...)
				for i := range parts { // as net.Buffers does
					parts[i] = nil
				}
				return err
			}}
		}},
		{name: "Send keeps the sender's bytes", caughtBy: "sender-bytes", says: "again after Send", fault: func() fault {
			return fault{send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
				if len(parts) == 3 { // a message of the case is sent when the next one is
					for _, before := range l.take() {
						if err := l.Link.Send(ctx, before); err != nil {
							return err
						}
					}
					whole := parts[0][:cap(parts[0])]
					l.keep(whole[:len(parts[0])+len(parts[1])+len(parts[2])])
					return nil
				}
				return l.Link.Send(ctx, parts...)
			}}
		}},
		{name: "Send encrypts in place", caughtBy: "sender-bytes", says: "changed its caller's bytes", fault: func() fault {
			return fault{send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
				err := l.Link.Send(ctx, parts...)
				for _, part := range parts {
					for i := range part {
						part[i] ^= 0x55
					}
				}
				return err
			}}
		}},
		{name: "Receive uses its memory again", caughtBy: "receiver-bytes", says: "not the", fault: func() fault {
			return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
				got, err := l.Link.Receive(ctx, room)
				if err != nil {
					return nil, err
				}
				return slices.Clone(got), nil
			}}
		}},
		{name: "Receive changes what it gave before", caughtBy: "receiver-bytes", says: "after its receipt", fault: func() fault {
			return fault{receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
				got, err := l.Link.Receive(ctx, room)
				if before := l.take(); len(before) > 0 && len(before[0]) > 10 {
					before[0][9]++
				}
				l.keep(got)
				return got, err
			}}
		}},
		{name: "a byte is lost at 256", caughtBy: "sizes-small", says: "message 256 of 256 bytes", fault: sending(func(_ *brokenLink, m []byte) [][]byte {
			if len(m) == 256 {
				m = m[:255]
			}
			return [][]byte{m}
		})},
		{name: "messages are cut at 1 MiB", caughtBy: "sizes", says: "and 1048576 bytes came", fault: sending(func(_ *brokenLink, m []byte) [][]byte {
			return [][]byte{m[:min(len(m), 1<<20)]}
		})},
		{name: "messages over 1 MiB are refused", caughtBy: "sizes", says: "send 1048577 bytes", fault: refusing(func(n int) error {
			if n > 1<<20 {
				return transport.Errorf(transport.ErrInvalid, "the network carries at most 1 MiB")
			}
			return nil
		})},
		{name: "chunks are not put together", caughtBy: "sizes", says: "message", fault: sending(func(_ *brokenLink, m []byte) [][]byte {
			return slices.Collect(slices.Chunk(m, 1<<20))
		})},
		{name: "a bit falls over", caughtBy: "sizes", says: "are as they were sent", fault: sending(func(_ *brokenLink, m []byte) [][]byte {
			if len(m) > 4<<20 {
				m[3<<20] ^= 4
			}
			return [][]byte{m}
		})},
		{name: "messages over 100 MiB are refused", caughtBy: "largest", says: "send 134217728 bytes", fault: refusing(func(n int) error {
			if n > 100<<20 {
				return transport.Errorf(transport.ErrInvalid, "that is much")
			}
			return nil
		})},
		{name: "too large a message ends the link", caughtBy: "too-large", says: "closed", fault: func() fault {
			return fault{send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
				err := l.Link.Send(ctx, parts...)
				if errors.Is(err, transport.ErrInvalid) {
					l.Link.Close()
				}
				return err
			}}
		}},
		{name: "too large a message may be tried again", caughtBy: "too-large", says: "want class", fault: func() fault {
			return fault{send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
				err := l.Link.Send(ctx, parts...)
				if errors.Is(err, transport.ErrInvalid) {
					return transport.Errorf(transport.ErrRetry, "too large")
				}
				return err
			}}
		}},
	}
}

func brokenOrder() []broken {
	return []broken{
		{name: "two messages change places", caughtBy: "order", says: "overtaken", fault: sending(func(l *brokenLink, m []byte) [][]byte {
			switch l.count() {
			case 15_000:
				l.keep(m)
				return nil
			case 15_001:
				return append([][]byte{m}, l.take()...)
			}
			return [][]byte{m}
		})},
		{name: "a message is repeated", caughtBy: "order", says: "repeated", fault: sending(func(l *brokenLink, m []byte) [][]byte {
			if l.count() == 15_000 {
				return [][]byte{m, m}
			}
			return [][]byte{m}
		})},
		{name: "a message is lost", caughtBy: "order", says: "lost", fault: sending(func(l *brokenLink, m []byte) [][]byte {
			if l.count() == 15_000 {
				return nil
			}
			return [][]byte{m}
		})},
		{name: "small messages overtake large ones", caughtBy: "order-sizes", says: "overtaken", fault: sending(func(l *brokenLink, m []byte) [][]byte {
			if len(m) > 200_000 {
				l.keep(m)
				return nil
			}
			return append([][]byte{m}, l.take()...)
		})},
		{name: "a backlog loses its order", caughtBy: "order-backlog", says: "overtaken", fault: func() fault {
			var under atomic.Int64
			return fault{
				send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
					m := slices.Concat(parts...)
					if under.Add(1) == 20 {
						l.keep(m)
						return nil
					}
					for _, m := range append([][]byte{m}, l.take()...) {
						if err := l.Link.Send(ctx, m); err != nil {
							return err
						}
					}
					return nil
				},
				receive: func(ctx context.Context, l *brokenLink, room transport.Room) ([]byte, error) {
					defer under.Add(-1)
					return l.Link.Receive(ctx, room)
				},
			}
		}},
		{name: "who sends beside another is not heard", caughtBy: "senders", says: "message", fault: func() fault {
			return fault{send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
				if !l.mu.TryLock() {
					return nil
				}
				defer l.mu.Unlock()
				runtime.Gosched()
				return l.Link.Send(ctx, parts...)
			}}
		}},
		{name: "parts of two senders are mixed", caughtBy: "senders", says: "of sender", fault: func() fault {
			return fault{send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
				before := l.keep(nil)
				runtime.Gosched()
				if l.take(); len(before) > 0 { // somebody else is at it
					parts = [][]byte{bytes.Join(parts, nil), {0}}
				}
				return l.Link.Send(ctx, parts...)
			}}
		}},
		{name: "a link is lost that is closed beside a Send", caughtBy: "close-beside", says: "gives EOF", fault: func() fault {
			return fault{send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
				return eof(l.Link.Send(ctx, parts...))
			}}
		}},
		{name: "what follows an empty message is spoilt", caughtBy: "histories", says: "transporttest.step{Op:\"send", fault: sending(func(l *brokenLink, m []byte) [][]byte {
			before := l.take()
			l.keep(m)
			if len(before) > 0 && len(before[0]) == 0 && len(m) > 0 {
				m[0]++
			}
			return [][]byte{m}
		})},
		{name: "links spin", caughtBy: "idle", says: "of processor time", fault: spinning},
		{name: "idle links are dropped", caughtBy: "idle", says: "nothing was sent, and Receive gives closed", fault: func() fault {
			return fault{send: func(ctx context.Context, l *brokenLink, parts [][]byte) error {
				l.mu.Lock()
				first := l.n == 0
				l.n++
				l.mu.Unlock()
				if !first {
					return l.Link.Send(ctx, parts...)
				}
				time.AfterFunc(time.Second, func() { l.Link.Close() })
				return l.Link.Send(ctx, parts...)
			}}
		}},
	}
}

// spinning: a goroutine looks all the time whether there is something to do.
func spinning() fault {
	var mu sync.Mutex
	stops := map[*brokenNode]chan struct{}{}
	return fault{
		made: func(l *brokenLink) {
			mu.Lock()
			defer mu.Unlock()
			if stops[l.node] != nil {
				return
			}
			stop := make(chan struct{})
			stops[l.node] = stop
			go func() {
				for {
					select {
					case <-stop:
						return
					default:
						runtime.Gosched()
					}
				}
			}()
		},
		close: func(n *brokenNode) error {
			mu.Lock()
			defer mu.Unlock()
			if stop := stops[n]; stop != nil {
				close(stop)
				delete(stops, n)
			}
			return n.Transport.Close()
		},
	}
}
