package peer

import (
	"bytes"
	"testing"

	"github.com/brokerd/brokerd/sdk/transport"
)

// FuzzMessage lets a peer send anything, over a link of each use, to a machine that has asked
// it something.
func FuzzMessage(f *testing.F) {
	for k := range kind(9) {
		f.Add(uint8(0), header(k, 1))
		f.Add(uint8(1), append(header(k, 2), "something"...))
		f.Add(uint8(2), header(k, 0)[:5])
	}
	f.Add(uint8(3), []byte{2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, where uint8, data []byte) {
		if k, number, body, err := parse(data); err == nil && number>>32 == 0 {
			again := append(header(k, number), body...)
			if again[2], again[3] = data[2], data[3]; !bytes.Equal(again, data) {
				t.Fatalf("%x is read as %x", data, again)
			}
		}
		s := newStory(t, nil)
		var link LinkID = 2
		switch where % 4 {
		case 0:
			s.accept(link, transport.Control)
		case 1:
			s.accept(link, transport.Data)
		case 2:
			s.accept(link, transport.Data)
			s.receive(link, header(kindStream, 0))
		case 3:
			s.ask("?")
			link = s.dialTo(1)
		}
		s.receive(link, data)
		s.receive(link, data)
		held := 0
		for _, l := range s.m.links {
			held += l.box.bytes
		}
		if held > 8*headerBytes {
			t.Fatalf("%d bytes wait after %d bytes of a peer", held, len(data))
		}
	})
}
