package clients

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// values are n records for one partition of a topic, with timestamps from 1000 on, a
// second apart.
func (r *toolRun) values(topic string, partition int32, n int) {
	r.Helper()
	c := r.client(r.addr, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range n {
		rec := &kgo.Record{Topic: topic, Partition: partition, Value: fmt.Appendf(nil, "v%d", i), Timestamp: atSecond(i + 1)}
		if err := c.ProduceSync(r.within(askTimeout), rec).FirstErr(); err != nil {
			r.Fatalf("produce: %v", err)
		}
	}
}

// unused is a name that no topic has yet.
func (r *toolRun) unused(prefix string) string {
	r.Helper()
	name := r.topic(r.addr, prefix, 1)
	r.soon(func() error { // a broker may not have heard of it yet
		_, err := r.admin(r.addr).DeleteTopic(r.within(askTimeout), name)
		return err
	})
	return name + "-2"
}

// brokerIDs are the brokers' numbers, in their order, and where each one is.
func (r *toolRun) brokerIDs() (ids []string, at map[string]string) {
	r.Helper()
	m, err := r.admin(r.addr).BrokerMetadata(r.within(askTimeout))
	if err != nil || len(m.Brokers) == 0 {
		r.Fatalf("brokers: %v, %v", m.Brokers, err)
	}
	at = make(map[string]string)
	for _, b := range m.Brokers {
		id := strconv.Itoa(int(b.NodeID))
		ids, at[id] = append(ids, id), net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	slices.Sort(ids)
	return ids, at
}

func topicsCreate(r *toolRun) {
	name := r.unused("tool-create")
	ids, _ := r.brokerIDs()
	n := strconv.Itoa(len(ids))
	create := []string{"--create", "--topic", name, "--partitions", "2", "--replication-factor", n, "--config", "retention.ms=3600000"}
	r.contains(r.ok("TopicCommand", create...), "Created topic "+name+".")
	r.refused("already exists", "TopicCommand", create...)
	r.ok("TopicCommand", append(create, "--if-not-exists")...)
	r.soon(func() error { return wantLine(r.ok("TopicCommand", "--list"), name) })
	out := r.ok("TopicCommand", "--describe", "--topic", name)
	r.contains(out, "PartitionCount: 2\tReplicationFactor: "+n+"\t")
	r.contains(out, "retention.ms=3600000")
	r.soon(func() error { return allInSync(r.ok("TopicCommand", "--describe", "--topic", name), name, ids) })
	r.contains(r.describeAll("--topics-with-overrides"), "Topic: "+name+"\t")
	r.soon(func() error {
		if out := r.describeAll("--under-replicated-partitions"); strings.Contains(out, name) {
			return fmt.Errorf("%s has too few replicas in sync: %s", name, out)
		}
		return nil
	})
}

// allInSync checks that a topic of two partitions has all brokers for replicas, in sync,
// each partition led by the first of its own.
func allInSync(out, name string, ids []string) error {
	list := `((?:\d+,?)+)`
	for _, p := range []string{"0", "1"} {
		line := regexp.MustCompile(`Topic: ` + name + `\tPartition: ` + p + `\s+Leader: (\d+)\s+Replicas: ` + list + `\s+Isr: ` + list + `\s+Elr:\s+LastKnownElr:\s`)
		m := line.FindStringSubmatch(out)
		if m == nil {
			return fmt.Errorf("no partition %s: %s", p, out)
		}
		replicas, isr := strings.Split(m[2], ","), strings.Split(m[3], ",")
		if leader := replicas[0]; m[1] != leader {
			return fmt.Errorf("partition %s is led by %s, want %s", p, m[1], leader)
		}
		for _, all := range [][]string{replicas, isr} {
			if slices.Sort(all); !slices.Equal(all, ids) {
				return fmt.Errorf("partition %s has %v, want %v: %s", p, all, ids, out)
			}
		}
	}
	return nil
}

// describeAll describes every topic of the broker. The tool lists them first, and fails
// when one of them, another case's, is deleted before it asks about it.
func (r *toolRun) describeAll(which string) string {
	r.Helper()
	var a answer
	r.soon(func() error {
		a = r.ask("TopicCommand", "", "--describe", which)
		if a.Exit != 0 && strings.Contains(a.Stdout+a.Stderr, "does not host this topic-partition") {
			return errors.New(strings.TrimSpace(a.Stdout + a.Stderr))
		}
		return nil
	})
	if a.Exit != 0 {
		r.Fatalf("describe %s: exit %d: %s", which, a.Exit, strings.TrimSpace(a.Stdout+a.Stderr))
	}
	return a.Stdout
}

func topicsAlter(r *toolRun) {
	name := r.topic(r.addr, "tool-alter", 2)
	r.ok("TopicCommand", "--alter", "--topic", name, "--partitions", "4")
	r.soon(func() error {
		if out := r.ok("TopicCommand", "--describe", "--topic", name); !strings.Contains(out, "PartitionCount: 4\t") {
			return fmt.Errorf("not 4 partitions: %s", out)
		}
		return nil
	})
	r.refused("has 4 partition", "TopicCommand", "--alter", "--topic", name, "--partitions", "3")
}

func topicsDelete(r *toolRun) {
	name := r.topic(r.addr, "tool-delete", 2)
	r.ok("TopicCommand", "--delete", "--topic", name)
	r.soon(func() error {
		if out := r.ok("TopicCommand", "--list"); wantLine(out, name) == nil {
			return fmt.Errorf("%s is still there", name)
		}
		return nil
	})
	r.refused("does not exist as expected", "TopicCommand", "--delete", "--topic", name)
}

func configsTopic(r *toolRun) {
	name := r.topic(r.addr, "tool-configs", 1)
	describe := []string{"--entity-type", "topics", "--entity-name", name, "--describe"}
	alter := []string{"--entity-type", "topics", "--entity-name", name, "--alter"}
	r.contains(r.ok("ConfigCommand", describe...), "  retention.ms=-1 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=-1")
	out := r.ok("ConfigCommand", append(alter, "--add-config", "max.message.bytes=2000,cleanup.policy=[compact,delete]")...)
	r.contains(out, "Completed updating config for topic "+name+".")
	r.soon(func() error {
		out := r.ok("ConfigCommand", describe...)
		if !strings.Contains(out, "max.message.bytes=2000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=2000, ") ||
			!strings.Contains(out, "cleanup.policy=compact,delete ") {
			return fmt.Errorf("not altered: %s", out)
		}
		return nil
	})
	r.ok("ConfigCommand", append(alter, "--delete-config", "max.message.bytes,cleanup.policy")...)
	r.soon(func() error {
		if out := r.ok("ConfigCommand", describe...); strings.Contains(out, "max.message.bytes") || strings.Contains(out, "cleanup.policy") {
			return fmt.Errorf("not deleted: %s", out)
		}
		return nil
	})
	r.contains(r.ok("ConfigCommand", append(describe, "--all")...), "  cleanup.policy=delete sensitive=false synonyms={DEFAULT_CONFIG:log.cleanup.policy=delete}")
	r.refused("InvalidConfigurationException", "ConfigCommand", append(alter, "--add-config", "nonsense=1")...)
}

func configsBrokers(r *toolRun) {
	const set, layer = "  log.retention.ms=172800000 sensitive=false synonyms={", ":log.retention.ms=172800000"
	entity := []string{"--entity-type", "brokers", "--entity-default"}
	value := set + "DYNAMIC_DEFAULT_BROKER_CONFIG" + layer
	out := r.ok("ConfigCommand", append(entity, "--alter", "--add-config", "log.retention.ms=172800000")...)
	r.contains(out, "Completed updating default config for brokers in the cluster.")
	seen := func(want bool, args ...string) {
		r.Helper()
		r.soon(func() error {
			if out := r.ok("ConfigCommand", args...); strings.Contains(out, value) != want {
				return fmt.Errorf("%q is to be there: %t: %s", value, want, out)
			}
			return nil
		})
	}
	ids, _ := r.brokerIDs()
	id := ids[len(ids)-1]
	one := []string{"--entity-type", "brokers", "--entity-name", id, "--describe", "--all"}
	seen(true, append(entity, "--describe")...)
	seen(true, one...)
	r.ok("ConfigCommand", append(entity, "--alter", "--delete-config", "log.retention.ms")...)
	seen(false, append(entity, "--describe")...)
	seen(false, one...)

	value = set + "DYNAMIC_BROKER_CONFIG" + layer
	alone := []string{"--entity-type", "brokers", "--entity-name", id, "--alter"}
	out = r.ok("ConfigCommand", append(alone, "--add-config", "log.retention.ms=172800000")...)
	r.contains(out, "Completed updating config for broker "+id+".")
	seen(true, one...)
	r.ok("ConfigCommand", append(alone, "--delete-config", "log.retention.ms")...)
	seen(false, one...)
	r.refused("InvalidConfigurationException", "ConfigCommand", append(alone, "--add-config", "min.insync.replicas=1")...)
}

// configsNobody: there are no quotas and no users, which is no error.
func configsNobody(r *toolRun) {
	for _, kind := range []string{"users", "clients"} {
		if out := r.ok("ConfigCommand", "--entity-type", kind, "--describe"); strings.TrimSpace(out) != "" {
			r.Errorf("%s: %s", kind, out)
		}
	}
}

func getOffsets(r *toolRun) {
	name := r.topic(r.addr, "tool-offsets", 2)
	r.values(name, 1, 4)
	for when, want := range map[string][]string{
		"latest":        {name + ":0:0", name + ":1:4"},
		"earliest":      {name + ":0:0", name + ":1:0"},
		"max-timestamp": {name + ":1:3"},
		"2500":          {name + ":1:2"},
		"99999":         {},
	} {
		got := strings.Fields(r.ok("GetOffsetShell", "--topic", name, "--time", when))
		// A partition without an answer may be left out, or be printed without an offset.
		got = slices.DeleteFunc(got, func(l string) bool { return strings.HasSuffix(l, ":") })
		if !slices.Equal(got, want) {
			r.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	r.has(r.ok("GetOffsetShell", "--topic-partitions", name+":1"), name+":1:4")
}

// file writes a file that a tool reads.
func (r *toolRun) file(name, content string) string {
	r.Helper()
	path := filepath.Join(r.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		r.Fatal(err)
	}
	return path
}

func deleteRecords(r *toolRun) {
	name := r.topic(r.addr, "tool-records", 2)
	r.values(name, 1, 4)
	upTo := func(offset int) string {
		return r.file(fmt.Sprintf("to-%d.json", offset), fmt.Sprintf(`{"partitions":[{"topic":%q,"partition":1,"offset":%d}],"version":1}`, name, offset))
	}
	out := r.ok("DeleteRecordsCommand", "--offset-json-file", upTo(3))
	r.has(out, "partition:", name+"-1", "low_watermark:", "3")
	r.has(r.ok("GetOffsetShell", "--topic", name, "--time", "earliest"), name+":1:3")
	r.refused("OffsetOutOfRangeException", "DeleteRecordsCommand", "--offset-json-file", upTo(5))
	r.has(r.ok("DeleteRecordsCommand", "--offset-json-file", upTo(-1)), "partition:", name+"-1", "low_watermark:", "4")
}

func logDirs(r *toolRun) {
	name := r.topic(r.addr, "tool-dirs", 2)
	r.values(name, 0, 4)
	out := r.ok("LogDirsCommand", "--describe", "--topic-list", name)
	_, found, _ := strings.Cut(out, "{")
	var dirs struct {
		Brokers []struct {
			LogDirs []struct {
				Error      *string
				LogDir     string
				Partitions []struct {
					Partition string
					Size      int64
					OffsetLag int64
					IsFuture  bool
				}
			}
		}
	}
	if err := json.Unmarshal([]byte("{"+found), &dirs); err != nil {
		r.Fatalf("%v: %s", err, out)
	}
	sizes := make(map[string]int64)
	for _, b := range dirs.Brokers {
		for _, d := range b.LogDirs {
			if d.Error != nil || d.LogDir == "" {
				r.Errorf("directory %q: error %v", d.LogDir, d.Error)
			}
			for _, p := range d.Partitions {
				sizes[p.Partition] = p.Size
				if p.OffsetLag != 0 || p.IsFuture {
					r.Errorf("partition %+v", p)
				}
			}
		}
	}
	// What a log without records takes is the store's affair.
	if empty, ok := sizes[name+"-1"]; !ok || len(sizes) != 2 || sizes[name+"-0"] <= empty {
		r.Errorf("sizes %v", sizes)
	}
}

// apiVersions: the tool must know each API, and be able to use it.
func apiVersions(r *toolRun) {
	out := r.ok("BrokerApiVersionsCommand")
	ids, at := r.brokerIDs()
	for _, id := range ids {
		r.contains(out, at[id]+" (id: "+id+" rack: ")
	}
	for _, api := range []string{"Produce(0)", "Fetch(1)", "OffsetCommit(8)", "JoinGroup(11)", "OffsetDelete(47)", "DescribeQuorum(55)"} {
		if !regexp.MustCompile(regexp.QuoteMeta(api) + `: [^\n]*\[usable: \d+\]`).MatchString(out) {
			r.Errorf("%s is not usable:\n%s", api, out)
		}
	}
	r.hasNot(out, "UNKNOWN")
	r.hasNot(out, "unusable")
}

func clusterID(r *toolRun) {
	m, err := r.admin(r.addr).BrokerMetadata(r.within(askTimeout))
	if err != nil {
		r.Fatal(err)
	}
	r.has(r.ok("ClusterTool", "cluster-id"), "Cluster", "ID:", m.Cluster)
	out := r.ok("ClusterTool", "list-endpoints")
	for _, b := range m.Brokers {
		r.has(out, strconv.Itoa(int(b.NodeID)), b.Host, strconv.Itoa(int(b.Port)), "null", "unfenced", "broker")
	}
}

func clusterUnregister(r *toolRun) {
	r.refused("BrokerIdNotRegisteredException", "ClusterTool", "unregister", "--id", "7654")
}

func describeProducers(r *toolRun) {
	name := r.topic(r.addr, "tool-producers", 1)
	r.values(name, 0, 4)
	out := r.ok("TransactionsCommand", "describe-producers", "--topic", name, "--partition", "0")
	if !regexp.MustCompile(`(?m)^\d+\s+0\s+-1\s+3\s+4000\s+None\s*$`).MatchString(out) {
		r.Errorf("no producer at sequence 3: %s", out)
	}
}

// describeQuorum: of three brokers all vote.
func describeQuorum(r *toolRun) {
	ids, _ := r.brokerIDs()
	r.soon(func() error {
		out := r.ok("MetadataQuorumCommand", "describe", "--status")
		leader := regexp.MustCompile(`LeaderId: +(\d+)\n`).FindStringSubmatch(out)
		voters := regexp.MustCompile(`CurrentVoters: +(\[.*\])\n`).FindStringSubmatch(out)
		if leader == nil || voters == nil || !slices.Contains(ids, leader[1]) {
			return fmt.Errorf("no leader, or no voters: %s", out)
		}
		for _, id := range ids {
			if !regexp.MustCompile(`\{"id": ` + id + `[,}]`).MatchString(voters[1]) {
				return fmt.Errorf("broker %s is no voter: %s", id, out)
			}
		}
		for _, line := range []string{`MaxFollowerLag: +0\n`, `CurrentObservers: +\[\]`, `HighWatermark: +[1-9]\d*\n`} {
			if !regexp.MustCompile(line).MatchString(out) {
				return fmt.Errorf("no %s: %s", line, out)
			}
		}
		return nil
	})
	r.soon(func() error {
		out := r.ok("MetadataQuorumCommand", "describe", "--replication")
		for role, want := range map[string]int{"Leader": 1, "Follower": len(ids) - 1} {
			line := regexp.MustCompile(`(?m)^\d+\s+\S+\s+[1-9]\d*\s+0\s+\d+\s+\d+\s+` + role + `\s*$`)
			if got := len(line.FindAllString(out, -1)); got != want {
				return fmt.Errorf("%d of role %s that have all, want %d: %s", got, role, want, out)
			}
		}
		return nil
	})
}

func leaderElection(r *toolRun) {
	name := r.topic(r.addr, "tool-election", 2)
	out := r.ok("LeaderElectionCommand", "--election-type", "preferred", "--topic", name, "--partition", "0")
	r.contains(out, "Valid replica already elected for partitions "+name+"-0")
	r.ok("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
}

const reassignTool = "reassign.ReassignPartitionsCommand"

func reassignList(r *toolRun) {
	r.soon(func() error { // another case's may be under way
		if out := r.ok(reassignTool, "--list"); !strings.Contains(out, "No partition reassignments found.") {
			return errors.New(out)
		}
		return nil
	})
	name := r.topic(r.addr, "tool-reassign", 1)
	ids, _ := r.brokerIDs()
	replicas, err := r.replicas(name)
	if err != nil {
		r.Fatal(err)
	}
	move := r.file("move.json", fmt.Sprintf(`{"topics":[{"topic":%q}],"version":1}`, name))
	out := r.ok(reassignTool, "--generate", "--topics-to-move-json-file", move, "--broker-list", strings.Join(ids, ","))
	plan := func(replicas string) string {
		return fmt.Sprintf(`{"version":1,"partitions":[{"topic":%q,"partition":0,"replicas":[%s],"log_dirs":[`, name, replicas)
	}
	r.contains(out, "Current partition replica assignment\n"+plan(strings.Join(replicas, ",")))
	if !regexp.MustCompile(`Proposed partition reassignment configuration\n\{"version":1,"partitions":\[\{"topic":"` + name + `","partition":0,"replicas":\[(\d,?)+\]`).MatchString(out) {
		r.Errorf("it proposes nothing: %s", out)
	}
}

// replicas are the numbers of the brokers that have a topic's first partition.
func (r *toolRun) replicas(topic string) ([]string, error) {
	topics, err := r.admin(r.addr).ListTopics(r.within(askTimeout), topic)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, id := range topics[topic].Partitions[0].Replicas {
		all = append(all, strconv.Itoa(int(id)))
	}
	return all, topics[topic].Err
}

// reassignMove: a partition goes from one broker to another, throttled, with its records; the
// tool tells of the way and of the end, and then takes the throttle away.
func reassignMove(r *toolRun) {
	ids, _ := r.brokerIDs()
	if len(ids) == 1 {
		r.notRun("it needs two brokers")
	}
	name := r.newName("tool-move")
	if _, err := r.admin(r.addr).CreateTopic(r.within(askTimeout), 1, 1, map[string]*string{"retention.ms": kadm.StringPtr("-1")}, name); err != nil {
		r.Fatal(err)
	}
	r.values(name, 0, 4)
	before, err := r.replicas(name)
	if err != nil || len(before) != 1 {
		r.Fatalf("replicas: %v, %v", before, err)
	}
	to := ids[(slices.Index(ids, before[0])+1)%len(ids)]
	plan := r.file("plan.json", fmt.Sprintf(`{"version":1,"partitions":[{"topic":%q,"partition":0,"replicas":[%s]}]}`, name, to))
	out := r.ok(reassignTool, "--execute", "--reassignment-json-file", plan, "--throttle", "10000000")
	r.contains(out, "The inter-broker throttle limit was set to 10000000 B/s")
	r.contains(out, "Successfully started partition reassignment for "+name+"-0")
	want := []string{
		"broker " + before[0] + ": leader.replication.throttled.rate=10000000", "broker " + before[0] + ": follower.replication.throttled.rate=10000000",
		"broker " + to + ": leader.replication.throttled.rate=10000000", "broker " + to + ": follower.replication.throttled.rate=10000000",
		"topic: leader.replication.throttled.replicas=0:" + before[0], "topic: follower.replication.throttled.replicas=0:" + to,
	}
	r.soon(func() error { return sameThrottles(r.throttles(name), want) })
	r.soon(func() error {
		if out := r.ok(reassignTool, "--verify", "--reassignment-json-file", plan); !strings.Contains(out, "Reassignment of partition "+name+"-0 is completed.") {
			return errors.New(out)
		}
		return nil
	})
	r.soon(func() error { return sameThrottles(r.throttles(name), nil) })
	if after, err := r.replicas(name); err != nil || !slices.Equal(after, []string{to}) {
		r.Errorf("it is at %v, want %s: %v", after, to, err)
	}
	r.has(r.ok("GetOffsetShell", "--topic", name), name+":0:4")
	if got := len(r.readAll(r.addr, name)); got != 4 {
		r.Errorf("%d records are there, want 4", got)
	}
}

// throttles are all that was set of brokers' throttles, and of a topic's.
func (r *toolRun) throttles(topic string) (all []string) {
	r.Helper()
	admin := r.admin(r.addr)
	collect := func(of string, configs []kadm.Config, source kmsg.ConfigSource) {
		for _, c := range configs {
			if strings.Contains(c.Key, ".replication.throttled.") && c.Source == source {
				all = append(all, of+": "+c.Key+"="+c.MaybeValue())
			}
		}
	}
	ids, _ := r.brokerIDs()
	for _, id := range ids {
		n, _ := strconv.ParseInt(id, 10, 32)
		broker, err := admin.DescribeBrokerConfigs(r.within(askTimeout), int32(n))
		if err != nil || broker[0].Err != nil {
			r.Fatalf("settings of broker %s: %v, %v", id, broker, err)
		}
		collect("broker "+id, broker[0].Configs, kmsg.ConfigSourceDynamicBrokerConfig)
	}
	configs, err := admin.DescribeTopicConfigs(r.within(askTimeout), topic)
	if err != nil || configs[0].Err != nil {
		r.Fatalf("settings of %s: %v, %v", topic, configs, err)
	}
	collect("topic", configs[0].Configs, kmsg.ConfigSourceDynamicTopicConfig)
	return all
}

func sameThrottles(got, want []string) error {
	want = slices.Clone(want)
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		return fmt.Errorf("the throttles are %q, want %q", got, want)
	}
	return nil
}

func aclsRefused(r *toolRun) {
	r.refused("SecurityDisabledException", "AclCommand", "--list")
}
