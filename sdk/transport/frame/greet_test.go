package frame

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

func TestGreet(t *testing.T) {
	near, far := sockets(t)
	said := Hello{
		Identity: transport.Identity{ClusterID: "c", NodeID: 1, DirectoryID: transport.DirectoryID{1}},
		Lane:     transport.Data, ToNode: 2, ToCluster: "c",
	}
	own := transport.Identity{ClusterID: "c", NodeID: 2, DirectoryID: transport.DirectoryID{2}}
	heard := make(chan Hello, 1)
	answered := background(func() error {
		h, err := Hear(far)
		if err != nil {
			return err
		}
		heard <- h
		return Agree(far, own, h)
	})
	answer, err := Greet(near, said)
	if err == nil {
		err = Confirm(near)
	}
	if err := errors.Join(err, await(t, answered)); err != nil {
		t.Fatal(err)
	}
	if h := <-heard; h != said {
		t.Errorf("heard %+v, and was said %+v", h, said)
	}
	if answer.Identity != own {
		t.Errorf("heard %+v, and was said %+v", answer.Identity, own)
	}
}

// TestDecline: who answers is told why it was not whom was dialled, and has no link.
func TestDecline(t *testing.T) {
	near, far := sockets(t)
	answered := background(func() error {
		h, err := Hear(far)
		if err != nil {
			return err
		}
		return Agree(far, transport.Identity{NodeID: 3}, h)
	})
	_, err := Greet(near, Hello{Lane: transport.Data, ToNode: 2})
	for _, err := range []error{err, await(t, answered)} {
		if !errors.Is(err, transport.ErrOther) || !strings.Contains(err.Error(), "this is node 3") {
			t.Errorf("got %v", err)
		}
	}
}

// TestRefuse: the reason for which a hello is refused arrives, and who refuses reads
// what comes until the other end has hung up: otherwise its system might reset the
// connection, and the reason be lost.
func TestRefuse(t *testing.T) {
	near, far := sockets(t)
	_ = far.SetDeadline(time.Now().Add(within))
	lingers := &lingering{TCPConn: far.(*net.TCPConn)}
	done := background(func() error {
		Refuse(lingers, transport.Errorf(transport.ErrDenied, "not you"))
		return far.Close()
	})
	hello := Hello{Lane: transport.Control, ToNode: transport.AnyNode}
	_, err := Greet(near, hello)
	if !errors.Is(err, transport.ErrDenied) || !strings.Contains(err.Error(), "not you") {
		t.Errorf("got %v", err)
	}
	near.Close()
	if err := await(t, done); err != nil {
		t.Fatal(err)
	}
	if said, _ := hello.encode(); lingers.read != len(said) {
		t.Errorf("of what came after the refusal %d bytes were read", lingers.read)
	}
}

// lingering counts what is read.
type lingering struct {
	*net.TCPConn
	read int
}

func (l *lingering) Read(b []byte) (int, error) {
	n, err := l.TCPConn.Read(b)
	l.read += n
	return n, err
}

// WriteTo keeps io.Copy to Read.
func (l *lingering) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{l})
}

func TestMeets(t *testing.T) {
	node := transport.Identity{ClusterID: "c", NodeID: 2}
	newcomer := transport.Identity{NodeID: 2}
	for _, c := range []struct {
		name string
		id   transport.Identity
		to   transport.Target
		want error
	}{
		{"itself", node, transport.Target{NodeID: 2, ClusterID: "c"}, nil},
		{"anybody", node, transport.Target{NodeID: transport.AnyNode}, nil},
		{"another node", node, transport.Target{NodeID: 3, ClusterID: "c"}, transport.ErrOther},
		{"another cluster", node, transport.Target{NodeID: 2, ClusterID: "d"}, transport.ErrOther},
		{"no cluster yet", newcomer, transport.Target{NodeID: 2, ClusterID: "d"}, transport.ErrOther},
		{"any cluster, or none", newcomer, transport.Target{NodeID: 2}, nil},
	} {
		if err := Meets(c.id, c.to); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
}

// TestVersions: what a later version adds is not looked at, and who speaks other versions
// only is told so, with an error that may pass.
func TestVersions(t *testing.T) {
	fits := HelloBytesMax + headerBytes - len(mustHello(t))
	for _, c := range []struct {
		name        string
		most, least byte
		more        int
		want        error
	}{
		{"no more", 2, 1, 0, nil},
		{"more", 2, 1, 20, nil},
		{"all that is read", 255, 0, fits, nil},
		{"later only", 3, 2, 20, transport.ErrRetry},
		{"later only, and long", 3, 2, fits, transport.ErrRetry},
		{"earlier only", 0, 0, 0, transport.ErrRetry},
		{"more than this version has", 1, 1, 20, transport.ErrOther},
		{"too long", 2, 1, fits + 1, transport.ErrOther},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := &scripted{in: bytes.NewReader(laterHello(t, c.most, c.least, c.more))}
			h, err := Hear(conn)
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if err == nil && (h.NodeID != 1 || h.ClusterID != "c" || h.ToNode != 2 || h.ToCluster != "") {
				t.Errorf("heard %+v", h)
			}
			if !errors.Is(c.want, transport.ErrRetry) {
				return
			}
			if _, err := Hear(&scripted{in: &conn.out}); !errors.Is(err, transport.ErrRetry) || !strings.Contains(err.Error(), "versions") {
				t.Errorf("the other end is told %v", err)
			}
		})
	}
}

// TestEndAnything: a reason may be made of whatever bytes.
func TestEndAnything(t *testing.T) {
	b := encodeEnd(transport.Errorf(transport.ErrDenied, "%s", strings.Repeat("\x80", 600)+"no"))
	if got := parseEnd(b[headerBytes:]); len(b) > headerBytes+endBytesMax || !errors.Is(got, transport.ErrDenied) || !strings.HasSuffix(got.Message, "\uFFFDno") {
		t.Errorf("got %v", got)
	}
	long := strings.Repeat("\x80x", 600)
	b = encodeEnd(transport.Errorf(transport.ErrDenied, "%s", long))
	if got := parseEnd(b[headerBytes:]); len(b) > headerBytes+endBytesMax || !errors.Is(got, transport.ErrDenied) || !strings.HasSuffix(got.Message, "x\uFFFDx\uFFFDx\uFFFDx") {
		t.Errorf("got %v", got)
	}
}

// TestEndSentence: a long reason is cut between characters.
func TestEndSentence(t *testing.T) {
	for n := endBytesMax - 8; n < endBytesMax+8; n++ {
		b := encodeEnd(transport.Errorf(transport.ErrRetry, "%s", strings.Repeat("x", n)+strings.Repeat("é", 10)))
		head, err := parseHeader(b)
		if err != nil || head.length != len(b)-headerBytes || head.length > endBytesMax {
			t.Fatalf("%d: the end has %d bytes, %v", n, len(b), err)
		}
		if got := parseEnd(b[headerBytes:]); strings.ContainsRune(got.Message, '\uFFFD') || !errors.Is(got, transport.ErrRetry) {
			t.Fatalf("%d: got %v", n, got)
		}
	}
}
