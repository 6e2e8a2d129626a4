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

// maxBodyBytes bounds the body of any request but Produce. The codec refuses an array
// whose elements cannot be in the bytes that follow, but it makes room for all of them
// at once, and an element in memory is up to some thirty times its least size on the
// wire.
const maxBodyBytes = 4 << 20

// Decode reads the body of a request that the table serves, but for those that come
// most often, which have Produce.Read, Fetch.Read and OffsetCommit.Read. The result
// shares body's memory. Bytes after the request are ignored, as Kafka ignores them.
// Every error wraps ErrMalformed.
func (t Table) Decode(h Header, body []byte) (kmsg.Request, error) {
	api, ok := t.Lookup(h.Key)
	switch {
	case !ok || !api.Supports(h.Version):
		return nil, fmt.Errorf("%w: API key %d version %d is not served", ErrMalformed, h.Key, h.Version)
	case h.Key == KeyProduce || h.Key == KeyFetch || h.Key == KeyOffsetCommit:
		return nil, fmt.Errorf("%w: %s has a reader of its own", ErrMalformed, api.Name())
	}
	req := kmsg.RequestForKey(h.Key)
	req.SetVersion(h.Version)
	switch {
	case len(body) > maxBodyBytes:
		return nil, fmt.Errorf("%w: %s of %d bytes, more than %d", ErrMalformed, api.Name(), len(body), maxBodyBytes)
	case leadsWithArray(h.Key) && !req.IsFlexible() && len(body) >= 4 && int32(binary.BigEndian.Uint32(body)) < nullLength:
		return nil, fmt.Errorf("%w: %s version %d begins with an array of negative length", ErrMalformed, api.Name(), h.Version)
	}
	if req.ReadFrom(body) != nil { // what it says is of answers
		return nil, fmt.Errorf("%w: %s version %d ends inside a field", ErrMalformed, api.Name(), h.Version)
	}
	if hasWrongNull(req, body) {
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
