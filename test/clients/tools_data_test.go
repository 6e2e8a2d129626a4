package clients

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// records reads the first n records of a topic with franz-go.
func (r *toolRun) records(topic string, n int) []*kgo.Record {
	r.Helper()
	c := r.client(r.addr, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx := r.within(askTimeout)
	var all []*kgo.Record
	for len(all) < n {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			r.Fatalf("read %s: %v (%d of %d records)", topic, err, len(all), n)
		}
		all = append(all, fetches.Records()...)
	}
	return all
}

func consoleProducer(r *toolRun) {
	for number, codec := range codecs {
		topic := r.topic(r.addr, "tool-produce-"+codec, 1)
		r.okInput("ConsoleProducer", "h1:a,h2:b\tk1\tv1\nh1:c\tk2\tNULL\n", "--topic", topic, "--compression-codec", codec,
			"--reader-property", "parse.key=true", "--reader-property", "parse.headers=true", "--reader-property", "null.marker=NULL")
		got := r.records(topic, 2)
		first, second := got[0], got[1]
		if string(first.Key) != "k1" || string(first.Value) != "v1" || len(first.Headers) != 2 ||
			first.Headers[1].Key != "h2" || string(first.Headers[1].Value) != "b" {
			r.Errorf("%s: first record %+v", codec, first)
		}
		if string(second.Key) != "k2" || second.Value != nil || first.Attrs.CompressionType() != uint8(number) {
			r.Errorf("%s: second record %+v, codec %d", codec, second, first.Attrs.CompressionType())
		}
	}
}

// consume runs the console consumer in a group, on what the arguments say.
func (r *toolRun) consume(group string, args ...string) []string {
	r.Helper()
	args = append([]string{"--group", group, "--timeout-ms", "20000"}, args...)
	for _, what := range []string{"timestamp", "partition", "offset", "headers", "key"} {
		args = append(args, "--formatter-property", "print."+what+"=true")
	}
	out := r.ok("consumer.ConsoleConsumer", args...)
	return strings.Split(strings.TrimSuffix(out, "\n"), "\n")
}

func consoleConsumerGroup(r *toolRun) {
	topic := r.topic(r.addr, "tool-consume", 1)
	c := r.client(r.addr, kgo.DefaultProduceTopic(topic))
	send := func(from, to int) (lines []string) {
		for i := from; i < to; i++ {
			rec := &kgo.Record{Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "v%d", i), Timestamp: atSecond(i)}
			header := "NO_HEADERS"
			if i%2 == 0 {
				rec.Headers = []kgo.RecordHeader{{Key: "h", Value: []byte("x")}, {Key: "null"}}
				header = "h:x,null:null"
			}
			if err := c.ProduceSync(r.within(askTimeout), rec).FirstErr(); err != nil {
				r.Fatal(err)
			}
			lines = append(lines, fmt.Sprintf("CreateTime:%d\tPartition:0\tOffset:%d\t%s\tk%d\tv%d", i*1000, i, header, i, i))
		}
		return lines
	}
	want := send(0, 4)
	if got := r.consume(topic+"-group", "--topic", topic, "--from-beginning", "--max-messages", "4"); !slices.Equal(got, want) {
		r.Errorf("read %q, want %q", got, want)
	}
	want = send(4, 6)
	// The group goes on where it was, whatever it says of the beginning.
	if got := r.consume(topic+"-group", "--topic", topic, "--from-beginning", "--max-messages", "2"); !slices.Equal(got, want) {
		r.Errorf("read %q after its commit, want %q", got, want)
	}
	r.commitIs(topic+"-group", topic, 6)
}

// consoleConsumerPattern: a group may be subscribed to a pattern of names.
func consoleConsumerPattern(r *toolRun) {
	one := r.topic(r.addr, "tool-pattern", 1)
	two := one + "-two"
	forever := map[string]*string{"retention.ms": kadm.StringPtr("-1")}
	if _, err := r.admin(r.addr).CreateTopic(r.within(askTimeout), 1, -1, forever, two); err != nil {
		r.Fatal(err)
	}
	r.values(one, 0, 1)
	r.values(two, 0, 1)
	got := r.consume(one+"-group", "--include", one+".*", "--from-beginning", "--max-messages", "2")
	for _, line := range got {
		if line != "CreateTime:1000\tPartition:0\tOffset:0\tNO_HEADERS\tnull\tv0" {
			r.Errorf("read %q", line)
		}
	}
	if len(got) != 2 {
		r.Errorf("read %d records, want 2", len(got))
	}
	r.commitIs(one+"-group", one, 1)
	r.commitIs(one+"-group", two, 1)
}

// commitIs waits for a commit, which a consumer that closes may have sent last.
func (r *toolRun) commitIs(group, topic string, want int64) {
	r.Helper()
	r.soon(func() error {
		all, err := r.admin(r.addr).FetchOffsets(r.within(askTimeout), group)
		if got, ok := all.Lookup(topic, 0); err != nil || !ok || got.At != want {
			return fmt.Errorf("committed %d, want %d: %w", got.At, want, errors.Join(err))
		}
		return nil
	})
}

// consoleConsumerOffsets: Kafka's own formatters read the offsets topic.
func consoleConsumerOffsets(r *toolRun) {
	topic := r.topic(r.addr, "tool-internal", 1)
	r.values(topic, 0, 3)
	group := topic + "-group"
	r.member(group, topic, "joiner")
	other := topic + "-other"
	r.commit(other, topic, 3)
	// The tool ends when there is nothing more for a while, which a slow machine may take
	// for the end before the beginning.
	read := func(formatter, pattern string) {
		r.Helper()
		want := regexp.MustCompile(pattern)
		r.soon(func() error {
			a := r.ask("consumer.ConsoleConsumer", "", "--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", "1500",
				"--formatter", "org.apache.kafka.tools.consumer."+formatter)
			if !want.MatchString(a.Stdout) {
				return fmt.Errorf("no %s in what it printed:\n%s", want, a.Stdout)
			}
			return nil
		})
	}
	read("OffsetsMessageFormatter", `"group":"`+other+`","topic":"`+topic+`","partition":0\}.*"offset":3,`)
	read("GroupMetadataMessageFormatter", `"group":"`+group+`"\}.*"protocolType":"consumer".*"clientId":"joiner"`)
}

// verifiable is a line of one of the verifiable tools.
type verifiable struct {
	Name       string `json:"name"`
	Partitions []struct {
		Topic     string `json:"topic"`
		Partition int32  `json:"partition"`
		Count     int    `json:"count"`
		MinOffset int64  `json:"minOffset"`
		MaxOffset int64  `json:"maxOffset"`
	} `json:"partitions"`
	Offsets []struct {
		Partition int32 `json:"partition"`
		Offset    int64 `json:"offset"`
	} `json:"offsets"`
	Count     int    `json:"count"`
	Success   bool   `json:"success"`
	Error     string `json:"error"`
	Sent      int    `json:"sent"`
	Acked     int    `json:"acked"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Value     string `json:"value"`
}

// verifier is a verifiable tool at work, in a JVM of its own: it tells of its end only
// when it is stopped by a signal. Its methods may be called by several goroutines.
type verifier struct {
	cmd    *exec.Cmd
	stderr lockedBuffer
	done   chan struct{} // closed when it was reaped

	mu     sync.Mutex
	events []verifiable
}

// verify starts one.
func (r *toolRun) verify(class string, args ...string) *verifier {
	r.Helper()
	p, err := javaProgram("org.apache.kafka.tools." + class)()
	if err != nil {
		r.Fatal(err)
	}
	v := &verifier{done: make(chan struct{})}
	v.cmd = exec.Command(p.argv[0], append(p.argv[1:], append(args, "--bootstrap-server", r.addr)...)...)
	v.cmd.Stderr = &v.stderr
	stdout, err := v.cmd.StdoutPipe()
	if err != nil {
		r.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		r.Fatalf("start %s: %v", class, err)
	}
	r.Cleanup(func() {
		_ = v.cmd.Process.Kill()
		<-v.done
	})
	go func() {
		defer close(v.done)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var e verifiable
			if json.Unmarshal(bytes.TrimSpace(lines.Bytes()), &e) == nil {
				v.mu.Lock()
				v.events = append(v.events, e)
				v.mu.Unlock()
			}
		}
		_ = v.cmd.Wait()
	}()
	return v
}

// named are the events of a name so far.
func (v *verifier) named(name string) []verifiable {
	v.mu.Lock()
	defer v.mu.Unlock()
	var found []verifiable
	for _, e := range v.events {
		if e.Name == name {
			found = append(found, e)
		}
	}
	return found
}

// end waits until the tool has ended, after the given signal if there is one.
func (v *verifier) end(ctx context.Context, signal syscall.Signal) error {
	if signal != 0 {
		_ = v.cmd.Process.Signal(signal)
	}
	select {
	case <-v.done:
	case <-ctx.Done():
		return fmt.Errorf("it has not ended: %w\n%s", ctx.Err(), v.stderr.String())
	}
	if len(v.named("shutdown_complete")) != 1 {
		return fmt.Errorf("it did not tell of its end: %+v\n%s", v.events, v.stderr.String())
	}
	return nil
}

func verifiableProduce(r *toolRun) {
	topic := r.topic(r.addr, "tool-verify", 3)
	v := r.verify("VerifiableProducer", "--topic", topic, "--max-messages", "200", "--acks", "-1", "--value-prefix", "7")
	if err := v.end(r.within(driverTimeout), 0); err != nil {
		r.Fatal(err)
	}
	acked := v.named("producer_send_success")
	if sums := v.named("tool_data"); len(acked) != 200 || len(sums) != 1 || sums[0].Sent != 200 || sums[0].Acked != 200 {
		r.Fatalf("%d acknowledged, sums %+v", len(acked), sums)
	}
	where := make(map[string]string)
	for _, rec := range r.records(topic, 200) {
		where[string(rec.Value)] = fmt.Sprint(rec.Partition, " ", rec.Offset)
	}
	for _, e := range acked {
		if got := fmt.Sprint(e.Partition, " ", e.Offset); where[e.Value] != got {
			r.Fatalf("%s was acknowledged at %s, and is at %q", e.Value, got, where[e.Value])
		}
	}
}

// verifiableGroup: two consumers share the partitions, and read and commit each record
// once.
func verifiableGroup(r *toolRun) {
	const n, shared = 200, 4
	topic := r.topic(r.addr, "tool-pair", shared)
	args := []string{"--topic", topic, "--group-id", topic + "-group", "--session-timeout", "6000", "--reset-policy", "earliest"}
	pair := []*verifier{r.verify("VerifiableConsumer", args...), r.verify("VerifiableConsumer", args...)}
	r.soon(func() error {
		for i, v := range pair {
			has := v.named("partitions_assigned")
			if len(has) == 0 || len(has[len(has)-1].Partitions) != shared/2 {
				return fmt.Errorf("consumer %d was assigned %+v\n%s", i, has, v.stderr.String())
			}
		}
		return nil
	})
	c := r.client(r.addr, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range n {
		if err := c.ProduceSync(r.within(askTimeout), &kgo.Record{Partition: int32(i % shared), Value: []byte(strconv.Itoa(i))}).FirstErr(); err != nil {
			r.Fatal(err)
		}
	}
	r.soon(func() error { return allConsumed(pair, shared, n) })
	for i, v := range pair {
		if err := v.end(r.within(askTimeout), syscall.SIGTERM); err != nil {
			r.Errorf("consumer %d: %v", i, err)
		}
	}
	if err := allConsumed(pair, shared, n); err != nil {
		r.Error(err)
	}
}

// allConsumed is an error unless the consumers have read n records, in order and once,
// and committed all of them.
func allConsumed(pair []*verifier, partitions int32, n int) error {
	read, next, commits := 0, make(map[int32]int64), make(map[int32]int64)
	for _, v := range pair {
		for _, e := range v.named("records_consumed") {
			read += e.Count
			for _, p := range e.Partitions {
				if p.Count == 0 {
					continue
				}
				if p.MinOffset != next[p.Partition] {
					return fmt.Errorf("partition %d: read from %d, want %d", p.Partition, p.MinOffset, next[p.Partition])
				}
				next[p.Partition] = p.MaxOffset + 1
			}
		}
		for _, e := range v.named("offsets_committed") {
			if !e.Success {
				return fmt.Errorf("a commit failed: %s", e.Error)
			}
			for _, p := range e.Offsets {
				commits[p.Partition] = max(commits[p.Partition], p.Offset)
			}
		}
	}
	for p := range partitions {
		if want := int64(n) / int64(partitions); next[p] != want || commits[p] != want {
			return fmt.Errorf("partition %d: read to %d, committed %d, want %d", p, next[p], commits[p], want)
		}
	}
	if read != n {
		return fmt.Errorf("read %d records, want %d", read, n)
	}
	return nil
}

const (
	perfRecords     = 20000
	perfRecordBytes = 200
)

func producerPerf(r *toolRun) {
	topic := r.topic(r.addr, "tool-perf", 1)
	out := r.ok("ProducerPerformance", perfArgs(topic)...)
	if !regexp.MustCompile(fmt.Sprintf(`(?m)^%d records sent, [1-9][\d.]+ records/sec \(.* MB/sec\), .* ms 99\.9th\.$`, perfRecords)).MatchString(out) {
		r.Errorf("it printed %s", out)
	}
	r.has(r.ok("GetOffsetShell", "--topic", topic), fmt.Sprintf("%s:0:%d", topic, perfRecords))
}

func endToEndLatency(r *toolRun) {
	topic := r.topic(r.addr, "tool-latency", 1)
	out := r.ok("EndToEndLatency", "--topic", topic, "--num-records", "200", "--producer-acks", "all", "--record-size", "100")
	if !regexp.MustCompile(`Avg latency: [\d.]+ ms\n\s*Percentiles: 50th = \d+, 99th = \d+, 99\.9th = \d+`).MatchString(out) {
		r.Errorf("it printed %s", out)
	}
	r.has(r.ok("GetOffsetShell", "--topic", topic), topic+":0:200")
}

func perfArgs(topic string) []string {
	return []string{"--topic", topic, "--num-records", strconv.Itoa(perfRecords), "--record-size", strconv.Itoa(perfRecordBytes),
		"--throughput", "-1", "--command-property", "acks=all"}
}

func consumerPerf(r *toolRun) {
	topic := r.topic(r.addr, "tool-perf-read", 1)
	r.ok("ProducerPerformance", perfArgs(topic)...)
	out := r.ok("ConsumerPerformance", "--topic", topic, "--num-records", strconv.Itoa(perfRecords), "--group", topic+"-group", "--timeout", "20000")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	fields := strings.Split(lines[len(lines)-1], ", ")
	if len(lines) != 2 || len(fields) < 5 || fields[4] != strconv.Itoa(perfRecords) {
		r.Errorf("it printed %s", out)
	}
}
