package load

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/broker"
	"github.com/brokerd/brokerd/core/config"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
	"github.com/brokerd/brokerd/test/bench/rpc"
)

// served is a broker with a topic.
func served(t *testing.T, partitions int) (string, *rpc.Conn, rpc.Topic) {
	t.Helper()
	cfg, err := config.Load(config.Sources{Overrides: []config.Override{
		{Name: "data", Value: t.TempDir()},
		{Name: "listeners", Value: "PLAINTEXT://127.0.0.1:0"},
		{Name: "storage.stores", Value: `{main: {plugin: memstore}}`},
	}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := broker.New(cfg, broker.Deps{
		Logger: slog.New(slog.DiscardHandler), Version: "test",
		Inside: map[string]storage.Provider{"memstore": memstore.NewProvider(memstore.Options{})},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-b.Ready():
	case err := <-ran:
		ran <- nil
		t.Fatal(err)
	}
	c, err := rpc.Dial(ctx, b.Addresses()[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	topic, err := c.CreateTopic(ctx, "load", partitions)
	if err != nil {
		t.Fatal(err)
	}
	return b.Addresses()[0], c, topic
}

// What is produced is counted, is in the log, and is consumed again by each client.
func TestProduceAndConsume(t *testing.T) {
	addr, c, topic := served(t, 3)
	batch, n, err := FullBatch(time.Now(), 100, 10_000, LZ4)
	if err != nil {
		t.Fatal(err)
	}
	const producers, requests = 5, 40
	readied := 0
	r, err := Produce{
		Addr: addr, Topic: topic, Producers: producers, InFlight: 3, Batch: batch, Records: n, BytesMax: int64(requests * len(batch)),
		Latencies: true, Ready: func() error { readied++; return nil },
	}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ends, err := c.EndOffsets(topic)
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests != requests || r.Records != int64(requests*n) || r.Bytes != int64(requests*len(batch)) || len(r.Latencies) != requests || total(ends) != r.Records || readied != 1 {
		t.Errorf("%d requests, %d records, %d bytes, %d latencies; the log ends at %v", r.Requests, r.Records, r.Bytes, len(r.Latencies), ends)
	}
	got, err := Consume{Addr: addr, Topic: topic, Ends: ends, Consumers: 2}.Run(t.Context())
	if err != nil || got.Records != r.Records || got.Bytes != r.Bytes {
		t.Errorf("consumed %d records in %d bytes: %v", got.Records, got.Bytes, err)
	}
	got, err = FranzConsume{Addr: addr, Topic: topic, Ends: ends}.Run(t.Context())
	if err != nil || got.Records != r.Records {
		t.Errorf("franz-go consumed %d records: %v", got.Records, err)
	}
	sent, err := FranzProduce{Addr: addr, Topic: topic, Values: Values(10, 100), BytesMax: 100_000}.Run(t.Context())
	if err != nil || sent.Records < 1000 {
		t.Errorf("franz-go produced %d records: %v", sent.Records, err)
	}
	after, err := c.EndOffsets(topic)
	if err != nil || total(after) != total(ends)+sent.Records {
		t.Errorf("the log ends at %v, %v", after, err)
	}
}

// A consumer that does not get all fails: it is no measurement.
func TestConsumeMissesNothing(t *testing.T) {
	addr, _, topic := served(t, 1)
	_, err := Consume{Addr: addr, Topic: topic, Ends: []int64{1}, Consumers: 1}.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "nothing was served") {
		t.Errorf("a record that is not there: %v", err)
	}
}

func TestRefusedRecordsAreNoResult(t *testing.T) {
	addr, _, topic := served(t, 1)
	broken := Batch(time.Now(), []byte("x"))
	broken[batchCRCAt]++
	if _, err := (Produce{Addr: addr, Topic: topic, Producers: 1, InFlight: 1, Batch: broken, Records: 1, BytesMax: 1000}).Run(t.Context()); err == nil {
		t.Error("a broker's error is no error here")
	}
}

func TestEndToEndAndCrowd(t *testing.T) {
	addr, c, topic := served(t, 2)
	r, err := EndToEnd{Addr: addr, Topic: topic, PerSecond: 200, ValueBytes: 100, For: time.Second / 2}.Run(t.Context())
	if err != nil || r.Records != 100 || len(r.Latencies) != 100 {
		t.Fatalf("%d records, %d latencies: %v", r.Records, len(r.Latencies), err)
	}
	for _, l := range r.Latencies {
		if l <= 0 || l > r.Elapsed {
			t.Errorf("a record took %v of %v", l, r.Elapsed)
		}
	}
	atEnd := false
	crowd, err := Crowd{
		Addr: addr, Topic: topic, Idle: 20, Active: 10, Every: 100 * time.Millisecond, For: 500 * time.Millisecond,
		Batch: Batch(time.Now(), Value(100, 0)), AtEnd: func() error { atEnd = true; return nil },
	}.Run(t.Context())
	if err != nil || crowd.Requests != 50 || len(crowd.Latencies) != 50 || !atEnd {
		t.Errorf("%d requests, %d latencies: %v", crowd.Requests, len(crowd.Latencies), err)
	}
	ends, err := c.EndOffsets(topic)
	if err != nil || total(ends) != 150 {
		t.Errorf("the log ends at %v, %v", ends, err)
	}
}

// A server that goes away ends a load, with an error.
func TestServerGoesAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	topic := rpc.Topic{Name: "x", Partitions: 1}
	if _, err := (Produce{Addr: l.Addr().String(), Topic: topic, Producers: 3, InFlight: 2, Batch: Batch(time.Now(), nil), Records: 1, For: time.Hour}).Run(t.Context()); err == nil {
		t.Error("no error")
	}
}

// Every partition is one consumer's, of whose partitions one broker leads all; there are no
// more consumers than asked for, but where there are more leaders.
func TestShares(t *testing.T) {
	for _, c := range []struct {
		leaders   string
		consumers int
		want      string
	}{
		{"aaaaaa", 3, "[[0 3] [1 4] [2 5]]"},
		{"aaaa", 9, "[[0] [1] [2] [3]]"},
		{"abcabc", 3, "[[0 3] [1 4] [2 5]]"},
		{"abcabc", 1, "[[0 3] [1 4] [2 5]]"},
		{"aaaabb", 3, "[[0 2] [1 3] [4 5]]"},
		{"abb", 4, "[[0] [1] [2]]"},
	} {
		topic := rpc.Topic{Partitions: len(c.leaders), Leaders: strings.Split(c.leaders, "")}
		if got := fmt.Sprint(Consume{Topic: topic, Consumers: c.consumers}.shares()); got != c.want {
			t.Errorf("%d consumers of %s: %s, not %s", c.consumers, c.leaders, got, c.want)
		}
	}
	if got := fmt.Sprint(Consume{Topic: rpc.Topic{Partitions: 3}, Consumers: 2}.shares()); got != "[[0 2] [1]]" {
		t.Errorf("of one broker: %s", got)
	}
}
