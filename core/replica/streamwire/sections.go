package streamwire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
)

// Version is the only one of the layout that is spoken here.
const Version = 2

// ErrMalformed: the bytes are not what a peer sends.
var ErrMalformed = errors.New("malformed message of replication")

// Kind is what a section holds.
type Kind uint8

// The kinds of sections, and who sends them.
const (
	KindHello     Kind = 1 // both, first
	KindCredit    Kind = 2 // the follower
	KindSubscribe Kind = 3 // the follower: many
	KindAnswer    Kind = 4 // the leader: many
	KindData      Kind = 5 // the leader: of many partitions
	KindAck       Kind = 6 // the follower: many
	KindEnd       Kind = 7 // the leader: many
)

// SectionBytes is what a section takes beside its body.
const SectionBytes = 1 + 4

// The bytes of one entry of each kind. Its number in a section is the body's length
// divided by it.
const (
	partitionBytes = 16 + 4
	helloBytes     = 2 + 4 + 8 + 16
	creditBytes    = 8 + 8
	subscribeBytes = partitionBytes + 8 + 4 + 4 + 8 + 8 + 4 + 8
	answerBytes    = partitionBytes + 8 + 4 + 1 + 8 + 4 + 8 + 8
	ackBytes       = partitionBytes + 8 + 4 + 4 + 8
	endBytes       = partitionBytes + 8
	countBytes     = 4
	// HeadBytes is what data of one partition takes beside its batches.
	HeadBytes = partitionBytes + 8 + 4 + 8 + 8 + 8 + 4
	// DataBytes is what a section of data takes beside heads and batches.
	DataBytes = SectionBytes + countBytes
)

// Hello says who speaks.
//
//	version       uint16
//	node          int32
//	broker epoch  int64
//	incarnation   [16]byte
//
// What follows in the body is of later versions, and passed over.
type Hello struct {
	Version     uint16
	Node        model.NodeID
	BrokerEpoch model.BrokerEpoch
	Incarnation [16]byte
}

// Credit says how many bytes of messages with batches the follower has done with since the
// stream began, and how many it takes beyond those.
//
//	released  uint64
//	window    uint64
type Credit struct {
	Released uint64
	Window   uint64
}

// Subscribe is a partition.Subscription for one partition; what its names mean is said
// there.
//
//	partition
//	session          uint64
//	leader epoch     int32
//	partition epoch  int32
//	LEO              int64
//	counted          int64   or -1: nothing, it is not in sync
//	last epoch       int32
//	log start        int64
type Subscribe struct {
	Partition      model.Partition
	Session        partition.Session
	Epoch          model.LeaderEpoch
	PartitionEpoch model.PartitionEpoch
	LEO            int64
	Counted        int64
	LastEpoch      model.LeaderEpoch
	LogStart       int64
}

// Answer is a partition.Answer for one partition.
//
//	partition
//	session       uint64
//	leader epoch  int32
//	verdict       int8
//	from          int64
//	end epoch     int32
//	end offset    int64
//	log start     int64
type Answer struct {
	Partition model.Partition
	Session   partition.Session
	Epoch     model.LeaderEpoch
	Verdict   partition.Verdict
	From      int64
	End       model.EpochEnd
	LogStart  int64
}

// Head is what comes with the batches of one partition, and how many bytes those are. A
// section of data is
//
//	count  uint32
//	heads  of so many:
//	    partition
//	    session         uint64
//	    leader epoch    int32
//	    from            int64
//	    high watermark  int64
//	    log start       int64
//	    bytes           int32
//	batches of each, back to back, as they lie in the log
type Head struct {
	Partition model.Partition
	Session   partition.Session
	Epoch     model.LeaderEpoch
	From      int64
	HighWater int64
	LogStart  int64
	Bytes     int32
}

// Ack is a partition.Ack for one partition.
//
//	partition
//	session          uint64
//	leader epoch     int32
//	partition epoch  int32
//	LEO              int64
type Ack struct {
	Partition      model.Partition
	Session        partition.Session
	Epoch          model.LeaderEpoch
	PartitionEpoch model.PartitionEpoch
	LEO            int64
}

// End ends the stream of one partition.
//
//	partition
//	session  uint64
type End struct {
	Partition model.Partition
	Session   partition.Session
}

// Begin begins a section behind b, and says where it does, for Finish.
func Begin(b []byte, kind Kind) ([]byte, int) {
	at := len(b)
	return append(b, byte(kind), 0, 0, 0, 0), at
}

// Finish writes the length of the section that begins at b[at] and ends with b.
func Finish(b []byte, at int) {
	binary.BigEndian.PutUint32(b[at+1:], uint32(len(b)-at-SectionBytes))
}

// BeginData begins a section of data behind b, as Begin does.
func BeginData(b []byte) ([]byte, int) {
	b, at := Begin(b, KindData)
	return append(b, 0, 0, 0, 0), at
}

// FinishData is Finish for data: b ends with the last of the heads, and batches of so many
// bytes follow it.
func FinishData(b []byte, at, batches int) {
	binary.BigEndian.PutUint32(b[at+1:], uint32(len(b)-at-SectionBytes+batches))
	binary.BigEndian.PutUint32(b[at+SectionBytes:], uint32((len(b)-at-DataBytes)/HeadBytes))
}

func appendPartition(b []byte, p model.Partition) []byte {
	b = append(b, p.Topic[:]...)
	return binary.BigEndian.AppendUint32(b, uint32(p.Index))
}

func append64[T ~int64 | ~uint64](b []byte, v T) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(v))
}

func append32[T ~int32](b []byte, v T) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(v))
}

// AppendHello appends a section.
func AppendHello(b []byte, h Hello) []byte {
	b, at := Begin(b, KindHello)
	b = binary.BigEndian.AppendUint16(b, h.Version)
	b = append32(b, h.Node)
	b = append64(b, h.BrokerEpoch)
	b = append(b, h.Incarnation[:]...)
	Finish(b, at)
	return b
}

// AppendCredit appends a section.
func AppendCredit(b []byte, c Credit) []byte {
	b, at := Begin(b, KindCredit)
	b = append64(append64(b, c.Released), c.Window)
	Finish(b, at)
	return b
}

// AppendSubscribe appends an entry.
func AppendSubscribe(b []byte, s *Subscribe) []byte {
	b = appendPartition(b, s.Partition)
	b = append32(append32(append64(b, s.Session), s.Epoch), s.PartitionEpoch)
	b = append64(append64(b, s.LEO), s.Counted)
	return append64(append32(b, s.LastEpoch), s.LogStart)
}

// AppendAnswer appends an entry.
func AppendAnswer(b []byte, a *Answer) []byte {
	b = appendPartition(b, a.Partition)
	b = append32(append64(b, a.Session), a.Epoch)
	b = append64(append(b, byte(a.Verdict)), a.From)
	b = append64(append32(b, a.End.Epoch), a.End.EndOffset)
	return append64(b, a.LogStart)
}

// AppendHead appends what comes with the batches of one partition.
func AppendHead(b []byte, h *Head) []byte {
	b = appendPartition(b, h.Partition)
	b = append32(append64(b, h.Session), h.Epoch)
	b = append64(append64(append64(b, h.From), h.HighWater), h.LogStart)
	return append32(b, h.Bytes)
}

// AppendAck appends an entry.
func AppendAck(b []byte, a *Ack) []byte {
	b = appendPartition(b, a.Partition)
	b = append32(append32(append64(b, a.Session), a.Epoch), a.PartitionEpoch)
	return append64(b, a.LEO)
}

// AppendEnd appends an entry.
func AppendEnd(b []byte, e *End) []byte {
	return append64(appendPartition(b, e.Partition), e.Session)
}

// Section is one of a message's, a part of its bytes.
type Section struct {
	Kind Kind
	Body []byte
}

// Next takes the first section from a message that has one.
func Next(b []byte) (s Section, rest []byte, err error) {
	if len(b) < SectionBytes {
		return Section{}, nil, malformed("%d bytes are no section", len(b))
	}
	kind, n := Kind(b[0]), uint64(binary.BigEndian.Uint32(b[1:]))
	b = b[SectionBytes:]
	if n > uint64(len(b)) {
		return Section{}, nil, malformed("a section of %d bytes in %d", n, len(b))
	}
	if kind < KindHello || kind > KindEnd {
		return Section{}, nil, malformed("a section of kind %d", kind)
	}
	return Section{Kind: kind, Body: b[:n:n]}, b[n:], nil
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
}

// reader takes fields from bytes of which there are enough.
type reader struct{ b []byte }

func (r *reader) u64() uint64 {
	v := binary.BigEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

func (r *reader) i64() int64 { return int64(r.u64()) }

func (r *reader) i32() int32 {
	v := binary.BigEndian.Uint32(r.b)
	r.b = r.b[4:]
	return int32(v)
}

func (r *reader) partition() (p model.Partition) {
	copy(p.Topic[:], r.b)
	r.b = r.b[16:]
	p.Index = r.i32()
	return p
}

// entry makes sure that the body begins with as many bytes as one entry has.
func entry(body []byte, bytes int) (reader, []byte, error) {
	if len(body) < bytes {
		return reader{}, nil, malformed("%d bytes where an entry has %d", len(body), bytes)
	}
	return reader{body[:bytes]}, body[bytes:], nil
}

// ReadHello reads a body.
func ReadHello(body []byte) (Hello, error) {
	r, _, err := entry(body, helloBytes)
	if err != nil {
		return Hello{}, err
	}
	h := Hello{Version: binary.BigEndian.Uint16(r.b)}
	r.b = r.b[2:]
	h.Node, h.BrokerEpoch = model.NodeID(r.i32()), model.BrokerEpoch(r.i64())
	copy(h.Incarnation[:], r.b)
	if h.Version == 0 || h.Node < 0 {
		return Hello{}, malformed("version %d, node %d", h.Version, h.Node)
	}
	return h, nil
}

// ReadCredit reads a body.
func ReadCredit(body []byte) (Credit, error) {
	r, rest, err := entry(body, creditBytes)
	if err != nil || len(rest) > 0 {
		return Credit{}, malformed("credit of %d bytes", len(body))
	}
	c := Credit{Released: r.u64(), Window: r.u64()}
	if c.Released > math.MaxInt64 || c.Window > math.MaxInt64 {
		return Credit{}, malformed("%d bytes released, %d granted", c.Released, c.Window)
	}
	return c, nil
}

// ReadSubscribe takes the first entry from a body.
func ReadSubscribe(body []byte) (s Subscribe, rest []byte, err error) {
	r, rest, err := entry(body, subscribeBytes)
	if err != nil {
		return Subscribe{}, nil, err
	}
	s.Partition, s.Session, s.Epoch, s.PartitionEpoch = r.partition(), partition.Session(r.u64()), r.i32(), model.PartitionEpoch(r.i32())
	s.LEO, s.Counted, s.LastEpoch, s.LogStart = r.i64(), r.i64(), r.i32(), r.i64()
	if s.LogStart < 0 || s.LEO < s.LogStart || s.Counted > s.LEO || s.Counted < partition.Lacking {
		return Subscribe{}, nil, malformed("a log from %d to %d, of which %d count", s.LogStart, s.LEO, s.Counted)
	}
	return s, rest, nil
}

// ReadAnswer takes the first entry from a body.
func ReadAnswer(body []byte) (a Answer, rest []byte, err error) {
	r, rest, err := entry(body, answerBytes)
	if err != nil {
		return Answer{}, nil, err
	}
	a.Partition, a.Session, a.Epoch = r.partition(), partition.Session(r.u64()), r.i32()
	a.Verdict = partition.Verdict(r.b[0])
	r.b = r.b[1:]
	a.From = r.i64()
	a.End.Epoch, a.End.EndOffset = r.i32(), r.i64()
	a.LogStart = r.i64()
	if a.Verdict < partition.VerdictAccepted || a.Verdict > partition.VerdictUnknown {
		return Answer{}, nil, malformed("verdict %d", a.Verdict)
	}
	return a, rest, nil
}

// ReadAck takes the first entry from a body.
func ReadAck(body []byte) (a Ack, rest []byte, err error) {
	r, rest, err := entry(body, ackBytes)
	if err != nil {
		return Ack{}, nil, err
	}
	a.Partition, a.Session, a.Epoch = r.partition(), partition.Session(r.u64()), r.i32()
	a.PartitionEpoch, a.LEO = model.PartitionEpoch(r.i32()), r.i64()
	return a, rest, nil
}

// ReadEnd takes the first entry from a body.
func ReadEnd(body []byte) (e End, rest []byte, err error) {
	r, rest, err := entry(body, endBytes)
	if err != nil {
		return End{}, nil, err
	}
	e.Partition, e.Session = r.partition(), partition.Session(r.u64())
	return e, rest, nil
}

// ReadData splits a body into heads and the batches of all of them, which are as many
// bytes as the heads say.
func ReadData(body []byte) (heads, batches []byte, err error) {
	r, rest, err := entry(body, countBytes)
	if err != nil {
		return nil, nil, err
	}
	n := uint64(binary.BigEndian.Uint32(r.b))
	if n > uint64(len(rest))/HeadBytes {
		return nil, nil, malformed("%d heads in %d bytes", n, len(rest))
	}
	n *= HeadBytes
	heads, batches = rest[:n:n], rest[n:]
	left := int64(len(batches))
	for all := heads; len(all) > 0; {
		var h Head
		if h, all, err = ReadHead(all); err != nil {
			return nil, nil, err
		}
		if left -= int64(h.Bytes); left < 0 {
			return nil, nil, malformed("fewer batches than %d heads say", len(heads)/HeadBytes)
		}
	}
	if left > 0 {
		return nil, nil, malformed("%d bytes of batches more than the heads say", left)
	}
	return heads, batches, nil
}

// ReadHead takes the first of the heads that ReadData returned.
func ReadHead(heads []byte) (h Head, rest []byte, err error) {
	r, rest, err := entry(heads, HeadBytes)
	if err != nil {
		return Head{}, nil, err
	}
	h.Partition, h.Session, h.Epoch = r.partition(), partition.Session(r.u64()), r.i32()
	h.From, h.HighWater, h.LogStart, h.Bytes = r.i64(), r.i64(), r.i64(), r.i32()
	if h.From < 0 || h.HighWater < 0 || h.LogStart < 0 || h.Bytes < 0 {
		return Head{}, nil, malformed("%d bytes from %d, high watermark %d, log start %d", h.Bytes, h.From, h.HighWater, h.LogStart)
	}
	return h, rest, nil
}
