package load

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/brokerd/brokerd/test/bench/rpc"
	"github.com/brokerd/brokerd/test/rig"
)

// Programs are clients that are programs of their own, which say themselves how long they
// took: from their first record to the last one's acknowledgement.
type Programs struct {
	dir        string
	librdkafka string // the built program
	java       string // the class path
}

//go:embed librdkafka/perf.c
var librdkafkaSource []byte

// NewPrograms makes a set of which nothing is installed yet; dir is for what they need.
func NewPrograms(dir string) *Programs { return &Programs{dir: dir} }

// Librdkafka installs librdkafka, and builds a client on it.
func (p *Programs) Librdkafka(ctx context.Context) error {
	src, err := rig.Tool(ctx, "librdkafka")
	if err != nil {
		return err
	}
	dir, source := filepath.Join(src, "src"), filepath.Join(p.dir, "perf.c")
	p.librdkafka = filepath.Join(p.dir, "perf")
	if err := os.WriteFile(source, librdkafkaSource, 0o644); err != nil {
		return err
	}
	// Its headers are below librdkafka/ where it is installed, which it is not.
	if err := os.MkdirAll(filepath.Join(p.dir, "include"), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(dir, filepath.Join(p.dir, "include", "librdkafka")); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	gcc := exec.CommandContext(ctx, "gcc", "-O2", "-I", filepath.Join(p.dir, "include"), "-o", p.librdkafka, source,
		"-L", dir, "-lrdkafka", "-Wl,-rpath,"+dir)
	if out, err := gcc.CombinedOutput(); err != nil {
		return fmt.Errorf("build a client on librdkafka: %w\n%s", err, out)
	}
	return nil
}

// Java installs Kafka's own tools.
func (p *Programs) Java(ctx context.Context) (err error) {
	p.java, err = rig.Tool(ctx, "kafka")
	return err
}

// values is a file of lines to send.
func (p *Programs) values(bytesEach int) (string, error) {
	path := filepath.Join(p.dir, fmt.Sprintf("values-%d", bytesEach))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, os.WriteFile(path, append(bytes.Join(Values(valueLines, bytesEach), []byte("\n")), '\n'), 0o644)
}

// valueLines are so many different ones.
const valueLines = 1000

// LibrdkafkaProduce sends so many records in batches that fill.
func (p *Programs) LibrdkafkaProduce(ctx context.Context, addr string, t rpc.Topic, records int64, valueBytes int, codec Codec) (Result, error) {
	path, err := p.values(valueBytes)
	if err != nil {
		return Result{}, err
	}
	out, err := output(ctx, p.librdkafka, "produce", addr, t.Name, strconv.FormatInt(records, 10), strconv.Itoa(valueBytes), path, string(codec))
	if err != nil {
		return Result{}, err
	}
	return tookSeconds(strings.TrimSpace(out), records, valueBytes)
}

// LibrdkafkaConsume reads all records once.
func (p *Programs) LibrdkafkaConsume(ctx context.Context, addr string, t rpc.Topic, ends []int64, valueBytes int) (Result, error) {
	var all []string
	for _, end := range ends {
		all = append(all, strconv.FormatInt(end, 10))
	}
	records := total(ends)
	out, err := output(ctx, p.librdkafka, "consume", addr, t.Name, strconv.FormatInt(records, 10), strings.Join(all, ","))
	if err != nil {
		return Result{}, err
	}
	return tookSeconds(strings.TrimSpace(out), records, valueBytes)
}

// JavaProduce is kafka-producer-perf-test.
func (p *Programs) JavaProduce(ctx context.Context, addr string, t rpc.Topic, records int64, valueBytes int, codec Codec) (Result, error) {
	path, err := p.values(valueBytes)
	if err != nil {
		return Result{}, err
	}
	out, err := p.runJava(ctx, "ProducerPerformance", "--bootstrap-server", addr, "--topic", t.Name,
		"--num-records", strconv.FormatInt(records, 10), "--throughput", "-1", "--payload-file", path,
		"--command-property", "acks=all", "linger.ms=10", "batch.size="+strconv.Itoa(BatchBytesMax), "buffer.memory=134217728", "compression.type="+string(codec))
	if err != nil {
		return Result{}, err
	}
	return producerPerf(out, records, valueBytes)
}

// JavaConsume is kafka-consumer-perf-test.
func (p *Programs) JavaConsume(ctx context.Context, addr string, t rpc.Topic, ends []int64, valueBytes int) (Result, error) {
	out, err := p.runJava(ctx, "ConsumerPerformance", "--bootstrap-server", addr, "--topic", t.Name,
		"--num-records", strconv.FormatInt(total(ends), 10), "--timeout", strconv.FormatInt(rpc.Patience.Milliseconds(), 10))
	if err != nil {
		return Result{}, err
	}
	return consumerPerf(out, total(ends), valueBytes)
}

func (p *Programs) runJava(ctx context.Context, class string, args ...string) (string, error) {
	java := []string{"-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
		"-Dlog4j2.configurationFile=file:" + filepath.Join(filepath.Dir(p.java), "log4j2.properties"), "-cp", p.java, "org.apache.kafka.tools." + class}
	return output(ctx, "java", append(java, args...)...)
}

func output(ctx context.Context, program string, args ...string) (string, error) {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", filepath.Base(program), args[0], err, said.Bytes())
	}
	return string(out), nil
}

func total(ends []int64) (n int64) {
	for _, end := range ends {
		n += end
	}
	return n
}

func tookSeconds(text string, records int64, valueBytes int) (Result, error) {
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || seconds <= 0 {
		return Result{}, fmt.Errorf("%q is no time", text)
	}
	return Result{Records: records, Requests: records, Bytes: records * int64(valueBytes), Elapsed: time.Duration(seconds * float64(time.Second))}, nil
}

// producerPerf reads the last line: "500000 records sent, 251889.1 records/sec (24.02 MB/sec), ...".
func producerPerf(out string, records int64, valueBytes int) (Result, error) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var (
		sent int64
		rate float64
	)
	last := lines[len(lines)-1]
	if n, _ := fmt.Sscanf(last, "%d records sent, %f records/sec", &sent, &rate); n != 2 || sent != records || rate <= 0 {
		return Result{}, fmt.Errorf("%q, instead of what became of %d records", last, records)
	}
	return tookSeconds(strconv.FormatFloat(float64(records)/rate, 'f', -1, 64), records, valueBytes)
}

// consumerPerf reads the line behind the heading, of which columns are found by their names.
func consumerPerf(out string, records int64, valueBytes int) (Result, error) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i, line := range lines[:len(lines)-1] {
		names := strings.Split(line, ", ")
		if names[0] != "start.time" {
			continue
		}
		fields := strings.Split(lines[i+1], ", ")
		if len(fields) != len(names) {
			break
		}
		row := make(map[string]string)
		for j, name := range names {
			row[name] = fields[j]
		}
		if n, err := strconv.ParseInt(row["data.consumed.in.nMsg"], 10, 64); err != nil || n < records {
			return Result{}, fmt.Errorf("%q of %d records were consumed", row["data.consumed.in.nMsg"], records)
		}
		ms, err := strconv.ParseFloat(row["fetch.time.ms"], 64)
		if err != nil {
			break
		}
		return tookSeconds(strconv.FormatFloat(ms/1000, 'f', -1, 64), records, valueBytes)
	}
	return Result{}, fmt.Errorf("%q, instead of what became of %d records", out, records)
}
