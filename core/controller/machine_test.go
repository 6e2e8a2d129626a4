package controller

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// host is the log around a machine: it commits what is proposed, in order, when
// it is told to.
type host struct {
	machine   *Machine
	now       time.Time
	img       *image.Image
	proposals []Proposal
	answers   map[CommandID]Answer
	next      CommandID
	ops       map[CommandID]string
	notices   []Notice
	counts    Counts
}

func newHost(t testing.TB, cfg Config, cluster image.Cluster) *host {
	img, err := image.FromRecords(1, &image.ClusterRecord{Cluster: cluster})
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(cfg, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		t.Fatal(err)
	}
	return &host{machine: m, img: img, answers: map[CommandID]Answer{}, ops: map[CommandID]string{}}
}

func (h *host) step(in Input) (answered []CommandID) {
	var out Effects
	h.machine.Step(h.now, in, &out)
	h.proposals = append(h.proposals, out.Propose...)
	for _, r := range out.Respond {
		h.answers[r.ID] = r.Answer
		answered = append(answered, r.ID)
	}
	h.notices = append(h.notices, out.Notices...)
	h.counts.Add(out.Counts)
	return answered
}

// pass lets time go by, as a host does that is never late.
func (h *host) pass(d time.Duration) (answered []CommandID) {
	for end := h.now.Add(d); ; {
		at, ok := h.machine.Deadline()
		if !ok || at.After(end) {
			h.now = end
			return answered
		}
		h.now = at
		answered = append(answered, h.step(Due{})...)
	}
}

func (h *host) command(op Op) (CommandID, []CommandID) {
	h.next++
	return h.next, h.step(Command{h.next, op})
}

// commit replays the oldest proposal, through the codec as the log does.
func (h *host) commit(t testing.TB) []CommandID {
	p := h.proposals[0]
	h.proposals = h.proposals[1:]
	records, err := image.DecodeBatch(image.AppendBatch(nil, p.Records))
	if err != nil {
		t.Fatal(err)
	}
	d := image.NewDelta(h.img, h.img.Offset+1)
	for _, r := range records {
		if err := d.Apply(r); err != nil {
			t.Fatalf("proposal %d: %v", p.ID, err)
		}
	}
	h.img = d.Image()
	return h.step(Committed{p.ID, h.img})
}

// Whatever is asked in whatever order, every proposal fits, every command is
// answered once, never before what it proposed, and the registrations stay sound.
func TestAnyCommands(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := DefaultConfig()
		cfg.RequestPartitionsMax, cfg.ClusterPartitionsMax = 20, 60
		cfg.Strict = rapid.Bool().Draw(rt, "strict")
		h := newHost(t, cfg, image.Cluster{ID: "c", FeatureLevel: 1, ReplicationFactorTarget: 3, MinISRTarget: 2})
		h.step(Lead{h.img})
		answered := map[CommandID]int{}
		note := func(ids []CommandID) {
			for _, id := range ids {
				answered[id]++
			}
		}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch n := rapid.IntRange(0, 20).Draw(rt, "step"); {
			case n < 7 && len(h.proposals) > 0:
				note(h.commit(t))
				checkSound(rt, h.img)
			case n == 20:
				h.proposals = nil
				note(h.step(Resign{}))
				h.step(Lead{h.img})
			default:
				proposed := h.machine.lastProposal
				id, now := h.command(anyOp(h.img).Draw(rt, "op"))
				note(now)
				if h.machine.lastProposal > proposed && slices.Contains(now, id) {
					rt.Fatalf("command %d was answered before its proposal was committed", id)
				}
			}
		}
		for len(h.proposals) > 0 {
			note(h.commit(t))
		}
		for id := range h.next {
			if answered[id+1] != 1 {
				rt.Fatalf("command %d was answered %d times", id+1, answered[id+1])
			}
		}
	})
}

func checkSound(t *rapid.T, img *image.Image) {
	for topic := range img.Topics() {
		for n, p := range topic.Partitions {
			distinct := slices.Compact(slices.Sorted(slices.Values(p.Replicas)))
			switch {
			case len(distinct) != len(p.Replicas):
				t.Fatalf("%s-%d: replicas %v", topic.Name, n, p.Replicas)
			case len(p.ISR) == 0 && (p.Leader != model.NoNode || len(p.ELR) == 0 && len(p.LastKnownELR) == 0):
				t.Fatalf("%s-%d: no in-sync replica is known: %+v", topic.Name, n, p)
			case p.Leader != model.NoNode && !slices.Contains(p.ISR, p.Leader):
				t.Fatalf("%s-%d: leader %d is not in sync: %v", topic.Name, n, p.Leader, p.ISR)
			case p.LeaderEpoch > model.LeaderEpoch(p.PartitionEpoch):
				t.Fatalf("%s-%d: leader epoch %d, partition epoch %d", topic.Name, n, p.LeaderEpoch, p.PartitionEpoch)
			}
			if b, ok := img.Broker(p.Leader); p.Leader != model.NoNode && (!ok || b.Fenced) {
				t.Fatalf("%s-%d: leader %d is not alive", topic.Name, n, p.Leader)
			}
		}
	}
}

func anyOp(img *image.Image) *rapid.Generator[Op] {
	return rapid.Custom(func(t *rapid.T) Op {
		name := rapid.SampledFrom([]string{"a", "b", "c.d", "c_d", "", "bad name"}).Draw(t, "name")
		id := model.NodeID(rapid.IntRange(0, 3).Draw(t, "broker"))
		var epoch model.BrokerEpoch
		if b, ok := img.Broker(id); ok {
			epoch = b.Epoch
		}
		nodes := rapid.SliceOfN(rapid.Int32Range(0, 4), 0, 3)
		switch rapid.IntRange(0, 11).Draw(t, "op") {
		case 0, 1, 2:
			topic := model.NewTopic{Name: name, Partitions: rapid.Int32Range(-2, 8).Draw(t, "partitions"), ReplicationFactor: rapid.Int16Range(-2, 4).Draw(t, "rf")}
			if rapid.IntRange(0, 3).Draw(t, "by hand") == 0 {
				topic.Partitions, topic.ReplicationFactor, topic.Assignment = -1, -1, map[int32][]model.NodeID{0: nodeIDs(nodes.Draw(t, "replicas"))}
			}
			if rapid.Bool().Draw(t, "unclean") {
				v := "true"
				topic.Configs = map[string]*string{uncleanKey: &v}
			}
			return CreateTopics{Topics: []model.NewTopic{topic, {Name: "other", Partitions: 1, ReplicationFactor: 1}}, ValidateOnly: rapid.Bool().Draw(t, "validate only")}
		case 3:
			return DeleteTopics{Topics: []model.TopicRef{{Name: name}}}
		case 4:
			more := model.MorePartitions{Topic: name, Count: rapid.Int32Range(-1, 9).Draw(t, "count")}
			if rapid.Bool().Draw(t, "by hand") {
				more.Assignment = [][]model.NodeID{nodeIDs(nodes.Draw(t, "replicas"))}
			}
			return CreatePartitions{More: []model.MorePartitions{more}}
		case 5:
			v := rapid.SampledFrom([]string{"1", "compact", "true"}).Draw(t, "value")
			return AlterConfigs{Changes: []model.ConfigChange{{
				Resource: model.Resource{Type: model.ResourceTopic, Name: name}, Replace: rapid.Bool().Draw(t, "replace"),
				Ops: []model.ConfigOp{{Key: rapid.SampledFrom([]string{"retention.ms", "cleanup.policy", uncleanKey}).Draw(t, "key"), Kind: model.ConfigOpKind(rapid.IntRange(0, 4).Draw(t, "kind")), Value: &v}},
			}}}
		case 6, 7:
			return RegisterBroker{Registration{
				ClusterID: "c", FeatureLevelMax: 1, NodeID: id, Incarnation: [16]byte{rapid.Byte().Draw(t, "life")}, Directories: []model.DirectoryID{{byte(id) + 1}},
			}}
		case 8:
			return FenceBroker{ID: id, Epoch: epoch}
		case 9:
			return Heartbeat{Broker: id, Epoch: epoch, Offset: img.Offset, WantShutdown: rapid.IntRange(0, 5).Draw(t, "shut down") == 0}
		case 10:
			return UnregisterBroker{ID: id, Epoch: epoch}
		default:
			return AllocateProducerIDs{}
		}
	})
}

func nodeIDs(raw []int32) []model.NodeID {
	var ids []model.NodeID
	for _, n := range raw {
		ids = append(ids, model.NodeID(n))
	}
	return ids
}
