package server

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A frame, and the headers in it:
//
//	size (4 bytes) of what follows
//	request:  key (2), version (2), correlation ID (4),
//	          client ID (2 bytes of length, -1 is null; then bytes),
//	          tagged fields where the version is flexible
//	response: correlation ID (4), tagged fields where the version is flexible
//
// Source: Kafka's protocol guide; KIP-482 (flexible versions), KIP-511 (the
// header of an ApiVersions response is never flexible).
const (
	sizeBytes        = 4
	minHeaderBytes   = 10
	correlationBytes = 4
	headBytesMax     = sizeBytes + correlationBytes + 1 // of a response
)

const (
	keyProduce     = 0
	keyFetch       = 1
	keyApiVersions = 18
)

var errHeader = errors.New("malformed request header")

// flexibility knows from which version on an API's headers have tagged fields.
type flexibility []int16

// newFlexibility asks the codec once for every key.
func newFlexibility() flexibility {
	f := make(flexibility, kmsg.MaxKey+1)
	for key := range f {
		f[key] = -1 // never
		req := kmsg.RequestForKey(int16(key))
		if req == nil {
			continue
		}
		for v := range req.MaxVersion() + 1 {
			if req.SetVersion(v); req.IsFlexible() {
				f[key] = v
				break
			}
		}
	}
	return f
}

// of: an unknown key has a plain header.
func (f flexibility) of(key, version int16) bool {
	return key >= 0 && int(key) < len(f) && f[key] >= 0 && version >= f[key]
}

// parseHeader splits a frame into header and body. The body is part of frame. client
// is the last client ID of the connection, which most often comes again.
func (f flexibility) parseHeader(frame []byte, client string) (wire.Header, []byte, error) {
	if len(frame) < minHeaderBytes {
		return wire.Header{}, nil, fmt.Errorf("%w: %d bytes", errHeader, len(frame))
	}
	h := wire.Header{
		Key:           int16(binary.BigEndian.Uint16(frame)),
		Version:       int16(binary.BigEndian.Uint16(frame[2:])),
		CorrelationID: int32(binary.BigEndian.Uint32(frame[4:])),
	}
	n, rest := int(int16(binary.BigEndian.Uint16(frame[8:]))), frame[minHeaderBytes:]
	if n < -1 || n > len(rest) {
		return h, nil, fmt.Errorf("%w: client ID of %d bytes in %d", errHeader, n, len(rest))
	}
	if n > 0 {
		if h.ClientID = client; string(rest[:n]) != client {
			h.ClientID = string(rest[:n])
		}
		rest = rest[n:]
	}
	if !f.of(h.Key, h.Version) {
		return h, rest, nil
	}
	rest, err := skipTags(rest)
	return h, rest, err
}

// skipTags passes over tagged fields, none of which is known in a header.
func skipTags(b []byte) ([]byte, error) {
	fields, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, fmt.Errorf("%w: count of tagged fields", errHeader)
	}
	b = b[n:]
	for range fields {
		if _, n = binary.Uvarint(b); n <= 0 {
			return nil, fmt.Errorf("%w: tag", errHeader)
		}
		b = b[n:]
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return nil, fmt.Errorf("%w: tagged field", errHeader)
		}
		b = b[n+int(size):]
	}
	return b, nil
}

// appendHeader appends the header of a response, with room for the frame's size
// before it.
func appendHeader(dst []byte, correlationID int32, tagged bool) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if tagged {
		dst = append(dst, 0)
	}
	return dst
}

// A frame is made room for in steps. The last step is the frame's size, and each
// before it a quarter of the next; those between the first and minStepBytes are
// left out, because each may have to wait in line.
const (
	firstStepMaxBytes = 4 << 10
	minStepBytes      = 32 << 10
	stepFactor        = 4
)

func smallerStep(step int) int { return (step + stepFactor - 1) / stepFactor }

// firstStep is how much is made room for before any of the frame is here.
func firstStep(size int) int {
	for size > firstStepMaxBytes {
		size = smallerStep(size)
	}
	return size
}

// nextStep is the step after have, which is full.
func nextStep(size, have int) int {
	for smaller := smallerStep(size); smaller > have && smaller >= minStepBytes; smaller = smallerStep(size) {
		size = smaller
	}
	return size
}
