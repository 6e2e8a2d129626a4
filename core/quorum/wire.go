package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// A message or question to another node:
//
//	version    byte      wireVersion
//	kind       byte
//	cluster    text      of the sender; "" if it belongs to none yet
//	directory  16 bytes  of the sender; zero if it has none yet
//	node       uvarint   the sender's node ID
//	endpoint   text      where the sender can be asked
//	body
//
// A text is its length as a uvarint, and its bytes. The body of a message is a
// raftpb.Message; of a question, see questions.go. An answer is the version, a
// status, and what belongs to that.
const wireVersion byte = 1

type wireKind byte

const (
	kindRaft    wireKind = 1 // a message of Raft
	kindWho     wireKind = 2 // question: which cluster are you of?
	kindMember  wireKind = 3 // question: a change of one member
	kindCommand wireKind = 4 // question: a command for the active controller
	kindStatus  wireKind = 5 // question: how is the quorum?
)

// textBytesMax bounds a cluster ID or endpoint of a peer.
const textBytesMax = 1 << 10

// ErrMalformed: what a peer sent makes no sense here.
var ErrMalformed = errors.New("malformed message of the quorum")

// sender is who a message is from, as it says itself.
type sender struct {
	Identity
	endpoint string
}

func (n *Node) self() sender { return sender{n.identity, n.cfg.Endpoint} }

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func header(kind wireKind, from sender) []byte {
	b := []byte{wireVersion, byte(kind)}
	b = appendText(b, string(from.ClusterID))
	b = append(b, from.DirectoryID[:]...)
	b = binary.AppendUvarint(b, uint64(from.NodeID))
	return appendText(b, from.endpoint)
}

// reader reads what a peer wrote. After an error it reads zeros.
type reader struct {
	in  []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.in) {
		r.bad, r.in = true, nil
		return nil
	}
	b := r.in[:n]
	r.in = r.in[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.in)
	if r.bad || n <= 0 {
		r.bad, r.in = true, nil
		return 0
	}
	r.in = r.in[n:]
	return v
}

func (r *reader) text() string {
	n := r.uvarint()
	if n > textBytesMax {
		r.bad = true
		return ""
	}
	return string(r.take(int(n)))
}

func (r *reader) directory() (dir model.DirectoryID) {
	copy(dir[:], r.take(len(dir)))
	return dir
}

func (r *reader) node() model.NodeID {
	n := r.uvarint()
	if n > 1<<31-1 {
		r.bad = true
		return 0
	}
	return model.NodeID(n)
}

func (r *reader) member() image.Member {
	return image.Member{Directory: r.directory(), Node: r.node(), Endpoint: r.text(), MayVote: r.byte() == 1}
}

func appendMember(b []byte, m image.Member) []byte {
	b = append(b, m.Directory[:]...)
	b = binary.AppendUvarint(b, uint64(m.Node))
	b = appendText(b, m.Endpoint)
	return append(b, bit(m.MayVote))
}

func bit(set bool) byte {
	if set {
		return 1
	}
	return 0
}

// decodeHeader reads who sent a message, and leaves its body.
func decodeHeader(b []byte) (wireKind, sender, []byte, error) {
	r := reader{in: b}
	version, kind := r.byte(), wireKind(r.byte())
	var from sender
	from.ClusterID = model.ClusterID(r.text())
	from.DirectoryID, from.NodeID, from.endpoint = r.directory(), r.node(), r.text()
	switch {
	case r.bad:
		return 0, sender{}, nil, fmt.Errorf("%d bytes end in their header: %w", len(b), ErrMalformed)
	case version != wireVersion:
		return 0, sender{}, nil, fmt.Errorf("version %d, this release knows version %d: %w", version, wireVersion, ErrMalformed)
	}
	return kind, from, r.in, nil
}
