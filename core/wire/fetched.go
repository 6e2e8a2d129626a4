package wire

import (
	"encoding/binary"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// spliceBytesMin is how large a part of records is that is sent from where it is, and
// not copied: a part of its own costs the kernel as much as copying some KiB.
const spliceBytesMin = 8 << 10

// FetchResponse is the answer to a Fetch. As a Fetch is, it is made to be used again,
// by one goroutine at a time.
//
// Source: Kafka's protocol, versions 4 to 18; KIP-951 (where the leader is).
type FetchResponse struct {
	Code      Code // from version 7 on, as SessionID
	SessionID int32
	Topics    []FetchedTopic
	// Brokers are those that a partition names as its leader; told from version 16 on.
	Brokers []ProducedBroker

	partitions []FetchedPartition
}

// FetchedTopic answers for some partitions of a topic: by its name or its ID, as the
// version has it.
type FetchedTopic struct {
	Name string
	ID   [16]byte
	from int // its first partition
}

// FetchedPartition is the answer for one partition.
type FetchedPartition struct {
	Index         int32
	Code          Code
	HighWatermark int64
	LastStable    int64
	LogStart      int64
	// Committed: aborted transactions are listed, and there are none. Otherwise the
	// list is null.
	Committed bool
	// Preferred is the replica that the client is to read from instead, or -1; told from
	// version 11 on. (KIP-392)
	Preferred int32
	// Section is whole batches in a file, which come before the Records; no File: there
	// are none.
	Section model.Section
	// Records are whole batches, in parts that follow each other.
	Records [][]byte
	// DivergingEpoch and its end are told where either is not -1.
	DivergingEpoch int32
	DivergingEnd   int64
	// Leader and LeaderEpoch are told where either is not -1.
	Leader      int32
	LeaderEpoch int32
}

// Topic begins a topic: the partitions that are added from now on are its.
func (r *FetchResponse) Topic(name string, id [16]byte) {
	r.Topics = append(r.Topics, FetchedTopic{Name: name, ID: id, from: len(r.partitions)})
}

// Partition adds a partition to the last topic. It prefers no replica, names no leader, diverges
// nowhere and has no offsets; what it is, is for the caller to say before the next one is added.
func (r *FetchResponse) Partition(index int32) *FetchedPartition {
	r.partitions = append(r.partitions, FetchedPartition{
		Index: index, HighWatermark: -1, LastStable: -1, LogStart: -1, Preferred: -1, DivergingEpoch: -1, DivergingEnd: -1, Leader: -1, LeaderEpoch: -1,
	})
	return &r.partitions[len(r.partitions)-1]
}

// of are the partitions of a topic.
func (r *FetchResponse) of(topic int) []FetchedPartition {
	if topic+1 < len(r.Topics) {
		return r.partitions[r.Topics[topic].from:r.Topics[topic+1].from]
	}
	return r.partitions[r.Topics[topic].from:]
}

// Forget lets go of what was answered, as Fetch.Forget does.
func (r *FetchResponse) Forget() {
	topics, partitions := r.Topics, r.partitions
	*r = FetchResponse{}
	if cap(topics) <= fetchKeep && cap(partitions) <= fetchKeep {
		clear(topics)
		clear(partitions)
		r.Topics, r.partitions = topics[:0], partitions[:0]
	}
}

// Size bounds what Encode appends and splices, as Body.Size does.
func (r *FetchResponse) Size() (size Size) {
	const fixed, eachTopic, eachPartition, eachBroker = 32, 32, 4 + 2 + 8 + 8 + 8 + 4 + 4 + 5 + 40, 32
	size.Appended = fixed + eachPartition*len(r.partitions)
	for i := range r.Topics {
		size.Appended += eachTopic + len(r.Topics[i].Name)
	}
	for i := range r.partitions {
		size.Sections += r.partitions[i].Section.Bytes
		for _, part := range r.partitions[i].Records {
			if len(part) >= spliceBytesMin {
				size.Spliced += len(part)
			} else {
				size.Appended += len(part)
			}
		}
	}
	for i := range r.Brokers {
		b := &r.Brokers[i]
		size.Appended += eachBroker + len(b.Host)
		if b.Rack != nil {
			size.Appended += len(*b.Rack)
		}
	}
	return size
}

// Encode appends the response in a version that is served, as Body.Encode does.
func (r *FetchResponse) Encode(dst []byte, version int16, splice Splice) []byte {
	flexible := version >= fetchFlexible
	dst = appendInt32(dst, 0) // throttle time
	if version >= fetchSessions {
		dst = appendInt16(dst, r.Code)
		dst = appendInt32(dst, r.SessionID)
	}
	dst = appendArrayLen(dst, len(r.Topics), flexible)
	for i := range r.Topics {
		t := &r.Topics[i]
		if version >= fetchByID {
			dst = append(dst, t.ID[:]...)
		} else {
			dst = appendText(dst, t.Name, flexible)
		}
		partitions := r.of(i)
		dst = appendArrayLen(dst, len(partitions), flexible)
		for j := range partitions {
			dst = partitions[j].encode(dst, version, splice)
		}
		dst = appendTags(dst, flexible)
	}
	if !flexible || len(r.Brokers) == 0 {
		return appendTags(dst, flexible)
	}
	dst = append(dst, 1, 0) // one tagged field, the first
	dst = binary.AppendUvarint(dst, uint64(len(appendBrokers(nil, r.Brokers))))
	return appendBrokers(dst, r.Brokers)
}

func (p *FetchedPartition) encode(dst []byte, version int16, splice Splice) []byte {
	flexible := version >= fetchFlexible
	dst = appendInt32(dst, p.Index)
	dst = appendInt16(dst, p.Code)
	dst = appendInt64(dst, p.HighWatermark)
	dst = appendInt64(dst, p.LastStable)
	if version >= fetchStarts {
		dst = appendInt64(dst, p.LogStart)
	}
	switch { // aborted transactions
	case p.Committed:
		dst = appendArrayLen(dst, 0, flexible)
	case flexible:
		dst = append(dst, 0)
	default:
		dst = appendInt32(dst, nullLength)
	}
	if version >= fetchRacks {
		dst = appendInt32(dst, p.Preferred)
	}
	size := p.Section.Bytes + recordbatch.TotalBytes(p.Records)
	dst = appendArrayLen(dst, size, flexible) // never null, on which old clients fail
	if p.Section.Bytes > 0 {
		splice.Section(len(dst), &p.Section)
	}
	for _, part := range p.Records {
		if len(part) >= spliceBytesMin {
			splice.Records(len(dst), part)
		} else {
			dst = append(dst, part...)
		}
	}
	if flexible {
		return p.encodeTags(dst)
	}
	return dst
}

func (p *FetchedPartition) encodeTags(dst []byte) []byte {
	const divergingBytes, divergingTag, leaderTag = 4 + 8 + 1, 0, 1
	diverging := p.DivergingEpoch != -1 || p.DivergingEnd != -1
	leader := p.Leader != -1 || p.LeaderEpoch != -1
	fields := byte(0)
	if diverging {
		fields++
	}
	if leader {
		fields++
	}
	dst = append(dst, fields)
	if diverging {
		dst = append(dst, divergingTag, divergingBytes)
		dst = appendInt32(dst, p.DivergingEpoch)
		dst = appendInt64(dst, p.DivergingEnd)
		dst = appendTags(dst, true)
	}
	if leader {
		dst = append(dst, leaderTag, leaderBytes)
		dst = appendInt32(dst, p.Leader)
		dst = appendInt32(dst, p.LeaderEpoch)
		dst = appendTags(dst, true)
	}
	return dst
}
