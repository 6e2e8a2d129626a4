package frame

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

// within is longer than any wait of a test that passes.
const within = 10 * time.Second

// sockets are the two ends of a TCP connection.
func sockets(tb testing.TB) (near, far net.Conn) {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer listener.Close()
	if near, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		tb.Fatal(err)
	}
	if far, err = listener.Accept(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// carrier is a way to connect the two ends of a link.
type carrier struct {
	name string
	ends func(tb testing.TB) (near, far *Link)
}

var carriers = []carrier{
	{"socket", func(tb testing.TB) (*Link, *Link) {
		near, far := sockets(tb)
		return New(near, Options{Sum: true}), New(far, Options{Sum: true})
	}},
	{"pipe", func(testing.TB) (*Link, *Link) {
		near, far := net.Pipe()
		return New(near, Options{Sum: true}), New(far, Options{Sum: true})
	}},
	{"tls", func(tb testing.TB) (*Link, *Link) {
		near, far := sockets(tb)
		return secured(tb, near, far)
	}},
}

// secured makes a link of a connection below TLS.
func secured(tb testing.TB, near, far net.Conn) (*Link, *Link) {
	tb.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		tb.Fatal(err)
	}
	cfg := &tls.Config{
		InsecureSkipVerify: true, // who the ends are is not what is tested
		Certificates:       []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	}
	belowNear, belowFar := NewBelow(near, 64<<10), NewBelow(far, 64<<10)
	client, server := tls.Client(belowNear, cfg), tls.Server(belowFar, cfg)
	done := make(chan error, 1)
	go func() { done <- server.Handshake() }()
	if err := errors.Join(client.Handshake(), <-done); err != nil {
		tb.Fatal(err)
	}
	return New(client, Options{Below: belowNear}), New(server, Options{Below: belowFar})
}

func onEach(t *testing.T, test func(t *testing.T, near, far *Link)) {
	for _, c := range carriers {
		t.Run(c.name, func(t *testing.T) {
			near, far := c.ends(t)
			t.Cleanup(func() { _, _ = near.Close(), far.Close() })
			test(t, near, far)
		})
	}
}

func fresh(_ context.Context, n int) ([]byte, error) { return make([]byte, n), nil }

// message is a message of n bytes, unlike others.
func message(n int, tag byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7) ^ byte(i>>8) ^ tag
	}
	return b
}

func receive(t *testing.T, l *Link) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	b, err := l.Receive(ctx, fresh)
	if err != nil {
		t.Fatalf("receive: %v", err)
	}
	return b
}

// background runs a call, and gives its error.
func background(call func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	return done
}

func await(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(within):
		t.Fatal("a call has not returned")
		return nil
	}
}

func TestMessagesOfEverySize(t *testing.T) {
	sizes := []int{0, 1, headerBytes, 100, directBytes - 1, directBytes, readBytes - headerBytes, readBytes, readBytes + 1,
		3*readBytes + 17, recordBytes - headerBytes, belowBytes, 300 << 10, 3<<20 + 1, 0}
	onEach(t, func(t *testing.T, near, far *Link) {
		sent := background(func() error {
			for i, n := range sizes {
				m := message(n, byte(i))
				// in three parts, one of which is empty
				if err := near.Send(t.Context(), m[:n/3], nil, m[n/3:]); err != nil {
					return err
				}
			}
			return near.Send(t.Context()) // of no part
		})
		for i, n := range sizes {
			if got := receive(t, far); !bytes.Equal(got, message(n, byte(i))) {
				t.Fatalf("message %d, of %d bytes, arrived otherwise (%d bytes)", i, n, len(got))
			}
		}
		if got := receive(t, far); len(got) != 0 {
			t.Fatalf("a message of no part has %d bytes", len(got))
		}
		if err := await(t, sent); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTooLarge(t *testing.T) {
	onEach(t, func(t *testing.T, near, far *Link) {
		half := make([]byte, transport.MessageBytesMax/2)
		if err := near.Send(t.Context(), half, half, []byte{1}); !errors.Is(err, transport.ErrInvalid) {
			t.Fatalf("got %v", err)
		}
		sent := background(func() error { return near.Send(t.Context(), []byte("goes on")) })
		if got := receive(t, far); string(got) != "goes on" {
			t.Fatalf("got %q", got)
		}
		if err := await(t, sent); err != nil {
			t.Fatal(err)
		}
	})
}

// TestGivenUp: a call of Receive whose context ends in the middle of a message has received
// nothing, whoever calls next receives it whole, and Room is asked for it once.
func TestGivenUp(t *testing.T) {
	onEach(t, func(t *testing.T, near, far *Link) {
		want := message(1<<20, 1)
		asked := 0
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("given up")
		room := func(context.Context, int) ([]byte, error) {
			asked++
			cancel(why)
			return make([]byte, len(want)), nil
		}
		first := background(func() error {
			_, err := far.Receive(ctx, room)
			return err
		})
		// Half of the message, as who sends it would be caught between two segments.
		frame := make([]byte, headerBytes, headerBytes+len(want))
		frame = append(frame, want...)
		header{kind: kindMessage, length: len(want)}.put(frame)
		half := background(func() error { _, err := near.conn.Write(frame[:len(frame)/2]); return err })
		if err := await(t, first); !errors.Is(err, why) {
			t.Fatalf("got %v", err)
		}
		rest := background(func() error {
			if err := <-half; err != nil {
				return err
			}
			_, err := near.conn.Write(frame[len(frame)/2:])
			return err
		})
		got, err := far.Receive(t.Context(), room)
		if err != nil || !bytes.Equal(got, want) || asked != 1 {
			t.Fatalf("got %d bytes, %v, and Room was asked %d times", len(got), err, asked)
		}
		if err := await(t, rest); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSendGivenUp: calls of Send whose context ends while nobody receives have sent their
// message, or nothing of it, or have ended the link: what arrives is a beginning of what
// was sent, without those of the messages given up that were not.
func TestSendGivenUp(t *testing.T) {
	onEach(t, func(t *testing.T, near, far *Link) {
		var sent [][]byte
		var sure []bool // Send returned nil for it
		send := func(ctx context.Context) error {
			m := message(20<<10+len(sent)%7*(17<<10), byte(len(sent)))
			err := near.Send(ctx, m)
			sent, sure = append(sent, m), append(sure, err == nil)
			return err
		}
		for given := 0; given < 3; {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			err := send(ctx)
			cancel()
			if errors.Is(err, transport.ErrClosed) {
				break
			}
			if errors.Is(err, context.DeadlineExceeded) {
				given++
			} else if err != nil {
				t.Fatalf("got %v", err)
			}
		}
		const more = 5
		rest := make(chan error, 1)
		alive := near.ended() == nil
		if alive { // and goes on
			first := len(sent)
			for range more {
				sent, sure = append(sent, message(50<<10, byte(len(sent)))), append(sure, true)
			}
			tail := sent[first:]
			go func() {
				for _, m := range tail {
					if err := near.Send(t.Context(), m); err != nil {
						rest <- err
						return
					}
				}
				rest <- near.Send(t.Context())
			}()
		}
		next := 0
		for {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			got, err := far.Receive(ctx, fresh)
			cancel()
			if errors.Is(err, transport.ErrClosed) && !alive {
				return
			}
			if err != nil {
				t.Fatalf("receive: %v", err)
			}
			if len(got) == 0 {
				break
			}
			for next < len(sent) && !sure[next] && !bytes.Equal(got, sent[next]) {
				next++
			}
			if next == len(sent) || !bytes.Equal(got, sent[next]) {
				t.Fatalf("of %d messages, what arrives after %d is no message that may come now", len(sent), next)
			}
			next++
		}
		for ; next < len(sent); next++ {
			if sure[next] {
				t.Fatalf("message %d was sent, and has not arrived, and the link went on", next)
			}
		}
		if err := await(t, rest); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSendGivenUpHalfWay: when a part of a message has gone, the call that was given up ends
// the link at both ends, also where the rest of it lies below TLS.
func TestSendGivenUpHalfWay(t *testing.T) {
	for _, left := range []int{0, 1, 8 << 10, 100 << 10} {
		a, b := sockets(t)
		ctx, cancel := context.WithCancel(t.Context())
		stuck := &sticking{Conn: a, left: 1 << 20, stuck: cancel}
		near, far := secured(t, stuck, b)
		stuck.left = left
		if err := near.Send(ctx, message(120<<10, 1)); !errors.Is(err, context.Canceled) {
			t.Fatalf("%d: got %v", left, err)
		}
		if err := near.Send(t.Context(), []byte("x")); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("%d: the link goes on with %v", left, err)
		}
		receiving, stop := context.WithTimeout(t.Context(), within)
		if _, err := far.Receive(receiving, fresh); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("%d: got %v", left, err)
		}
		stop()
		_, _ = near.Close(), far.Close()
	}
}

// sticking is a connection that takes so many bytes more, and then waits until it is given
// up.
type sticking struct {
	net.Conn
	left  int
	stuck func()
}

func (s *sticking) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b[:min(len(b), s.left)])
	if s.left -= n; err == nil && n < len(b) {
		s.stuck()
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

// TestSendFailed: an error of the connection in one direction ends the link in both, at
// both ends, while what had arrived is received where the connection can be shut.
func TestSendFailed(t *testing.T) {
	for name, wrap := range map[string]func(*refusing) net.Conn{
		"shut":   func(r *refusing) net.Conn { return shutting{r} },
		"closed": func(r *refusing) net.Conn { return r },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := sockets(t)
			bad := &refusing{Conn: a}
			near, far := secured(t, wrap(bad), b)
			t.Cleanup(func() { _, _ = near.Close(), far.Close() })
			waiting := make(chan error, 1)
			if name == "shut" { // both arrive together: they go in one segment
				far.opt.Below.hold()
				_, err := far.conn.Write(stream(t, false, []byte("first"), message(30<<10, 1)))
				if err := errors.Join(err, far.opt.Below.release()); err != nil {
					t.Fatal(err)
				}
				if got := receive(t, near); string(got) != "first" {
					t.Fatalf("got %q", got)
				}
			}
			if name == "closed" {
				go func() { _, err := near.Receive(t.Context(), fresh); waiting <- err }()
			}
			bad.refuses.Store(true)
			for range 2 {
				if err := near.Send(t.Context(), []byte("x")); !errors.Is(err, transport.ErrClosed) || !strings.Contains(err.Error(), "no buffers") {
					t.Fatalf("got %v", err)
				}
			}
			if name == "shut" {
				if got := receive(t, near); !bytes.Equal(got, message(30<<10, 1)) {
					t.Fatalf("got %d bytes", len(got))
				}
				go func() { _, err := near.Receive(t.Context(), fresh); waiting <- err }()
			}
			there := background(func() error { _, err := far.Receive(t.Context(), fresh); return err })
			for _, err := range []error{await(t, waiting), await(t, there)} {
				if !errors.Is(err, transport.ErrClosed) {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}

// TestRoomEndsWithSend: a Room that waits hears of the link's end from a Send that fails,
// also when so much has arrived that nothing is read ahead.
func TestRoomEndsWithSend(t *testing.T) {
	a, b := sockets(t)
	bad := &refusing{Conn: a}
	near, far := secured(t, shutting{bad}, b)
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	if err := far.Send(t.Context(), message(4*readBytes, 1)); err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{})
	received := background(func() error {
		_, err := near.Receive(t.Context(), func(ctx context.Context, _ int) ([]byte, error) {
			close(asked)
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		return err
	})
	<-asked
	bad.refuses.Store(true)
	if err := near.Send(t.Context(), []byte("x")); !errors.Is(err, transport.ErrClosed) {
		t.Fatalf("got %v", err)
	}
	if err := await(t, received); !errors.Is(err, transport.ErrClosed) {
		t.Fatalf("got %v", err)
	}
}

// refusing is a connection on which nothing can be written.
type refusing struct {
	net.Conn
	refuses atomic.Bool
}

func (r *refusing) Write(b []byte) (int, error) {
	if r.refuses.Load() {
		return 0, errors.New("no buffers")
	}
	return r.Conn.Write(b)
}

// shutting can be shut, as a socket.
type shutting struct{ *refusing }

func (s shutting) CloseRead() error  { return s.Conn.(*net.TCPConn).CloseRead() }
func (s shutting) CloseWrite() error { return s.Conn.(*net.TCPConn).CloseWrite() }

// TestContexts: the context of an earlier call never ends a later one.
func TestContexts(t *testing.T) {
	onEach(t, func(t *testing.T, near, far *Link) {
		for range 200 {
			ctx, cancel := context.WithCancel(t.Context())
			ended := background(func() error { _, err := far.Receive(ctx, fresh); return err })
			go cancel()
			if err := await(t, ended); !errors.Is(err, context.Canceled) {
				t.Fatalf("got %v", err)
			}
			sent := background(func() error {
				sending, cancel := context.WithCancel(t.Context())
				defer cancel()
				return near.Send(sending, []byte("one"))
			})
			if got := receive(t, far); string(got) != "one" {
				t.Fatalf("got %q", got)
			}
			if err := await(t, sent); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestClose(t *testing.T) {
	onEach(t, func(t *testing.T, near, far *Link) {
		waiting := background(func() error { _, err := far.Receive(t.Context(), fresh); return err })
		own := background(func() error { _, err := near.Receive(t.Context(), fresh); return err })
		if err := near.Close(); err != nil {
			t.Fatal(err)
		}
		for name, err := range map[string]error{"there": await(t, waiting), "here": await(t, own), "Send": near.Send(t.Context()), "again": near.Close()} {
			if (name == "again") != (err == nil) || err != nil && !errors.Is(err, transport.ErrClosed) {
				t.Errorf("%s: got %v", name, err)
			}
		}
		if err := far.Send(t.Context(), []byte("x")); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("send where the link was found ended: got %v", err)
		}
		if _, err := far.Receive(t.Context(), fresh); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("receive again: got %v", err)
		}
	})
}

// TestArrivedBefore: what has arrived is received though the link has ended.
func TestArrivedBefore(t *testing.T) {
	near, far := carriers[0].ends(t)
	for i := range 3 {
		if err := near.Send(t.Context(), message(1000, byte(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := far.Send(t.Context(), []byte("never received, so that the kernel resets")); err != nil {
		t.Fatal(err)
	}
	_ = near.Close()
	for err := error(nil); err == nil; { // until the reset has come
		err = far.Send(t.Context(), nil)
	}
	for i := range 3 {
		if got := receive(t, far); !bytes.Equal(got, message(1000, byte(i))) {
			t.Fatal("a message arrived otherwise than it was sent")
		}
	}
	if _, err := far.Receive(t.Context(), fresh); !errors.Is(err, transport.ErrClosed) {
		t.Fatalf("got %v", err)
	}
}

func TestRoom(t *testing.T) {
	why := errors.New("no memory")
	for name, room := range map[string]transport.Room{
		"error": func(context.Context, int) ([]byte, error) { return nil, why },
		"short": func(_ context.Context, n int) ([]byte, error) { return make([]byte, n-1), nil },
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, near, far *Link) {
				sent := background(func() error { return near.Send(t.Context(), []byte("message")) })
				_, err := far.Receive(t.Context(), room)
				if name == "error" && !errors.Is(err, why) || name == "short" && !errors.Is(err, transport.ErrInvalid) {
					t.Fatalf("got %v", err)
				}
				if err := await(t, sent); err != nil && !errors.Is(err, transport.ErrClosed) {
					t.Fatal(err)
				}
				if _, err := far.Receive(t.Context(), fresh); !errors.Is(err, transport.ErrClosed) {
					t.Fatalf("got %v", err)
				}
				if _, err := near.Receive(t.Context(), fresh); !errors.Is(err, transport.ErrClosed) {
					t.Fatalf("got %v", err)
				}
			})
		})
	}
}

// TestRoomEnds: the context of a Room that waits ends when either end closes the link, and
// a Room that gives memory all the same loses nothing of what has arrived.
func TestRoomEnds(t *testing.T) {
	for _, here := range []bool{true, false} {
		onEach(t, func(t *testing.T, near, far *Link) {
			want := [][]byte{message(1000, 1), message(1000, 2)}
			sent := background(func() error {
				return errors.Join(near.Send(t.Context(), want[0]), near.Send(t.Context(), want[1]))
			})
			asked := make(chan struct{})
			received := make(chan []byte, 1)
			failed := background(func() error {
				m, err := far.Receive(t.Context(), func(ctx context.Context, n int) ([]byte, error) {
					close(asked)
					<-ctx.Done()
					return make([]byte, n), nil
				})
				received <- m
				return err
			})
			<-asked
			if err := await(t, sent); err != nil {
				t.Fatal(err)
			}
			if here {
				_ = far.Close()
				_ = await(t, failed)
				return
			}
			_ = near.Close()
			if err := await(t, failed); err != nil || !bytes.Equal(<-received, want[0]) || !bytes.Equal(receive(t, far), want[1]) {
				t.Fatalf("got %v", err)
			}
			if _, err := far.Receive(t.Context(), fresh); !errors.Is(err, transport.ErrClosed) {
				t.Fatalf("got %v", err)
			}
		})
	}
}

// TestTwoReceivers: a second call at one time is refused, and harms nothing.
func TestTwoReceivers(t *testing.T) {
	near, far := carriers[0].ends(t)
	first := background(func() error { _, err := far.Receive(t.Context(), fresh); return err })
	for !far.receiving.Load() {
		if _, err := os.Stat("."); err != nil { // lets others run
			t.Fatal(err)
		}
	}
	if _, err := far.Receive(t.Context(), fresh); !errors.Is(err, transport.ErrInvalid) {
		t.Fatalf("got %v", err)
	}
	if err := near.Send(t.Context(), []byte("m")); err != nil {
		t.Fatal(err)
	}
	if err := await(t, first); err != nil {
		t.Fatal(err)
	}
	_, _ = near.Close(), far.Close()
}

// TestSaysWhy: who receives what is damaged tells its peer.
func TestSaysWhy(t *testing.T) {
	near, far := carriers[0].ends(t)
	if _, err := near.conn.Write(make([]byte, headerBytes)); err != nil {
		t.Fatal(err)
	}
	if _, err := far.Receive(t.Context(), fresh); !errors.Is(err, transport.ErrClosed) {
		t.Fatalf("got %v", err)
	}
	_, err := near.Receive(t.Context(), fresh)
	if !errors.Is(err, transport.ErrClosed) || !bytes.Contains([]byte(err.Error()), []byte("damaged")) {
		t.Fatalf("got %v", err)
	}
}

// TestAllocations: a message costs no memory but Room's, once a link is in use.
func TestAllocations(t *testing.T) {
	near, far := carriers[0].ends(t)
	for _, size := range []int{100, 100 << 10} {
		parts := [][]byte{make([]byte, 50), make([]byte, size-50)}
		memory := make([]byte, size)
		room := func(_ context.Context, n int) ([]byte, error) { return memory[:n], nil }
		ctx, cancel := context.WithCancel(t.Context())
		got := testing.AllocsPerRun(200, func() {
			if err := near.Send(ctx, parts...); err != nil {
				t.Fatal(err)
			}
			if _, err := far.Receive(ctx, room); err != nil {
				t.Fatal(err)
			}
		})
		cancel()
		if got > 0 {
			t.Errorf("a message of %d bytes costs %v allocations", size, got)
		}
	}
	_, _ = near.Close(), far.Close()
}

// TestFewWrites: Below TLS, a message is written at once.
func TestFewWrites(t *testing.T) {
	near, far := sockets(t)
	count := &counting{Conn: near}
	a, b := secured(t, count, far)
	before := count.writes
	done := background(func() error { return a.Send(t.Context(), message(64<<10, 1)) })
	receive(t, b)
	if err := await(t, done); err != nil {
		t.Fatal(err)
	}
	if got := count.writes - before; got != 1 {
		t.Errorf("a message of 64 KiB was written by %d calls", got)
	}
	_, _ = a.Close(), b.Close()
}

type counting struct {
	net.Conn
	writes int
}

func (c *counting) Write(b []byte) (int, error) {
	c.writes++
	return c.Conn.Write(b)
}

// scripted is a connection of which everything was sent at the beginning.
type scripted struct {
	net.Conn // nil: what is not below is not used
	in       io.Reader
	read     int
	out      bytes.Buffer
}

func (s *scripted) Read(b []byte) (int, error) {
	n, err := s.in.Read(b)
	s.read += n
	return n, err
}
func (s *scripted) Write(b []byte) (int, error)      { return s.out.Write(b) }
func (s *scripted) Close() error                     { return nil }
func (s *scripted) SetReadDeadline(time.Time) error  { return nil }
func (s *scripted) SetWriteDeadline(time.Time) error { return nil }
