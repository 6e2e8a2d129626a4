package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrMalformed: the bytes are not a request of the API and version that their
// header names. The protocol has no answer to it; the connection is closed.
var ErrMalformed = errors.New("malformed request")

// A request, after its size:
//
//	offset size
//	     0    2  API key
//	     2    2  version
//	     4    4  correlation ID
//	     8    2+ client ID, or length -1 for none
//	          1+ tagged fields, where the version is flexible (KIP-482)
//	             body
const headerFixedBytes = 8

// DecodeHeader splits a request, without its size prefix, into header and body.
// body shares frame's memory. Of an API or a version that is not served, only
// the fixed fields and the client ID are known, and body is what follows them.
func (t Table) DecodeHeader(frame []byte) (h Header, body []byte, err error) {
	if len(frame) < headerFixedBytes+2 {
		return Header{}, nil, fmt.Errorf("%w: %d bytes are not a header", ErrMalformed, len(frame))
	}
	h = Header{
		Key:           int16(binary.BigEndian.Uint16(frame)),
		Version:       int16(binary.BigEndian.Uint16(frame[2:])),
		CorrelationID: int32(binary.BigEndian.Uint32(frame[4:])),
	}
	n := int(int16(binary.BigEndian.Uint16(frame[headerFixedBytes:])))
	rest := frame[headerFixedBytes+2:]
	switch {
	case n < -1 || n > len(rest):
		return Header{}, nil, fmt.Errorf("%w: client ID of %d bytes", ErrMalformed, n)
	case n > 0:
		h.ClientID, rest = string(rest[:n]), rest[n:]
	}
	api, ok := t.Lookup(h.Key)
	if !ok || !api.Supports(h.Version) {
		return h, rest, nil
	}
	if !newRequest(h).IsFlexible() {
		return h, rest, nil
	}
	w := walker{src: rest}
	w.tags()
	if w.bad {
		return Header{}, nil, fmt.Errorf("%w: tagged fields of the header", ErrMalformed)
	}
	return h, w.src, nil
}

// AppendResponse appends a whole response, its size prefix included, for the
// request with this correlation ID. The response's version must be set.
func AppendResponse(dst []byte, correlationID int32, resp kmsg.Response) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	// The header of an ApiVersions response is never flexible: a client reads
	// it before it knows what the broker speaks. (KIP-511)
	if resp.IsFlexible() && resp.Key() != KeyAPIVersions {
		dst = append(dst, 0)
	}
	dst = resp.AppendTo(dst)
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}

func newRequest(h Header) kmsg.Request {
	req := kmsg.RequestForKey(h.Key)
	req.SetVersion(h.Version)
	return req
}
