package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/core/sim/check"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/transport/memnet"
)

const (
	// storyNodes are as many that three vote, and two replicas of the story's one partition can
	// be on others: what happens to those stops no controller.
	storyNodes = 5
	// storySeed draws how long what takes. A story that says that it was another one, after what
	// brokers do has changed, may need another seed.
	storySeed = 2
	// storyPatience is how long, in the time of the simulation, something may take to come.
	storyPatience = time.Minute
)

// story is a cluster to which nothing happens but what its test says, in the order that it
// says: an interleaving that has to be met exactly, and once.
type story struct {
	*cluster
	t        *testing.T
	p        model.Partition
	controls *node   // whose controller is active
	replicas []*node // of the partition, the leader first; the first two do not vote
	other    *node   // one that is none of these
}

// newStory forms a cluster, with a topic of one partition and so many replicas.
func newStory(t *testing.T, minISR, replicas int) *story {
	t.Helper()
	cryptotest.SetGlobalRandom(t, storySeed)
	opts := Options{
		Nodes: storyNodes, NodesMax: storyNodes, Partitions: 1, Flush: partition.FlushReplicated, Shards: 1, InFlight: 8, SnapshotAfter: 30,
		SegmentBytes: 4096, SnapshotEntries: 60, LagMax: time.Hour, RebalanceEvery: time.Hour, Usual: time.Millisecond, FaultOneIn: 1,
	}
	if testing.Verbose() {
		opts.Log = func(line string) { t.Log(line) }
	}
	s := &story{t: t, cluster: newCluster(storySeed, opts)}
	s.check = check.New(func(v string) { t.Errorf("violated: %s", v) })
	if err := s.startAll(); err != nil {
		t.Fatal(err)
	}
	for _, n := range s.nodes {
		for _, o := range s.nodes {
			if n != o {
				s.usual(n, o)
			}
		}
	}
	s.until("a cluster of all nodes", func() bool { return s.unserved() == "" })
	s.cast(replicas)
	assignment := make([]model.NodeID, replicas)
	for i, n := range s.replicas {
		assignment[i] = n.id
	}
	least := fmt.Sprint(minISR)
	s.makeTopic(model.NewTopic{
		Name: topicName, Partitions: -1, ReplicationFactor: -1, Assignment: map[int32][]model.NodeID{0: assignment},
		Configs: map[string]*string{"min.insync.replicas": &least},
	}, func(id model.TopicID) { s.topic = id })
	s.until("the topic", func() bool { return s.topic != model.TopicID{} && s.unserved() == "" })
	s.p = model.Partition{Topic: s.topic}
	s.watch()
	return s
}

// cast decides which node is what.
func (s *story) cast(replicas int) {
	s.t.Helper()
	var voters, others []*node
	for _, n := range s.nodes {
		if n.quorum.Leading() {
			s.controls = n
		}
	}
	status, err := s.controls.quorum.Status()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, n := range s.nodes {
		votes := slices.ContainsFunc(status.Voters, func(v model.QuorumVoter) bool { return v.ID == n.id })
		switch {
		case n == s.controls:
		case votes:
			voters = append(voters, n)
		default:
			others = append(others, n)
		}
	}
	all := slices.Concat(others, voters)
	s.replicas, s.other = all[:replicas], all[len(all)-1]
}

// until runs to the first event after which something is so.
func (s *story) until(what string, so func() bool) {
	s.t.Helper()
	limit := s.w.Now().Add(storyPatience)
	s.runUntil(func() bool { return so() || s.t.Failed() || !s.w.Now().Before(limit) })
	if !so() {
		s.t.Fatalf("after %s there is not yet: %s. %s", storyPatience, what, s.unserved())
	}
}

// throughout runs for a while, after every event of which something must be so.
func (s *story) throughout(d time.Duration, what string, so func() bool) {
	s.t.Helper()
	end := s.w.Now().Add(d)
	s.runUntil(func() bool { return !so() || s.t.Failed() || !s.w.Now().Before(end) })
	if !so() {
		s.t.Fatalf("it is not so any more: %s", what)
	}
}

// now is the partition as the newest metadata has it.
func (s *story) now() image.Partition {
	s.t.Helper()
	p, _, ok := s.check.Newest().Partition(s.p)
	if !ok {
		s.t.Fatal("the partition is not there")
	}
	return *p
}

// log is what a node says of its replica.
func (s *story) log(n *node) model.ReplicaStatus {
	s.t.Helper()
	for _, r := range n.manager.Replicas() {
		if r.Partition == s.p {
			return r
		}
	}
	return model.ReplicaStatus{LEO: -1}
}

// end is where a node's log ends, or -1: it is not open.
func (s *story) end(n *node) int64 {
	for _, e := range n.manager.LogEnds([]model.Partition{s.p}) {
		return e.LEO
	}
	return -1
}

// leads: a node leads by the newest metadata, and serves.
func (s *story) leads(n *node) bool {
	p := s.now()
	return n.up() && p.Leader == n.id && n.serves(s.p, p.LeaderEpoch)
}

// produced is a batch that a client has sent.
type produced struct {
	answered bool
	model.Appended
}

// produce hands a node a batch of one record.
func (s *story) produce(n *node, acks model.Acks, value string) *produced {
	s.t.Helper()
	data, err := batch.Build(batch.Options{}, batch.Record{Timestamp: s.w.Now().UnixMilli(), Value: []byte(value)})
	if err != nil {
		s.t.Fatal(err)
	}
	info, err := recordbatch.Parse(data)
	if err != nil {
		s.t.Fatal(err)
	}
	out, l := &produced{}, n.life
	n.touched = true
	n.manager.Append(context.Background(), model.Append{
		Partition: s.p, Batch: info, Data: data, Acks: acks, Timeout: storyPatience, LogAppendTime: -1,
	}, func(a model.Appended) {
		if l.over {
			return
		}
		out.answered, out.Appended = true, a
		if a.Err == nil && acks == model.AcksAll {
			s.check.Acknowledged(s.p, n.id, a.LeaderEpoch, a.BaseOffset, []string{value})
		}
	})
	return out
}

// taken runs until a record is acknowledged, and returns its offset.
func (s *story) taken(p *produced) int64 {
	s.t.Helper()
	s.until("an acknowledgement", func() bool { return p.answered })
	if p.Err != nil {
		s.t.Fatalf("it is refused: %v", p.Err)
	}
	return p.BaseOffset
}

// cutApart cuts both ways between two nodes.
func (s *story) cutApart(a, b *node) {
	s.w.Note("nodes %d and %d are cut apart", a.id, b.id)
	s.wrong(a, b, memnet.Faults{Cut: true})
	s.wrong(b, a, memnet.Faults{Cut: true})
}

// mended makes the ways between two nodes whole. What was lost on them ends their links.
func (s *story) mended(a, b *node) {
	s.w.Note("ways between nodes %d and %d are mended", a.id, b.id)
	s.usual(a, b)
	s.usual(b, a)
}

// killed ends a node's process.
func (s *story) killed(n *node) {
	s.w.Note("node %d is killed", n.id)
	n.kill(memnet.Reset)
}

// losesPower takes a node's host, with so many batches: all that its store has not flushed. The
// host is back at once, which ends the node's links.
func (s *story) losesPower(n *node, batches int) {
	s.t.Helper()
	s.w.Note("node %d loses power", n.id)
	n.kill(memnet.Reset)
	lost, _ := n.disk.LosePower(powerSeed)
	n.mayHaveLost, n.unheard = true, true
	if lost != batches {
		s.t.Fatalf("%d batches are lost, and not %d: this is another story", lost, batches)
	}
}

// powerSeed decides how much of what was not flushed is lost: all of it.
const powerSeed = 9

// asks returns what a leader asks for from now on, and what it is answered.
func (s *story) asks(leader *node) (asked *[]model.ISRChange, answers *[]model.ISRResult) {
	asked, answers = new([]model.ISRChange), new([]model.ISRResult)
	leader.member.altering = func(changes []model.ISRChange, done func([]model.ISRResult, error)) func([]model.ISRResult, error) {
		*asked = append(*asked, changes...)
		return func(a []model.ISRResult, err error) {
			*answers = append(*answers, a...)
			done(a, err)
		}
	}
	return asked, answers
}

// restarted begins another life of a node.
func (s *story) restarted(n *node) {
	s.t.Helper()
	if err := n.start(); err != nil {
		s.t.Fatalf("node %d does not start: %v", n.id, err)
	}
}

// command has the controller do something, and waits for its answer.
func (s *story) command(op controller.Op) controller.Answer {
	s.t.Helper()
	var answer *controller.Answer
	s.controls.command(op, func(a controller.Answer) { answer = &a })
	s.until("an answer of the controller", func() bool { return answer != nil })
	for _, err := range append(answer.Errs, answer.Err) {
		if err != nil {
			s.t.Fatalf("%T: %v", op, err)
		}
	}
	return *answer
}

// lead has a node lead that is in sync, by making it the preferred one.
func (s *story) lead(n *node) {
	s.t.Helper()
	replicas := s.now().Replicas
	order := append([]model.NodeID{n.id}, slices.DeleteFunc(slices.Clone(replicas), func(id model.NodeID) bool { return id == n.id })...)
	s.command(controller.AlterReassignments{Changes: []model.Reassignment{{Partition: s.p, Replicas: order}}})
	s.command(controller.ElectLeaders{Partitions: []model.Partition{s.p}})
	s.until(fmt.Sprintf("leader %d", n.id), func() bool { return s.leads(n) })
}

// settled waits until all is served, reads the logs off the disks, and expects records in each at
// the offsets from 0 on.
func (s *story) settled(values ...string) {
	s.t.Helper()
	s.until("all in sync", func() bool { return s.unserved() == "" })
	replicas := s.now().Replicas
	s.finish()
	for _, id := range replicas {
		var got []string
		l, err := s.node(id).readLog(s.p)
		for _, b := range l.Batches {
			for r, e := range batch.Records(b, 0) {
				if e != nil {
					err = e
				}
				got = append(got, string(r.Value))
			}
		}
		if err != nil || !slices.Equal(got, values) {
			s.t.Errorf("node %d has %q (%v), want %q", id, got, err, values)
		}
	}
}
