package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/test/bench/load"
	"github.com/brokerd/brokerd/test/bench/rpc"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// listening is a server, with a connection to it, and what it wrote to its log when it ended.
func listening(t *testing.T) (addr string, c *rpc.Conn, end func() string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s := newServer(t.TempDir(), slog.New(slog.NewTextHandler(&log, nil)))
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- s.run(ctx, l) }()
	ended := false
	end = func() string {
		if !ended {
			ended = true
			cancel()
			if err := <-ran; err != nil {
				t.Error(err)
			}
		}
		return log.String()
	}
	t.Cleanup(func() { end() })
	if c, err = rpc.Dial(ctx, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return l.Addr().String(), c, end
}

// What the load's producers send is counted, is acknowledged, and is in the files whole
// and in order, small and large, from many at once.
func TestLoad(t *testing.T) {
	addr, c, end := listening(t)
	full, records, err := load.FullBatch(time.Now(), 1000, load.BatchBytesMax, load.None)
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]load.Produce{
		"one":  {Producers: 1, InFlight: 1, Batch: load.Batch(time.Now(), load.Value(100, 0)), Records: 1, For: 50 * time.Millisecond, Latencies: true},
		"many": {Producers: 20, InFlight: 3, Batch: load.Batch(time.Now(), load.Value(100, 0)), Records: 1, For: 50 * time.Millisecond},
		"full": {Producers: 3, InFlight: 2, Batch: full, Records: records, BytesMax: int64(20 * len(full))},
	} {
		topic, err := c.CreateTopic(t.Context(), name, 3)
		if err != nil {
			t.Fatal(err)
		}
		l.Addr, l.Topic = addr, topic
		r, err := l.Run(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ends, err := c.EndOffsets(topic)
		if err != nil || ends[0]+ends[1]+ends[2] != r.Records || r.Records == 0 {
			t.Errorf("%s: %d records; the files end at %v, %v", name, r.Records, ends, err)
		}
	}
	if log := end(); log != "" {
		t.Errorf("it complained:\n%s", log)
	}
}

// The files are the batches, each with its offset, and go with their topic.
func TestFiles(t *testing.T) {
	s := newServer(t.TempDir(), nil)
	topic, err := s.create("x", 2)
	if err != nil {
		t.Fatal(err)
	}
	batch := load.Batch(time.Now(), []byte("a"), []byte("b"))
	for range 3 {
		if _, err := topic.at(1).append(batch, 2); err != nil {
			t.Fatal(err)
		}
	}
	rest, err := os.ReadFile(topic.path(s.dir, 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int64{0, 2, 4} {
		var info recordbatch.Info
		if info, _, rest, err = recordbatch.Next(rest); err != nil || info.BaseOffset != want || info.Records != 2 {
			t.Errorf("%d records at %d, not at %d: %v", info.Records, info.BaseOffset, want, err)
		}
	}
	if len(rest) > 0 {
		t.Errorf("%d bytes more", len(rest))
	}
	if found, err := s.delete(topic.id); !found || err != nil {
		t.Errorf("deleted: %v, %v", found, err)
	}
	if left, err := filepath.Glob(filepath.Join(s.dir, "*")); err != nil || len(left) > 0 || topic.at(2) != nil || s.partition(topic.id, 1) != nil {
		t.Errorf("left are %v, %v", left, err)
	}
}

func TestTopics(t *testing.T) {
	_, c, _ := listening(t)
	topic, err := c.CreateTopic(t.Context(), "x", 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateTopic(t.Context(), "x", 2); !errors.Is(err, kerr.TopicAlreadyExists) {
		t.Errorf("a topic twice: %v", err)
	}
	for _, n := range []int{0, -1, partitionsMax - 1} {
		if _, err := c.CreateTopic(t.Context(), "y", n); !errors.Is(err, kerr.InvalidPartitions) {
			t.Errorf("%d partitions: %v", n, err)
		}
	}
	if err := c.DeleteTopic(topic); err != nil {
		t.Error(err)
	}
	if err := c.DeleteTopic(topic); !errors.Is(err, kerr.UnknownTopicID) {
		t.Errorf("deleted twice: %v", err)
	}
}

// A batch whose CRC is wrong is refused, and not in the file.
func TestBrokenBatch(t *testing.T) {
	addr, c, _ := listening(t)
	topic, err := c.CreateTopic(t.Context(), "x", 1)
	if err != nil {
		t.Fatal(err)
	}
	batch := load.Batch(time.Now(), []byte("x"))
	for name, broken := range map[string][]byte{
		"its last byte":        append(bytes.Clone(batch[:len(batch)-1]), batch[len(batch)-1]^1),
		"one byte less":        batch[:len(batch)-1],
		"one byte more":        append(bytes.Clone(batch), 0),
		"nothing":              {},
		"two where one may be": append(bytes.Clone(batch), batch...),
	} {
		_, err := load.Produce{Addr: addr, Topic: topic, Producers: 1, InFlight: 1, Batch: broken, Records: 1, For: time.Millisecond}.Run(t.Context())
		if !errors.Is(err, kerr.CorruptMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if ends, err := c.EndOffsets(topic); err != nil || ends[0] != 0 {
		t.Errorf("the file ends at %v, %v", ends, err)
	}
}

// produceRequest is a whole one, with its size.
func produceRequest(id [16]byte, index int32, acks int16, batches ...[]byte) []byte {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = produceVersion, acks
	rt := kmsg.NewProduceRequestTopic()
	rt.TopicID = id
	for _, b := range batches {
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = index, b
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("a client")).AppendRequest(nil, req, 7)
}

// wire is a connection: what the client sends, and what it is answered.
type wire struct {
	io.Reader
	io.Writer
}

// The answer is a produce response as Kafka's is, to the request that asked.
func TestProduceAnswer(t *testing.T) {
	s := newServer(t.TempDir(), nil)
	topic, err := s.create("x", 2)
	if err != nil {
		t.Fatal(err)
	}
	batch := load.Batch(time.Now(), []byte("a"), []byte("b"))
	var in, out bytes.Buffer
	for _, index := range []int32{0, 1, 1, 0} {
		in.Write(produceRequest(topic.id, index, -1, batch))
	}
	if err := newConn(s, wire{iotest.OneByteReader(&in), &out}).serve(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		index  int32
		offset int64
	}{{0, 0}, {1, 0}, {1, 2}, {0, 2}} {
		frame := out.Next(4)
		frame = out.Next(int(binary.BigEndian.Uint32(frame)))
		resp := kmsg.NewPtrProduceResponse()
		resp.Version = produceVersion
		if binary.BigEndian.Uint32(frame) != 7 || frame[4] != 0 {
			t.Fatalf("it begins with %x", frame[:5])
		}
		if err := resp.ReadFrom(frame[5:]); err != nil {
			t.Fatal(err)
		}
		p := resp.Topics[0].Partitions[0]
		if resp.Topics[0].TopicID != topic.id || p.Partition != want.index || p.BaseOffset != want.offset || p.ErrorCode != 0 || p.LogAppendTime != -1 {
			t.Errorf("%+v, not %+v", p, want)
		}
	}
	if out.Len() > 0 {
		t.Errorf("%d bytes more", out.Len())
	}
}

// repeated is a client that sends the same again and again.
type repeated struct{ request []byte }

func (r repeated) Read(b []byte) (int, error)  { return copy(b, r.request), nil }
func (r repeated) Write(b []byte) (int, error) { return len(b), nil }

// A request allocates nothing.
func TestAllocations(t *testing.T) {
	s := newServer(t.TempDir(), nil)
	topic, err := s.create("x", 1)
	if err != nil {
		t.Fatal(err)
	}
	c := newConn(s, repeated{produceRequest(topic.id, 0, -1, load.Batch(time.Now(), []byte("a")))})
	if n := testing.AllocsPerRun(100, func() {
		if err := c.one(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Whatever else is sent ends the connection with an error, and takes no more memory than
// came.
func TestBadRequests(t *testing.T) {
	s := newServer(t.TempDir(), nil)
	topic, err := s.create("x", 1)
	if err != nil {
		t.Fatal(err)
	}
	batch := load.Batch(time.Now(), []byte("x"))
	good := produceRequest(topic.id, 0, -1, batch)
	changed := func(at int, to ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], to)
		return b
	}
	framed := func(b ...byte) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...) }
	const client = 14 // where the client ID is
	body := client + len("a client")
	for name, request := range map[string][]byte{
		"a size that is too large":         {0x7f, 0xff, 0xff, 0xff, 0, 0},
		"a negative size":                  {0xff, 0xff, 0xff, 0xff, 0, 0},
		"a size that is too small":         framed(0, 0, 0, 13),
		"a size that does not come":        {0, 0xf0, 0, 0, 0, 0, 0, 13},
		"half a request":                   good[:len(good)/2],
		"a client ID that is too long":     changed(client-2, 0x7f, 0xff),
		"another version":                  changed(6, 0, 12),
		"an unknown key":                   changed(4, 0x70, 0),
		"a key that is not asked for here": framed(0, 3, 0, 12, 0, 0, 0, 1, 0xff, 0xff, 0, 0),
		"tags in the header":               changed(body, 1),
		"a transaction":                    changed(body+1, 2, 'x'),
		"acks=0":                           produceRequest(topic.id, 0, 0, batch),
		"no partition":                     produceRequest(topic.id, 0, -1),
		"two partitions":                   produceRequest(topic.id, 0, -1, batch, batch),
		"a batch that claims too much":     changed(body+requestBatchAt, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1),
		"a batch whose size is no number":  changed(body+requestBatchAt, bytes.Repeat([]byte{0xff}, 11)...),
		"no batch":                         changed(body+requestBatchAt, 0),
		"another topic":                    produceRequest([16]byte{1}, 0, -1, batch),
		"another partition":                produceRequest(topic.id, 1, -1, batch),
		"a negative partition":             produceRequest(topic.id, -1, -1, batch),
		"topics that claim to be many":     framed(0, 19, 0, 7, 0, 0, 0, 1, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xff, 7),
		"no body":                          framed(0, 19, 0, 7, 0, 0, 0, 1, 0xff, 0xff),
	} {
		c := newConn(s, wire{bytes.NewReader(request), io.Discard})
		if err := c.serve(); err == nil {
			t.Errorf("%s: no error", name)
		}
		if len(c.in) > 2*max(bufferBytes, len(request)) {
			t.Errorf("%s: a buffer of %d bytes for %d", name, len(c.in), len(request))
		}
	}
	if end := topic.at(0).offset(); end != 0 {
		t.Errorf("the file ends at %d", end)
	}
}

func FuzzServe(f *testing.F) {
	batch := load.Batch(time.Now(), []byte("x"))
	f.Add(produceRequest([16]byte{}, 0, -1, batch))
	f.Add([]byte("\x00\x00\x00\x0c\x00\x13\x00\x07\x00\x00\x00\x01\xff\xff\x00\x01"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, sent []byte) {
		file, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		s := newServer(dir, nil)
		s.topics = append(s.topics, &topic{name: "x", partitions: []*partition{{file: file}}})
		c := newConn(s, wire{bytes.NewReader(sent), io.Discard})
		_ = c.serve()
		if len(c.in) > 2*max(bufferBytes, len(sent)) {
			t.Errorf("a buffer of %d bytes for %d", len(c.in), len(sent))
		}
		for _, made := range s.topics {
			_ = s.remove(made)
		}
	})
}

// The arguments are those that every server is started with.
func TestArguments(t *testing.T) {
	for _, args := range [][]string{nil, {"start"}, {"dev", "--flush", "interval"}, {"dev", "--port", "x"}} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("%v are taken", args)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	data := filepath.Join(t.TempDir(), "data")
	if err := run(ctx, []string{"dev", "--data", data, "--port", "0"}); err != nil && !strings.Contains(err.Error(), "cancel") {
		t.Error(err)
	}
	if _, err := os.Stat(data); err != nil {
		t.Error(err)
	}
}
