package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A message on a control link or a bulk link is a header and what the owner says:
//
//	 0  version (1)
//	 1  kind
//	 2  zero, zero: for later
//	 4  number, 8 bytes, little-endian: of a question and its answer, of a ping and its
//	    pong; else zero
//	12  what the owner says
//
// A control link's first message is one of them. The first message of a data link is a header
// alone, of kind bulk or stream, and says what the link is for. On a bulk link messages follow
// as on a control link. On a stream they are the owner's, without a header, so that they lie
// in memory as the owner wants them: all but those of no byte, which are pings, and of one
// byte, which are pongs.
const (
	version     = 1
	headerBytes = 12
	// StreamMessageBytesLeast is the shortest message of a stream's owner.
	StreamMessageBytesLeast = 2
)

// kind is what a message is. Numbers are never given again. What a reader does not know is
// left aside, so that there can be more.
type kind uint8

const (
	kindPost     kind = 1
	kindQuestion kind = 2
	kindAnswer   kind = 3
	kindPing     kind = 4
	kindPong     kind = 5
	kindBulk     kind = 6
	kindStream   kind = 7
)

// errMalformed: what a peer has sent is no message.
var errMalformed = errors.New("malformed message of a peer")

// header returns a message's header.
func header(k kind, number uint64) []byte {
	h := make([]byte, headerBytes)
	h[0], h[1] = version, byte(k)
	binary.LittleEndian.PutUint64(h[4:], number)
	return h
}

// parse takes a message apart. What the owner says is a part of the same memory, and nil
// where there is nothing.
func parse(data []byte) (k kind, number uint64, body []byte, err error) {
	if len(data) < headerBytes {
		return 0, 0, nil, fmt.Errorf("%d bytes: %w", len(data), errMalformed)
	}
	if data[0] != version {
		return 0, 0, nil, fmt.Errorf("version %d: %w", data[0], errMalformed)
	}
	number = binary.LittleEndian.Uint64(data[4:])
	if len(data) > headerBytes {
		body = data[headerBytes:]
	}
	return kind(data[1]), number, body, nil
}
