package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/brokerd/brokerd/test/bench/rpc"
	"github.com/nats-io/nats.go"
)

// NATSProduce is Produce on a nats-server: each producer has one connection, and one
// message in flight until JetStream acknowledges it, to the i-th stream modulo their
// number. It speaks NATS's protocol itself, and costs as little as Produce does.
type NATSProduce struct {
	Addr      string
	Topic     rpc.Topic // as NATS makes it
	Producers int
	Value     []byte
	For       time.Duration
	Latencies bool         // are kept
	Ready     func() error // as in Produce
}

// Run connects all, lets them go at once, and waits until all is acknowledged.
func (l NATSProduce) Run(ctx context.Context) (Result, error) {
	producers := make([]*natsProducer, l.Producers)
	for i := range producers {
		p, err := dialNATSProducer(ctx, l.Addr, stream(l.Topic, i%l.Topic.Partitions), l.Value)
		if err != nil {
			return Result{}, err
		}
		defer p.c.Close()
		producers[i] = p
	}
	return together(ctx, producers, l.Ready, func(p *natsProducer) { _ = p.c.Close() },
		func(_ context.Context, _ int, p *natsProducer, begun time.Time) (Result, error) {
			return l.one(p, begun)
		})
}

// one is the life of one producer. A message that JetStream drops has no answer, and ends it.
func (l NATSProduce) one(p *natsProducer, begun time.Time) (r Result, err error) {
	if err := p.c.SetDeadline(begun.Add(l.For + late)); err != nil {
		return r, err
	}
	for {
		at := time.Now()
		if at.Sub(begun) >= l.For {
			return r, nil
		}
		if err := p.publish(); err != nil {
			return r, err
		}
		if l.Latencies {
			r.Latencies = append(r.Latencies, time.Since(at))
		}
		r.Requests, r.Records, r.Bytes = r.Requests+1, r.Records+1, r.Bytes+int64(len(l.Value))
	}
}

// natsProducer is one connection that publishes a prepared message again and again. It is
// for one goroutine.
type natsProducer struct {
	c       net.Conn
	in      *bufio.Reader
	request []byte
	last    uint64 // sequence that was acknowledged
}

// natsSubscription is what a connection calls the subscription of its acknowledgements.
const natsSubscription = "1"

// natsBuffer is for what comes in: the line that tells of the server is the longest.
const natsBuffer = 8 << 10

// dialNATSProducer connects, and subscribes to an inbox of its own.
func dialNATSProducer(ctx context.Context, addr, subject string, value []byte) (*natsProducer, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	inbox := nats.NewInbox()
	p := &natsProducer{c: c, in: bufio.NewReaderSize(c, natsBuffer), request: natsPublish(subject, inbox, value)}
	if err := p.greet(inbox); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return p, nil
}

// natsPublish is a message whose acknowledgement goes to an inbox.
func natsPublish(subject, inbox string, value []byte) []byte {
	out := fmt.Appendf(nil, "PUB %s %s %d\r\n", subject, inbox, len(value))
	return append(append(out, value...), "\r\n"...)
}

func (p *natsProducer) greet(inbox string) error {
	if err := p.c.SetDeadline(time.Now().Add(rpc.Patience)); err != nil {
		return err
	}
	options, err := json.Marshal(map[string]any{
		"verbose": false, "pedantic": false, "protocol": 1, "headers": true, "no_responders": true, "lang": "go", "version": nats.Version, "name": rpc.ClientID,
	})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(p.c, "CONNECT %s\r\nSUB %s %s\r\nPING\r\n", options, inbox, natsSubscription); err != nil {
		return err
	}
	line, err := p.line()
	if err == nil && string(line) != "PONG" {
		err = fmt.Errorf("%q instead of PONG", line)
	}
	return err
}

// line is the next one, without its end, where it is not about the connection alone; it
// is valid until more is read.
func (p *natsProducer) line() ([]byte, error) {
	for {
		line, err := p.in.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case string(line) == "PING":
			if _, err := p.c.Write([]byte("PONG\r\n")); err != nil {
				return nil, err
			}
		case !bytes.HasPrefix(line, []byte("INFO ")):
			return line, nil
		}
	}
}

// publish sends the message once more, and waits for its acknowledgement.
func (p *natsProducer) publish() error {
	if _, err := p.c.Write(p.request); err != nil {
		return err
	}
	line, err := p.line()
	if err != nil {
		return fmt.Errorf("acknowledgement: %w", err)
	}
	size, err := natsSize(string(line))
	if err != nil {
		return err
	}
	message, err := p.in.Peek(size + len("\r\n"))
	if err != nil {
		return fmt.Errorf("acknowledgement: %w", err)
	}
	sequence, ok := natsAck(message[:size])
	if !ok || sequence <= p.last {
		return fmt.Errorf("%q, after %d was acknowledged", message[:size], p.last)
	}
	p.last = sequence
	_, err = p.in.Discard(len(message))
	return err
}

// natsSize is how long the message is that this line begins: "MSG subject subscription
// size", where nothing but an acknowledgement is expected. One with headers is none: it
// says that no stream has the subject.
func natsSize(line string) (int, error) {
	rest, ok := strings.CutPrefix(line, "MSG ")
	at := strings.LastIndexByte(rest, ' ')
	if !ok || at < 0 {
		return 0, fmt.Errorf("%q instead of an acknowledgement", line)
	}
	size, err := strconv.Atoi(rest[at+1:])
	if err != nil || size < 0 || size > natsBuffer-2 {
		return 0, fmt.Errorf("%q instead of an acknowledgement", line)
	}
	return size, nil
}

var sequenceField = []byte(`"seq":`)

// natsAck reads the sequence of an acknowledgement, {"stream":"x","seq":7}. Errors have
// none, or 0.
func natsAck(message []byte) (sequence uint64, ok bool) {
	_, rest, found := bytes.Cut(message, sequenceField)
	for i, digit := range rest {
		if digit < '0' || digit > '9' {
			return sequence, found && i > 0 && sequence > 0
		}
		sequence = sequence*10 + uint64(digit-'0')
	}
	return 0, false
}
