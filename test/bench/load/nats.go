package load

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/brokerd/brokerd/test/bench/rpc"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// NATS is a connection to a nats-server, for what is asked beside the load. What is a
// topic of partitions elsewhere are as many streams here, each with one subject of its
// own name. It may be used by several goroutines.
type NATS struct {
	conn *nats.Conn
	js   jetstream.JetStream
}

// DialNATS connects.
func DialNATS(addr string, options ...jetstream.JetStreamOpt) (*NATS, error) {
	conn, err := nats.Connect("nats://"+addr, nats.Name(rpc.ClientID), nats.NoReconnect())
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	js, err := jetstream.New(conn, append(options, jetstream.WithDefaultTimeout(rpc.Patience))...)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &NATS{conn: conn, js: js}, nil
}

// Close closes the connection.
func (n *NATS) Close() { n.conn.Close() }

// stream is the name of a partition's stream, and of its subject.
func stream(t rpc.Topic, partition int) string { return fmt.Sprintf("%s-%d", t.Name, partition) }

// CreateTopic makes the streams, in files and with JetStream's defaults otherwise.
// Settings are of a broker's topics, and refused.
func (n *NATS) CreateTopic(ctx context.Context, name string, partitions int, settings ...string) (rpc.Topic, error) {
	t := rpc.Topic{Name: name, Partitions: partitions}
	if len(settings) > 0 {
		return t, fmt.Errorf("NATS knows no settings %q", settings)
	}
	for p := range partitions {
		s := stream(t, p)
		if _, err := n.js.CreateStream(ctx, jetstream.StreamConfig{Name: s, Subjects: []string{s}, Storage: jetstream.FileStorage}); err != nil {
			return t, fmt.Errorf("create stream %s: %w", s, err)
		}
	}
	return t, nil
}

// DeleteTopic deletes the streams.
func (n *NATS) DeleteTopic(t rpc.Topic) error {
	for p := range t.Partitions {
		if err := n.js.DeleteStream(context.Background(), stream(t, p)); err != nil { // it has a deadline of its own
			return fmt.Errorf("delete stream %s: %w", stream(t, p), err)
		}
	}
	return nil
}

// EndOffsets says how many messages each stream has.
func (n *NATS) EndOffsets(t rpc.Topic) ([]int64, error) {
	ends := make([]int64, t.Partitions)
	for p := range ends {
		s, err := n.js.Stream(context.Background(), stream(t, p)) // as above
		if err != nil {
			return nil, fmt.Errorf("look at stream %s: %w", stream(t, p), err)
		}
		ends[p] = int64(s.CachedInfo().State.LastSeq)
	}
	return ends, nil
}

// ProduceAll has the message acknowledged in every stream.
func (n *NATS) ProduceAll(ctx context.Context, t rpc.Topic, message []byte) error {
	for p := range t.Partitions {
		if _, err := n.js.Publish(ctx, stream(t, p), message); err != nil {
			return fmt.Errorf("publish to %s: %w", stream(t, p), err)
		}
	}
	return nil
}

// NATSInFlight is how many messages a client of the library has under way at once: the
// library's own default. With more or fewer it was no faster.
const NATSInFlight = 4000

// NATSPublish is FranzProduce on a nats-server: one client of NATS's own library, which
// publishes to the streams in turn and has many messages under way. JetStream takes and
// acknowledges each of them by itself.
type NATSPublish struct {
	Addr   string
	Topic  rpc.Topic // as NATS makes it
	Values [][]byte  // of the messages, in turn
	// As in Produce.
	For      time.Duration
	BytesMax int64
	Ready    func() error
}

// Run publishes, and waits until all is acknowledged.
func (l NATSPublish) Run(ctx context.Context) (Result, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	p, err := newNATSPublisher(l.Addr, l.Topic, stop)
	if err != nil {
		return Result{}, err
	}
	defer p.Close()
	if err := ready(l.Ready); err != nil {
		return Result{}, err
	}
	begun := time.Now()
	var sent, bytes int64
	for ; ctx.Err() == nil; sent++ {
		if sent%franzSkip == 0 && (l.For > 0 && time.Since(begun) >= l.For || l.BytesMax > 0 && bytes >= l.BytesMax) {
			break
		}
		value := l.Values[sent%int64(len(l.Values))]
		if err := p.send(ctx, int(sent)%l.Topic.Partitions, value); err != nil {
			return Result{}, err
		}
		bytes += int64(len(value))
	}
	if err := p.flush(ctx, sent); err != nil {
		return Result{}, err
	}
	r := Result{Records: sent, Requests: sent, Bytes: bytes}
	return r, r.done(begun)
}

// natsPublisher has messages under way. Its connection is its own.
type natsPublisher struct {
	*NATS
	subjects []string // of each partition
	acked    atomic.Int64
}

// newNATSPublisher connects. The first message that is refused is told to failed.
func newNATSPublisher(addr string, t rpc.Topic, failed context.CancelCauseFunc) (*natsPublisher, error) {
	p := &natsPublisher{}
	for i := range t.Partitions {
		p.subjects = append(p.subjects, stream(t, i))
	}
	var err error
	p.NATS, err = DialNATS(addr, jetstream.WithPublishAsyncMaxPending(NATSInFlight),
		jetstream.WithPublishAsyncAckHandler(func(jetstream.JetStream, *nats.Msg, *jetstream.PubAck) { p.acked.Add(1) }),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, m *nats.Msg, err error) {
			failed(fmt.Errorf("publish to %s: %w", m.Subject, err))
		}))
	return p, err
}

// send publishes a message as soon as not too many are under way.
func (p *natsPublisher) send(ctx context.Context, partition int, value []byte) error {
	for {
		_, err := p.js.PublishAsync(p.subjects[partition], value)
		if !errors.Is(err, jetstream.ErrTooManyStalledMsgs) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// flush waits until all that was sent is acknowledged.
func (p *natsPublisher) flush(ctx context.Context, sent int64) error {
	late := time.NewTimer(late)
	defer late.Stop()
	select {
	case <-p.js.PublishAsyncComplete():
	case <-late.C:
	case <-ctx.Done():
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if acked := p.acked.Load(); acked != sent {
		return fmt.Errorf("%d messages of %d were acknowledged", acked, sent)
	}
	return nil
}
