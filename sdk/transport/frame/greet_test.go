package frame

import (
	"errors"
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

// TestRefuse: the reason for which a hello is refused arrives, also where it was refused
// before it was read.
func TestRefuse(t *testing.T) {
	near, far := sockets(t)
	_ = far.SetDeadline(time.Now().Add(within))
	done := background(func() error {
		Refuse(far, transport.Errorf(transport.ErrDenied, "not you"))
		return far.Close()
	})
	_, err := Greet(near, Hello{Lane: transport.Control, ToNode: transport.AnyNode})
	if !errors.Is(err, transport.ErrDenied) || !strings.Contains(err.Error(), "not you") {
		t.Errorf("got %v", err)
	}
	near.Close()
	if err := await(t, done); err != nil {
		t.Fatal(err)
	}
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

// TestVersions: who speaks other versions only is told so.
func TestVersions(t *testing.T) {
	for versions, ok := range map[[2]byte]bool{{1, 1}: true, {3, 1}: true, {3, 2}: false, {0, 0}: false} {
		b := mustHello(t)
		b[headerBytes+4], b[headerBytes+5] = versions[0], versions[1]
		_, err := parseHello(b[headerBytes:])
		if ok != (err == nil) || err != nil && !errors.Is(err, errVersion) {
			t.Errorf("versions %v: got %v", versions, err)
		}
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
