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

const (
	// maxBodyBytes bounds the body of any request but Produce. The codec refuses
	// an array whose elements cannot be in the bytes that follow, but it makes
	// room for all of them at once, and an element in memory is up to some
	// thirty times its least size on the wire.
	maxBodyBytes = 4 << 20
	// maxProduceParts bounds the topics, partitions and tagged fields of one
	// Produce, which may be as long as the server's largest request.
	maxProduceParts = 1 << 18
)

// Decode reads the body of a request that the table serves. The records in the
// result share body's memory. Bytes after the request are ignored, as Kafka
// ignores them. Every error wraps ErrMalformed.
func (t Table) Decode(h Header, body []byte) (kmsg.Request, error) {
	api, ok := t.Lookup(h.Key)
	if !ok || !api.Supports(h.Version) {
		return nil, fmt.Errorf("%w: API key %d version %d is not served", ErrMalformed, h.Key, h.Version)
	}
	req := kmsg.RequestForKey(h.Key)
	req.SetVersion(h.Version)
	switch {
	case h.Key == KeyProduce:
		if err := walkProduce(body, h.Version, req.IsFlexible()); err != nil {
			return nil, err
		}
	case len(body) > maxBodyBytes:
		return nil, fmt.Errorf("%w: %s of %d bytes, more than %d", ErrMalformed, api.Name(), len(body), maxBodyBytes)
	case leadsWithArray(h.Key) && !req.IsFlexible() && len(body) >= 4 && int32(binary.BigEndian.Uint32(body)) < nullLength:
		return nil, fmt.Errorf("%w: %s version %d begins with an array of negative length", ErrMalformed, api.Name(), h.Version)
	}
	if req.ReadFrom(body) != nil { // what it says is of answers
		return nil, fmt.Errorf("%w: %s version %d ends inside a field", ErrMalformed, api.Name(), h.Version)
	}
	if h.Key != KeyProduce && hasWrongNull(req, body) {
		return nil, fmt.Errorf("%w: %s version %d has a null where none may be", ErrMalformed, api.Name(), h.Version)
	}
	return req, nil
}

// hasWrongNull says whether the codec took a null, or a negative length, for something
// empty because it may not be null: written again it has the length 0. The first
// difference counts, others come from such as a field that need not have been sent.
func hasWrongNull(req kmsg.Request, body []byte) bool {
	again := req.AppendTo(make([]byte, 0, len(body)))
	for i := range min(len(again), len(body)) {
		switch {
		case again[i] == body[i]:
		case req.IsFlexible():
			return body[i] == 0 && again[i] == 1
		default:
			return body[i] >= 0x80 && again[i] == 0
		}
	}
	return false
}

// nullLength is the one length below 0 that means something: null.
const nullLength = -1

// leadsWithArray are the APIs whose first field is an array. The codec takes any
// negative length for null, which asks some of them for everything.
func leadsWithArray(key int16) bool {
	switch kmsg.Key(key) {
	case kmsg.Metadata, kmsg.CreateTopics, kmsg.DeleteTopics, kmsg.DeleteRecords, kmsg.DescribeConfigs,
		kmsg.AlterConfigs, kmsg.IncrementalAlterConfigs, kmsg.DescribeLogDirs, kmsg.CreatePartitions,
		kmsg.CreateACLs, kmsg.DeleteACLs, kmsg.DescribeClientQuotas, kmsg.DescribeGroups, kmsg.DeleteGroups:
		return true
	}
	return false
}

// walkProduce goes through a Produce request without keeping anything, so that
// its counts are known to be true before the codec makes room for them.
func walkProduce(body []byte, version int16, flexible bool) error {
	w := walker{src: body, flexible: flexible, left: maxProduceParts}
	w.skipString()
	w.skip(2 + 4) // acks, timeout
	for i := w.arrayLen(); i > 0 && !w.bad; i-- {
		w.count()
		if version >= 13 {
			w.skip(16)
		} else {
			w.skipString()
		}
		for j := w.arrayLen(); j > 0 && !w.bad; j-- {
			w.count()
			w.skip(4)
			w.skipBytes()
			w.tags()
		}
		w.tags()
	}
	w.tags()
	if w.bad {
		return fmt.Errorf("%w: Produce version %d ends inside a field or has more than %d parts", ErrMalformed, version, maxProduceParts)
	}
	return nil
}

// walker skips over fields. After the first that does not fit, bad is set and
// nothing moves any more.
type walker struct {
	src      []byte
	flexible bool
	left     int // parts that may still come
	bad      bool
}

func (w *walker) fail() { w.bad, w.src = true, nil }

func (w *walker) count() {
	if w.left--; w.left < 0 {
		w.fail()
	}
}

func (w *walker) skip(n int) {
	if n < 0 || n > len(w.src) {
		w.fail()
		return
	}
	w.src = w.src[n:]
}

func (w *walker) uvarint() int {
	v, n := binary.Uvarint(w.src)
	if n <= 0 || n > binary.MaxVarintLen32 || v > 1<<32-1 {
		w.fail()
		return 0
	}
	w.src = w.src[n:]
	return int(v)
}

// arrayLen is the count of an array, which cannot be null.
func (w *walker) arrayLen() int {
	n := w.length()
	if n < 0 {
		w.fail()
	}
	return max(0, n)
}

// length is that of an array or of bytes, or below 0 for null.
func (w *walker) length() int {
	if w.flexible {
		return w.uvarint() - 1
	}
	if len(w.src) < 4 {
		w.fail()
		return 0
	}
	n := int(int32(binary.BigEndian.Uint32(w.src)))
	w.src = w.src[4:]
	if n < nullLength {
		w.fail()
	}
	return n
}

func (w *walker) skipString() {
	if w.flexible {
		w.skip(max(0, w.uvarint()-1))
		return
	}
	if len(w.src) < 2 {
		w.fail()
		return
	}
	n := int(int16(binary.BigEndian.Uint16(w.src)))
	w.src = w.src[2:]
	w.skip(max(0, n))
}

func (w *walker) skipBytes() { w.skip(max(0, w.length())) }

// tags skips tagged fields: those that are not known are no error. (KIP-482)
func (w *walker) tags() {
	if !w.flexible {
		return
	}
	for n := w.uvarint(); n > 0 && !w.bad; n-- {
		w.count()
		w.uvarint()
		w.skip(w.uvarint())
	}
}
