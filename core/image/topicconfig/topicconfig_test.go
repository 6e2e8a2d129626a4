package topicconfig

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTableIsSoundAndSorted(t *testing.T) {
	names := make([]string, 0, len(table))
	brokers := map[string]bool{}
	for _, d := range Definitions() {
		names = append(names, d.Name)
		if err := d.Check(d.Default); err != nil {
			t.Errorf("default outside its range: %v", err)
		}
		if d.Doc == "" || d.Allowed == "" {
			t.Errorf("%s says nothing of itself", d.Name)
		}
		if d.Inert != strings.Contains(d.Doc, "no effect yet") {
			t.Errorf("%s: inert and its documentation disagree", d.Name)
		}
		for _, k := range d.Broker {
			if brokers[k.Name] {
				t.Errorf("broker property %s stands for two settings", k.Name)
			}
			brokers[k.Name] = true
		}
		if got, ok := Lookup(d.Name); !ok || got.Name != d.Name {
			t.Errorf("Lookup(%q) = %v, %v", d.Name, got.Name, ok)
		}
	}
	if !slices.IsSorted(names) {
		t.Errorf("not in name order: %v", names)
	}
}

// Every topic setting of Kafka 4 is accepted and shown.
func TestAllOfKafkasSettingsAreKnown(t *testing.T) {
	for _, name := range strings.Fields(`
		cleanup.policy compression.gzip.level compression.lz4.level compression.type compression.zstd.level
		delete.retention.ms file.delete.delay.ms flush.messages flush.ms follower.replication.throttled.replicas
		index.interval.bytes leader.replication.throttled.replicas local.retention.bytes local.retention.ms
		max.compaction.lag.ms max.message.bytes message.timestamp.after.max.ms message.timestamp.before.max.ms
		message.timestamp.type min.cleanable.dirty.ratio min.compaction.lag.ms min.insync.replicas preallocate
		remote.log.copy.disable remote.log.delete.on.disable remote.storage.enable retention.bytes retention.ms
		segment.bytes segment.index.bytes segment.jitter.ms segment.ms unclean.leader.election.enable`) {
		if _, ok := Lookup(name); !ok {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestDefaults(t *testing.T) {
	got, err := Resolve(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		CleanupPolicy: CleanupPolicy{Delete: true}, RetentionAge: 7 * 24 * time.Hour, RetentionBytes: -1,
		SegmentBytes: 1 << 30, SegmentAge: 7 * 24 * time.Hour, SegmentIndexBytes: 10 << 20, IndexIntervalBytes: 4096,
		MaxMessageBytes: 1048588, MinISR: 2, TimestampBeforeMax: math.MaxInt64, TimestampAfterMax: time.Hour,
		CompressionType: "producer", FlushMessages: math.MaxInt64, FlushInterval: math.MaxInt64,
		DeleteRetention: 24 * time.Hour, MaxCompactionLag: math.MaxInt64, MinDirtyRatio: 0.5, FileDeleteDelay: time.Minute,
	}
	if got != want {
		t.Errorf("Resolve(nil, nil) =\n%+v\nwant\n%+v", got, want)
	}
}

func TestResolvePrecedence(t *testing.T) {
	tests := []struct {
		name          string
		broker, topic map[string]string
		want          time.Duration
	}{
		{"hours", map[string]string{"log.retention.hours": "2"}, nil, 2 * time.Hour},
		{"minutes before hours", map[string]string{"log.retention.hours": "2", "log.retention.minutes": "3"}, nil, 3 * time.Minute},
		{"ms before minutes", map[string]string{"log.retention.ms": "7", "log.retention.minutes": "3"}, nil, 7 * time.Millisecond},
		{"topic before broker", map[string]string{"log.retention.ms": "7"}, map[string]string{"retention.ms": "8"}, 8 * time.Millisecond},
		{"none in hours", map[string]string{"log.retention.hours": "-1"}, nil, Unlimited},
		{"none", nil, map[string]string{"retention.ms": "-1"}, Unlimited},
		{"too long for a duration", nil, map[string]string{"retention.ms": "9223372036854775807"}, math.MaxInt64},
		{"hours that overflow", map[string]string{"log.retention.hours": "9223372036854775807"}, nil, math.MaxInt64},
		{"other broker properties", map[string]string{"num.io.threads": "x"}, nil, 7 * 24 * time.Hour},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Resolve(tt.broker, tt.topic)
			if err != nil || got.RetentionAge != tt.want {
				t.Errorf("RetentionAge = %v, %v; want %v", got.RetentionAge, err, tt.want)
			}
		})
	}
}

func TestCleanupPolicy(t *testing.T) {
	for v, want := range map[string]CleanupPolicy{
		"delete": {Delete: true}, "compact": {Compact: true}, "compact, delete": {Delete: true, Compact: true}, "": {},
	} {
		if got, err := Resolve(nil, map[string]string{"cleanup.policy": v}); err != nil || got.CleanupPolicy != want {
			t.Errorf("cleanup.policy=%q: %+v, %v; want %+v", v, got.CleanupPolicy, err, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	tests := []struct{ key, value, says string }{
		{"segment.bytes", "1048575", "at least 1048576"},
		{"segment.bytes", "2147483648", "at least 1048576"},
		{"retention.ms", "-2", "at least -1"},
		{"retention.ms", "7d", "whole number"},
		{"retention.ms", "9223372036854775808", "whole number"},
		{"min.insync.replicas", "0", "at least 1"},
		{"cleanup.policy", "delete,burn", "delete and compact"},
		{"compression.type", "none", "uncompressed, zstd, lz4, snappy, gzip or producer"},
		{"remote.storage.enable", "true", "not supported yet"},
		{"message.timestamp.type", "createtime", "CreateTime or LogAppendTime"},
		{"min.cleanable.dirty.ratio", "NaN", "from 0 to 1"},
		{"min.cleanable.dirty.ratio", "1.1", "from 0 to 1"},
		{"unclean.leader.election.enable", "yes", "true or false"},
		{"leader.replication.throttled.replicas", "0-1", "partition:broker"},
		{"compression.lz4.level", "18", "from 1 to 17"},
		{"retentoin.ms", "1", "did you mean retention.ms?"},
		{"RETENTION_MS", "1", "did you mean retention.ms?"},
		{"log.retention.hours", "1", "set retention.ms, in milliseconds"},
		{"message.max.bytes", "1", "set max.message.bytes"},
		{"nonsense", "1", "not a topic setting"},
	}
	for _, tt := range tests {
		t.Run(tt.key+"="+tt.value, func(t *testing.T) {
			err := Validate(map[string]string{tt.key: tt.value})
			if err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), tt.key) {
				t.Errorf("Validate = %v; want one that names the key and says %q", err, tt.says)
			}
		})
	}
	if err := Validate(map[string]string{"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}); err == nil {
		t.Error("min.compaction.lag.ms above max.compaction.lag.ms passed")
	}
	if err := Validate(map[string]string{strings.Repeat("x", 1<<16): ""}); err == nil || strings.Contains(err.Error(), "did you mean") {
		t.Errorf("long key: %.100v", err)
	}
}

func TestValidateBroker(t *testing.T) {
	if err := ValidateBroker(map[string]string{"log.retention.hours": "3", "min.insync.replicas": "1"}); err != nil {
		t.Error(err)
	}
	for key, says := range map[string]string{"log.retention.hour": "log.retention.hours", "retention.ms": "retention.ms"} {
		if err := ValidateBroker(map[string]string{key: "1"}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("ValidateBroker(%s) = %v; want one that says %q", key, err, says)
		}
	}
	if err := ValidateBroker(map[string]string{"log.retention.hours": "soon"}); err == nil || !strings.Contains(err.Error(), `log.retention.hours="soon"`) {
		t.Errorf("ValidateBroker = %v; want one that names the property and its value", err)
	}
}

func TestOneBrokerAlone(t *testing.T) {
	if err := ValidateOneBroker(map[string]string{"log.retention.ms": "1", "message.max.bytes": "9"}); err != nil {
		t.Error(err)
	}
	for _, key := range []string{"min.insync.replicas", "unclean.leader.election.enable"} {
		if err := ValidateOneBroker(map[string]string{"log.retention.ms": "1", key: "1"}); err == nil || !strings.HasPrefix(err.Error(), key) {
			t.Errorf("%s: %v; want one that names it", key, err)
		}
	}
}

// A layer wins in whatever unit it speaks, and takes away what is below alone.
func TestOverlay(t *testing.T) {
	for _, tt := range []struct {
		name   string
		layers []map[string]string
		want   map[string]string
	}{
		{"hours over ms", []map[string]string{{"log.retention.ms": "1"}, {"log.retention.hours": "2"}}, map[string]string{"log.retention.hours": "2"}},
		{"both in one layer", []map[string]string{{"log.retention.minutes": "1"}, {"log.retention.hours": "2", "log.retention.ms": "3"}},
			map[string]string{"log.retention.hours": "2", "log.retention.ms": "3"}},
		{"others stay", []map[string]string{{"log.roll.ms": "1", "num.io.threads": "4"}, {"log.retention.ms": "2", "num.io.threads": "5"}},
			map[string]string{"log.roll.ms": "1", "log.retention.ms": "2", "num.io.threads": "5"}},
		{"three", []map[string]string{{"log.retention.ms": "1"}, {"log.retention.ms": "2"}, {"log.retention.ms": "3"}}, map[string]string{"log.retention.ms": "3"}},
		{"nothing", []map[string]string{{"log.retention.ms": "1"}, nil}, map[string]string{"log.retention.ms": "1"}},
	} {
		got := map[string]string{}
		for _, layer := range tt.layers {
			Overlay(got, layer)
		}
		if !maps.Equal(got, tt.want) {
			t.Errorf("%s: %v; want %v", tt.name, got, tt.want)
		}
	}
}

// Whatever is asked, Validate answers; and what it accepts one by one that does
// not contradict itself, it accepts together.
func TestValidateNeverPanics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := make([]string, 0, len(table))
		for _, d := range table {
			names = append(names, d.Name)
		}
		key := rapid.OneOf(rapid.SampledFrom(names), rapid.String())
		value := rapid.OneOf(rapid.SampledFrom([]string{"-1", "0", "1", "true", "delete", " 5 ", ""}), rapid.String())
		m := rapid.MapOf(key, value).Draw(t, "topic")
		c, err := Resolve(nil, m)
		if err == nil && (c.SegmentBytes < SegmentBytesMin || c.MinISR < 1 || c.MinCompactionLag > c.MaxCompactionLag) {
			t.Fatalf("accepted %v as %+v", m, c)
		}
	})
}
