package wire

import "fmt"

// The versions of OffsetCommit that change the layout of the request or the response.
const (
	commitThrottles    = 3 // a throttle time
	commitRetentionMax = 4 // the last with a retention (KIP-211)
	commitEpochs       = 6 // leader epochs (KIP-320)
	commitInstances    = 7 // static members (KIP-345)
	commitFlexible     = 8
	commitByID         = 10 // topics have IDs and no names (KIP-848)
)

// commitKeep is for how many topics, and how many partitions, room is kept, to be used
// again.
const commitKeep = 1024

// OffsetCommit is an OffsetCommit request as it came. It is made to be read into again:
// what it needs for topics and partitions it keeps. It is for one goroutine at a time.
//
// Source: Kafka's protocol, versions 2 to 10.
type OffsetCommit struct {
	Group           []byte
	Generation      int32
	MemberID        []byte
	InstanceID      []byte // nil is null
	RetentionMillis int64  // -1 is the broker's
	Topics          []OffsetCommitTopic

	partitions []OffsetCommitPartition
}

// OffsetCommitTopic is the part of an OffsetCommit about one topic: it has a name below
// version 10, and an ID from then on.
type OffsetCommitTopic struct {
	Name       []byte
	ID         [16]byte
	Partitions []OffsetCommitPartition
}

// OffsetCommitPartition is the offset of one partition.
type OffsetCommitPartition struct {
	Index       int32
	LeaderEpoch int32 // or -1
	Offset      int64
	Metadata    []byte // nil is null
}

// Read reads the body of a request of a version that is served. What it reads shares
// the body's memory, of which nothing is changed, and is there until the next Read or
// Forget. Bytes after the request are ignored, as Kafka ignores them. The error wraps
// ErrMalformed.
//
// It takes memory for what is there, never for what a count claims.
func (c *OffsetCommit) Read(version int16, body []byte) error {
	if len(body) > maxBodyBytes {
		return fmt.Errorf("%w: OffsetCommit of %d bytes, more than %d", ErrMalformed, len(body), maxBodyBytes)
	}
	r := reader{src: body, flexible: version >= commitFlexible, left: len(body)}
	c.Topics, c.partitions = c.Topics[:0], c.partitions[:0]
	c.Group = r.name()
	c.Generation = r.int32()
	c.MemberID = r.name()
	c.InstanceID, c.RetentionMillis = nil, -1
	if version >= commitInstances {
		c.InstanceID = r.text()
	}
	if version <= commitRetentionMax {
		c.RetentionMillis = r.int64()
	}
	for i := r.arrayLen(); i > 0 && !r.bad; i-- {
		c.readTopic(&r, version)
	}
	r.tags()
	if r.bad {
		return fmt.Errorf("%w: OffsetCommit version %d ends inside a field, or has a null where none may be", ErrMalformed, version)
	}
	return nil
}

func (c *OffsetCommit) readTopic(r *reader, version int16) {
	var t OffsetCommitTopic
	if version >= commitByID {
		t.ID = r.uuid()
	} else {
		t.Name = r.name()
	}
	first := len(c.partitions)
	for j := r.arrayLen(); j > 0 && !r.bad; j-- {
		p := OffsetCommitPartition{Index: r.int32(), Offset: r.int64(), LeaderEpoch: -1}
		if version >= commitEpochs {
			p.LeaderEpoch = r.int32()
		}
		p.Metadata = r.text()
		r.tags()
		c.partitions = append(c.partitions, p)
	}
	r.tags()
	t.Partitions = c.partitions[first:len(c.partitions):len(c.partitions)]
	c.Topics = append(c.Topics, t)
}

// Forget lets go of the body, so that an OffsetCommit that waits to be read into holds
// no memory but what little it keeps.
func (c *OffsetCommit) Forget() {
	topics, partitions := c.Topics, c.partitions
	*c = OffsetCommit{}
	if cap(topics) <= commitKeep && cap(partitions) <= commitKeep {
		clear(topics)
		clear(partitions)
		c.Topics, c.partitions = topics[:0], partitions[:0]
	}
}

// Partitions counts those of all topics.
func (c *OffsetCommit) Partitions() int { return len(c.partitions) }

// Size is how many bytes AppendTo appends at most.
func (c *OffsetCommit) Size() int {
	const fixed, eachTopic, eachPartition = 16, 32, 8
	n := fixed + eachPartition*len(c.partitions)
	for i := range c.Topics {
		n += eachTopic + len(c.Topics[i].Name)
	}
	return n
}

// AppendAnswer appends the response to the request, in its version: codes are those of
// the partitions of all topics, in their order.
func (c *OffsetCommit) AppendAnswer(dst []byte, version int16, codes []Code) []byte {
	flexible := version >= commitFlexible
	if version >= commitThrottles {
		dst = appendInt32(dst, 0)
	}
	dst = appendArrayLen(dst, len(c.Topics), flexible)
	for i := range c.Topics {
		t := &c.Topics[i]
		if version >= commitByID {
			dst = append(dst, t.ID[:]...)
		} else {
			dst = appendText(dst, t.Name, flexible)
		}
		dst = appendArrayLen(dst, len(t.Partitions), flexible)
		for j := range t.Partitions {
			dst = appendInt32(dst, t.Partitions[j].Index)
			dst = appendInt16(dst, codes[0])
			dst = appendTags(dst, flexible)
			codes = codes[1:]
		}
		dst = appendTags(dst, flexible)
	}
	return appendTags(dst, flexible)
}
