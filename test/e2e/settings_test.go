package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestOneBrokersSettings: what is set for one broker alone comes before what is set
// for all, moves the logs of topics that say nothing themselves, outlives a restart
// and can be taken back.
func TestOneBrokersSettings(t *testing.T) {
	b := startBroker(t, "--set", "log.retention.check.interval.ms=50", "--set", "log.retention.hours=100")
	ctx := testContext(t, 2*time.Minute)
	admin := newAdmin(t, b.addr())
	if _, err := admin.CreateTopic(ctx, 1, -1, nil, "inherits"); err != nil {
		t.Fatal(err)
	}
	createTopic(t, b.addr(), "keeps", 1)
	records := func(topic string) (out []*kgo.Record) {
		for _, r := range numbered(10) {
			r.Topic, r.Timestamp = topic, time.Now().Add(-50*time.Hour)
			out = append(out, r)
		}
		return out
	}
	producer := newClient(t, b.addr())
	for _, topic := range []string{"keeps", "inherits"} {
		if err := producer.ProduceSync(ctx, records(topic)...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}

	alterBroker(t, admin.AlterBrokerConfigs, kadm.AlterConfig{Name: "log.retention.ms", Value: new("300000000")}) // 83 hours, for all
	own := kadm.AlterConfig{Name: "log.retention.ms", Value: new("3600000")}
	alterBroker(t, admin.ValidateAlterBrokerConfigs, own, 1)
	if got, want := retention(t, b, "inherits"), "3:log.retention.ms=300000000 4:log.retention.ms=360000000 5:log.retention.ms=604800000"; got != want {
		t.Errorf("set for all: %s\nwant %s", got, want)
	}
	if got := startOffset(t, b, "inherits"); got != 0 {
		t.Errorf("before anything was set for one, the log begins at %d", got)
	}

	alterBroker(t, admin.AlterBrokerConfigs, own, 1)
	if err := eventually(ctx, func() error {
		if got := startOffset(t, b, "inherits"); got != 10 {
			return fmt.Errorf("the log begins at %d", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := startOffset(t, b, "keeps"); got != 0 {
		t.Errorf("a topic with a setting of its own begins at %d", got)
	}

	b.stop()
	b.start()
	const both = "2:log.retention.ms=3600000 3:log.retention.ms=300000000 4:log.retention.ms=360000000 5:log.retention.ms=604800000"
	if got := retention(t, b, "inherits"); got != both {
		t.Errorf("after a restart: %s\nwant %s", got, both)
	}
	if err := newClient(t, b.addr()).ProduceSync(ctx, records("inherits")...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := eventually(ctx, func() error {
		if got := startOffset(t, b, "inherits"); got != 20 {
			return fmt.Errorf("after a restart the log begins at %d", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}

	admin = newAdmin(t, b.addr())
	alterBroker(t, admin.AlterBrokerConfigs, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "log.retention.ms"}, 1)
	if got := retention(t, b, "inherits"); !strings.HasPrefix(got, "3:") {
		t.Errorf("taken back: %s", got)
	}
}

// TestOneBrokersSettingsRefused: a setting that could have no effect for one broker
// alone is refused with its reason.
func TestOneBrokersSettingsRefused(t *testing.T) {
	b := startBroker(t)
	admin := newAdmin(t, b.addr())
	for _, refused := range []struct{ key, value, says string }{
		{"min.insync.replicas", "1", "set it for all brokers"},
		{"unclean.leader.election.enable", "true", "set it for all brokers"},
		{"sasl.kerberos.min.time.before.relogin", "58000", "not a broker setting that can be changed here"},
		{"log.retention.check.interval.ms", "1", "not a broker setting that can be changed here"},
		{"log.retention.mss", "1", "did you mean log.retention.ms?"},
	} {
		key, value, says := refused.key, refused.value, refused.says
		answers, err := admin.AlterBrokerConfigs(testContext(t, startTimeout), []kadm.AlterConfig{{Name: key, Value: &value}}, 1)
		if err != nil || len(answers) != 1 {
			t.Fatalf("%s: %v, %v", key, answers, err)
		}
		if a := answers[0]; !errors.Is(a.Err, kerr.InvalidConfig) || !strings.Contains(a.ErrMessage, says) {
			t.Errorf("%s: %v, %q; want INVALID_CONFIG that says %q", key, a.Err, a.ErrMessage, says)
		}
	}
}

type alterBrokers = func(context.Context, []kadm.AlterConfig, ...int32) (kadm.AlterConfigsResponses, error)

// alterBroker changes a setting of one broker, or of all.
func alterBroker(t *testing.T, alter alterBrokers, change kadm.AlterConfig, broker ...int32) {
	t.Helper()
	answers, err := alter(testContext(t, startTimeout), []kadm.AlterConfig{change}, broker...)
	if err != nil || len(answers) != 1 || answers[0].Err != nil {
		t.Fatalf("set %s for %v: %+v, %v", change.Name, broker, answers, err)
	}
}

// retention is where a topic's retention.ms comes from, in numbers of Kafka's, the
// winner first.
func retention(t *testing.T, b *broker, topic string) string {
	t.Helper()
	configs, err := newAdmin(t, b.addr()).DescribeTopicConfigs(testContext(t, startTimeout), topic)
	if err != nil || configs[0].Err != nil {
		t.Fatal(err, configs[0].Err)
	}
	var out []string
	for _, c := range configs[0].Configs {
		if c.Key != "retention.ms" {
			continue
		}
		for _, s := range c.Synonyms {
			out = append(out, fmt.Sprintf("%d:%s=%s", s.Source, s.Key, *s.Value))
		}
		if first := c.Synonyms[0]; c.Source != first.Source || c.MaybeValue() != *first.Value {
			t.Errorf("in force is %s from %d, but the first of %v counts", c.MaybeValue(), c.Source, out)
		}
	}
	return strings.Join(out, " ")
}

// startOffset is where partition 0 begins.
func startOffset(t *testing.T, b *broker, topic string) int64 {
	t.Helper()
	starts, err := newAdmin(t, b.addr()).ListStartOffsets(testContext(t, startTimeout), topic)
	if err != nil || starts.Error() != nil {
		t.Fatalf("start offset of %s: %v %v", topic, err, starts.Error())
	}
	start, _ := starts.Lookup(topic, 0)
	return start.Offset
}
