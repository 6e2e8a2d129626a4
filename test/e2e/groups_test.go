package e2e

import (
	"errors"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestKillUnderAGroup kills the broker, or its storage plugin, with SIGKILL under a
// group that consumes and commits, again and again. What was committed is never
// processed again, committed offsets never go back, and the group goes on by itself.
func TestKillUnderAGroup(t *testing.T) {
	t.Parallel()
	const topic, partitions = "orders", 6
	for _, victim := range []string{"broker", "plugin"} {
		t.Run(victim, func(t *testing.T) {
			b := startBroker(t)
			createTopic(t, b.addr(), topic, partitions)
			j := newJournal("workers", topic)
			stopProducing := j.produce(t, b.addr(), partitions, 5*time.Millisecond)
			for range 3 {
				j.join(t, b.addr())
			}
			j.waitCommits(t, b, 10)
			stopWatching := j.watch(t, b.addr())
			for range kills() {
				j.waitCommits(t, b, 30)
				if victim == "broker" {
					b.kill()
					b.start()
					continue
				}
				signalPlugins(t, b, syscall.SIGKILL)
			}
			j.waitCommits(t, b, 30)
			stopProducing()
			j.finish(t, b)
			t.Logf("victim=%s kills=%d commits=%d looks=%d", victim, kills(), j.commits, stopWatching())
		})
	}
}

// TestKafkasConsoleConsumerInAGroup goes on where it was, and Kafka's own formatters
// read what the offsets topic holds.
func TestKafkasConsoleConsumerInAGroup(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	createTopic(t, b.addr(), "orders", 1)
	consume := func(n string) string {
		return string(kafkaTool(t, nil, "consumer.ConsoleConsumer", "--bootstrap-server", b.addr(), "--topic", "orders", "--group", "console",
			"--from-beginning", "--max-messages", n, "--timeout-ms", "30000"))
	}
	franzProduce(t, b.addr(), "orders", "none", numbered(5))
	if got := consume("5"); got != "value 0\nvalue 1\nvalue 2\nvalue 3\nvalue 4\n" {
		t.Errorf("first it read %q", got)
	}
	b.kill()
	b.start()
	franzProduce(t, b.addr(), "orders", "none", numbered(2))
	if got := consume("2"); got != "value 0\nvalue 1\n" {
		t.Errorf("then it read %q", got)
	}
	partition, records := groupLog(t, b.addr())
	for formatter, want := range map[string][]string{
		"OffsetsMessageFormatter": {`"group":"console","topic":"orders","partition":0`, `"offset":5,`, `"offset":7,`},
		"GroupMetadataMessageFormatter": {`"group":"console"`, `"protocolType":"consumer"`, `"protocol":"range"`, `"generation":1`,
			`"clientId":"console-consumer"`},
	} {
		out := string(kafkaTool(t, nil, "consumer.ConsoleConsumer", "--bootstrap-server", b.addr(), "--topic", "__consumer_offsets",
			"--partition", strconv.Itoa(int(partition)), "--offset", "earliest", "--max-messages", strconv.Itoa(int(records)), "--timeout-ms", "30000",
			"--formatter", "org.apache.kafka.tools.consumer."+formatter))
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%s does not show %s:\n%s", formatter, w, out)
			}
		}
	}
}

// groupLog is the only partition of the offsets topic that has records, and how many.
func groupLog(t *testing.T, addr string) (partition int32, records int64) {
	t.Helper()
	ends, err := newAdmin(t, addr).ListEndOffsets(testContext(t, startTimeout), "__consumer_offsets")
	if err != nil || ends.Error() != nil {
		t.Fatalf("the offsets topic: %v, %v", err, ends.Error())
	}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			partition, records = o.Partition, o.Offset
		}
	})
	return partition, records
}

// TestStopAnswersMembersThatWait: members may wait for each other for minutes, and a
// broker that stops does not wait for them.
func TestStopAnswersMembersThatWait(t *testing.T) {
	b := startBroker(t, "--set", "group.initial.rebalance.delay.ms=60s")
	c := newClient(t, b.addr())
	findCoordinator(t, c, "parked")
	told, old := make(chan error, 1), oldClient(t, b.addr())
	var answer error // once told
	go func() {
		told <- eventually(t.Context(), func() error {
			resp, err := old.SeedBrokers()[0].Request(t.Context(), joinRequest("parked"))
			if err != nil {
				return err
			}
			code := kerr.ErrorForCode(resp.(*kmsg.JoinGroupResponse).ErrorCode)
			if errors.Is(code, kerr.CoordinatorLoadInProgress) {
				return code
			}
			answer = code
			return nil
		})
	}()
	err := eventually(testContext(t, startTimeout), func() error { return inState(t, c, "parked", "PreparingRebalance") })
	if err != nil {
		select {
		case early := <-told:
			t.Fatalf("the member was told %v, %v", early, answer)
		default:
			t.Fatal(err)
		}
	}
	begun := time.Now()
	b.stop()
	t.Logf("the stop took %s", time.Since(begun))
	if took := time.Since(begun); took > 8*time.Second {
		t.Errorf("the stop took %s", took)
	}
	if err := <-told; err != nil || !kerr.IsRetriable(answer) {
		t.Errorf("the member was told %v, %v", err, answer)
	}
}

func joinRequest(group string) *kmsg.JoinGroupRequest {
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name = "range"
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.ProtocolType, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = group, "consumer", 45_000, 300_000
	join.Protocols = append(join.Protocols, protocol)
	return join
}

// TestGroupSettings: what is in force is what DescribeConfigs shows, and `brokerd dev`
// has a first member wait for nobody unless it is told to.
func TestGroupSettings(t *testing.T) {
	for name, tc := range map[string]struct {
		args, env []string
		want      map[string]string
	}{
		"as it is": {want: map[string]string{"group.initial.rebalance.delay.ms": "0", "offsets.retention.minutes": "10080", "group.max.size": "2147483647"}},
		"by flags": {args: []string{"--set", "group.initial.rebalance.delay.ms=2s", "--set", "offsets.retention.minutes=3d"},
			want: map[string]string{"group.initial.rebalance.delay.ms": "2000", "offsets.retention.minutes": "4320"}},
		"by the environment": {env: []string{"BROKERD_GROUP_INITIAL_REBALANCE_DELAY_MS=1000", "BROKERD_GROUP_MAX_SIZE=7"},
			want: map[string]string{"group.initial.rebalance.delay.ms": "1000", "group.max.size": "7"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := startBrokerOn(t, t.TempDir(), tc.env, tc.args...)
			configs, err := newAdmin(t, b.addr()).DescribeBrokerConfigs(testContext(t, startTimeout), 1)
			if err != nil || configs[0].Err != nil {
				t.Fatal(err, configs[0].Err)
			}
			got := map[string]string{}
			for _, c := range configs[0].Configs {
				got[c.Key] = c.MaybeValue()
			}
			for key, want := range tc.want {
				if got[key] != want {
					t.Errorf("%s is %q, want %q", key, got[key], want)
				}
			}
		})
	}
}
