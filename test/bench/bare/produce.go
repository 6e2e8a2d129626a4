package main

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// produceVersion names topics by ID (KIP-516).
const produceVersion = 13

// The request, behind the client ID of its header, with one batch for one partition:
//
//	0      1          2      4         8          9          25             26      30
//	| tags | trans.ID | acks | timeout | topics+1 | topic ID | partitions+1 | index | bytes+1 | batch | tags | tags | tags
const (
	requestTopicAt = 9
	requestIndexAt = 26
	requestBatchAt = 30
)

// The answer to it:
//
//	0      4             8      9          10         26             27      31      33            41
//	| size | correlation | tags | topics+1 | topic ID | partitions+1 | index | error | base offset | ...
const (
	answerCorrelationAt = 4
	answerErrorAt       = 31
	answerOffsetAt      = 33
)

// produced is what a produce request is about. Its bytes are the request's.
type produced struct {
	topic []byte // ID
	index int32
	batch []byte
}

// parseProduce reads a whole request, which begins with a header.
func parseProduce(request []byte) (p produced, ok bool) {
	if binary.BigEndian.Uint16(request[2:]) != produceVersion {
		return p, false
	}
	body, ok := behindClient(request)
	if !ok || len(body) < requestBatchAt || body[0] != 0 || body[1] != 0 || body[requestTopicAt-1] != 2 || body[requestIndexAt-1] != 2 {
		return p, false
	}
	if binary.BigEndian.Uint16(body[2:]) == 0 {
		return p, false // acks=0: nothing may be answered
	}
	size, n := binary.Uvarint(body[requestBatchAt:])
	if n <= 0 || size == 0 {
		return p, false
	}
	size--
	rest := body[requestBatchAt+n:]
	if size > uint64(len(rest)) || !bytes.Equal(rest[size:], []byte{0, 0, 0}) {
		return p, false
	}
	index := int32(binary.BigEndian.Uint32(body[requestIndexAt:]))
	return produced{topic: body[requestTopicAt : requestIndexAt-1], index: index, batch: rest[:size]}, true
}

// behindClient is a request behind the client ID of its header.
func behindClient(request []byte) ([]byte, bool) {
	client := max(0, int(int16(binary.BigEndian.Uint16(request[headerBytes-2:]))))
	if headerBytes+client > len(request) {
		return nil, false
	}
	return request[headerBytes+client:], true
}

// produce appends what a produce request brings, and returns the answer, which is valid
// until the next call.
func (c *conn) produce(request []byte) ([]byte, error) {
	p, ok := parseProduce(request)
	if !ok {
		return nil, fmt.Errorf("%w: produce", errRequest)
	}
	if c.last == nil || c.last.index != p.index || !bytes.Equal(c.last.topic[:], p.topic) {
		if c.last = c.s.partition([16]byte(p.topic), p.index); c.last == nil {
			return nil, fmt.Errorf("%w: produce to a partition that is not there", errRequest)
		}
		c.answer = produceAnswer(c.last)
	}
	code, base := int16(0), int64(-1)
	info, batch, rest, err := recordbatch.Next(p.batch)
	if err != nil || len(rest) > 0 {
		code = kerr.CorruptMessage.Code
	} else if base, err = c.last.append(batch, info.LastOffset-info.BaseOffset+1); err != nil {
		return nil, err
	}
	copy(c.answer[answerCorrelationAt:], request[4:8])
	binary.BigEndian.PutUint16(c.answer[answerErrorAt:], uint16(code))
	binary.BigEndian.PutUint64(c.answer[answerOffsetAt:], uint64(base))
	return c.answer, nil
}

// produceAnswer is an answer about a partition, in which some fields are filled in later.
func produceAnswer(p *partition) []byte {
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = produceVersion
	rt := kmsg.NewProduceResponseTopic()
	rt.TopicID = p.topic
	rp := kmsg.NewProduceResponseTopicPartition()
	rp.Partition, rp.LogStartOffset = p.index, 0
	rt.Partitions = append(rt.Partitions, rp)
	resp.Topics = append(resp.Topics, rt)
	return framed(0, resp)
}

// framed is a whole answer in a flexible version.
func framed(correlation uint32, resp kmsg.Response) []byte {
	out := binary.BigEndian.AppendUint32(make([]byte, 4), correlation)
	out = resp.AppendTo(append(out, 0))
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out
}
