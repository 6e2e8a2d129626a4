package wire

import "encoding/binary"

// ProduceResponse is the answer to a Produce. As a Produce is, it is made to be used
// again, by one goroutine at a time.
//
// Source: Kafka's protocol, versions 3 to 13; KIP-467 (errors of records), KIP-951
// (where the leader is).
type ProduceResponse struct {
	Topics []ProducedTopic
	// Brokers are those that a partition names as its leader; told from version 10 on.
	Brokers []ProducedBroker

	partitions []ProducedPartition
}

// ProducedTopic answers a ProduceTopic: by its name or its ID, as the version has it.
type ProducedTopic struct {
	Name       []byte
	ID         [16]byte
	Partitions []ProducedPartition
}

// ProducedPartition answers a ProducePartition.
type ProducedPartition struct {
	Index         int32
	Code          Code
	BaseOffset    int64
	LogAppendTime int64 // milliseconds, or -1
	LogStart      int64 // or -1
	Records       []ProducedRecord
	Message       *string
	// Leader and LeaderEpoch are told where either is not -1.
	Leader      int32
	LeaderEpoch int32
}

// ProducedRecord says why one record is refused.
type ProducedRecord struct {
	Index   int32
	Message string
}

// ProducedBroker is where a broker is reached.
type ProducedBroker struct {
	ID   int32
	Host string
	Port int32
	Rack *string
}

// leaderBytes is a leader with its epoch, as a tagged field.
const leaderBytes = 4 + 4 + 1

// Answer makes room for the answer to a request of so many topics and partitions in
// all, in place of an earlier one.
func (r *ProduceResponse) Answer(p *Produce) {
	r.Topics, r.partitions, r.Brokers = r.Topics[:0], r.partitions[:0], r.Brokers[:0]
	for i := range p.Topics {
		t := &p.Topics[i]
		first := len(r.partitions)
		for j := range t.Partitions {
			r.partitions = append(r.partitions, ProducedPartition{
				Index: t.Partitions[j].Index, BaseOffset: -1, LogAppendTime: -1, LogStart: -1, Leader: -1, LeaderEpoch: -1,
			})
		}
		r.Topics = append(r.Topics, ProducedTopic{Name: t.Name, ID: t.ID, Partitions: r.partitions[first:len(r.partitions):len(r.partitions)]})
	}
}

// Forget lets go of what was answered, as Produce.Forget does.
func (r *ProduceResponse) Forget() {
	topics, partitions := r.Topics, r.partitions
	*r = ProduceResponse{}
	if cap(topics) <= produceKeep && cap(partitions) <= produceKeep {
		clear(topics)
		clear(partitions)
		r.Topics, r.partitions = topics[:0], partitions[:0]
	}
}

// Size is how many bytes AppendTo appends at most.
func (r *ProduceResponse) Size() int {
	const fixed, eachTopic, eachPartition, eachBroker = 32, 32, 4 + 2 + 8 + 8 + 8 + 32, 32
	n := fixed
	for i := range r.Topics {
		t := &r.Topics[i]
		n += eachTopic + len(t.Name)
		for j := range t.Partitions {
			p := &t.Partitions[j]
			n += eachPartition
			if p.Message != nil {
				n += len(*p.Message)
			}
			for k := range p.Records {
				n += 4 + textBytes(len(p.Records[k].Message)) + 1
			}
		}
	}
	for i := range r.Brokers {
		b := &r.Brokers[i]
		n += eachBroker + len(b.Host)
		if b.Rack != nil {
			n += len(*b.Rack)
		}
	}
	return n
}

// AppendTo appends the response in a version that is served.
func (r *ProduceResponse) AppendTo(dst []byte, version int16) []byte {
	flexible := version >= produceFlexible
	dst = appendArrayLen(dst, len(r.Topics), flexible)
	for i := range r.Topics {
		t := &r.Topics[i]
		if version >= produceByID {
			dst = append(dst, t.ID[:]...)
		} else {
			dst = appendText(dst, t.Name, flexible)
		}
		dst = appendArrayLen(dst, len(t.Partitions), flexible)
		for j := range t.Partitions {
			dst = t.Partitions[j].appendTo(dst, version, flexible)
		}
		dst = appendTags(dst, flexible)
	}
	dst = appendInt32(dst, 0) // throttle time
	if !flexible || len(r.Brokers) == 0 {
		return appendTags(dst, flexible)
	}
	dst = append(dst, 1, 0) // one tagged field, the first
	dst = binary.AppendUvarint(dst, uint64(len(appendBrokers(nil, r.Brokers))))
	return appendBrokers(dst, r.Brokers)
}

func (p *ProducedPartition) appendTo(dst []byte, version int16, flexible bool) []byte {
	dst = appendInt32(dst, p.Index)
	dst = appendInt16(dst, p.Code)
	dst = appendInt64(dst, p.BaseOffset)
	dst = appendInt64(dst, p.LogAppendTime)
	if version >= produceStarts {
		dst = appendInt64(dst, p.LogStart)
	}
	if version >= produceMessages {
		dst = appendArrayLen(dst, len(p.Records), flexible)
		for i := range p.Records {
			dst = appendInt32(dst, p.Records[i].Index)
			dst = appendText(dst, p.Records[i].Message, flexible)
			dst = appendTags(dst, flexible)
		}
		dst = appendNullText(dst, p.Message, flexible)
	}
	if !flexible || p.Leader == -1 && p.LeaderEpoch == -1 {
		return appendTags(dst, flexible)
	}
	dst = append(dst, 1, 0, leaderBytes) // one tagged field, the first
	dst = appendInt32(dst, p.Leader)
	dst = appendInt32(dst, p.LeaderEpoch)
	return appendTags(dst, flexible)
}

// appendBrokers appends them as they are in a tagged field, which is flexible.
func appendBrokers(dst []byte, brokers []ProducedBroker) []byte {
	dst = appendArrayLen(dst, len(brokers), true)
	for i := range brokers {
		b := &brokers[i]
		dst = appendInt32(dst, b.ID)
		dst = appendText(dst, b.Host, true)
		dst = appendInt32(dst, b.Port)
		dst = appendNullText(dst, b.Rack, true)
		dst = appendTags(dst, true)
	}
	return dst
}
