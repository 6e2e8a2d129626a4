package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// seenStatus is what is looked at of `brokerd cluster status`.
type seenStatus struct {
	Partitions map[string]int `json:"partitions"`
	Problems   []string       `json:"problems"`
	Losses     []struct {
		Topic     string `json:"topic"`
		Partition int32  `json:"partition"`
		From      *int64 `json:"from_offset"`
		Unclean   bool   `json:"unclean"`
	} `json:"losses"`
}

// status asks how the cluster is; well says whether the command ended with 0.
func (b *broker) status() (s seenStatus, well bool, err error) {
	out, failed := b.command("cluster", "status", "-b", b.addr(), "-o", "json")
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		return s, false, errors.Join(failed, err)
	}
	return s, failed == nil, nil
}

// seeing waits until the metrics of the brokers that are alive say this, all added up.
func (b *broker) seeing(admin int, dead int32, want map[string]float64) {
	b.t.Helper()
	if err := eventually(testContext(b.t, startTimeout), func() error {
		got := map[string]float64{}
		for n := range int32(b.brokers) {
			if n+1 == dead {
				continue
			}
			for name, value := range metricsAt(b.t, admin+int(n)) {
				got[name] += value
			}
		}
		for name, value := range want {
			if got[name] != value {
				return fmt.Errorf("%s is %v, want %v", name, got[name], value)
			}
		}
		return nil
	}); err != nil {
		b.t.Fatalf("%v\n%s", err, b.tail())
	}
}

// elect has anybody lead a partition, whatever it lacks.
func (b *broker) elect(topic string, partition int32) {
	b.t.Helper()
	t := kmsg.NewElectLeadersRequestTopic()
	t.Topic, t.Partitions = topic, []int32{partition}
	req := kmsg.NewPtrElectLeadersRequest()
	req.ElectionType, req.TimeoutMillis, req.Topics = 1, 10_000, append(req.Topics, t)
	resp, err := req.RequestWith(testContext(b.t, startTimeout), newClient(b.t, b.addr()))
	if err == nil {
		err = errors.Join(kerr.ErrorForCode(resp.ErrorCode), kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode))
	}
	if err != nil {
		b.t.Fatalf("elect a leader of %s-%d: %v\n%s", topic, partition, err, b.tail())
	}
}

// describes waits until `brokerd topic describe` shows a line.
func (b *broker) describes(topic, want string) {
	b.t.Helper()
	if err := eventually(testContext(b.t, startTimeout), func() error {
		out, err := b.command("topic", "describe", topic, "-b", b.addr())
		if err != nil || !strings.Contains(out, want) {
			return fmt.Errorf("no %q: %w\n%s", want, err, out)
		}
		return nil
	}); err != nil {
		b.t.Errorf("%v\n%s", err, b.tail())
	}
}

// What operators see of three brokers: when all is well, when one is dead, when nobody leads a
// partition and somebody is made to who lacks records, and after all have lost their power.
func TestClusterIsSeen(t *testing.T) {
	t.Parallel()
	const brokers, records = 3, 20
	admin := freePorts(t, brokers)
	b := startBrokers(t, brokers, "--admin-port", strconv.Itoa(admin))
	b.placeTopic("kept", nil, []int32{1, 2, 3})
	b.placeTopic("risky", map[string]string{"min.insync.replicas": "1"}, []int32{2, 3})
	b.partition0("kept", 3)
	b.partition0("risky", 2)
	produce := func(topic string, n int) {
		t.Helper()
		c := newClient(t, b.addr(), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err := c.ProduceSync(testContext(t, startTimeout), numbered(n)...).FirstErr(); err != nil {
			t.Fatalf("%v\n%s", err, b.tail())
		}
	}
	produce("kept", records)
	produce("risky", records)
	well := map[string]float64{
		"controller_active_state": 1, "controller_partitions_count": 2, "controller_under_replicated_partitions_count": 0,
		"controller_leaderless_partitions_count": 0, "controller_brokers_count": brokers, "controller_fenced_brokers_count": 0,
		"replica_led_partitions_count": 2, "replica_lease_state": brokers, "broker_fenced_state": 0,
		"quorum_voter_state": brokers, "quorum_leader_state": brokers, "controller_lossy_partitions_count": 0,
	}
	b.seeing(admin, 0, well)

	b.dev("kill", 3)
	b.seeing(admin, 3, map[string]float64{
		"controller_active_state": 1, "controller_under_replicated_partitions_count": 2, "controller_under_min_isr_partitions_count": 0,
		"controller_fenced_brokers_count": 1, "replica_under_replicated_partitions_count": 2, "replica_led_partitions_count": 2,
		"quorum_leader_state": brokers - 1, "replica_lease_state": brokers - 1,
	})
	s, isWell, err := b.status()
	if err != nil || isWell || s.Partitions["under_replicated"] != 2 || !slices.ContainsFunc(s.Problems, func(p string) bool { return strings.HasPrefix(p, "broker 3 is fenced") }) {
		t.Errorf("the status with broker 3 dead: %v, well: %v, %+v", err, isWell, s)
	}

	produce("risky", 5) // which broker 3 will lack
	b.dev("kill", 2)
	b.dev("restart", 3)
	b.seeing(admin, 2, map[string]float64{"controller_leaderless_partitions_count": 1, "replica_leaderless_partitions_count": 1, "quorum_leader_state": brokers - 1})
	b.elect("risky", 0)
	b.await("risky", 0, ledBy(3))
	produce("risky", 1)
	b.describes("risky", fmt.Sprintf("loss      risky-0: acknowledged records from offset %d on may be missing since 20", records))
	b.dev("restart", 2)
	b.partition0("kept", 3)
	b.partition0("risky", 2)
	well["controller_lossy_partitions_count"] = 1
	b.seeing(admin, 0, well)

	b.kill()
	waitUnheld(t, b)
	for n := range int32(brokers) { // as after a loss of power, which takes nothing this time
		if err := os.Remove(filepath.Join(b.dirOf(n+1), "life")); err != nil {
			t.Fatal(err)
		}
	}
	b.launch()
	b.partition0("kept", 3)
	b.partition0("risky", 2)
	b.seeing(admin, 0, map[string]float64{"controller_lossy_partitions_count": 2})
	if err := eventually(testContext(t, startTimeout), func() error {
		s, isWell, err := b.status()
		switch {
		case err != nil:
			return err
		case !isWell:
			return fmt.Errorf("problems %q", s.Problems)
		case len(s.Losses) != 2 || s.Losses[0].Topic != "kept" || s.Losses[0].From == nil || *s.Losses[0].From != records || s.Losses[0].Unclean:
			return fmt.Errorf("losses %+v", s.Losses)
		}
		return nil
	}); err != nil {
		t.Errorf("the status after a loss of power: %v\n%s", err, b.tail())
	}
	b.describes("kept", fmt.Sprintf("min isr   2 in effect\nloss      kept-0: acknowledged records from offset %d on may be missing since 20", records))
}
