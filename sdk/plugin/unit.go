package plugin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// The layout of units is drawn at the message Frame of storage.v1; these are its
// numbers.
const (
	unitVersion = 1

	kindAppend  = 1
	kindRead    = 2
	kindReplace = 3
	kindTold    = 4 // an append under a grant
	kindGrant   = 5
	kindEnd     = 6
	kindLease   = 7
	kindReturn  = 8 // the only one without an answer
	kindLock    = 9
	kindAnswer  = 128 // added to the request's kind

	flagFile = 1 // of an answer: a descriptor comes with it

	lengthBytes = 4  // the length field, which does not count itself
	headBytes   = 28 // length field included
	infoBytes   = 60

	appendBodyBytes  = 17 // up to the batch infos
	readBodyBytes    = 21
	replaceBodyBytes = 20 // up to the batch infos

	answerBodyBytes   = 1  // the class
	appendAnswerBytes = 17 // after the class
	readAnswerBytes   = 8  // after the class, up to the data
)

// maxFrameBytes bounds a frame's value, on both sides.
const maxFrameBytes = 512 << 20

// maxMessageBytes bounds a gRPC message: a frame and its field's header.
const maxMessageBytes = maxFrameBytes + 64

// coalesceBytes is about how much a sender puts into one frame when more waits.
const coalesceBytes = 256 << 10

// maxUnitBytes bounds a unit, so that it fits into a frame that others have begun.
const maxUnitBytes = maxFrameBytes - coalesceBytes

var errUnit = errors.New("malformed unit")

// head is the part that every unit has.
type head struct {
	kind    byte
	timeout time.Duration // zero: none
	seq     uint64
	handle  storage.Handle
}

// request is a unit from the client. What it holds beside the head is of the kind
// of the same name.
type request struct {
	head
	append  storage.AppendRequest // also of kindTold
	infos   []byte                // of kindTold, to be sent: append.Batches, encoded
	read    storage.ReadRequest
	replace storage.ReplaceRequest
	grant   grantRequest
	end     storage.GrantID
	lease   int64 // the offset
	leases  []storage.LeaseID
}

// answer is a unit from the plugin.
type answer struct {
	head
	err    error
	append storage.AppendResult
	read   storage.ReadResult
	grant  storage.Grant
	lease  storage.Lease
	// file is what was passed: the grant's, the lease's, or the lock.
	file *os.File
	// mem is where read.Data of an answer that came lies.
	mem     memory
	memSize int
}

// appendHead encodes a unit's head; the length field is set by finishUnit.
func appendHead(dst []byte, h head) []byte {
	dst = append(dst, 0, 0, 0, 0, unitVersion, h.kind, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, timeoutMillis(h.timeout))
	dst = binary.BigEndian.AppendUint64(dst, h.seq)
	return binary.BigEndian.AppendUint64(dst, uint64(h.handle))
}

// timeoutMillis rounds up, so that a short limit does not become none.
func timeoutMillis(d time.Duration) uint32 {
	if d <= 0 {
		return 0
	}
	ms := (d + time.Millisecond - 1) / time.Millisecond
	return uint32(min(ms, math.MaxUint32))
}

// finishUnit writes the length of the unit that begins at start, after which
// more bytes follow elsewhere.
func finishUnit(dst []byte, start, more int) []byte {
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-lengthBytes+more))
	return dst
}

// requestBytesMax bounds the encoded request without its data.
func requestBytesMax(r *request) int {
	return headBytes + requestBodyMax + infoBytes*(len(r.append.Batches)+len(r.replace.Batches)) +
		len(r.infos) + leaseIDBytes*len(r.leases)
}

// answerBytesMax bounds the encoded answer without its data.
func answerBytesMax(a *answer) int {
	n := headBytes + answerBodyBytes + answerFieldsMax
	if a.err != nil {
		_, message := splitError(a.err)
		n += len(message)
	}
	return n
}

// appendRequest encodes r without its data, which the caller sends right after.
func appendRequest(dst []byte, r *request) (out []byte, data [][]byte) {
	start := len(dst)
	dst = appendHead(dst, r.head)
	switch r.kind {
	case kindAppend:
		a := &r.append
		dst = binary.BigEndian.AppendUint32(dst, uint32(a.LeaderEpoch))
		dst = binary.BigEndian.AppendUint64(dst, uint64(a.BaseOffset))
		dst = append(dst, byte(a.Require))
		dst = appendInfos(dst, a.Batches)
		data = a.Data
	case kindRead:
		q := &r.read
		dst = binary.BigEndian.AppendUint64(dst, uint64(q.Offset))
		dst = binary.BigEndian.AppendUint64(dst, uint64(q.UpTo))
		dst = binary.BigEndian.AppendUint32(dst, uint32(max(0, q.MaxBytes)))
		dst = append(dst, boolByte(q.AtLeastOne))
	case kindReplace:
		p := &r.replace
		dst = binary.BigEndian.AppendUint64(dst, uint64(p.From))
		dst = binary.BigEndian.AppendUint64(dst, uint64(p.To))
		dst = appendInfos(dst, p.Batches)
		data = [][]byte{p.Data}
	default:
		dst = appendFileRequest(dst, r)
	}
	return finishUnit(dst, start, recordbatch.TotalBytes(data)), data
}

// appendAnswer encodes a without its data, which the caller sends right after.
func appendAnswer(dst []byte, a *answer) (out []byte, data [][]byte) {
	start := len(dst)
	dst = appendHead(dst, a.head)
	if a.err != nil {
		class, message := splitError(a.err)
		dst = append(dst, byte(class))
		dst = append(dst, message...)
		return finishUnit(dst, start, 0), nil
	}
	dst = append(dst, 0)
	switch a.kind {
	case kindAppend | kindAnswer:
		dst = appendResult(dst, &a.append)
	case kindRead | kindAnswer:
		dst = binary.BigEndian.AppendUint64(dst, uint64(a.read.Next))
		if len(a.read.Data) > 0 {
			data = [][]byte{a.read.Data}
		}
	default:
		dst = appendFileAnswer(dst, start, a)
	}
	return finishUnit(dst, start, recordbatch.TotalBytes(data)), data
}

func appendResult(dst []byte, r *storage.AppendResult) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.LEO))
	dst = append(dst, byte(r.Survives))
	return binary.BigEndian.AppendUint64(dst, uint64(r.Durable))
}

func appendInfos(dst []byte, infos []storage.BatchInfo) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(infos)))
	return appendEach(dst, infos)
}

// appendEach encodes batch infos without their number.
func appendEach(dst []byte, infos []storage.BatchInfo) []byte {
	for i := range infos {
		b := &infos[i]
		dst = binary.BigEndian.AppendUint64(dst, uint64(b.BaseOffset))
		dst = binary.BigEndian.AppendUint64(dst, uint64(b.LastOffset))
		dst = binary.BigEndian.AppendUint32(dst, uint32(b.LeaderEpoch))
		dst = binary.BigEndian.AppendUint32(dst, uint32(b.Bytes))
		dst = binary.BigEndian.AppendUint16(dst, uint16(b.Attributes))
		dst = binary.BigEndian.AppendUint64(dst, uint64(b.BaseTimestamp))
		dst = binary.BigEndian.AppendUint64(dst, uint64(b.MaxTimestamp))
		dst = binary.BigEndian.AppendUint64(dst, uint64(b.ProducerID))
		dst = binary.BigEndian.AppendUint16(dst, uint16(b.ProducerEpoch))
		dst = binary.BigEndian.AppendUint32(dst, uint32(b.BaseSequence))
		dst = binary.BigEndian.AppendUint32(dst, uint32(b.Records))
	}
	return dst
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// splitUnits cuts a frame's value into units, heads included, and gives each to
// fn. It ends at the first error.
func splitUnits(value []byte, fn func(unit []byte) error) error {
	for len(value) > 0 {
		if len(value) < headBytes {
			return fmt.Errorf("%w: %d bytes left, a head has %d", errUnit, len(value), headBytes)
		}
		n := uint64(binary.BigEndian.Uint32(value)) + lengthBytes
		if n < headBytes || n > uint64(len(value)) {
			return fmt.Errorf("%w: length %d with %d bytes left", errUnit, n-lengthBytes, len(value)-lengthBytes)
		}
		if err := fn(value[:n:n]); err != nil {
			return err
		}
		value = value[n:]
	}
	return nil
}

// parseHead reads a unit's head. The unit is at least as long.
func parseHead(unit []byte) head {
	return head{
		kind:    unit[5],
		timeout: time.Duration(binary.BigEndian.Uint32(unit[8:])) * time.Millisecond,
		seq:     binary.BigEndian.Uint64(unit[12:]),
		handle:  storage.Handle(binary.BigEndian.Uint64(unit[20:])),
	}
}

// parseRequest reads a request into r. Data is a part of unit. With an error the
// head is set, so that it can be answered. What r.append.Batches and Data have
// room for is used again.
func parseRequest(unit []byte, r *request) error {
	r.head = parseHead(unit)
	if unit[4] != unitVersion {
		return fmt.Errorf("%w: version %d, this plugin speaks %d", errUnit, unit[4], unitVersion)
	}
	body := unit[headBytes:]
	var err error
	switch r.kind {
	case kindAppend:
		if len(body) < appendBodyBytes {
			return shortUnit("append", body)
		}
		var data []byte
		parseAppendFields(body, r)
		r.append.Batches, data, err = parseInfos(r.append.Batches, body[13:])
		r.append.Data = append(r.append.Data[:0], data)
	case kindRead:
		if len(body) < readBodyBytes {
			return shortUnit("read", body)
		}
		r.read = storage.ReadRequest{
			Handle:     r.handle,
			Offset:     int64(binary.BigEndian.Uint64(body)),
			UpTo:       int64(binary.BigEndian.Uint64(body[8:])),
			MaxBytes:   int(min(binary.BigEndian.Uint32(body[16:]), math.MaxInt32)),
			AtLeastOne: body[20] != 0,
		}
	case kindReplace:
		if len(body) < replaceBodyBytes {
			return shortUnit("replace", body)
		}
		p := &r.replace
		p.Handle = r.handle
		p.From = int64(binary.BigEndian.Uint64(body))
		p.To = int64(binary.BigEndian.Uint64(body[8:]))
		p.Batches, p.Data, err = parseInfos(nil, body[16:])
	default:
		err = parseFileRequest(body, r)
	}
	return err
}

// shortUnit is a unit whose body has not the length that it must have.
func shortUnit(what string, body []byte) error {
	return fmt.Errorf("%w: %s of %d bytes", errUnit, what, len(body))
}

// parseAppendFields reads what an append begins with, under a grant or not.
func parseAppendFields(body []byte, r *request) {
	a := &r.append
	a.Handle = r.handle
	a.LeaderEpoch = int32(binary.BigEndian.Uint32(body))
	a.BaseOffset = int64(binary.BigEndian.Uint64(body[4:]))
	a.Require = storage.Survives(body[12])
}

// parseInfos reads a number and that many batch infos into the room of infos, and
// returns what follows. It allocates for no more than the bytes can hold.
func parseInfos(infos []storage.BatchInfo, b []byte) (out []storage.BatchInfo, rest []byte, err error) {
	n := uint64(binary.BigEndian.Uint32(b))
	b = b[4:]
	if n*infoBytes > uint64(len(b)) {
		return infos[:0], nil, fmt.Errorf("%w: %d batch infos in %d bytes", errUnit, n, len(b))
	}
	infos = slices.Grow(infos[:0], int(n))[:n]
	for i := range infos {
		infos[i] = storage.BatchInfo{
			BaseOffset:    int64(binary.BigEndian.Uint64(b)),
			LastOffset:    int64(binary.BigEndian.Uint64(b[8:])),
			LeaderEpoch:   int32(binary.BigEndian.Uint32(b[16:])),
			Bytes:         int32(binary.BigEndian.Uint32(b[20:])),
			Attributes:    int16(binary.BigEndian.Uint16(b[24:])),
			BaseTimestamp: int64(binary.BigEndian.Uint64(b[26:])),
			MaxTimestamp:  int64(binary.BigEndian.Uint64(b[34:])),
			ProducerID:    int64(binary.BigEndian.Uint64(b[42:])),
			ProducerEpoch: int16(binary.BigEndian.Uint16(b[50:])),
			BaseSequence:  int32(binary.BigEndian.Uint32(b[52:])),
			Records:       int32(binary.BigEndian.Uint32(b[56:])),
		}
		b = b[infoBytes:]
	}
	return infos, b, nil
}

// parseAnswer reads an answer. Data is a part of unit.
func parseAnswer(unit []byte) (answer, error) {
	a := answer{head: parseHead(unit)}
	if unit[4] != unitVersion {
		return a, fmt.Errorf("%w: version %d, this broker speaks %d", errUnit, unit[4], unitVersion)
	}
	body := unit[headBytes:]
	if len(body) < answerBodyBytes {
		return a, shortUnit("answer", body)
	}
	if body[0] != 0 {
		a.err = joinError(int32(body[0]), string(body[1:]))
		return a, nil
	}
	body = body[answerBodyBytes:]
	switch a.kind {
	case kindAppend | kindAnswer:
		if len(body) < appendAnswerBytes {
			return a, shortUnit("answer to append", body)
		}
		parseResult(body, &a.append)
	case kindRead | kindAnswer:
		if len(body) < readAnswerBytes {
			return a, shortUnit("answer to read", body)
		}
		a.read = storage.ReadResult{
			Next: int64(binary.BigEndian.Uint64(body)),
			Data: body[readAnswerBytes:],
		}
	case kindReplace | kindAnswer:
	default:
		return a, parseFileAnswer(body, &a)
	}
	return a, nil
}

func parseResult(body []byte, r *storage.AppendResult) {
	r.LEO = int64(binary.BigEndian.Uint64(body))
	r.Survives = storage.Survives(body[8])
	r.Durable = int64(binary.BigEndian.Uint64(body[9:]))
}

// requests is calls as they are sent.
type requests []*call

func (r *requests) count() int         { return len(*r) }
func (r *requests) bytesMax(i int) int { return requestBytesMax(&(*r)[i].req) }
func (r *requests) file(int) *os.File  { return nil }
func (r *requests) encode(i int, dst []byte) ([]byte, [][]byte) {
	c := (*r)[i]
	out, data := appendRequest(dst, &c.req)
	c.sent = int64(len(out) - len(dst) + recordbatch.TotalBytes(data))
	return out, data
}

// answers is answers as they are sent.
type answers []answer

func (a *answers) count() int          { return len(*a) }
func (a *answers) bytesMax(i int) int  { return answerBytesMax(&(*a)[i]) }
func (a *answers) file(i int) *os.File { return (*a)[i].file }
func (a *answers) encode(i int, dst []byte) ([]byte, [][]byte) {
	return appendAnswer(dst, &(*a)[i])
}
