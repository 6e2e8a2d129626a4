package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// maxBodyBytes bounds the body of any request but Produce. The codec refuses
	// an array whose elements cannot be in the bytes that follow, but it makes
	// room for all of them at once, and an element in memory is up to some
	// thirty times its least size on the wire.
	maxBodyBytes = 4 << 20
	// maxProducePartitions bounds the topics and the partitions of one Produce.
	maxProducePartitions = 1 << 18
)

// Decode reads the body of a request that the table serves. The records in the
// result share body's memory. Bytes after the request are ignored, as Kafka
// ignores them. Every error wraps ErrMalformed.
func (t Table) Decode(h Header, body []byte) (kmsg.Request, error) {
	api, ok := t.Lookup(h.Key)
	if !ok || !api.Supports(h.Version) {
		return nil, fmt.Errorf("%w: API key %d version %d is not served", ErrMalformed, h.Key, h.Version)
	}
	req := newRequest(h)
	if h.Key == KeyProduce {
		if err := walkProduce(body, h.Version, req.IsFlexible()); err != nil {
			return nil, err
		}
	} else if len(body) > maxBodyBytes {
		return nil, fmt.Errorf("%w: %s of %d bytes, more than %d", ErrMalformed, api.Name(), len(body), maxBodyBytes)
	}
	if err := req.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%w: %s version %d: %w", ErrMalformed, api.Name(), h.Version, err)
	}
	return req, nil
}

// walkProduce goes through a Produce request without keeping anything, so that
// its counts are known to be true before the codec makes room for them.
func walkProduce(body []byte, version int16, flexible bool) error {
	w := walker{src: body, flexible: flexible}
	w.skipString()
	w.skip(2 + 4) // acks, timeout
	count := w.arrayLen()
	total := count
	for i := 0; i < count && !w.bad; i++ {
		if version >= 13 {
			w.skip(16)
		} else {
			w.skipString()
		}
		partitions := w.arrayLen()
		if total += partitions; total > maxProducePartitions {
			return fmt.Errorf("%w: Produce of more than %d topics and partitions", ErrMalformed, maxProducePartitions)
		}
		for j := 0; j < partitions && !w.bad; j++ {
			w.skip(4)
			w.skipBytes()
			w.elementTags()
		}
		w.elementTags()
	}
	w.elementTags()
	if w.bad {
		return fmt.Errorf("%w: Produce ends inside a field", ErrMalformed)
	}
	return nil
}

// walker skips over fields. After the first that does not fit, bad is set and
// nothing moves any more.
type walker struct {
	src      []byte
	flexible bool
	bad      bool
}

func (w *walker) skip(n int) {
	if n < 0 || n > len(w.src) {
		w.bad, w.src = true, nil
		return
	}
	w.src = w.src[n:]
}

func (w *walker) uvarint() int {
	v, n := binary.Uvarint(w.src)
	if n <= 0 || n > binary.MaxVarintLen32 || v > 1<<32-1 {
		w.bad, w.src = true, nil
		return 0
	}
	w.src = w.src[n:]
	return int(v)
}

// arrayLen is the count of an array; a null one has none.
func (w *walker) arrayLen() int {
	if w.flexible {
		return max(0, w.uvarint()-1)
	}
	if len(w.src) < 4 {
		w.bad, w.src = true, nil
		return 0
	}
	n := int(int32(binary.BigEndian.Uint32(w.src)))
	w.src = w.src[4:]
	return max(0, n)
}

func (w *walker) skipString() {
	if w.flexible {
		w.skip(max(0, w.uvarint()-1))
		return
	}
	if len(w.src) < 2 {
		w.bad, w.src = true, nil
		return
	}
	n := int(int16(binary.BigEndian.Uint16(w.src)))
	w.src = w.src[2:]
	w.skip(max(0, n))
}

func (w *walker) skipBytes() { w.skip(w.arrayLen()) }

func (w *walker) elementTags() {
	if w.flexible {
		w.tags()
	}
}

// tags skips tagged fields: those that are not known are no error. (KIP-482)
func (w *walker) tags() {
	for n := w.uvarint(); n > 0 && !w.bad; n-- {
		w.uvarint()
		w.skip(w.uvarint())
	}
}
