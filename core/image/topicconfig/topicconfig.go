package topicconfig

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// CleanupPolicy is what happens to old records. The zero value keeps them all.
type CleanupPolicy struct {
	Delete  bool
	Compact bool
}

// TimestampType says whose time a record carries.
type TimestampType int8

// The timestamp types, in the numbers of the record batch's attributes.
const (
	CreateTime    TimestampType = 0
	LogAppendTime TimestampType = 1
)

// Unlimited stands for no age limit.
const Unlimited time.Duration = -1

// Config is a topic's settings with every default filled in. Durations that
// Kafka's milliseconds exceed are the longest that time.Duration holds.
type Config struct {
	CleanupPolicy      CleanupPolicy
	RetentionAge       time.Duration // Unlimited: for ever
	RetentionBytes     int64         // -1: no limit
	SegmentBytes       int64
	SegmentAge         time.Duration
	SegmentJitter      time.Duration
	SegmentIndexBytes  int64
	IndexIntervalBytes int64
	MaxMessageBytes    int64
	MinISR             int
	TimestampType      TimestampType
	TimestampBeforeMax time.Duration
	TimestampAfterMax  time.Duration
	CompressionType    string
	FlushMessages      int64
	FlushInterval      time.Duration
	DeleteRetention    time.Duration
	MinCompactionLag   time.Duration
	MaxCompactionLag   time.Duration
	MinDirtyRatio      float64
	UncleanElection    bool
	Preallocate        bool
	FileDeleteDelay    time.Duration
	// LeaderThrottled and FollowerThrottled are lists that ParseReplicas reads.
	LeaderThrottled   string
	FollowerThrottled string
}

// Validate says whether these may be a topic's own settings: every key is known,
// every value in its range, and none contradicts another. The error is one
// sentence for the user.
func Validate(topic map[string]string) error {
	_, err := Resolve(nil, topic)
	return err
}

// Overlay puts a layer of broker properties over what is in broker already. A
// setting that the layer gives in one unit replaces the one in another unit.
func Overlay(broker, layer map[string]string) {
	for key := range layer {
		d, _, _ := LookupBroker(key)
		for _, k := range d.Broker {
			delete(broker, k.Name)
		}
	}
	maps.Copy(broker, layer)
}

// Resolve is a topic's settings: its own, else what the broker's properties say,
// else the default. Broker properties that stand in for no topic setting are
// passed over.
func Resolve(broker, topic map[string]string) (Config, error) {
	for _, key := range slices.Sorted(maps.Keys(topic)) {
		if _, ok := Lookup(key); !ok {
			return Config{}, unknown(key)
		}
	}
	values := make(map[string]string, len(table))
	for _, d := range table {
		v := d.Default
		if own, ok := topic[d.Name]; ok {
			if err := d.Check(own); err != nil {
				return Config{}, err
			}
			v = own
		} else if b, key, ok := d.FromBroker(broker); ok {
			if err := d.Check(b); err != nil {
				return Config{}, fmt.Errorf("broker setting %s=%q: %w", key, broker[key], err)
			}
			v = b
		}
		values[d.Name] = v
	}
	return typed(values)
}

// MinISR is the min ISR of Resolve, without the other settings. Values that Check does not
// pass stand for 1.
func MinISR(broker, topic map[string]string) int {
	d, _ := Lookup("min.insync.replicas")
	v, set := topic[d.Name]
	if !set {
		if v, _, set = d.FromBroker(broker); !set {
			v = d.Default
		}
	}
	if d.Check(v) != nil {
		return 1
	}
	return int(number(v))
}

// typed reads values that Check has passed.
func typed(v map[string]string) (Config, error) {
	policy := SplitList(v["cleanup.policy"])
	c := Config{
		CleanupPolicy:      CleanupPolicy{Delete: slices.Contains(policy, "delete"), Compact: slices.Contains(policy, "compact")},
		RetentionAge:       age(v["retention.ms"]),
		RetentionBytes:     number(v["retention.bytes"]),
		SegmentBytes:       number(v["segment.bytes"]),
		SegmentAge:         age(v["segment.ms"]),
		SegmentJitter:      age(v["segment.jitter.ms"]),
		SegmentIndexBytes:  number(v["segment.index.bytes"]),
		IndexIntervalBytes: number(v["index.interval.bytes"]),
		MaxMessageBytes:    number(v["max.message.bytes"]),
		MinISR:             int(number(v["min.insync.replicas"])),
		TimestampBeforeMax: age(v["message.timestamp.before.max.ms"]),
		TimestampAfterMax:  age(v["message.timestamp.after.max.ms"]),
		CompressionType:    v["compression.type"],
		FlushMessages:      number(v["flush.messages"]),
		FlushInterval:      age(v["flush.ms"]),
		DeleteRetention:    age(v["delete.retention.ms"]),
		MinCompactionLag:   age(v["min.compaction.lag.ms"]),
		MaxCompactionLag:   age(v["max.compaction.lag.ms"]),
		FileDeleteDelay:    age(v["file.delete.delay.ms"]),
		LeaderThrottled:    v["leader.replication.throttled.replicas"],
		FollowerThrottled:  v["follower.replication.throttled.replicas"],
	}
	if v["message.timestamp.type"] == "LogAppendTime" {
		c.TimestampType = LogAppendTime
	}
	c.MinDirtyRatio, _ = strconv.ParseFloat(strings.TrimSpace(v["min.cleanable.dirty.ratio"]), 64)
	c.UncleanElection, _ = parseBool(v["unclean.leader.election.enable"])
	c.Preallocate, _ = parseBool(v["preallocate"])

	if c.MinCompactionLag > c.MaxCompactionLag {
		return Config{}, fmt.Errorf("min.compaction.lag.ms (%s) is above max.compaction.lag.ms (%s)", v["min.compaction.lag.ms"], v["max.compaction.lag.ms"])
	}
	return c, nil
}

func number(v string) int64 {
	n, _ := parseInt(v)
	return n
}

// age is a number of milliseconds; below 0 is no limit.
func age(v string) time.Duration {
	ms := number(v)
	switch {
	case ms < 0:
		return Unlimited
	case ms > math.MaxInt64/int64(time.Millisecond):
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}

func unknown(key string) error {
	if d, k, ok := LookupBroker(key); ok {
		if k.Scale != 1 {
			return fmt.Errorf("%s is a broker setting: for a topic set %s, in milliseconds", key, d.Name)
		}
		return fmt.Errorf("%s is a broker setting: for a topic set %s", key, d.Name)
	}
	names := make([]string, len(table))
	for i, d := range table {
		names[i] = d.Name
	}
	return fmt.Errorf("%q is not a topic setting%s", key, suggestion(key, names))
}

// suggestion names the known key nearest to a mistyped one, if any is near.
func suggestion(key string, names []string) string {
	const nearest, keyLongest = 5, 64
	if len(key) > keyLongest {
		return ""
	}
	fold := strings.NewReplacer("_", ".", "-", ".").Replace(strings.ToLower(key))
	best, bestAt := "", nearest
	for _, n := range names {
		if d := distance(fold, n); d < bestAt {
			best, bestAt = n, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// distance is the number of single-character edits between a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
