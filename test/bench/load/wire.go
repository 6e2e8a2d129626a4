package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/brokerd/brokerd/test/bench/rpc"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// produceVersion names topics by ID, as clients of Kafka 4 do (KIP-516).
const produceVersion = 13

// acksTimeout is how long a server may wait for acks=all, in ms.
const acksTimeout = 30_000

// correlationAt is where a request has its correlation ID: behind its size, key and version.
const correlationAt = 8

// The answer to a produce request of one batch, in version 13, up to its error:
//
//	0      4             8      9          10         26            27        31
//	| size | correlation | tags | topics+1 | topic ID | partitions+1 | index | error
const (
	answerErrorAt = 31
	answerLeast   = answerErrorAt + 2
)

// produceRequest is a whole request that brings one batch to one partition.
func produceRequest(t rpc.Topic, partition int32, batch []byte) []byte {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = produceVersion, -1, acksTimeout
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = t.Name, t.ID
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, batch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID(rpc.ClientID)).AppendRequest(nil, req, 0)
}

// producer is one connection that sends a prepared request again and again. It is for
// one goroutine.
type producer struct {
	c            net.Conn
	request      []byte
	sent, heard  uint32 // correlation IDs
	in           []byte
	inAt, inUpto int
}

func dialProducer(ctx context.Context, addr string, request []byte) (*producer, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &producer{c: c, request: request, in: make([]byte, 4096)}, nil
}

// send sends the request once more.
func (p *producer) send() error {
	p.sent++
	binary.BigEndian.PutUint32(p.request[correlationAt:], p.sent)
	_, err := p.c.Write(p.request)
	return err
}

// receive waits for the answer to the oldest request that has none.
func (p *producer) receive() error {
	frame, err := p.frame()
	if err != nil {
		return err
	}
	p.heard++
	if got := binary.BigEndian.Uint32(frame[4:]); got != p.heard {
		return fmt.Errorf("an answer to request %d, not to %d", got, p.heard)
	}
	if len(frame) < answerLeast || frame[8] != 0 || frame[9] != 2 || frame[26] != 2 {
		return fmt.Errorf("an answer to produce that is not understood: %x", frame)
	}
	if code := int16(binary.BigEndian.Uint16(frame[answerErrorAt:])); code != 0 {
		return fmt.Errorf("produce: %w", kerr.ErrorForCode(code))
	}
	return nil
}

// frame is the next answer, its size included; it is valid until the next call.
func (p *producer) frame() ([]byte, error) {
	need := 8
	for {
		have := p.in[p.inAt:p.inUpto]
		if len(have) >= 4 {
			need = 4 + int(binary.BigEndian.Uint32(have))
		}
		if need < 8 || need > len(p.in) {
			return nil, fmt.Errorf("an answer of %d bytes", need)
		}
		if len(have) >= need {
			p.inAt += need
			return have[:need], nil
		}
		if p.inAt > 0 {
			p.inUpto = copy(p.in, have)
			p.inAt = 0
		}
		n, err := p.c.Read(p.in[p.inUpto:])
		if err != nil {
			return nil, err
		}
		p.inUpto += n
	}
}

// Result is what a load came to.
type Result struct {
	// Records were acknowledged or read, in as many requests, with as many bytes of batches.
	Records, Requests, Bytes int64
	Elapsed                  time.Duration
	// Latencies are of every request, or record, in no order; only of loads that are
	// about them.
	Latencies []time.Duration
}

func (r *Result) add(o Result) {
	r.Records, r.Requests, r.Bytes = r.Records+o.Records, r.Requests+o.Requests, r.Bytes+o.Bytes
	r.Latencies = append(r.Latencies, o.Latencies...)
}

var errNothing = errors.New("nothing was answered")

// done ends the measurement of a load that began at a time.
func (r *Result) done(begun time.Time) error {
	r.Elapsed = time.Since(begun)
	if r.Requests == 0 {
		return errNothing
	}
	return nil
}

// again does something once and again, until it has taken so long, and adds it up.
func again(least time.Duration, once func(*Result) error) (r Result, err error) {
	begun := time.Now()
	for {
		if err := once(&r); err != nil {
			return r, err
		}
		if time.Since(begun) >= least {
			return r, r.done(begun)
		}
	}
}
