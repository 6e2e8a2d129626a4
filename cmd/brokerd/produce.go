package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// lineBytesMax bounds one record that is read from a line.
	lineBytesMax = 64 << 20
	// batchBytesDefault is for topics that do not say what they take: Kafka's own.
	batchBytesDefault = 1048588
	// batchBytesLeast leaves the client room for one small record.
	batchBytesLeast = 1 << 10
	// deliveryTimeout is how long a record may wait for the cluster.
	deliveryTimeout = 30 * time.Second
	// requestBytesOwn is what a request has room for besides its largest batch.
	requestBytesOwn = 64 << 10
	// recordBytesOwn and headerBytesOwn are at least what a record needs besides
	// its bytes where it is alone in a batch, and what a header does.
	recordBytesOwn = 256
	headerBytesOwn = 32
)

type producing struct {
	topic     string
	separator string
	headers   []string
	partition int32
	codec     string
	acks      string
	quiet     bool
	patience  time.Duration // for one record, one second or more
	batchMax  int32         // the largest batch that is made, in bytes
}

func newProduce(c *console) *cobra.Command {
	var (
		at cluster
		p  = producing{patience: deliveryTimeout}
	)
	cmd := &cobra.Command{
		Use:   "produce -t TOPIC",
		Short: "Send lines as records",
		Long: `Sends every line of its input as a record. A topic that does not exist is made
where the cluster allows that. It ends when its input does and all records are
acknowledged, and says on standard error how many were. A line that is no record
(-k) or too large ends it too: the lines before it are sent, the others are not.
Where it is the cluster that refuses a line, lines near it may be on their way, and
are waited for and counted; lines that are not are left unsent.`,
		Example: `  echo hello | brokerd produce -t greetings
  printf 'id1:first\nid2:second\n' | brokerd produce -t orders -k :
  brokerd produce -t orders -H source=cli -z zstd < orders.txt`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := p.options(cmd)
			if err != nil {
				return err
			}
			client, err := p.connect(cmd.Context(), at, opts)
			if err != nil {
				return err
			}
			defer client.Close()
			return p.run(cmd.Context(), c, client)
		},
	}
	at.flag(cmd)
	f := cmd.Flags()
	f.StringVarP(&p.topic, "topic", "t", "", "the topic")
	f.StringVarP(&p.separator, "key-separator", "k", "", `what stands between key and value; \t is a tab. Without it, records have no key`)
	f.StringArrayVarP(&p.headers, "header", "H", nil, "a header of every record, as name=value (repeatable)")
	f.Int32VarP(&p.partition, "partition", "p", -1, "the partition; -1: by key, or any")
	f.StringVarP(&p.codec, "compression", "z", "none", "none, gzip, snappy, lz4 or zstd")
	f.BoolVarP(&p.quiet, "quiet", "q", false, "do not say how many records were sent")
	f.StringVar(&p.acks, "acks", "all", "what to wait for: all in-sync replicas, 1 (the leader), or 0 (nothing)")
	return cmd
}

func (p *producing) options(cmd *cobra.Command) ([]kgo.Opt, error) {
	if p.topic == "" {
		return nil, usagef(cmd, "name a topic with -t")
	}
	p.separator = strings.ReplaceAll(p.separator, `\t`, "\t")
	if _, err := parsePairs(cmd, "--header", p.headers); err != nil {
		return nil, err
	}
	opts := []kgo.Opt{
		kgo.DefaultProduceTopic(p.topic), kgo.AllowAutoTopicCreation(),
		kgo.RecordDeliveryTimeout(p.patience), kgo.UnknownTopicRetries(3),
		// without it, a request that may have arrived is repeated for ever
		kgo.AllowIdempotentProduceCancellation(),
		kgo.MaxBufferedBytes(lineBytesMax),
	}
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	codec, ok := codecs[p.codec]
	if !ok {
		return nil, usagef(cmd, "-z %s is not one of none, gzip, snappy, lz4, zstd", p.codec)
	}
	opts = append(opts, kgo.ProducerBatchCompression(codec))
	switch p.acks {
	case "all", "-1":
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, usagef(cmd, "--acks %s is not one of all, 1, 0", p.acks)
	}
	if p.partition >= 0 {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	return opts, nil
}

// connect returns a client whose requests hold one batch of the largest size, or
// several small ones: brokers close the connection of a request that is too large
// for them, without an answer. The caller closes it.
func (p *producing) connect(ctx context.Context, at cluster, opts []kgo.Opt) (*kgo.Client, error) {
	var err error
	if p.batchMax, err = p.batchBytes(ctx, at); err != nil {
		return nil, err
	}
	opts = append(opts, kgo.ProducerBatchMaxBytes(p.batchMax), kgo.BrokerMaxWriteBytes(p.batchMax+requestBytesOwn))
	return at.connect(ctx, opts...)
}

// batchBytes asks for the largest batch that the topic takes, and whether it has
// the partition that was named. Nothing is made.
func (p *producing) batchBytes(ctx context.Context, at cluster) (int32, error) {
	admin, err := at.admin(ctx)
	if err != nil {
		return 0, err
	}
	defer admin.Close()
	topics, err := admin.ListTopicsWithInternal(ctx, p.topic)
	if err != nil {
		return 0, fmt.Errorf("produce to %s: %w", p.topic, err)
	}
	t := topics[p.topic]
	exists := t.Err == nil && len(t.Partitions) > 0
	switch {
	case !exists && p.partition > 0 && errors.Is(t.Err, kerr.UnknownTopicOrPartition):
		return 0, &notFoundError{fmt.Sprintf("produce to %s: there is no such topic, and so no partition %d; `brokerd topic create %s -p %d` makes one", p.topic, p.partition, p.topic, p.partition+1)}
	case !exists:
		return batchBytesDefault, nil // made with the first record, or refused then
	case p.partition >= int32(len(t.Partitions)):
		return 0, &notFoundError{fmt.Sprintf("produce to %s: there is no partition %d; the topic has those from 0 to %d", p.topic, p.partition, len(t.Partitions)-1)}
	}
	configs, err := admin.DescribeTopicConfigs(ctx, p.topic)
	if err != nil {
		return batchBytesDefault, nil // not everybody may ask
	}
	for _, r := range configs {
		for _, c := range r.Configs {
			if n, err := strconv.ParseInt(c.MaybeValue(), 10, 32); c.Key == "max.message.bytes" && err == nil {
				return int32(min(max(n, batchBytesLeast), lineBytesMax)), nil
			}
		}
	}
	return batchBytesDefault, nil
}

// tally counts what the cluster acknowledged.
type tally struct {
	mu      sync.Mutex
	sent    int
	refused error  // the first record that was not taken
	stop    func() // called with it
	bar     *progressbar.ProgressBar
}

// done is told of every record's end, from the client's goroutines.
func (t *tally) done(r *kgo.Record, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.sent++
		if t.bar != nil {
			_ = t.bar.Add(1)
		}
	case t.refused == nil:
		t.refused = answerError("produce to", r.Topic, err, "")
		t.stop()
	}
}

func (t *tally) result() (sent int, refused error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sent, t.refused
}

func (p *producing) run(ctx context.Context, c *console, client *kgo.Client) error {
	in := c.in
	if c.inTerminal {
		_, _ = fmt.Fprintln(c.err, "Each line is a record; Ctrl-D ends.")
		in = &interruptible{ctx: ctx, in: c.in}
	}
	willing, stop := context.WithCancel(ctx) // until a record is refused
	defer stop()
	t := &tally{stop: stop}
	if c.errTerminal && !c.inTerminal {
		t.bar = progressbar.NewOptions64(-1, progressbar.OptionSetWriter(c.err), progressbar.OptionSetDescription("records"),
			progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(200*time.Millisecond))
	}
	bad := p.read(ctx, willing, in, client, t.done)
	err := client.Flush(willing)
	if willing.Err() != nil && ctx.Err() == nil {
		// what is on its way is waited for, and what is not stays here
		err = client.AbortBufferedRecords(ctx)
	}
	if t.bar != nil {
		_ = t.bar.Finish()
	}
	sent, refused := t.result()
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(refused, kgo.ErrRecordTimeout):
		err = fmt.Errorf("produce to %s: a record was not acknowledged within %s, and may be stored or not; the broker's log may say why", p.topic, p.patience)
	case refused != nil:
		err = refused
	default:
		err = errors.Join(err, bad)
	}
	if !p.quiet {
		_, _ = fmt.Fprintln(c.err, sentText(sent, p.topic))
	}
	return err
}

// interruptible is input that ends with a context, also while a read waits for somebody to
// type. What he types then is lost, and one goroutine waits for it until the process ends.
type interruptible struct {
	ctx context.Context
	in  io.Reader
}

func (i *interruptible) Read(p []byte) (int, error) {
	type got struct {
		b   []byte
		err error
	}
	read := make(chan got, 1)
	go func() {
		b := make([]byte, len(p))
		n, err := i.in.Read(b)
		read <- got{b[:n], err}
	}()
	select {
	case r := <-read:
		return copy(p, r.b), r.err
	case <-i.ctx.Done():
		return 0, io.EOF
	}
}

// read hands lines to the client as long as the cluster is willing, and returns
// what is wrong with the one that ended it.
func (p *producing) read(ctx, willing context.Context, in io.Reader, client *kgo.Client, done func(*kgo.Record, error)) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), lineBytesMax)
	for number := 1; willing.Err() == nil && lines.Scan(); number++ {
		record, err := p.record(lines.Bytes())
		if err != nil {
			return fmt.Errorf("line %d: %w; the lines before it were sent, it and those after it were not", number, err)
		}
		alone := !p.fits(record) // the client may refuse it; those before it are sent then
		if alone && client.Flush(willing) != nil {
			break // which the caller knows from willing
		}
		client.Produce(ctx, record, done)
		if alone && client.Flush(willing) != nil {
			break
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read a record: %w", lineError(err))
	}
	return nil
}

// fits reports whether a record is surely not larger than a batch may be.
func (p *producing) fits(r *kgo.Record) bool {
	size := recordBytesOwn + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += headerBytesOwn + len(h.Key) + len(h.Value)
	}
	return size <= int(p.batchMax)
}

func sentText(records int, topic string) string {
	if records == 1 {
		return "1 record to " + topic
	}
	return fmt.Sprintf("%d records to %s", records, topic)
}

func lineError(err error) error {
	if errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("a line is longer than %d bytes", lineBytesMax)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the input was cut off")
	}
	return err
}

// record makes a record of a line, whose bytes are copied.
func (p *producing) record(line []byte) (*kgo.Record, error) {
	r := &kgo.Record{Value: bytes.Clone(line), Partition: p.partition}
	if r.Value == nil {
		r.Value = []byte{}
	}
	if p.separator != "" {
		key, value, ok := bytes.Cut(r.Value, []byte(p.separator))
		if !ok {
			return nil, fmt.Errorf("the line %.40q has no %q between key and value", line, p.separator)
		}
		r.Key, r.Value = key, value
	}
	for _, h := range p.headers {
		name, value, _ := strings.Cut(h, "=")
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	return r, nil
}
