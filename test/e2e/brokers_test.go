package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/brokerd/brokerd/test/rig"
)

// Several brokers: how they are started, what is done to one of them, and what they say
// of partitions and of the quorum.

// startBrokers starts several brokers by one `brokerd dev`, and waits until all serve.
func startBrokers(t *testing.T, n int, args ...string) *broker {
	t.Helper()
	return startBrokersOn(t, t.TempDir(), n, args...)
}

// startBrokersOn starts several brokers on the given data directory.
func startBrokersOn(t *testing.T, dir string, n int, args ...string) *broker {
	t.Helper()
	b := newBroker(t, dir, append([]string{"--brokers", strconv.Itoa(n)}, args...)...)
	b.brokers, b.port = n, freePorts(t, n)
	b.start()
	b.waitBrokers(n)
	if err := eventually(testContext(t, startTimeout), func() error {
		if !strings.Contains(b.output(), "brokers are ready") {
			return errors.New("it does not say that it is ready")
		}
		return nil
	}); err != nil {
		t.Fatalf("%v\n%s", err, b.tail())
	}
	return b
}

// newServers makes brokers that are yet to be started, each by itself and with the same
// settings but for its place, as on servers: all are seeds, and each may create a cluster.
func newServers(t *testing.T, n int) []*broker {
	t.Helper()
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("secret", 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	at, clients := freePorts(t, n), freePorts(t, n)
	var all []*broker
	var seeds []string
	for i := range n {
		seeds = append(seeds, "127.0.0.1:"+strconv.Itoa(at+i))
	}
	for i := range n {
		b := newBroker(t, brokerDir(dir, int32(i+1)))
		b.port = clients + i
		member := rig.Member{Number: i + 1, Data: b.dir, Clients: b.addr(), Peers: seeds[i], Seeds: seeds, SecretFile: secret}
		b.settings = member.Settings("admin.listen=127.0.0.1:0")
		all = append(all, b)
	}
	return all
}

// metadata asks a broker for what it knows of the cluster now.
func (b *broker) metadata(ctx context.Context, c *kgo.Client, topics ...string) (*kmsg.MetadataResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, name := range topics {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = &name
		req.Topics = append(req.Topics, topic)
	}
	return req.RequestWith(ctx, c)
}

// waitBrokers waits until clients are told of so many brokers.
func (b *broker) waitBrokers(n int) {
	b.t.Helper()
	c := newClient(b.t, b.addr())
	ctx := testContext(b.t, startTimeout)
	err := eventually(ctx, func() error {
		m, err := b.metadata(ctx, c)
		if err == nil && len(m.Brokers) != n {
			err = fmt.Errorf("%d brokers, want %d", len(m.Brokers), n)
		}
		return err
	})
	if err != nil {
		b.t.Fatalf("%v\n%s", err, b.tail())
	}
}

// dev does something to one of several brokers, from another process.
func (b *broker) dev(do string, n int32) {
	b.t.Helper()
	if _, err := b.command("dev", do, fmt.Sprint(n), "--data", b.dir); err != nil {
		b.t.Fatalf("%v\n%s", err, b.tail())
	}
}

// command runs brokerd with these arguments to its end, and returns what it printed.
func (b *broker) command(args ...string) (string, error) {
	b.t.Helper()
	path, err := executable()
	if err != nil {
		b.t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(testContext(b.t, startTimeout), path, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("brokerd %s: %w\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), nil
}

// devMember is one of several brokers, as who runs it says.
type devMember struct {
	Broker int32  `json:"broker"`
	State  string `json:"state"`
	PID    int    `json:"pid"`
	Starts int    `json:"starts"`
	Error  string `json:"error"`
}

// members are all of several brokers, from broker 1 on.
func (b *broker) members() []devMember {
	b.t.Helper()
	out, err := b.command("dev", "status", "--data", b.dir, "-o", "json")
	if err != nil {
		b.t.Fatalf("%v\n%s", err, b.tail())
	}
	var all []devMember
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		b.t.Fatalf("brokerd dev status: %v\n%s", err, out)
	}
	return all
}

// dirOf is the data directory of one of several brokers.
func (b *broker) dirOf(n int32) string { return brokerDir(b.dir, n) }

// brokerDir is the data directory of one of several brokers that are started on dir.
func brokerDir(dir string, n int32) string { return filepath.Join(dir, fmt.Sprintf("broker-%d", n)) }

// addrOf is where clients dial one of several brokers.
func (b *broker) addrOf(n int32) string { return "127.0.0.1:" + strconv.Itoa(b.port+int(n)-1) }

// placeTopic makes a topic whose partitions have these replicas, the preferred leader
// first.
func (b *broker) placeTopic(name string, configs map[string]string, partitions ...[]int32) {
	b.t.Helper()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, -1, -1
	for i, replicas := range partitions {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(i), replicas
		topic.ReplicaAssignment = append(topic.ReplicaAssignment, a)
	}
	for key, value := range configs {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = key, kmsg.StringPtr(value)
		topic.Configs = append(topic.Configs, c)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis, req.Topics = 10_000, append(req.Topics, topic)
	resp, err := req.RequestWith(testContext(b.t, startTimeout), newClient(b.t, b.addr()))
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		b.t.Fatalf("create topic %s on %v: %v\n%s", name, partitions, err, b.tail())
	}
}

// await waits until a broker, whichever, says of a partition what want takes, and returns
// it.
func (b *broker) await(topic string, partition int32, want func(p kmsg.MetadataResponseTopicPartition) error) (is kmsg.MetadataResponseTopicPartition) {
	b.t.Helper()
	c := newClient(b.t, b.addr())
	ctx := testContext(b.t, startTimeout)
	err := eventually(ctx, func() error {
		m, err := b.metadata(ctx, c, topic)
		if err != nil {
			return err
		}
		for _, p := range m.Topics[0].Partitions {
			if p.Partition == partition {
				is = p
				return want(p)
			}
		}
		return errors.New("it is not there")
	})
	if err != nil {
		b.t.Fatalf("partition %d of %s: %v\n%s", partition, topic, err, b.tail())
	}
	return is
}

// known waits until each broker tells clients of a topic: a client may ask any of them.
func (b *broker) known(topic string) {
	b.t.Helper()
	ctx := testContext(b.t, startTimeout)
	for n := int32(1); n <= int32(b.brokers); n++ {
		c := newClient(b.t, b.addrOf(n))
		if err := eventually(ctx, func() error {
			m, err := b.metadata(ctx, c, topic)
			if err != nil {
				return err
			}
			return kerr.ErrorForCode(m.Topics[0].ErrorCode)
		}); err != nil {
			b.t.Fatalf("topic %s of broker %d: %v\n%s", topic, n, err, b.tail())
		}
	}
}

// inSync wants so many replicas in sync, and a leader.
func inSync(n int) func(kmsg.MetadataResponseTopicPartition) error {
	return func(p kmsg.MetadataResponseTopicPartition) error {
		if p.Leader < 0 || len(p.ISR) != n {
			return fmt.Errorf("leader %d, replicas %v, of which %v are in sync; want %d", p.Leader, p.Replicas, p.ISR, n)
		}
		return nil
	}
}

// ledBy wants one of these to lead.
func ledBy(who ...int32) func(kmsg.MetadataResponseTopicPartition) error {
	return func(p kmsg.MetadataResponseTopicPartition) error {
		if !slices.Contains(who, p.Leader) {
			return fmt.Errorf("leader %d in epoch %d, replicas %v, of which %v are in sync; want one of %v to lead", p.Leader, p.LeaderEpoch, p.Replicas, p.ISR, who)
		}
		return nil
	}
}

// quorum is what the active controller says of those that vote for it, once there is one.
func (b *broker) quorum() (is kmsg.DescribeQuorumResponseTopicPartition) {
	b.t.Helper()
	c := newClient(b.t, b.addr())
	ctx := testContext(b.t, startTimeout)
	if err := eventually(ctx, func() (err error) {
		is, err = askQuorum(ctx, c)
		return err
	}); err != nil {
		b.t.Fatalf("the quorum: %v\n%s", err, b.tail())
	}
	return is
}

// askQuorum asks once, by whichever broker.
func askQuorum(ctx context.Context, c *kgo.Client) (is kmsg.DescribeQuorumResponseTopicPartition, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic, topic.Partitions = "__cluster_metadata", append(topic.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req := kmsg.NewPtrDescribeQuorumRequest()
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, c)
	switch {
	case err != nil:
		return is, err
	case resp.ErrorCode != 0:
		return is, kerr.ErrorForCode(resp.ErrorCode)
	}
	is = resp.Topics[0].Partitions[0]
	return is, kerr.ErrorForCode(is.ErrorCode)
}

// partition0 waits until partition 0 of a topic has a leader and so many replicas in sync,
// and returns its leader.
func (b *broker) partition0(topic string, replicas int) (leader int32) {
	b.t.Helper()
	return b.await(topic, 0, inSync(replicas)).Leader
}
