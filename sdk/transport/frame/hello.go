package frame

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/brokerd/brokerd/sdk/transport"
)

// The body of a hello:
//
//	 0       4    5    6    7    8       12         28        32     33      34
//	+-------+----+----+----+----+-------+----------+---------+------+-------+---- ...
//	| magic |most|least|lane| nil| node  | directory| to node | len  | len   | cluster, to cluster
//	+-------+----+----+----+----+-------+----------+---------+------+-------+---- ...
//
// magic, most and least stay as they are in all versions, and so does the header before them.
// A version that has more to say says it behind cluster and to cluster, or in nil, and one
// that does not know of it takes no notice: a hello whose most is later than Version may be
// longer than it is here, up to HelloBytesMax. Who speaks other versions only is told so, with
// an error that may pass when either end has been upgraded.
//
// most        the latest version of frames that the sender speaks
// least       the oldest
// lane        what the link is for; an answer repeats it
// node        who the sender says it is, with directory and cluster
// to node     whom the sender expects, -1: anybody; with to cluster, empty: any
const (
	helloFixedBytes = 34
	// ClusterBytesMax is the longest ID of a cluster.
	ClusterBytesMax = 255
	// HelloBytesMax is the most that is read of a peer before it has said who it is.
	HelloBytesMax = 4 << 10

	magic = "brkd"
	// Version is the version of frames that this package speaks. There is no other yet.
	Version = 1
)

// Hello is what either end says of itself, and whom it expects.
type Hello struct {
	transport.Identity

	Lane transport.Lane
	// ToNode and ToCluster are whom the sender has dialled: transport.AnyNode and "" where
	// it may be anybody, and in an answer.
	ToNode    int32
	ToCluster string
}

// To says whom the sender of the hello expects, as a target.
func (h Hello) To() transport.Target {
	return transport.Target{Lane: h.Lane, NodeID: h.ToNode, ClusterID: h.ToCluster}
}

var (
	errHello   = errors.New("what was sent is no hello")
	errVersion = errors.New("the peer speaks other versions of frames")
)

// Meets says whether a node is the one that a target names: nil, or an error of class
// ErrOther which says who it is.
func Meets(id transport.Identity, to transport.Target) error {
	switch {
	case to.NodeID != transport.AnyNode && to.NodeID != id.NodeID:
		return transport.Errorf(transport.ErrOther, "node %d was dialled, and this is node %d", to.NodeID, id.NodeID)
	case to.ClusterID != "" && id.ClusterID == "":
		return transport.Errorf(transport.ErrOther, "a node of cluster %q was dialled, and node %d belongs to no cluster yet", to.ClusterID, id.NodeID)
	case to.ClusterID != "" && to.ClusterID != id.ClusterID:
		return transport.Errorf(transport.ErrOther, "a node of cluster %q was dialled, and this is node %d of cluster %q", to.ClusterID, id.NodeID, id.ClusterID)
	default:
		return nil
	}
}

// encode returns the hello as a frame.
func (h Hello) encode() ([]byte, error) {
	if len(h.ClusterID) > ClusterBytesMax || len(h.ToCluster) > ClusterBytesMax {
		return nil, transport.Errorf(transport.ErrInvalid, "the ID of a cluster is longer than %d bytes", ClusterBytesMax)
	}
	b := make([]byte, headerBytes, headerBytes+helloFixedBytes+len(h.ClusterID)+len(h.ToCluster))
	b = append(b, magic...)
	b = append(b, Version, Version, byte(h.Lane), 0)
	b = binary.BigEndian.AppendUint32(b, uint32(h.NodeID))
	b = append(b, h.DirectoryID[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(h.ToNode))
	b = append(b, byte(len(h.ClusterID)), byte(len(h.ToCluster)))
	b = append(b, h.ClusterID...)
	b = append(b, h.ToCluster...)
	seal(b, kindHello)
	return b, nil
}

// parseHello reads the body of a hello.
func parseHello(b []byte) (Hello, error) {
	if len(b) < len(magic)+2 || string(b[:len(magic)]) != magic {
		return Hello{}, errHello
	}
	most, least := b[4], b[5]
	if least > Version || most < Version {
		return Hello{}, fmt.Errorf("%w: %d to %d, and this node %d", errVersion, least, most, Version)
	}
	later := most > Version // and may say more than is known here
	if len(b) < helloFixedBytes || b[7] != 0 && !later {
		return Hello{}, errHello
	}
	h := Hello{Lane: transport.Lane(b[6]), ToNode: int32(binary.BigEndian.Uint32(b[28:]))}
	h.NodeID = int32(binary.BigEndian.Uint32(b[8:]))
	copy(h.DirectoryID[:], b[12:28])
	own, to := int(b[32]), int(b[33])
	if b = b[helloFixedBytes:]; len(b) < own+to || len(b) > own+to && !later {
		return Hello{}, errHello
	}
	h.ClusterID, h.ToCluster = string(b[:own]), string(b[own:own+to])
	if h.Lane != transport.Control && h.Lane != transport.Data || h.NodeID < 0 || h.ToNode < transport.AnyNode {
		return Hello{}, errHello
	}
	return h, nil
}
