package plugin

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
)

// encodeUnits is units as they are sent.
func encodeUnits(units ...*tunit) []byte {
	var out []byte
	batch := tunits(units)
	for i := range batch {
		var data [][]byte
		out, data = batch.encode(i, out)
		for _, part := range data {
			out = append(out, part...)
		}
	}
	return out
}

func TestTransportUnits(t *testing.T) {
	to := transport.Target{Lane: transport.Data, NodeID: -1, ClusterID: "cluster", Endpoint: "host:1"}
	if got, err := parseDial(dialBody(to)); err != nil || got != to {
		t.Errorf("dial: %+v, %v", got, err)
	}
	peer := transport.Peer{Proof: transport.ProofNode, Identity: transport.Identity{ClusterID: "c", NodeID: 7, DirectoryID: transport.DirectoryID{1, 2}}}
	lane, got, err := parsePeer(appendPeer(nil, transport.Control, peer))
	if err != nil || lane != transport.Control || got != peer {
		t.Errorf("peer: %v, %+v, %v", lane, got, err)
	}
	want := &tunit{kind: kindSend, seq: 3, link: 4, last: true, body: []byte("he"), data: []byte("ad")}
	u, err := parseUnit(incoming{unit: encodeUnits(want)})
	if err != nil || u.kind != want.kind || u.seq != 3 || u.link != 4 || !u.last || string(u.body) != "head" {
		t.Errorf("unit: %+v, %v", u, err)
	}
	for _, class := range transportClasses() {
		_, err := answerTo(want, transport.Errorf(class.sentinel, "why")).result()
		if !errors.Is(err, class.sentinel) || err.Error() != class.sentinel.Error()+": why" {
			t.Errorf("class %v: got %v", class.sentinel, err)
		}
	}
	if err := joinTransportError(99, "of a later version"); !errors.Is(err, transport.ErrRetry) {
		t.Errorf("an unknown class: got %v", err)
	}
}

// script is a link that brings what is in it, and takes what is sent.
type script struct{ units []byte }

func (s script) send(outgoing) error { return nil }
func (s script) filesPass() bool     { return false }

func (s script) receive(fn func(incoming) error) error {
	err := splitUnits(s.units, func(unit []byte) error {
		return fn(incoming{unit: unit, mem: &chunk{}, size: len(unit)})
	})
	if err == nil {
		err = io.EOF
	}
	return err
}

// linked is a client's lane with one link, of number 1, and no peer.
func linked() (*transportLane, *messageLink) {
	l := newTransportLane(script{}, false)
	link, err := l.add(1, appendPeer(nil, transport.Data, transport.Peer{}))
	if err != nil {
		panic(err)
	}
	return l, link
}

// telling is a unit of a plugin that tells of a message.
func telling(size int, data ...byte) *tunit {
	return &tunit{kind: kindMessage | kindAnswer, link: 1, body: append(binary.BigEndian.AppendUint32([]byte{0}, uint32(size)), data...)}
}

// TestNonsenseEndsATransportsLane: what a plugin sends and cannot mean ends the lane, and
// with it every link, and takes no memory of the size that it claims.
func TestNonsenseEndsATransportsLane(t *testing.T) {
	small := make([]byte, smallBytesMax)
	for name, units := range map[string][]*tunit{
		"a message that is too large":       {telling(transport.MessageBytesMax + 1)},
		"a message of another size":         {telling(5, 1, 2)},
		"a large message with bytes":        {telling(smallBytesMax+1, 1)},
		"more small messages than fit":      {telling(len(small), small...), telling(0)},
		"a message before a large one came": {telling(1 << 20), telling(0)},
		"a part that was not asked for":     {telling(1 << 20), {kind: kindRoom | kindAnswer, link: 1, body: []byte{0, 1}}},
		"a part of no message":              {{kind: kindRoom | kindAnswer, link: 1, body: []byte{0, 1}, last: true}},
		"more taken than was sent":          {{kind: kindTook | kindAnswer, link: 1, body: []byte{0, 0, 0, 0, 1}}},
		"taken of no size":                  {{kind: kindTook | kindAnswer, link: 1, body: []byte{0}}},
		"an answer without a class":         {{kind: kindSend | kindAnswer, link: 1, seq: 9}},
		"an answer to nothing":              {{kind: kindSend | kindAnswer, link: 1, seq: 9, body: []byte{0}}},
		"an answer to no call":              {{kind: kindDial | kindAnswer, link: 2, seq: 9, body: appendPeer([]byte{0}, 1, transport.Peer{})}},
		"a link that comes twice":           {{kind: kindDial | kindAnswer, link: 1, seq: 9, body: appendPeer([]byte{0}, 1, transport.Peer{})}},
		"a peer of a few bytes":             {{kind: kindAccept | kindAnswer, link: 2, seq: 9, body: []byte{0, 1, 2}}},
		"a kind that there is not":          {{kind: 77, link: 1}},
	} {
		l, link := linked()
		l.run(t.Context(), script{encodeUnits(units...)})
		if !l.isGone() || !errors.Is(l.dead, errUnit) {
			t.Errorf("%s: the lane goes on, or says %v", name, l.dead)
		}
		asked := 0
		for range 2 {
			_, err := link.Receive(t.Context(), func(_ context.Context, n int) ([]byte, error) {
				asked += n
				return make([]byte, n), nil
			})
			if err != nil && !errors.Is(err, transport.ErrClosed) {
				t.Errorf("%s: receive gives %v", name, err)
			}
		}
		if asked > smallBytesMax {
			t.Errorf("%s: room was asked for %d bytes", name, asked)
		}
		if err := link.Send(t.Context(), []byte("x")); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("%s: send gives %v", name, err)
		}
	}
}

// TestWhatCameIsReceived: small messages that have come are received after the death of the
// plugin, a large one that has not come whole is not.
func TestWhatCameIsReceived(t *testing.T) {
	l, link := linked()
	l.run(t.Context(), script{encodeUnits(telling(2, 'a', 'b'), telling(0), telling(1, 'c'), telling(1<<20))})
	room := func(_ context.Context, n int) ([]byte, error) { return make([]byte, n), nil }
	for _, want := range []string{"ab", "", "c"} {
		if got, err := link.Receive(t.Context(), room); err != nil || string(got) != want {
			t.Errorf("received %q, %v; want %q", got, err, want)
		}
	}
	if _, err := link.Receive(t.Context(), room); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("then it is %v", err)
	}
}

// served is a server's lane of a memory network.
func served(t testing.TB) *transportServerLane {
	network := memnet.NewNetwork(memnet.NetworkOptions{Seed: 1})
	node, err := network.Open(t.Context(), transport.Config{Settings: memnet.Settings("", ""), Identity: transport.Identity{NodeID: 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	l := newTransportServerLane(openTransport{transport: node}, script{})
	link, err := node.Dial(t.Context(), transport.Target{Endpoint: node.Endpoint(), Lane: transport.Data, NodeID: 1})
	if err != nil {
		t.Fatal(err)
	}
	if !l.add(newServedLink(l, link)) {
		t.Fatal("the lane takes no link")
	}
	return l
}

// TestNonsenseFromTheBroker: the plugin's side refuses what a broker cannot mean.
func TestNonsenseFromTheBroker(t *testing.T) {
	small := make([]byte, smallBytesMax)
	for name, units := range map[string][]*tunit{
		"a link that there is not":     {{kind: kindSend, seq: 1, link: 9, last: true}},
		"a kind that there is not":     {{kind: 99, seq: 1, link: 1}},
		"a dial of nothing":            {{kind: kindDial, seq: 1}},
		"a call that comes twice":      {{kind: kindAccept, seq: 1}, {kind: kindAccept, seq: 1}},
		"a part that is too large":     {{kind: kindSend, seq: 1, link: 1, data: make([]byte, partBytesMax+1)}},
		"parts of two messages":        {{kind: kindSend, seq: 1, link: 1, data: small}, {kind: kindSend, seq: 2, link: 1, data: small}},
		"credit that was not taken":    {{kind: kindCredit, seq: 1, link: 1, body: []byte{0, 0, 0, 1}}},
		"credit of a great many bytes": {{kind: kindCredit, seq: 1, link: 1, body: []byte{255, 255, 255, 255}}},
		"credit without a number":      {{kind: kindCredit, seq: 1, link: 1}},
	} {
		l := served(t)
		l.to = script{encodeUnits(units...)}
		if err := l.run(t.Context()); !errors.Is(err, errUnit) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	l := served(t)
	l.to = script{encodeUnits(
		&tunit{kind: kindRoom, seq: 1, link: 1}, &tunit{kind: kindCancel, seq: 5, link: 1}, &tunit{kind: kindCancel, seq: 5},
		&tunit{kind: kindClose, seq: 2, link: 1}, &tunit{kind: kindSend, seq: 3, link: 1, last: true}, &tunit{kind: kindClose, seq: 4, link: 1},
	)}
	if err := l.run(t.Context()); err != nil {
		t.Errorf("what comes late is no error: got %v", err)
	}
}

// FuzzTransportUnits gives both sides anything.
func FuzzTransportUnits(f *testing.F) {
	f.Add(encodeUnits(telling(2, 1, 2), telling(1<<20), &tunit{kind: kindRoom | kindAnswer, link: 1, body: []byte{0}}))
	f.Add(encodeUnits(&tunit{kind: kindSend, seq: 1, link: 1, data: []byte("x"), last: true}, &tunit{kind: kindClose, seq: 2, link: 1}))
	f.Add(encodeUnits(&tunit{kind: kindDial, seq: 1, body: dialBody(transport.Target{Lane: 1, Endpoint: "x"})}, &tunit{kind: kindCancel, seq: 1}))
	f.Add(bytes.Repeat([]byte{0, 0, 0, 24, 1}, 20))
	f.Fuzz(func(t *testing.T, units []byte) {
		l, link := linked()
		l.run(t.Context(), script{units})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for {
			if _, err := link.Receive(ctx, func(_ context.Context, n int) ([]byte, error) { return make([]byte, n), nil }); err != nil {
				if !errors.Is(err, transport.ErrClosed) {
					t.Errorf("receive gives %v", err)
				}
				break
			}
		}
		s := served(t)
		s.to = script{units}
		_ = s.run(t.Context())
	})
}
