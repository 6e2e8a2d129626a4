package image

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/brokerd/brokerd/core/model"
)

// A batch of records, as it is one entry of the metadata log:
//
//	format   byte      batchFormat
//	count    uvarint
//	record   count times:
//	  kind     uvarint
//	  version  uvarint
//	  length   uvarint   of the body
//	  body     fields in the order of layout
//
// Integers are varints (zig-zag where they may be below 0), byte strings and
// lists carry their length first, UUIDs are 16 bytes, maps are lists in key
// order. The encoding of a record is unique, so that equal images have equal
// snapshots: its version is the oldest that has all that it says.
const batchFormat byte = 1

// ErrUnknownRecord is wrapped where a record was written by newer code.
var ErrUnknownRecord = errors.New("unknown metadata record")

var errCorrupt = errors.New("corrupt metadata record")

// AppendBatch appends the encoding of records to b.
func AppendBatch(b []byte, records []Record) []byte {
	b = append(b, batchFormat)
	b = binary.AppendUvarint(b, uint64(len(records)))
	var body codec
	for _, r := range records {
		body.out, body.version = body.out[:0], versionOf(r)
		r.layout(&body)
		b = binary.AppendUvarint(b, uint64(r.kind()))
		b = binary.AppendUvarint(b, uint64(body.version))
		b = binary.AppendUvarint(b, uint64(len(body.out)))
		b = append(b, body.out...)
	}
	return b
}

// DecodeBatch reads what AppendBatch wrote. The records keep no part of b.
func DecodeBatch(b []byte) ([]Record, error) {
	if len(b) == 0 || b[0] != batchFormat {
		return nil, fmt.Errorf("decode metadata batch of %d bytes: not format %d: %w", len(b), batchFormat, errCorrupt)
	}
	c := codec{decoding: true, in: b[1:]}
	count := c.length(3) // a record takes three bytes at least
	records := make([]Record, 0, count)
	for i := range count {
		r, err := c.record()
		if err != nil {
			return nil, fmt.Errorf("decode metadata record %d of %d: %w", i, count, err)
		}
		records = append(records, r)
	}
	if c.err == nil && len(c.in) > 0 {
		c.err = fmt.Errorf("%d bytes after the last: %w", len(c.in), errCorrupt)
	}
	if c.err != nil {
		return nil, fmt.Errorf("decode metadata batch: %w", c.err)
	}
	return records, nil
}

func (c *codec) record() (Record, error) {
	k, version, body := c.uvarint(), c.uvarint(), c.take(c.length(1))
	if c.err != nil {
		return nil, c.err
	}
	var known *recordType
	if k <= 1<<16-1 {
		known = kind(k).record()
	}
	if known == nil || version == 0 || version > uint64(known.version) {
		name := "type"
		if known != nil {
			name = known.name
		}
		return nil, fmt.Errorf("%s %d version %d was written by a newer release: %w", name, k, version, ErrUnknownRecord)
	}
	r := known.empty()
	inner := codec{decoding: true, in: body, version: uint16(version)}
	r.layout(&inner)
	if inner.err == nil && len(inner.in) > 0 {
		inner.err = fmt.Errorf("%d bytes too many: %w", len(inner.in), errCorrupt)
	}
	if inner.err == nil && versionOf(r) != inner.version {
		inner.err = fmt.Errorf("an older version says the same: %w", errCorrupt)
	}
	if inner.err != nil {
		return nil, fmt.Errorf("%s version %d: %w", known.name, version, inner.err)
	}
	return r, nil
}

// codec writes or reads one record's fields: each layout method names them once,
// for both. After an error it reads zeros.
type codec struct {
	decoding bool
	version  uint16 // of the record
	in       []byte
	out      []byte
	err      error
}

func (c *codec) fail() { c.err, c.in = errCorrupt, nil }

func (c *codec) take(n int) []byte {
	if c.err != nil || n > len(c.in) {
		c.fail()
		return nil
	}
	b := c.in[:n]
	c.in = c.in[n:]
	return b
}

func (c *codec) uvarint() uint64 {
	if c.err != nil {
		return 0
	}
	v, n := binary.Uvarint(c.in)
	if n <= 0 || n > 1 && c.in[n-1] == 0 { // only the shortest form
		c.fail()
		return 0
	}
	c.in = c.in[n:]
	return v
}

// length reads a count of elements that take at least size bytes each, so that
// no claimed length makes an allocation that the input does not pay for.
func (c *codec) length(size int) int {
	n := c.uvarint()
	if n > uint64(len(c.in)/size) {
		c.fail()
		return 0
	}
	return int(n)
}

func number[T ~int8 | ~int16 | ~int32 | ~int64](c *codec, v *T) {
	if !c.decoding {
		u := uint64(*v)<<1 ^ uint64(int64(*v)>>63)
		c.out = binary.AppendUvarint(c.out, u)
		return
	}
	u := c.uvarint()
	n := int64(u>>1) ^ -int64(u&1)
	if int64(T(n)) != n {
		c.fail()
		return
	}
	*v = T(n)
}

func (c *codec) boolean(v *bool) {
	if !c.decoding {
		b := byte(0)
		if *v {
			b = 1
		}
		c.out = append(c.out, b)
		return
	}
	if b := c.take(1); b != nil {
		if b[0] > 1 {
			c.fail()
			return
		}
		*v = b[0] == 1
	}
}

func (c *codec) uuid(v *[16]byte) {
	if !c.decoding {
		c.out = append(c.out, v[:]...)
		return
	}
	copy(v[:], c.take(len(v)))
}

func text[T ~string](c *codec, v *T) {
	if !c.decoding {
		c.out = binary.AppendUvarint(c.out, uint64(len(*v)))
		c.out = append(c.out, *v...)
		return
	}
	*v = T(c.take(c.length(1)))
}

// list writes nil and empty alike, and reads both as nil.
func list[T any](c *codec, v *[]T, size int, element func(*codec, *T)) {
	if !c.decoding {
		c.out = binary.AppendUvarint(c.out, uint64(len(*v)))
	} else if n := c.length(size); n > 0 {
		*v = make([]T, n)
	}
	for i := range *v {
		element(c, &(*v)[i])
	}
}

// optional writes a slice that may be nil, and keeps nil apart from empty.
func optional[T any](c *codec, v *[]T, size int, element func(*codec, *T)) {
	present := *v != nil
	c.boolean(&present)
	if !present {
		return
	}
	list(c, v, size, element)
	if c.decoding && *v == nil && c.err == nil {
		*v = []T{}
	}
}

func nodeID(c *codec, v *model.NodeID)           { number(c, v) }
func directoryID(c *codec, v *model.DirectoryID) { c.uuid((*[16]byte)(v)) }

func nodes(c *codec, v *[]model.NodeID)            { list(c, v, 1, nodeID) }
func directories(c *codec, v *[]model.DirectoryID) { list(c, v, 16, directoryID) }

func (c *codec) partition(p *model.Partition) {
	c.uuid((*[16]byte)(&p.Topic))
	number(c, &p.Index)
}

type namedEndpoint struct {
	name string
	Endpoint
}

func (c *codec) listeners(v *map[string]Endpoint) {
	var ls []namedEndpoint
	for _, name := range slices.Sorted(maps.Keys(*v)) {
		ls = append(ls, namedEndpoint{name, (*v)[name]})
	}
	list(c, &ls, 3, func(c *codec, e *namedEndpoint) {
		text(c, &e.name)
		text(c, &e.Host)
		number(c, &e.Port)
	})
	if !c.decoding || c.err != nil || len(ls) == 0 {
		return
	}
	*v = make(map[string]Endpoint, len(ls))
	for i, e := range ls {
		if i > 0 && ls[i-1].name >= e.name {
			c.fail()
			return
		}
		(*v)[e.name] = e.Endpoint
	}
}

func (r *ClusterRecord) layout(c *codec) {
	text(c, &r.Cluster.ID)
	number(c, &r.Cluster.FeatureLevel)
	number(c, &r.Cluster.ReplicationFactorTarget)
	number(c, &r.Cluster.MinISRTarget)
}

func (r *BrokerRecord) layout(c *codec) {
	number(c, &r.ID)
	number(c, &r.Epoch)
	c.uuid(&r.Incarnation)
	text(c, &r.Rack)
	c.listeners(&r.Listeners)
	directories(c, &r.Directories)
	c.boolean(&r.Fenced)
	if c.version >= 2 {
		c.boolean(&r.ShuttingDown)
		directories(c, &r.Offline)
	}
}

func (r *BrokerFenceRecord) layout(c *codec) {
	number(c, &r.ID)
	number(c, &r.Epoch)
	c.boolean(&r.Fenced)
	if c.version >= 2 {
		c.boolean(&r.ShuttingDown)
		directories(c, &r.Offline)
	}
}

func (r *BrokerRemovalRecord) layout(c *codec) {
	number(c, &r.ID)
	number(c, &r.Epoch)
}

func (r *TopicRecord) layout(c *codec) {
	c.uuid((*[16]byte)(&r.ID))
	text(c, &r.Name)
	c.boolean(&r.Internal)
	number(c, &r.ReplicationFactorTarget)
}

func (r *PartitionRecord) layout(c *codec) {
	c.partition(&r.Partition)
	p := &r.Registration
	nodes(c, &p.Replicas)
	directories(c, &p.Directories)
	nodes(c, &p.ISR)
	nodes(c, &p.ELR)
	nodes(c, &p.LastKnownELR)
	number(c, &p.Leader)
	number(c, &p.LeaderEpoch)
	number(c, &p.PartitionEpoch)
	if c.version >= 2 {
		nodes(c, &p.Adding)
		nodes(c, &p.Removing)
	}
	if c.version >= 3 {
		c.loss(&p.Loss)
	}
}

func (r *PartitionChangeRecord) layout(c *codec) {
	c.partition(&r.Partition)
	optional(c, &r.Replicas, 1, nodeID)
	optional(c, &r.Directories, 16, directoryID)
	optional(c, &r.ISR, 1, nodeID)
	optional(c, &r.ELR, 1, nodeID)
	optional(c, &r.LastKnownELR, 1, nodeID)
	c.boolean(&r.LeaderChange)
	if r.LeaderChange {
		number(c, &r.Leader)
	}
	if c.version >= 2 {
		optional(c, &r.Adding, 1, nodeID)
		optional(c, &r.Removing, 1, nodeID)
	}
	if c.version >= 3 {
		c.loss(&r.Loss)
	}
}

func (r *PartitionTargetRecord) layout(c *codec) {
	c.partition(&r.Partition)
	number(c, &r.Chosen)
	c.boolean(&r.Raised)
}

// loss is there in every record that has room for it: one without has an older version.
func (c *codec) loss(v **Loss) {
	if c.decoding {
		*v = &Loss{}
	}
	number(c, &(*v).Epoch)
	number(c, &(*v).From)
	c.boolean(&(*v).Unclean)
	number(c, &(*v).At)
}

func (r *TopicRemovalRecord) layout(c *codec) {
	c.uuid((*[16]byte)(&r.ID))
	text(c, &r.Name)
	directories(c, &r.Directories)
}

func (r *TopicPurgeRecord) layout(c *codec) {
	c.uuid((*[16]byte)(&r.ID))
	directoryID(c, &r.Directory)
}

func (r *ConfigRecord) layout(c *codec) {
	number(c, &r.Resource.Type)
	text(c, &r.Resource.Name)
	text(c, &r.Key)
	c.boolean(&r.Unset)
	if !r.Unset {
		text(c, &r.Value)
	}
}

func (r *ProducerIDsRecord) layout(c *codec) { number(c, &r.Next) }
