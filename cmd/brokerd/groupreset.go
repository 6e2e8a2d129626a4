package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

type resetting struct {
	topics     []string
	all        bool
	earliest   bool
	latest     bool
	offset     int64
	shift      int64
	datetime   string
	duration   string
	execute    bool
	dryRun     bool
	output     string
	hasOffset  bool // offset was given
	hasShift   bool // shift was given
	since      time.Time
	partitions map[string][]int32 // of topics; nil: all of the topic's
}

func newGroupReset(c *console) *cobra.Command {
	var (
		at cluster
		s  resetting
	)
	cmd := &cobra.Command{
		Use:   "reset-offsets GROUP",
		Short: "Move a group's committed offsets",
		Long: `Prints where the committed offsets would go, and with --execute commits them. The
group must have no members. An offset outside the log is moved to its nearest end. A
group that does not exist is made by its first commit.`,
		Example: `  brokerd group reset-offsets billing -t orders --to-earliest
  brokerd group reset-offsets billing -t orders --to-earliest --execute
  brokerd group reset-offsets billing -t orders:0,3 --shift-by -100 --execute
  brokerd group reset-offsets billing --all-topics --to-datetime 2026-01-31T12:00:00Z
  brokerd group reset-offsets billing --all-topics --by-duration 2h --execute`,
		Args: oneArg("a group"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.hasOffset, s.hasShift = cmd.Flags().Changed("to-offset"), cmd.Flags().Changed("shift-by")
			if args[0] == "" {
				return usagef(cmd, "name a group") // a script's variable that is not set
			}
			if err := s.check(cmd); err != nil {
				return err
			}
			admin, err := at.admin(cmd.Context())
			if err != nil {
				return err
			}
			defer admin.Close()
			return s.run(cmd.Context(), c, admin, args[0])
		},
	}
	at.flag(cmd)
	f := cmd.Flags()
	f.StringArrayVarP(&s.topics, "topic", "t", nil, "a topic, or some of its partitions as TOPIC:0,1 (repeatable)")
	f.BoolVar(&s.all, "all-topics", false, "every partition that the group has committed")
	f.BoolVar(&s.earliest, "to-earliest", false, "to the first record that is there")
	f.BoolVar(&s.latest, "to-latest", false, "to the end")
	f.Int64Var(&s.offset, "to-offset", 0, "to this offset")
	f.Int64Var(&s.shift, "shift-by", 0, "by so many records forward, or back if negative")
	f.StringVar(&s.datetime, "to-datetime", "", "to the first record of a time (2026-01-31T12:00:00Z; local time without a zone)")
	f.StringVar(&s.duration, "by-duration", "", "to the first record of so long ago (15m, 2h, P1DT12H)")
	f.BoolVar(&s.execute, "execute", false, "commit the offsets that are printed")
	f.BoolVar(&s.dryRun, "dry-run", false, "print and change nothing, as without --execute")
	outputFlag(cmd, &s.output)
	return cmd
}

func (s *resetting) check(cmd *cobra.Command) error {
	targets := 0
	for _, given := range []bool{s.earliest, s.latest, s.hasOffset, s.hasShift, s.datetime != "", s.duration != ""} {
		if given {
			targets++
		}
	}
	switch {
	case targets != 1:
		return usagef(cmd, "give one of --to-earliest, --to-latest, --to-offset, --shift-by, --to-datetime and --by-duration")
	case s.all == (len(s.topics) > 0):
		return usagef(cmd, "name topics with -t, or give --all-topics")
	case s.execute && s.dryRun:
		return usagef(cmd, "give --execute or --dry-run, not both")
	case s.hasOffset && s.offset < 0:
		return usagef(cmd, "--to-offset %d is negative; --shift-by goes back from the committed offset", s.offset)
	}
	if err := s.checkTime(time.Now()); err != nil {
		return err
	}
	s.partitions = make(map[string][]int32)
	for _, t := range s.topics {
		name, list, some := strings.Cut(t, ":")
		if name == "" {
			return usagef(cmd, "-t %q names no topic", t)
		}
		ids, before := s.partitions[name]
		if before && (ids == nil || !some) {
			return usagef(cmd, "-t names %s twice", name)
		}
		for _, text := range strings.Split(list, ",") {
			if !some {
				break
			}
			n, err := strconv.ParseInt(text, 10, 32)
			if err != nil || n < 0 {
				return usagef(cmd, "-t %s: %q is not the number of a partition", t, text)
			}
			ids = append(ids, int32(n))
		}
		s.partitions[name] = ids
	}
	return checkOutput(cmd, s.output)
}

func (s *resetting) checkTime(now time.Time) error {
	switch {
	case s.datetime != "":
		t, ok := parseMoment(s.datetime)
		if !ok {
			return &usageError{fmt.Sprintf("--to-datetime %s is not a time like 2026-01-31T12:00:00Z", s.datetime)}
		}
		s.since = t
	case s.duration != "":
		d, ok := parseAgo(s.duration)
		if !ok || d < 0 {
			return &usageError{fmt.Sprintf("--by-duration %s is not a duration like 15m, 2h or P1DT12H", s.duration)}
		}
		s.since = now.Add(-d)
	}
	return nil
}

// parseAgo reads a duration as Go writes it, or as ISO 8601 does (PnDTnHnMnS), as
// Kafka's own tools want it.
func parseAgo(text string) (time.Duration, bool) {
	if d, err := time.ParseDuration(text); err == nil {
		return d, true
	}
	rest, ok := strings.CutPrefix(text, "P")
	date, clock, timed := strings.Cut(rest, "T")
	if !ok || rest == "" || (timed && clock == "") {
		return 0, false
	}
	var days int64
	if date != "" {
		number, ok := strings.CutSuffix(date, "D")
		n, err := strconv.ParseInt(number, 10, 32)
		const daysMax = 100_000 // more is no time that a record has
		if !ok || err != nil || n < 0 || n > daysMax {
			return 0, false
		}
		days = n
	}
	out := time.Duration(days) * 24 * time.Hour
	if clock != "" {
		d, err := time.ParseDuration(strings.ToLower(clock))
		if err != nil || clock != strings.ToUpper(clock) {
			return 0, false
		}
		out += d
	}
	return out, true
}

// plannedOffset is where one partition's committed offset is to go.
type plannedOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed *int64 `json:"committed"` // null: nothing is committed
	New       int64  `json:"new"`
	Lag       int64  `json:"lag"` // after it
}

func (s *resetting) run(ctx context.Context, c *console, admin *kadm.Client, name string) error {
	if err := s.idle(ctx, admin, name); err != nil {
		return err
	}
	commits, err := admin.FetchOffsets(ctx, name)
	if err == nil {
		err = commits.Error() // a partition that is not known now would be left out
	}
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return groupError("reset offsets of", name, one(err), "")
	}
	if s.all {
		commits.Each(func(o kadm.OffsetResponse) {
			if o.At >= 0 {
				s.partitions[o.Topic] = append(s.partitions[o.Topic], o.Partition)
			}
		})
		if len(s.partitions) == 0 {
			return &notFoundError{fmt.Sprintf("reset offsets of %s: the group has committed nothing; name topics with -t", name)}
		}
	}
	plan, err := s.plan(ctx, admin, name, commits)
	if err != nil {
		return err
	}
	if s.execute {
		if err := commitPlan(ctx, admin, name, plan); err != nil {
			return err
		}
	}
	if s.output == "json" {
		err = writeJSON(c.out, plan)
	} else {
		err = c.showPlan(plan)
	}
	told := "nothing was changed; add --execute to commit these offsets"
	if s.execute {
		told = fmt.Sprintf("committed the offsets of %s for %s", counted(len(plan), "partition"), name)
	}
	_, printed := fmt.Fprintln(c.err, told)
	return errors.Join(err, printed)
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// idle refuses a group that has members: they would commit over it.
func (s *resetting) idle(ctx context.Context, admin *kadm.Client, name string) error {
	var g kadm.DescribedGroup
	err := patiently(ctx, func() error {
		groups, err := admin.DescribeGroups(ctx, name)
		if g = groups[name]; err == nil {
			err = g.Err
		}
		return one(err)
	})
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil
	}
	if err != nil {
		return groupError("reset offsets of", name, err, g.ErrMessage)
	}
	if len(g.Members) > 0 || (g.State != groupEmpty && g.State != groupDead) {
		return groupError("reset offsets of", name, kerr.NonEmptyGroup, "")
	}
	return nil
}

// logEnds are what the logs hold now.
type logEnds struct{ starts, ends, stamped kadm.ListedOffsets }

// ends asks where the logs of topics begin and end, and for the time that was
// given, if any.
func (s *resetting) ends(ctx context.Context, admin *kadm.Client, topics []string) (l logEnds, err error) {
	if l.starts, err = admin.ListStartOffsets(ctx, topics...); err != nil {
		return l, fmt.Errorf("list start offsets: %w", one(err))
	}
	if l.ends, err = admin.ListEndOffsets(ctx, topics...); err != nil {
		return l, fmt.Errorf("list end offsets: %w", one(err))
	}
	if !s.since.IsZero() {
		if l.stamped, err = admin.ListOffsetsAfterMilli(ctx, stamp(s.since), topics...); err != nil {
			return l, fmt.Errorf("list offsets by time: %w", one(err))
		}
	}
	return l, nil
}

// plan says where each partition's offset is to go.
func (s *resetting) plan(ctx context.Context, admin *kadm.Client, name string, commits kadm.OffsetResponses) ([]plannedOffset, error) {
	topics := slices.Sorted(maps.Keys(s.partitions))
	act := "reset offsets of " + name + " in"
	logs, err := s.ends(ctx, admin, topics)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", act, strings.Join(topics, ", "), err)
	}
	plan := []plannedOffset{}
	for _, topic := range topics {
		there := slices.Sorted(maps.Keys(logs.ends[topic]))
		ids := s.partitions[topic]
		if ids == nil {
			ids = there
		}
		if len(there) == 0 {
			return nil, answerError(act, topic, kerr.UnknownTopicOrPartition, "")
		}
		slices.Sort(ids)
		for _, id := range slices.Compact(ids) {
			for _, l := range []kadm.ListedOffset{logs.ends[topic][id], logs.starts[topic][id], logs.stamped[topic][id]} {
				if l.Err != nil {
					return nil, answerError(act, topic, l.Err, "")
				}
			}
			if !slices.Contains(there, id) {
				return nil, &notFoundError{fmt.Sprintf("%s %s: there is no partition %d; `brokerd topic describe %s` shows those that are", act, topic, id, topic)}
			}
			p, err := s.planOne(topic, id, logs, commits)
			if err != nil {
				return nil, fmt.Errorf("%s %s, partition %d: %w", act, topic, id, err)
			}
			plan = append(plan, p)
		}
	}
	return plan, nil
}

func (s *resetting) planOne(topic string, id int32, logs logEnds, commits kadm.OffsetResponses) (plannedOffset, error) {
	p := plannedOffset{Topic: topic, Partition: id}
	if o, ok := commits.Lookup(topic, id); ok && o.Err == nil && o.At >= 0 {
		p.Committed = &o.At
	}
	start, end := logs.starts[topic][id].Offset, logs.ends[topic][id].Offset
	to, err := s.target(p.Committed, start, end, logs.stamped[topic][id].Offset)
	if err != nil {
		return plannedOffset{}, err
	}
	p.New = min(max(to, start), end)
	p.Lag = end - p.New
	return p, nil
}

// target is where an offset is to go, the log's ends aside. stamped is the first
// offset of the time that was asked for; below 0, there is none.
func (s *resetting) target(committed *int64, start, end, stamped int64) (int64, error) {
	switch {
	case s.earliest:
		return start, nil
	case s.latest:
		return end, nil
	case s.hasOffset:
		return s.offset, nil
	case s.hasShift && committed == nil:
		return 0, &notFoundError{"nothing is committed that could be shifted"}
	case s.hasShift && s.shift > math.MaxInt64-*committed:
		return end, nil
	case s.hasShift:
		return *committed + s.shift, nil
	case stamped < 0:
		return end, nil
	}
	return stamped, nil
}

func commitPlan(ctx context.Context, admin *kadm.Client, name string, plan []plannedOffset) error {
	offsets := make(kadm.Offsets)
	for _, p := range plan {
		offsets.AddOffset(p.Topic, p.Partition, p.New, -1)
	}
	answers, err := admin.CommitOffsets(ctx, name, offsets)
	if err == nil {
		err = answers.Error()
	}
	if errors.Is(err, kerr.UnknownMemberID) { // somebody joined meanwhile
		err = kerr.NonEmptyGroup
	}
	return groupError("reset offsets of", name, one(err), "")
}

func (c *console) showPlan(plan []plannedOffset) error {
	var rows [][]string
	for _, p := range plan {
		rows = append(rows, []string{p.Topic, strconv.Itoa(int(p.Partition)), numberText(p.Committed), strconv.FormatInt(p.New, 10), strconv.FormatInt(p.Lag, 10)})
	}
	return writeTable(c.out, []string{"topic", "partition", "committed", "new", "lag"}, rows)
}
