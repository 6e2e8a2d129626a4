package load

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/test/bench/peer"
	"github.com/brokerd/brokerd/test/bench/rpc"
)

// natsServed is a nats-server with a topic.
func natsServed(t *testing.T, partitions int) (string, *NATS, rpc.Topic) {
	t.Helper()
	t.Chdir("../../..") // where it is installed from
	s, err := peer.NATS(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	n, err := DialNATS(s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	topic, err := n.CreateTopic(t.Context(), "load", partitions)
	if err != nil {
		t.Fatal(err)
	}
	return s.Addr, n, topic
}

// What is published is counted, is in the streams, and is consumed again.
func TestNATS(t *testing.T) {
	addr, n, topic := natsServed(t, 3)
	if err := n.ProduceAll(t.Context(), topic, Value(100, 0)); err != nil {
		t.Fatal(err)
	}
	readied := 0
	produced, err := NATSProduce{
		Addr: addr, Topic: topic, Producers: 5, Value: Value(100, 0), For: 200 * time.Millisecond, Latencies: true, Ready: func() error { readied++; return nil },
	}.Run(t.Context())
	if err != nil || produced.Records < 5 || produced.Requests != produced.Records || produced.Bytes != 100*produced.Records || len(produced.Latencies) != int(produced.Records) || readied != 1 {
		t.Fatalf("%d records, %d bytes, %d latencies: %v", produced.Records, produced.Bytes, len(produced.Latencies), err)
	}
	published, err := NATSPublish{Addr: addr, Topic: topic, Values: Values(10, 100), BytesMax: 1_000_000}.Run(t.Context())
	if err != nil || published.Records < 10_000 || published.Bytes != 100*published.Records {
		t.Fatalf("%d records, %d bytes: %v", published.Records, published.Bytes, err)
	}
	ends, err := n.EndOffsets(topic)
	if want := 3 + produced.Records + published.Records; err != nil || total(ends) != want {
		t.Fatalf("the streams end at %v, not at %d in all: %v", ends, want, err)
	}
	consumed, err := NATSConsume{Addr: addr, Topic: topic, Ends: ends}.Run(t.Context())
	if err != nil || consumed.Records != total(ends) || consumed.Bytes != 100*total(ends) {
		t.Errorf("%d records, %d bytes: %v", consumed.Records, consumed.Bytes, err)
	}
	through, err := NATSEndToEnd{Addr: addr, Topic: topic, PerSecond: 200, ValueBytes: 100, For: time.Second / 2}.Run(t.Context())
	if err != nil || through.Records != 100 || len(through.Latencies) != 100 {
		t.Fatalf("%d records, %d latencies: %v", through.Records, len(through.Latencies), err)
	}
	for _, l := range through.Latencies {
		if l <= 0 || l > through.Elapsed {
			t.Errorf("a record took %v of %v", l, through.Elapsed)
		}
	}
	if err := n.DeleteTopic(topic); err != nil {
		t.Fatal(err)
	}
	// Nothing is there to take it now.
	for name, run := range map[string]func() error{
		"publish one by one": func() error {
			_, err := NATSProduce{Addr: addr, Topic: topic, Producers: 1, Value: Value(100, 0), For: time.Second}.Run(t.Context())
			return err
		},
		"publish": func() error {
			_, err := NATSPublish{Addr: addr, Topic: topic, Values: Values(1, 100), BytesMax: 100_000}.Run(t.Context())
			return err
		},
		"consume": func() error {
			_, err := NATSConsume{Addr: addr, Topic: topic, Ends: ends}.Run(t.Context())
			return err
		},
	} {
		if err := run(); err == nil {
			t.Errorf("%s: no error without a stream", name)
		}
	}
}

func TestNATSLines(t *testing.T) {
	for line, want := range map[string]int{
		"MSG _INBOX.a 1 30":       30,
		"MSG _INBOX.a 1 0":        0,
		"MSG _INBOX.a 1 x":        -1,
		"MSG _INBOX.a 1 -1":       -1,
		"MSG _INBOX.a 1 99999999": -1,
		"MSG":                     -1,
		"HMSG _INBOX.a 1 16 16":   -1,
		"-ERR 'Slow Consumer'":    -1,
		"":                        -1,
	} {
		if got, err := natsSize(line); err != nil && want != -1 || err == nil && got != want {
			t.Errorf("%q: %d, %v", line, got, err)
		}
	}
	for message, want := range map[string]uint64{
		`{"stream":"load-0","seq":1}`:                                      1,
		`{"stream":"load-0", "seq":1234567,"duplicate":true}`:              1234567,
		`{"error":{"code":503,"description":"full"},"stream":"x","seq":0}`: 0,
		`{"error":{"code":503,"description":"insufficient storage"}}`:      0,
		`{"stream":"load-0","seq":}`:                                       0,
		`{"stream":"load-0","seq":12`:                                      0,
		``:                                                                 0,
	} {
		if got, ok := natsAck([]byte(message)); ok != (want > 0) || ok && got != want {
			t.Errorf("%q: %d, %v", message, got, ok)
		}
	}
	if got, want := string(natsPublish("a", "b", []byte("xyz"))), "PUB a b 3\r\nxyz\r\n"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
}

// A server's pings are answered, what it tells of itself is skipped, and an acknowledgement must be of a later message than the
// last.
func TestNATSProducerReads(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	p := &natsProducer{c: ours, in: bufio.NewReaderSize(ours, natsBuffer), request: natsPublish("a", "b", []byte("x"))}
	said := make(chan string)
	go func() {
		in := bufio.NewReader(theirs)
		line := func() string { s, _ := in.ReadString('\n'); return s }
		heard := line() + line()
		theirs.Write([]byte("INFO {}\r\nPING\r\n"))
		heard += line()
		const ack = `{"stream":"a","seq":7}`
		theirs.Write([]byte("MSG b 1 22\r\n" + ack + "\r\n"))
		heard += line() + line()
		theirs.Write([]byte("MSG b 1 22\r\n" + ack + "\r\n"))
		said <- heard
	}()
	if err := p.publish(); err != nil || p.last != 7 {
		t.Errorf("%d, %v", p.last, err)
	}
	if err := p.publish(); err == nil || !strings.Contains(err.Error(), "after 7 was acknowledged") {
		t.Errorf("the same again: %v", err)
	}
	if got, want := <-said, "PUB a b 1\r\nx\r\nPONG\r\nPUB a b 1\r\nx\r\n"; got != want {
		t.Errorf("it said %q, not %q", got, want)
	}
}
