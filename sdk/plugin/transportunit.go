package plugin

import (
	"encoding/binary"
	"fmt"
	"os"

	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/transport"
)

// The layout of a transport's units is drawn at the message Frame of transport.v1; these are
// its numbers. The head is that of storage's units, with the link in the place of the handle.
const (
	kindDial    = 1
	kindAccept  = 2
	kindCancel  = 3
	kindSend    = 4
	kindCredit  = 5
	kindRoom    = 6
	kindClose   = 7
	kindMessage = 8 // from the plugin only, as an answer is
	kindTook    = 9 // as kindMessage

	flagLast = 2 // of a part: it is the message's last

	// smallBytesMax is how large a message may be that goes by the window of its link's
	// direction, which is windowBytes; each costs its bytes and smallCostBytes.
	smallBytesMax  = 8 << 10
	smallCostBytes = 64
	windowBytes    = smallBytesMax + smallCostBytes
	// partBytesMax is how large a part of a message may be.
	partBytesMax = 128 << 10

	dialBodyBytes  = 6
	peerBytes      = 22 // of the answers to dial and accept, after the class
	sizeBytes      = 4  // of a message, and of credit
	endpointMax    = 64 << 10
	clusterMax     = 255
	flagsAt        = 6
	lengthAndFlags = 8
)

// smallCost is what a small message takes of its window.
func smallCost(n int) int { return n + smallCostBytes }

// tunit is a unit of a transport's lane.
type tunit struct {
	kind byte
	last bool
	seq  uint64
	link uint64
	body []byte // what follows the head
	data []byte // what follows body; not copied
	// file goes with the unit, or has come with it.
	file *os.File

	// written is told when the unit was written, or never will be; it has room for that. It
	// may be nil.
	written chan struct{}
	// free takes data back once the link needs it no more. It may be nil.
	free func()
}

// request returns a unit from the client.
func transportRequest(kind byte, seq, link uint64) *tunit {
	return &tunit{kind: kind, seq: seq, link: link}
}

// answerTo returns the answer to a unit.
func answerTo(u *tunit, err error) *tunit {
	a := &tunit{kind: u.kind | kindAnswer, seq: u.seq, link: u.link, body: []byte{0}}
	if err != nil {
		class, message := splitTransportError(err)
		a.body = append([]byte{byte(class)}, message...)
	}
	return a
}

// result is the error of an answer, and what follows where there is none.
func (u *tunit) result() ([]byte, error) {
	if len(u.body) == 0 {
		return nil, fmt.Errorf("%w: an answer without a class", errUnit)
	}
	if u.body[0] != 0 {
		return nil, joinTransportError(int32(u.body[0]), string(u.body[1:]))
	}
	return u.body[1:], nil
}

// done ends the unit: it was written, or never will be.
func (u *tunit) done() {
	closeFile(u.file)
	u.file = nil
	if u.free != nil {
		u.free()
		u.free = nil
	}
	if u.written != nil {
		nudge(u.written)
	}
}

// tunits are units that are sent together.
type tunits []*tunit

func (t *tunits) count() int          { return len(*t) }
func (t *tunits) bytesMax(i int) int  { return headBytes + len((*t)[i].body) }
func (t *tunits) file(i int) *os.File { return (*t)[i].file }
func (t *tunits) size(i int) int      { return headBytes + len((*t)[i].body) + len((*t)[i].data) }

// encode implements outgoing.
func (t *tunits) encode(i int, dst []byte) (out []byte, data [][]byte) {
	u := (*t)[i]
	start := len(dst)
	dst = appendHead(dst, head{kind: u.kind, seq: u.seq, handle: storage.Handle(u.link)})
	if u.file != nil {
		dst[start+lengthAndFlags-1] |= flagFile
	}
	if u.last {
		dst[start+lengthAndFlags-1] |= flagLast
	}
	dst = append(dst, u.body...)
	if len(u.data) > 0 {
		data = [][]byte{u.data}
	}
	return finishUnit(dst, start, len(u.data)), data
}

// parseUnit reads a unit, whose body stays where it is.
func parseUnit(in incoming) (tunit, error) {
	if len(in.unit) < headBytes || in.unit[4] != unitVersion {
		return tunit{}, fmt.Errorf("%w: version", errUnit)
	}
	h := parseHead(in.unit)
	flags := binary.BigEndian.Uint16(in.unit[flagsAt:])
	if flags&^(flagFile|flagLast) != 0 {
		return tunit{}, fmt.Errorf("%w: flags %d", errUnit, flags)
	}
	u := tunit{
		kind: h.kind, seq: h.seq, link: uint64(h.handle), last: flags&flagLast != 0,
		body: in.unit[headBytes:], file: in.file,
	}
	return u, nil
}

// lost says whether a descriptor was to come with a unit, and did not.
func lost(in incoming) bool { return in.file == nil && in.unit[flagsAt+1]&flagFile != 0 }

// dialBody encodes whom to dial.
func dialBody(to transport.Target) []byte {
	b := make([]byte, 0, dialBodyBytes+len(to.ClusterID)+len(to.Endpoint))
	b = append(b, byte(to.Lane))
	b = binary.BigEndian.AppendUint32(b, uint32(to.NodeID))
	b = append(b, byte(len(to.ClusterID)))
	b = append(b, to.ClusterID...)
	return append(b, to.Endpoint...)
}

// parseDial reads what dialBody writes.
func parseDial(b []byte) (transport.Target, error) {
	if len(b) < dialBodyBytes || len(b) < dialBodyBytes+int(b[5]) {
		return transport.Target{}, fmt.Errorf("%w: dial of %d bytes", errUnit, len(b))
	}
	rest := dialBodyBytes + int(b[5])
	return transport.Target{
		Lane:      transport.Lane(b[0]),
		NodeID:    int32(binary.BigEndian.Uint32(b[1:])),
		ClusterID: string(b[dialBodyBytes:rest]),
		Endpoint:  string(b[rest:]),
	}, nil
}

// appendPeer encodes who is at the other end of a link.
func appendPeer(dst []byte, lane transport.Lane, p transport.Peer) []byte {
	dst = append(dst, byte(lane), byte(p.Proof))
	dst = binary.BigEndian.AppendUint32(dst, uint32(p.NodeID))
	dst = append(dst, p.DirectoryID[:]...)
	return append(dst, p.ClusterID...)
}

// parsePeer reads what appendPeer writes.
func parsePeer(b []byte) (transport.Lane, transport.Peer, error) {
	var p transport.Peer
	if len(b) < peerBytes {
		return 0, p, fmt.Errorf("%w: peer of %d bytes", errUnit, len(b))
	}
	p.Proof = transport.Proof(b[1])
	p.NodeID = int32(binary.BigEndian.Uint32(b[2:]))
	copy(p.DirectoryID[:], b[6:peerBytes])
	p.ClusterID = string(b[peerBytes:])
	return transport.Lane(b[0]), p, nil
}
