package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// codecs are the compressions that every producer here knows, by their common
// names.
var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// producer sends records to partition 0 of a topic, in order.
type producer struct {
	name string
	// headers and timestamps say what of a record it can set.
	headers, timestamps bool
	produce             func(t *testing.T, addr, topic, codec string, rs []*kgo.Record)
}

// consumer reads a whole partition from its start, and, where it can, from a
// time.
type consumer struct {
	name    string
	headers bool
	consume func(t *testing.T, addr, topic string, n int) []*kgo.Record
	since   func(t *testing.T, addr, topic string, from time.Time) (first *kgo.Record)
}

func producers() []producer {
	return []producer{
		{name: "franz-go", headers: true, timestamps: true, produce: franzProduce},
		{name: "kcat", produce: kcatProduce},
		{name: "console-producer", produce: consoleProduce},
	}
}

func consumers() []consumer {
	return []consumer{
		{name: "franz-go", headers: true, consume: franzConsume, since: franzSince},
		{name: "kcat", consume: kcatConsume, since: kcatSince},
		{name: "console-consumer", consume: consoleConsume},
	}
}

func franzProduce(t *testing.T, addr, topic, codec string, rs []*kgo.Record) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	c := newClient(t, addr, kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codecs[codec]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	copies := make([]*kgo.Record, len(rs))
	for i, r := range rs {
		copies[i] = &kgo.Record{Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp}
	}
	if err := c.ProduceSync(testContext(t, time.Minute), copies...).FirstErr(); err != nil {
		t.Fatalf("franz-go: produce: %v", err)
	}
}

func franzConsume(t *testing.T, addr, topic string, n int) []*kgo.Record {
	return poll(t, fromStart(t, addr, topic), n)
}

// poll reads n records.
func poll(t *testing.T, c *kgo.Client, n int) []*kgo.Record {
	t.Helper()
	ctx := testContext(t, time.Minute)
	var out []*kgo.Record
	for len(out) < n {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("franz-go: consume: %v (%d of %d records)", err, len(out), n)
		}
		out = append(out, fetches.Records()...)
	}
	return out
}

func franzSince(t *testing.T, addr, topic string, from time.Time) *kgo.Record {
	c := newClient(t, addr, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AfterMilli(from.UnixMilli())}}))
	return poll(t, c, 1)[0]
}

// keyed writes records as lines of key, tab, value.
func keyed(rs []*kgo.Record) io.Reader {
	var b bytes.Buffer
	for _, r := range rs {
		b.Write(r.Key)
		b.WriteByte('\t')
		b.Write(r.Value)
		b.WriteByte('\n')
	}
	return &b
}

func kcatProduce(t *testing.T, addr, topic, codec string, rs []*kgo.Record) {
	run(t, keyed(rs), tool(t, "kcat"), "-b", addr, "-P", "-t", topic, "-p", "0", "-K", "\t", "-z", codec,
		"-X", "enable.idempotence=true", "-X", "message.max.bytes=1000000")
}

// kcatFormat tells lengths, so that any bytes can be read back.
const kcatFormat = "%o %T %K %S\n%k%s\n"

func kcatConsume(t *testing.T, addr, topic string, n int) []*kgo.Record {
	out := run(t, nil, tool(t, "kcat"), "-b", addr, "-C", "-q", "-t", topic, "-p", "0", "-o", "beginning", "-c", strconv.Itoa(n), "-f", kcatFormat)
	return parseKcat(t, out)
}

func kcatSince(t *testing.T, addr, topic string, from time.Time) *kgo.Record {
	out := run(t, nil, tool(t, "kcat"), "-b", addr, "-C", "-q", "-t", topic, "-p", "0",
		"-o", fmt.Sprintf("s@%d", from.UnixMilli()), "-c", "1", "-f", kcatFormat)
	return parseKcat(t, out)[0]
}

func parseKcat(t *testing.T, out []byte) []*kgo.Record {
	t.Helper()
	var rs []*kgo.Record
	r := bufio.NewReader(bytes.NewReader(out))
	for {
		var offset, ms int64
		var keyLen, valueLen int
		if _, err := fmt.Fscanf(r, "%d %d %d %d\n", &offset, &ms, &keyLen, &valueLen); errors.Is(err, io.EOF) {
			return rs
		} else if err != nil {
			t.Fatalf("kcat: cannot read record %d of its output: %v", len(rs), err)
		}
		body := make([]byte, max(keyLen, 0)+max(valueLen, 0)+1)
		if _, err := io.ReadFull(r, body); err != nil {
			t.Fatalf("kcat: record %d of its output: %v", len(rs), err)
		}
		rec := &kgo.Record{Offset: offset, Timestamp: time.UnixMilli(ms)}
		if keyLen >= 0 {
			rec.Key = body[:keyLen]
		}
		rec.Value = body[max(keyLen, 0) : len(body)-1]
		rs = append(rs, rec)
	}
}

// kafkaTool runs one of Kafka's command-line tools.
func kafkaTool(t *testing.T, stdin io.Reader, class string, args ...string) []byte {
	t.Helper()
	jars := tool(t, "kafka")
	log := "-Dlog4j2.configurationFile=file:" + filepath.Join(filepath.Dir(jars), "log4j2.properties")
	args = append([]string{"-Xmx512m", log, "-cp", jars, "org.apache.kafka.tools." + class}, args...)
	return run(t, stdin, "java", args...)
}

func consoleProduce(t *testing.T, addr, topic, codec string, rs []*kgo.Record) {
	kafkaTool(t, keyed(rs), "ConsoleProducer", "--bootstrap-server", addr, "--topic", topic, "--compression-codec", codec,
		"--reader-property", "parse.key=true", "--reader-property", "key.separator=\t")
}

func consoleConsume(t *testing.T, addr, topic string, n int) []*kgo.Record {
	out := kafkaTool(t, nil, "consumer.ConsoleConsumer", "--bootstrap-server", addr, "--topic", topic, "--partition", "0",
		"--offset", "earliest", "--max-messages", strconv.Itoa(n), "--timeout-ms", "20000",
		"--formatter-property", "print.timestamp=true", "--formatter-property", "print.offset=true",
		"--formatter-property", "print.key=true", "--formatter-property", "key.separator=\t")
	var rs []*kgo.Record
	for line := range strings.SplitSeq(strings.TrimSuffix(string(out), "\n"), "\n") {
		f := strings.SplitN(line, "\t", 4)
		if len(f) != 4 {
			t.Fatalf("console consumer: cannot read its line %q", line)
		}
		ms, err1 := strconv.ParseInt(strings.TrimPrefix(f[0], "CreateTime:"), 10, 64)
		offset, err2 := strconv.ParseInt(strings.TrimPrefix(f[1], "Offset:"), 10, 64)
		if err1 != nil || err2 != nil {
			t.Fatalf("console consumer: cannot read its line %q", line)
		}
		rs = append(rs, &kgo.Record{Offset: offset, Timestamp: time.UnixMilli(ms), Key: []byte(f[2]), Value: []byte(f[3])})
	}
	return rs
}

// run runs a command to its end and returns what it printed.
func run(t *testing.T, stdin io.Reader, name string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", filepath.Base(name), strings.Join(args, " "), err, errs.String(), trim(out.String()))
	}
	return out.Bytes()
}

func trim(s string) string {
	if len(s) > 500 {
		return s[:500] + "..."
	}
	return s
}
