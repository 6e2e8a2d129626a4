package controller

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// Sentinels by the names of their Kafka codes, for the stories.
var codes = []struct {
	err  error
	name string
}{
	{model.ErrInvalidTopic, "INVALID_TOPIC_EXCEPTION"}, {model.ErrTopicExists, "TOPIC_ALREADY_EXISTS"},
	{model.ErrInvalidPartitions, "INVALID_PARTITIONS"}, {model.ErrInvalidReplication, "INVALID_REPLICATION_FACTOR"},
	{model.ErrInvalidAssignment, "INVALID_REPLICA_ASSIGNMENT"}, {model.ErrInvalidConfig, "INVALID_CONFIG"},
	{model.ErrInvalidRequest, "INVALID_REQUEST"}, {model.ErrPolicyViolation, "POLICY_VIOLATION"},
	{model.ErrUnknownTopicOrPartition, "UNKNOWN_TOPIC_OR_PARTITION"}, {model.ErrUnknownTopicID, "UNKNOWN_TOPIC_ID"},
	{model.ErrNotController, "NOT_CONTROLLER"}, {model.ErrStaleBrokerEpoch, "STALE_BROKER_EPOCH"},
	{model.ErrDuplicateBroker, "DUPLICATE_BROKER_REGISTRATION"}, {model.ErrInvalidRegistration, "INVALID_REGISTRATION"},
	{model.ErrInconsistentClusterID, "INCONSISTENT_CLUSTER_ID"}, {model.ErrUnsupportedVersion, "UNSUPPORTED_VERSION"},
	{model.ErrFencedLeaderEpoch, "FENCED_LEADER_EPOCH"}, {model.ErrInvalidUpdateVersion, "INVALID_UPDATE_VERSION"},
	{model.ErrIneligibleReplica, "INELIGIBLE_REPLICA"}, {model.ErrNewLeaderElected, "NEW_LEADER_ELECTED"},
	{model.ErrElectionNotNeeded, "ELECTION_NOT_NEEDED"}, {model.ErrPreferredLeaderNotAvailable, "PREFERRED_LEADER_NOT_AVAILABLE"},
	{model.ErrEligibleLeadersNotAvailable, "ELIGIBLE_LEADERS_NOT_AVAILABLE"}, {model.ErrNoReassignment, "NO_REASSIGNMENT_IN_PROGRESS"},
}

func code(err error) string {
	if err == nil {
		return "ok"
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.name + ": " + err.Error()
		}
	}
	return "no code: " + err.Error()
}

func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var s *story
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "cluster" {
				s = newStory(t, d)
				return ""
			}
			return s.run(t, d)
		})
	})
}

// story is a host whose commands come from a file.
type story struct {
	*host
	held    bool
	removed map[string]model.TopicID // those seen as removed
}

func newStory(t *testing.T, d *datadriven.TestData) *story {
	cfg := DefaultConfig()
	cluster := image.Cluster{ID: "c", FeatureLevel: 1, ReplicationFactorTarget: 3, MinISRTarget: 2}
	cfg.Strict = d.HasArg("strict")
	cfg.RebalanceAbove = 40
	d.MaybeScanArgs(t, "raises-max", &cfg.RaisesMax)
	d.MaybeScanArgs(t, "request-max", &cfg.RequestPartitionsMax)
	d.MaybeScanArgs(t, "cluster-max", &cfg.ClusterPartitionsMax)
	s := &story{host: newHost(t, cfg, cluster), removed: map[string]model.TopicID{}}
	if !d.HasArg("not-leading") {
		s.step(Lead{s.img})
	}
	return s
}

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "hold":
		s.held = true
		return ""
	case "commit":
		if d.HasArg("all") {
			s.held = false
		}
		return s.settle(t, s.commit(t))
	case "lead":
		s.step(Lead{s.img})
		return ""
	case "resign":
		s.proposals = nil
		return s.show(s.step(Resign{}))
	case "pause": // of the controller
		s.now = s.now.Add(duration(t, d, "for"))
		return s.settle(t, s.step(Due{}))
	case "wait":
		return s.wait(t, d)
	case "brokers":
		return s.brokers()
	case "topics":
		return s.topics()
	case "reports":
		return fmt.Sprintf("of %d partitions\n", len(s.machine.soft.reports))
	case "counts":
		return fmt.Sprintf("%+v\n", s.counts)
	case "settings":
		var broker string
		d.MaybeScanArgs(t, "broker", &broker)
		return fmt.Sprintln(s.img.Config(model.Resource{Type: model.ResourceBroker, Name: broker}))
	case "removed":
		var b strings.Builder
		for r := range s.img.RemovedTopics() {
			fmt.Fprintf(&b, "%s in %d directories\n", r.Name, len(r.Directories))
		}
		return b.String()
	}
	var answered []CommandID
	// One line of input is one command: several are in flight when they are held.
	for line := range strings.SplitSeq(d.Input, "\n") {
		words := strings.Fields(line)
		if d.Cmd != "do" || len(words) == 0 {
			d.Fatalf(t, "unknown command %s %q", d.Cmd, line)
		}
		if words[0] == "start" { // a broker, with its first heartbeat
			id, _ := s.command(s.op(t, words))
			s.settle(t, nil)
			if err := s.answers[id].Err; err != nil {
				return code(err)
			}
			words[0] = "beat"
		}
		id, got := s.command(s.op(t, words))
		s.ops[id] = words[0]
		answered = append(answered, got...)
		for !s.held && len(s.proposals) > 0 {
			answered = append(answered, s.commit(t)...)
		}
	}
	return s.show(answered)
}

// wait lets time go by, while some brokers send heartbeats every 200 ms: 2 does, 2s wants
// to shut down, and 2@7 has the metadata up to 7.
func (s *story) wait(t *testing.T, d *datadriven.TestData) string {
	var beating string
	d.MaybeScanArgs(t, "beating", &beating)
	began := s.now
	var answered []CommandID
	for left := duration(t, d, "for"); left > 0; left -= 200 * time.Millisecond {
		answered = append(answered, s.pass(min(left, 200*time.Millisecond))...)
		for id := range strings.SplitSeq(beating, "+") {
			if beating != "" {
				id, offset, has := strings.Cut(id, "@")
				id, leaves := strings.CutSuffix(id, "s")
				words := []string{"beat", "id=" + id}
				if has {
					words = append(words, "offset="+offset)
				}
				if leaves {
					words = append(words, "shutdown=y")
				}
				n, _ := s.command(s.op(t, words))
				s.ops[n] = fmt.Sprintf("after %v: %s", s.now.Sub(began), words)
				if a, ok := s.answers[n]; ok && a.Heartbeat.MayShutDown || a.Err != nil {
					answered = append(answered, n)
				}
			}
		}
		for !s.held && len(s.proposals) > 0 {
			for _, id := range s.commit(t) {
				if a := s.answers[id]; a.Heartbeat.MayShutDown || a.Err != nil {
					answered = append(answered, id)
				}
			}
		}
	}
	return s.settle(t, answered)
}

func duration(t *testing.T, d *datadriven.TestData, key string) time.Duration {
	var text string
	d.ScanArgs(t, key, &text)
	n, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (s *story) brokers() string {
	var b strings.Builder
	for br := range s.img.Brokers() {
		fmt.Fprintf(&b, "%d epoch=%d", br.ID, br.Epoch)
		for _, is := range []struct {
			yes  bool
			name string
		}{{br.Fenced, "fenced"}, {br.ShuttingDown, "shutting-down"}} {
			if is.yes {
				b.WriteString(" " + is.name)
			}
		}
		for _, dir := range br.Offline {
			fmt.Fprintf(&b, " offline=%d", dir[0])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (s *story) settle(t *testing.T, answered []CommandID) string {
	for !s.held && len(s.proposals) > 0 {
		answered = append(answered, s.commit(t)...)
	}
	return s.show(answered)
}

func (s *story) show(answered []CommandID) string {
	var b strings.Builder
	for _, id := range answered {
		a := s.answers[id]
		fmt.Fprintf(&b, "%d %s:", id, s.ops[id])
		if s.ops[id] == "beat" && a.Err == nil && a.Heartbeat.Offset == 0 {
			b.WriteString(" by no metadata")
		}
		switch {
		case a.Err != nil:
			fmt.Fprintf(&b, " %s", code(a.Err))
		case a.Topics != nil:
			for _, r := range a.Topics {
				fmt.Fprintf(&b, "\n  %q %d partitions, %d replicas: %s", r.Name, r.Partitions, r.ReplicationFactor, code(r.Err))
			}
		case a.Errs != nil:
			for _, err := range a.Errs {
				fmt.Fprintf(&b, "\n  %s", code(err))
			}
		case a.ProducerIDs.Count != 0:
			fmt.Fprintf(&b, " from %d, %d IDs", a.ProducerIDs.First, a.ProducerIDs.Count)
		case a.ISR != nil:
			for _, r := range a.ISR {
				if r.Err != nil {
					fmt.Fprintf(&b, "\n  %s", code(r.Err))
					continue
				}
				fmt.Fprintf(&b, "\n  leader=%d leader-epoch=%d partition-epoch=%d isr=%v", r.Leader, r.LeaderEpoch, r.PartitionEpoch, r.ISR)
			}
		case a.Heartbeat != HeartbeatAnswer{}:
			for _, is := range []struct {
				yes  bool
				name string
			}{{a.Heartbeat.Fenced, "fenced"}, {a.Heartbeat.CaughtUp, "caught-up"}, {a.Heartbeat.ShuttingDown, "shutting-down"}, {a.Heartbeat.MayShutDown, "may-shut-down"}} {
				if is.yes {
					b.WriteString(" " + is.name)
				}
			}
		case a.Epoch != 0:
			fmt.Fprintf(&b, " epoch %d", a.Epoch)
		default:
			b.WriteString(" ok")
		}
		b.WriteByte('\n')
	}
	for _, n := range s.notices {
		level := "info"
		if n.Warn {
			level = "WARN"
		}
		fmt.Fprintf(&b, "%s broker=%d topic=%q partitions=%v: %s\n", level, n.Broker, n.Topic, n.Partitions, n.Text)
	}
	s.notices = nil
	if len(s.proposals) > 0 {
		fmt.Fprintf(&b, "in flight: %d\n", len(s.proposals))
	}
	return b.String()
}

func (s *story) topics() string {
	var b strings.Builder
	for t := range s.img.Topics() {
		c, err := s.img.TopicConfig(t.Name, model.NoNode, nil)
		if err != nil {
			fmt.Fprintln(&b, err)
		}
		fmt.Fprintf(&b, "%s target=%d min-isr=%d %v\n", t.Name, t.ReplicationFactorTarget, c.MinISR,
			s.img.Config(model.Resource{Type: model.ResourceTopic, Name: t.Name}))
		for n := range t.Partitions {
			p := &t.Partitions[n]
			fmt.Fprintf(&b, "  %d replicas=%v isr=%v leader=%d leader-epoch=%d partition-epoch=%d effective-min-isr=%d",
				n, p.Replicas, p.ISR, p.Leader, p.LeaderEpoch, p.PartitionEpoch, image.EffectiveMinISR(c.MinISR, p.Counted(), int(t.ReplicationFactorTarget)))
			for _, of := range []struct {
				name  string
				nodes []model.NodeID
			}{{"elr", p.ELR}, {"last-known-elr", p.LastKnownELR}, {"adding", p.Adding}, {"removing", p.Removing}} {
				if len(of.nodes) > 0 {
					fmt.Fprintf(&b, " %s=%v", of.name, of.nodes)
				}
			}
			if p.Raised {
				b.WriteString(" raised")
			}
			if p.Chosen > 0 {
				fmt.Fprintf(&b, " chosen=%d", p.Chosen)
			}
			if l := p.Loss; l != nil {
				fmt.Fprintf(&b, " loss=(leader-epoch=%d from=%d unclean=%v)", l.Epoch, l.From, l.Unclean)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// op reads one command: a verb and key=value words.
func (s *story) op(t *testing.T, words []string) Op {
	args := map[string]string{}
	var list []string
	for _, w := range words[1:] {
		if k, v, ok := strings.Cut(w, "="); ok {
			args[k] = v
			continue
		}
		list = append(list, w)
	}
	number := func(key string, none int) int {
		if args[key] == "" {
			return none
		}
		n, err := strconv.Atoi(args[key])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	epoch := func() model.BrokerEpoch {
		if b, ok := s.img.Broker(model.NodeID(number("id", 0))); ok {
			return model.BrokerEpoch(number("epoch", int(b.Epoch)))
		}
		return model.BrokerEpoch(number("epoch", 0))
	}
	switch words[0] {
	case "register", "start":
		id := number("id", 0)
		return RegisterBroker{Registration{
			ClusterID: model.ClusterID(cmp.Or(args["cluster"], "c")), NodeID: model.NodeID(id), Incarnation: [16]byte{byte(number("life", 1))}, Rack: args["rack"],
			Directories: dirs(cmp.Or(args["dir"], strconv.Itoa(id+1))), MayHaveLost: dirs(args["lost"]), FeatureLevelMin: int16(number("feature-min", 1)), FeatureLevelMax: 1,
		}}
	case "beat":
		return Heartbeat{
			Broker: model.NodeID(number("id", 0)), Epoch: epoch(), Offset: int64(number("offset", int(s.img.Offset))),
			WantFence: args["fence"] != "", WantShutdown: args["shutdown"] != "", Offline: dirs(args["offline"]),
		}
	case "alter-isr":
		return s.alterISR(t, model.NodeID(number("id", 0)), epoch(), list)
	case "elect":
		op := ElectLeaders{Unclean: args["unclean"] != ""}
		for _, w := range list {
			op.Partitions = append(op.Partitions, s.partition(t, w))
		}
		return op
	case "reassign":
		c := model.Reassignment{Partition: s.partition(t, list[0])}
		if args["cancel"] == "" {
			c.Replicas = assignment(t, cmp.Or(args["to"], "/"))[0]
			if c.Replicas == nil {
				c.Replicas = []model.NodeID{}
			}
		}
		return AlterReassignments{Changes: []model.Reassignment{c}}
	case "report": // t/0:last epoch,log end,partition epoch if it is not the present one
		op := ReportLogs{Broker: model.NodeID(number("id", 0)), Epoch: epoch()}
		for _, w := range list {
			at, end, _ := strings.Cut(w, ":")
			e := model.LogEnd{Partition: s.partition(t, at)}
			if p, _, ok := s.machine.next.Partition(e.Partition); ok {
				e.PartitionEpoch = p.PartitionEpoch
			}
			if n, err := fmt.Sscanf(end, "%d,%d,%d", &e.LastEpoch, &e.LEO, &e.PartitionEpoch); n < 2 {
				t.Fatal(err)
			}
			op.Logs = append(op.Logs, e)
		}
		return op
	case "fence":
		return FenceBroker{ID: model.NodeID(number("id", 0)), Epoch: epoch()}
	case "unregister":
		return UnregisterBroker{ID: model.NodeID(number("id", 0)), Epoch: epoch()}
	case "create":
		op := CreateTopics{ValidateOnly: args["validate-only"] != ""}
		for _, name := range list {
			op.Topics = append(op.Topics, model.NewTopic{
				Name: strings.Trim(name, `"`), Partitions: int32(number("partitions", -1)), ReplicationFactor: int16(number("rf", -1)),
				ReplicationTarget: int16(number("target", 0)), Internal: args["internal"] != "",
				Assignment: assignment(t, args["assign"]), Configs: configs(args["config"]),
			})
		}
		return op
	case "delete":
		var op DeleteTopics
		for _, name := range list {
			ref := model.TopicRef{Name: name}
			if name == "unknown-id" {
				ref = model.TopicRef{ID: model.TopicID{1}}
			} else if after, ok := strings.CutPrefix(name, "id:"); ok {
				topic, _ := s.img.TopicByName(after)
				ref = model.TopicRef{ID: topic.ID}
			}
			op.Topics = append(op.Topics, ref)
		}
		return op
	case "grow":
		op := CreatePartitions{ValidateOnly: args["validate-only"] != ""}
		for _, name := range list {
			more := model.MorePartitions{Topic: name, Count: int32(number("count", 0))}
			if m := assignment(t, args["assign"]); m != nil {
				for i := range int32(len(m)) {
					more.Assignment = append(more.Assignment, m[i])
				}
			}
			op.More = append(op.More, more)
		}
		return op
	case "alter":
		return alter(args, list)
	case "producer-ids":
		return AllocateProducerIDs{}
	case "confirm":
		for r := range s.img.RemovedTopics() {
			s.removed[r.Name] = r.ID
		}
		return ConfirmRemoval{Directory: model.DirectoryID{byte(number("dir", 0))}, Topics: []model.TopicID{s.removed[list[0]]}}
	}
	t.Fatalf("unknown operation %v", words)
	return nil
}

// partition reads t/0.
func (s *story) partition(t *testing.T, w string) model.Partition {
	name, index, _ := strings.Cut(w, "/")
	n, err := strconv.Atoi(index)
	if err != nil {
		t.Fatal(err)
	}
	topic, ok := s.img.TopicByName(name)
	if !ok {
		return model.Partition{Topic: model.TopicID{9}, Index: int32(n)}
	}
	return model.Partition{Topic: topic.ID, Index: int32(n)}
}

// alterISR reads t/0:1,2,3 with le+1 or pe-1 after it where the epochs are not the
// current ones, 2@7 for a member in another life, and 2! for one that has lost what it had.
func (s *story) alterISR(t *testing.T, id model.NodeID, epoch model.BrokerEpoch, list []string) Op {
	op := AlterISR{Broker: id, BrokerEpoch: epoch}
	for _, w := range list {
		if d, ok := strings.CutPrefix(w, "le"); ok {
			n, _ := strconv.Atoi(d)
			op.Changes[len(op.Changes)-1].LeaderEpoch += model.LeaderEpoch(n)
			continue
		}
		if d, ok := strings.CutPrefix(w, "pe"); ok {
			n, _ := strconv.Atoi(d)
			op.Changes[len(op.Changes)-1].PartitionEpoch += model.PartitionEpoch(n)
			continue
		}
		at, members, _ := strings.Cut(w, ":")
		c := model.ISRChange{Partition: s.partition(t, at)}
		if p, _, ok := s.img.Partition(c.Partition); ok {
			c.LeaderEpoch, c.PartitionEpoch = p.LeaderEpoch, p.PartitionEpoch
		}
		for m := range strings.SplitSeq(members, ",") {
			m, lost := strings.CutSuffix(m, "!")
			node, life, stale := strings.Cut(m, "@")
			n, err := strconv.Atoi(node)
			if err != nil {
				t.Fatal(err)
			}
			if lost {
				c.Lost = append(c.Lost, model.NodeID(n))
				continue
			}
			member := model.Member{Node: model.NodeID(n)}
			if b, ok := s.img.Broker(member.Node); ok {
				member.Epoch = b.Epoch
			}
			if stale {
				e, _ := strconv.Atoi(life)
				member.Epoch = model.BrokerEpoch(e)
			}
			c.ISR = append(c.ISR, member)
		}
		op.Changes = append(op.Changes, c)
	}
	return op
}

// dirs reads 1+2 as directories.
func dirs(s string) []model.DirectoryID {
	var out []model.DirectoryID
	for _, w := range strings.FieldsFunc(s, func(r rune) bool { return r == '+' }) {
		n, _ := strconv.Atoi(w)
		out = append(out, model.DirectoryID{byte(n)})
	}
	return out
}

// assignment reads 1,2/2,3 as the replicas of partitions 0 and 1; 7:1,2 says the
// index.
func assignment(t *testing.T, s string) map[int32][]model.NodeID {
	if s == "" {
		return nil
	}
	m := map[int32][]model.NodeID{}
	for i, part := range strings.Split(s, "/") {
		index := int32(i)
		if at, rest, ok := strings.Cut(part, ":"); ok {
			n, err := strconv.Atoi(at)
			if err != nil {
				t.Fatal(err)
			}
			index, part = int32(n), rest
		}
		m[index] = nil
		for _, id := range strings.FieldsFunc(part, func(r rune) bool { return r == ',' }) {
			n, err := strconv.Atoi(id)
			if err != nil {
				t.Fatal(err)
			}
			m[index] = append(m[index], model.NodeID(n))
		}
	}
	return m
}

// configs reads a:1;b:2; a key without a value is null.
func configs(s string) map[string]*string {
	m := map[string]*string{}
	for pair := range strings.SplitSeq(s, ";") {
		if k, v, ok := strings.Cut(pair, ":"); ok {
			m[k] = &v
		} else if pair != "" {
			m[pair] = nil
		}
	}
	return m
}

// alter reads topic or broker, and key+value, key-value, key:value (set), !key
// (delete) or key (set to null) words.
func alter(args map[string]string, list []string) Op {
	c := model.ConfigChange{Replace: args["replace"] != ""}
	switch {
	case args["type"] != "":
		c.Resource.Type = model.ResourceType(len(args["type"]))
	case args["topic"] != "":
		c.Resource = model.Resource{Type: model.ResourceTopic, Name: args["topic"]}
	default:
		c.Resource = model.Resource{Type: model.ResourceBroker, Name: args["broker"]}
	}
	for _, w := range list {
		op := model.ConfigOp{Key: w}
		if key, ok := strings.CutPrefix(w, "!"); ok {
			op = model.ConfigOp{Key: key, Kind: model.ConfigDelete}
		}
		for sep, kind := range map[string]model.ConfigOpKind{":": model.ConfigSet, "+": model.ConfigAppend, "~": model.ConfigSubtract} {
			if k, v, ok := strings.Cut(w, sep); ok {
				op = model.ConfigOp{Key: k, Kind: kind, Value: &v}
			}
		}
		c.Ops = append(c.Ops, op)
	}
	changes := []model.ConfigChange{c}
	if args["twice"] != "" {
		changes = append(changes, c)
	}
	return AlterConfigs{Changes: changes, ValidateOnly: args["validate-only"] != ""}
}
