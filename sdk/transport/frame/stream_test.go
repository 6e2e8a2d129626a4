package frame

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/brokerd/brokerd/sdk/transport"
)

// roomMax is the most that the tests' room gives.
const roomMax = 1 << 20

var errRoom = errors.New("too much")

func bounded(_ context.Context, n int) ([]byte, error) {
	if n > roomMax {
		return nil, errRoom
	}
	return make([]byte, n), nil
}

// stream is what a link writes for messages.
func stream(t testing.TB, sum bool, messages ...[]byte) []byte {
	t.Helper()
	conn := &scripted{in: strings.NewReader("")}
	l := New(conn, Options{Sum: sum})
	for _, m := range messages {
		if err := l.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	return conn.out.Bytes()
}

// receiveAll receives what is in a stream, which arrives in whatever pieces in has.
func receiveAll(t testing.TB, in io.Reader) (messages [][]byte, end error) {
	t.Helper()
	l := New(&scripted{in: in}, Options{})
	for {
		m, err := l.Receive(t.Context(), bounded)
		if err != nil {
			return messages, err
		}
		messages = append(messages, m)
	}
}

// TestLayout: the bytes of frames stay as they are, since other versions read them.
func TestLayout(t *testing.T) {
	hello, err := Hello{
		Identity: transport.Identity{ClusterID: "abc", NodeID: 7, DirectoryID: transport.DirectoryID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}},
		Lane:     transport.Data, ToNode: transport.AnyNode, ToCluster: "de",
	}.encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string
		got        []byte
	}{
		{"message", "0000000302000000" + "00000000" + "a0b7433a" + "616263", stream(t, false, []byte("abc"))},
		{"summed message", "0000000302010000" + "364b3fb7" + "e642a805" + "616263", stream(t, true, []byte("abc"))},
		{"end", "0000000303010000" + "c1d87bc3" + "670df0f6" + "036e6f", encodeEnd(transport.Errorf(transport.ErrOther, "no"))},
		{"hello", "0000002701010000" + "8d8d9813" + "f75ebf3d" +
			"62726b64" + "01010200" + "00000007" + "0102030405060708090a0b0c0d0e0f10" + "ffffffff" + "0302" + "6162636465", hello},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s is\n%s, and was\n%s", c.name, got, c.want)
		}
	}
}

// TestEveryBit: whichever bit of a stream is changed on the way, what arrives is a
// beginning of what was sent, and then the link ends.
func TestEveryBit(t *testing.T) {
	sent := [][]byte{[]byte("the first"), {}, message(60, 3), []byte("last")}
	whole := stream(t, true, sent...)
	for bit := range len(whole) * 8 {
		damaged := bytes.Clone(whole)
		damaged[bit/8] ^= 1 << (bit % 8)
		got, err := receiveAll(t, bytes.NewReader(damaged))
		if len(got) >= len(sent) {
			t.Fatalf("bit %d was changed, and all arrived", bit)
		}
		for i, m := range got {
			if !bytes.Equal(m, sent[i]) {
				t.Fatalf("bit %d was changed, and message %d arrived as %q", bit, i, m)
			}
		}
		if !errors.Is(err, transport.ErrClosed) {
			t.Fatalf("bit %d: got %v", bit, err)
		}
	}
}

// TestEveryCut: wherever a stream ends, what arrives is a beginning of what was sent.
func TestEveryCut(t *testing.T) {
	sent := [][]byte{[]byte("the first"), {}, message(60, 3)}
	whole := stream(t, true, sent...)
	ends := []int{headerBytes + 9, 2*headerBytes + 9, 3*headerBytes + 69}
	for n := range len(whole) + 1 {
		want := 0
		for _, end := range ends {
			if end <= n {
				want++
			}
		}
		got, err := receiveAll(t, iotest.OneByteReader(bytes.NewReader(whole[:n])))
		if len(got) != want || !errors.Is(err, transport.ErrClosed) {
			t.Fatalf("of %d bytes %d messages arrived, and then %v; want %d", n, len(got), err, want)
		}
	}
}

// TestHeld: of a peer that sends and sends, little is read before it has said hello, and
// before there is room nothing but the buffer.
func TestHeld(t *testing.T) {
	endless := &scripted{in: io.MultiReader(bytes.NewReader(mustHello(t)[:headerBytes]), forever{})}
	if _, err := Hear(endless); !errors.Is(err, transport.ErrOther) || endless.read > headerBytes+HelloBytesMax {
		t.Errorf("%d bytes were read of a hello, and then %v", endless.read, err)
	}
	below := NewBelow(&scripted{in: forever{}}, 1000)
	if n, err := io.Copy(io.Discard, below); n != 1000 || !errors.Is(err, errTooMuch) {
		t.Errorf("%d bytes were read below TLS, and then %v", n, err)
	}
	b := make([]byte, headerBytes)
	header{kind: kindMessage, length: transport.MessageBytesMax}.put(b)
	conn := &scripted{in: io.MultiReader(bytes.NewReader(b), forever{})}
	if _, err := New(conn, Options{}).Receive(t.Context(), bounded); !errors.Is(err, errRoom) || conn.read > readBytes {
		t.Errorf("%d bytes were read of a message without room, and then %v", conn.read, err)
	}
}

type forever struct{}

func (forever) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

func mustHello(t testing.TB) []byte {
	t.Helper()
	b, err := Hello{Identity: transport.Identity{NodeID: 1, ClusterID: "c"}, Lane: transport.Control, ToNode: 2}.encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// laterHello is a hello of somebody who speaks these versions, and says more.
func laterHello(t testing.TB, most, least byte, more int) []byte {
	t.Helper()
	b := append(mustHello(t), make([]byte, more)...)
	b[headerBytes+4], b[headerBytes+5] = most, least
	if most > Version {
		b[headerBytes+7] = 1
	}
	seal(b, kindHello)
	return b
}

// FuzzReceive: whatever arrives, in whatever pieces, a link ends or gives messages that
// were in it, and asks for no room beyond the bound.
func FuzzReceive(f *testing.F) {
	f.Add(stream(f, true, []byte("abc"), nil, message(300, 1)), false)
	f.Add(stream(f, false, message(20<<10, 1)), true)
	f.Add(append(stream(f, true, []byte("abc")), encodeEnd(errors.New("why"))...), true)
	f.Add(mustHello(f), false)
	f.Add(make([]byte, headerBytes), true)
	f.Fuzz(func(t *testing.T, b []byte, pieces bool) {
		mend(b)
		var in io.Reader = bytes.NewReader(b)
		if pieces {
			in = iotest.HalfReader(in)
		}
		got, err := receiveAll(t, in)
		if !errors.Is(err, transport.ErrClosed) && !errors.Is(err, errRoom) {
			t.Fatalf("got %v", err)
		}
		at := 0
		for _, m := range got {
			at += headerBytes
			if !bytes.Equal(m, b[at:at+len(m)]) {
				t.Fatal("a message arrived that was not in the stream")
			}
			at += len(m)
		}
	})
}

// FuzzHello: whatever a peer says first is a hello that can be said again as it was, but for
// what a later version adds, or an error with a class or the connection's.
func FuzzHello(f *testing.F) {
	f.Add(mustHello(f))
	f.Add(laterHello(f, 2, 1, 0))
	f.Add(laterHello(f, 3, 2, 100))
	f.Add(encodeEnd(transport.Errorf(transport.ErrDenied, "no\nway")))
	f.Add([]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		mend(b)
		h, err := Hear(&scripted{in: bytes.NewReader(b)})
		if err != nil {
			var own *transport.Error
			if errors.As(err, &own) && strings.ContainsAny(own.Message, "\n\r\x1b") {
				t.Fatalf("the error has more than one line: %q", own.Message)
			}
			return
		}
		again, err := h.encode()
		if err != nil {
			t.Fatalf("a hello that was heard cannot be said: %v", err)
		}
		copy(again[headerBytes+4:headerBytes+6], b[headerBytes+4:]) // its versions
		if b[headerBytes+4] > Version {
			again[headerBytes+7] = b[headerBytes+7]
			again = append(again, b[len(again):headerBytes+int(binary.BigEndian.Uint32(b))]...)
		}
		seal(again, kindHello)
		if !bytes.Equal(again, b[:len(again)]) {
			t.Fatalf("heard %x, and would say %x", b[:len(again)], again)
		}
	})
}

// mend puts the checksums of a stream's frames right, which a fuzzer does not find.
func mend(b []byte) {
	for len(b) >= headerBytes {
		n := int(binary.BigEndian.Uint32(b))
		body := b[headerBytes:min(len(b), headerBytes+max(n, 0))]
		if b[5] == flagSum {
			binary.BigEndian.PutUint32(b[8:], crc32.Checksum(body, castagnoli))
		}
		binary.BigEndian.PutUint32(b[12:], crc32.Checksum(b[:12], castagnoli))
		b = b[headerBytes+len(body):]
	}
}
