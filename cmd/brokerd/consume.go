package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type consuming struct {
	topic      string
	beginning  bool
	offset     string
	fromTime   string
	partitions []int32
	count      int64
	exitAtEnd  bool
	format     string
	output     string
	committed  bool
	group      string
}

func newConsume(c *console) *cobra.Command {
	var (
		at cluster
		s  consuming
	)
	cmd := &cobra.Command{
		Use:   "consume -t TOPIC",
		Short: "Print records",
		Long: `Prints the records of a topic: new ones as they come, or from where you say. It
ends with Ctrl-C, after -n records, or with -e at the topic's end.

In a format (-f), %t is the topic, %p the partition, %o the offset, %T the
timestamp in milliseconds, %k the key, %v the value, %h the headers, %% a percent
sign, and \n and \t are what they always are.

With --group it is a member of that group: it begins where the group is, shares the
partitions with the other members, and commits what it has printed. Where the group
has committed nothing, it prints new records, or all with --from-beginning. With -e
it ends when it has printed those of the partitions that it is given: at once where
other members have them all.`,
		Example: `  brokerd consume -t greetings --from-beginning
  brokerd consume -t orders --offset -10 -e
  brokerd consume -t orders --from-time 15m -n 100 -o json
  brokerd consume -t orders --from-beginning -e -f '%p:%o %k=%v\n'
  brokerd consume -t orders --group billing --from-beginning`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.check(cmd); err != nil {
				return err
			}
			err := s.run(cmd.Context(), c, at)
			if errors.Is(err, context.Canceled) && cmd.Context().Err() != nil && !s.ends() {
				return nil // Ctrl-C is how it ends
			}
			return err
		},
	}
	at.flag(cmd)
	f := cmd.Flags()
	f.StringVarP(&s.topic, "topic", "t", "", "the topic")
	f.BoolVar(&s.beginning, "from-beginning", false, "from the first record that is there")
	f.StringVar(&s.offset, "offset", "", "from this offset; -N: from N before the end; or earliest, latest")
	f.StringVar(&s.fromTime, "from-time", "", "from a time (2026-01-31T12:00:00Z), or so long ago (15m, 2h)")
	f.Int32SliceVarP(&s.partitions, "partition", "p", nil, "only these partitions")
	f.Int64VarP(&s.count, "count", "n", 0, "end after so many records")
	f.BoolVarP(&s.exitAtEnd, "exit", "e", false, "end at what is the end when it starts")
	f.StringVarP(&s.format, "format", "f", `%v\n`, "how a record is printed")
	f.StringVarP(&s.output, "output", "o", "text", "text, or json: an object a line")
	f.StringVarP(&s.group, "group", "g", "", "as a member of this group, which is made if it is not there")
	f.BoolVar(&s.committed, "read-committed", false, "only records of committed transactions")
	return cmd
}

// ends reports whether it is to end by itself, so that an interrupt comes before its end.
func (s *consuming) ends() bool { return s.exitAtEnd || s.count > 0 }

func (s *consuming) check(cmd *cobra.Command) error {
	starts := 0
	for _, given := range []bool{s.beginning, s.offset != "", s.fromTime != ""} {
		if given {
			starts++
		}
	}
	switch {
	case s.topic == "":
		return usagef(cmd, "name a topic with -t")
	case starts > 1:
		return usagef(cmd, "give one of --from-beginning, --offset and --from-time")
	case s.count < 0:
		return usagef(cmd, "-n %d is negative", s.count)
	case s.output != "text" && s.output != "json":
		return usagef(cmd, "-o %s is neither text nor json", s.output)
	}
	if s.fromTime != "" {
		if _, err := parseTime(s.fromTime, time.Now()); err != nil {
			return &usageError{err.Error()}
		}
	}
	if s.output == "text" {
		if _, err := parseFormat(s.format); err != nil {
			return err
		}
	}
	if _, err := s.number(); err != nil {
		return err
	}
	return s.checkGroup(cmd)
}

func parseTime(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(-d), nil
	}
	if t, ok := parseMoment(text); ok {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("--from-time %s is neither a time (2026-01-31T12:00:00Z) nor a duration (15m)", text)
}

// parseMoment reads a time as people write it; without a zone it is local.
func parseMoment(text string) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// stamp is a time as brokers are asked for it. No record is of before 1970, and negative
// numbers mean something else.
func stamp(t time.Time) int64 { return max(t.UnixMilli(), 0) }

// span is what is asked of a partition: from an offset to its end when the
// command started. start is where its log began then.
type span struct{ from, start, end int64 }

func (s *consuming) run(ctx context.Context, c *console, at cluster) error {
	client, err := at.connect(ctx)
	if err != nil {
		return err
	}
	spans, err := s.spans(ctx, kadm.NewClient(client))
	client.Close()
	if err != nil {
		return err
	}
	if s.group != "" {
		return s.runGroup(ctx, c, at, spans)
	}
	offsets := make(map[int32]kgo.Offset, len(spans))
	for p, span := range spans {
		if !s.exitAtEnd || span.from < span.end {
			offsets[p] = kgo.NewOffset().At(span.from)
		}
	}
	if len(offsets) == 0 {
		return nil
	}
	opts := append(s.fetchOptions(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.topic: offsets}), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	if client, err = at.connect(ctx, opts...); err != nil {
		return err
	}
	defer client.Close()
	out := bufio.NewWriterSize(c.out, outputBytes)
	err = s.poll(ctx, client, spans, len(offsets), out)
	if flushed := out.Flush(); flushed != nil && !errors.Is(err, flushed) {
		err = errors.Join(err, fmt.Errorf("print records: %w", flushed))
	}
	return err
}

// fetchOptions are those of a client that consumes, however it does.
func (s *consuming) fetchOptions() []kgo.Opt {
	opts := []kgo.Opt{kgo.KeepControlRecords(), kgo.FetchMaxWait(fetchWait), kgo.KeepRetryableFetchErrors()}
	if s.committed {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	return opts
}

const (
	fetchWait   = 500 * time.Millisecond
	outputBytes = 256 << 10
)

// spans asks where the partitions begin and end now, and where to start.
func (s *consuming) spans(ctx context.Context, admin *kadm.Client) (map[int32]span, error) {
	ends, err := admin.ListEndOffsets(ctx, s.topic)
	if err != nil {
		return nil, answerError("consume", s.topic, err, "")
	}
	starts, err := admin.ListStartOffsets(ctx, s.topic)
	if err != nil {
		return nil, answerError("consume", s.topic, err, "")
	}
	var byTime kadm.ListedOffsets
	if s.fromTime != "" {
		since, err := parseTime(s.fromTime, time.Now())
		if err != nil {
			return nil, &usageError{err.Error()}
		}
		if byTime, err = admin.ListOffsetsAfterMilli(ctx, stamp(since), s.topic); err != nil {
			return nil, answerError("consume", s.topic, err, "")
		}
	}
	out := make(map[int32]span)
	for p, end := range ends[s.topic] {
		start := starts[s.topic][p]
		for _, err := range []error{end.Err, start.Err} {
			if err != nil {
				return nil, answerError("consume", s.topic, err, "")
			}
		}
		if len(s.partitions) > 0 && !slices.Contains(s.partitions, p) {
			continue
		}
		from, err := s.from(start.Offset, end.Offset)
		if err != nil {
			return nil, fmt.Errorf("consume %s, partition %d: %w", s.topic, p, err)
		}
		if o, ok := byTime.Lookup(s.topic, p); ok {
			if o.Err != nil {
				return nil, answerError("consume", s.topic, o.Err, "")
			}
			if from = o.Offset; from < 0 {
				from = end.Offset
			}
		}
		out[p] = span{from: from, start: start.Offset, end: end.Offset}
	}
	for _, p := range s.partitions {
		if _, ok := out[p]; !ok {
			return nil, &notFoundError{fmt.Sprintf("consume %s: there is no partition %d; `brokerd topic describe %s` shows those that are", s.topic, p, s.topic)}
		}
	}
	if len(out) == 0 {
		return nil, &notFoundError{fmt.Sprintf("consume %s: there is no such topic; `brokerd topic list` shows those that are", s.topic)}
	}
	return out, nil
}

// from is where to start in a partition, times aside.
func (s *consuming) from(start, end int64) (int64, error) {
	switch {
	case s.beginning, s.offset == "earliest":
		return start, nil
	case s.offset == "", s.offset == "latest":
		return end, nil
	}
	n, err := s.number()
	switch {
	case err != nil:
		return 0, err
	case n < 0:
		return max(start, end+n), nil
	case n < start || n > end:
		return 0, &notFoundError{fmt.Sprintf("there is no offset %d: the records are those from %d to %d", n, start, end-1)}
	}
	return n, nil
}

// number is the offset where it is given as a number, 0 otherwise.
func (s *consuming) number() (int64, error) {
	switch s.offset {
	case "", "earliest", "latest":
		return 0, nil
	}
	n, err := strconv.ParseInt(s.offset, 10, 64)
	if err != nil {
		return 0, &usageError{fmt.Sprintf("--offset %s is not a number, earliest or latest", s.offset)}
	}
	return n, nil
}

// fetchError says whether an error ends the command, and how: the client tries
// again by itself after those that pass, but damaged records stay so.
func (s *consuming) fetchError(e kgo.FetchError, next int64) error {
	switch {
	case errors.Is(e.Err, kerr.CorruptMessage):
		behind := fmt.Sprintf("-p %d --offset N", e.Partition)
		if s.group != "" {
			behind = fmt.Sprintf("`brokerd group reset-offsets %s -t %s:%d --to-offset N`", s.group, s.topic, e.Partition)
		}
		return fmt.Errorf("consume %s, partition %d: the stored records at offset %d are damaged. Restore a backup; or read on behind them with %s; or give them up for all, by DeleteRecords up to where they end (%s)",
			s.topic, e.Partition, next, behind, kerr.CorruptMessage.Message)
	case kerr.IsRetriable(e.Err):
		return nil
	}
	return answerError("consume", s.topic, e.Err, "")
}

// poll prints records until it is to end. open is the number of partitions that
// have not reached their end.
func (s *consuming) poll(ctx context.Context, client *kgo.Client, spans map[int32]span, open int, out *bufio.Writer) error {
	write, err := s.printer(out)
	if err != nil {
		return err
	}
	var printed int64
	ended := make(map[int32]bool)
	next := make(map[int32]int64, len(spans)) // to read, by partition
	for p, span := range spans {
		next[p] = span.from
	}
	for !s.exitAtEnd || open > 0 {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, r := range fetches.Records() {
			next[r.Partition] = r.Offset + 1
			last := spans[r.Partition].end - 1
			if s.exitAtEnd && r.Offset >= last && !ended[r.Partition] {
				ended[r.Partition] = true // also by a later record, where the last one is compacted away
				open--
			}
			if r.Attrs.IsControl() || (s.exitAtEnd && r.Offset > last) {
				continue
			}
			if err := write(r); err != nil {
				return fmt.Errorf("print a record: %w", err)
			}
			if printed++; s.count > 0 && printed >= s.count {
				return nil
			}
		}
		if err := out.Flush(); err != nil {
			return fmt.Errorf("print records: %w", err)
		}
		for _, e := range fetches.Errors() {
			if err := s.fetchError(e, next[e.Partition]); err != nil {
				return err
			}
		}
	}
	return nil
}
