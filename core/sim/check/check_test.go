package check

import (
	"strings"
	"testing"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

var (
	topicID = model.TopicID{7}
	p0      = model.Partition{Topic: topicID}
)

// imageOf is metadata of three brokers and one partition.
func imageOf(t *testing.T, offset int64, p image.Partition) *image.Image {
	t.Helper()
	if p.Replicas == nil {
		p.Replicas = []model.NodeID{1, 2, 3}
	}
	p.Directories = make([]model.DirectoryID, len(p.Replicas))
	for i := range p.Directories {
		p.Directories[i] = model.DirectoryID{byte(i + 1)}
	}
	records := []image.Record{&image.ClusterRecord{Cluster: image.Cluster{ID: "test", FeatureLevel: 1, ReplicationFactorTarget: 3, MinISRTarget: 2}}}
	for n := range model.NodeID(3) {
		records = append(records, &image.BrokerRecord{ID: n + 1, Epoch: 1, Incarnation: [16]byte{byte(n + 1)}, Directories: []model.DirectoryID{{byte(n + 1)}}})
	}
	records = append(records,
		&image.TopicRecord{ID: topicID, Name: "orders", ReplicationFactorTarget: 3},
		&image.PartitionRecord{Partition: p0, Registration: p},
	)
	img, err := image.FromRecords(offset, records...)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func without(t *testing.T, offset int64) *image.Image {
	t.Helper()
	img, err := image.FromRecords(offset, &image.ClusterRecord{Cluster: image.Cluster{ID: "test", FeatureLevel: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// logOf is a log whose batches have one record each, written under an epoch.
func logOf(t *testing.T, node model.NodeID, epoch int32, values ...string) Log {
	t.Helper()
	l := Log{Node: node, InSync: true, End: int64(len(values))}
	for i, v := range values {
		b, err := batch.Build(batch.Options{}, batch.Record{Timestamp: 1, Value: []byte(v)})
		if err != nil {
			t.Fatal(err)
		}
		recordbatch.Stamp(b, int64(i), epoch)
		l.Batches = append(l.Batches, b)
	}
	return l
}

func isr(nodes ...model.NodeID) []model.NodeID { return nodes }

// histories each break one rule; want is how the checker says so. The empty one breaks
// none.
var histories = []struct {
	name string
	want string
	tell func(t *testing.T, c *Checker)
}{
	{name: "all is well", tell: func(t *testing.T, c *Checker) {
		c.Idempotent(1)
		c.Published(1, 1, imageOf(t, 5, image.Partition{ISR: isr(1, 2, 3), Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1}))
		c.TopicMade("orders", topicID)
		c.Leads(Leader{Partition: p0, Node: 1, Epoch: 1})
		c.Acknowledged(p0, 1, 1, 0, []string{"1.0", "1.1"})
		c.Acknowledged(p0, 1, 1, 0, []string{"1.0", "1.1"})
		c.Leads(Leader{Partition: p0, Node: 1, Epoch: 1, HighWatermark: 2, LEO: 3})
		c.Published(2, 1, imageOf(t, 5, image.Partition{ISR: isr(1, 2, 3), Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1}))
		c.Published(2, 1, imageOf(t, 6, image.Partition{ISR: isr(2, 3), Leader: 2, LeaderEpoch: 2, PartitionEpoch: 2}))
		c.Leads(Leader{Partition: p0, Node: 2, Epoch: 2, HighWatermark: 1, LEO: 2})
		c.Read(p0, 0, "1.0")
		c.Counts(p0, 3, 2)
		c.Voted(1, 7, 1)
		c.Voted(2, 7, 1)
		c.Voted(2, 7, 1)
		c.Voted(2, 8, 3)
		c.LeadsQuorum(1, 7)
		c.LeadsQuorum(1, 7)
		c.LeadsQuorum(3, 8)
		c.Published(2, 2, imageOf(t, 5, image.Partition{ISR: isr(1, 2, 3), Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1}))
		behind := logOf(t, 1, 1, "1.0")
		behind.InSync = false
		longer := logOf(t, 3, 1, "1.0", "1.1", "2.0")
		c.Logs(p0, 2, 2, []Log{logOf(t, 2, 1, "1.0", "1.1"), behind, longer})
	}},
	{name: "what may be lost", tell: func(t *testing.T, c *Checker) {
		c.Idempotent(1)
		c.Acknowledged(p0, 1, 1, 0, []string{"1.0", "1.1"})
		c.Read(p0, 1, "1.1")
		c.Leads(Leader{Partition: p0, Node: 1, Epoch: 1, HighWatermark: 2, LEO: 2})
		c.MayBeLost(p0, 1)
		c.Counts(p0, 3, 1)
		c.Repeats(1)
		c.Leads(Leader{Partition: p0, Node: 2, Epoch: 2, HighWatermark: 1, LEO: 1})
		c.Acknowledged(p0, 2, 2, 1, []string{"1.0"})
		c.Logs(p0, 2, 2, []Log{logOf(t, 2, 1, "1.0", "1.0")})
	}},
	{name: "all of a producer lost that may be", tell: func(t *testing.T, c *Checker) {
		c.Idempotent(1)
		c.Acknowledged(p0, 1, 1, 0, []string{"2.0", "1.0"})
		c.MayBeLost(p0, 1)
		c.Acknowledged(p0, 2, 2, 1, []string{"1.1"})
		c.Logs(p0, 2, 2, []Log{logOf(t, 2, 1, "2.0", "1.1")})
	}},
	{name: "a gap after what may be lost", want: "producer 1's value 3 comes where 2 should", tell: func(t *testing.T, c *Checker) {
		c.Idempotent(1)
		c.MayBeLost(p0, 0)
		c.Logs(p0, 1, 2, []Log{logOf(t, 1, 1, "1.1", "1.3")})
	}},
	{name: "more lost than may be", want: "acknowledged for 1.0 in epoch 1, is lost", tell: func(t *testing.T, c *Checker) {
		c.Acknowledged(p0, 1, 1, 0, []string{"1.0", "1.1"})
		c.MayBeLost(p0, 1)
		c.Logs(p0, 1, 0, []Log{logOf(t, 1, 1)})
	}},
	{name: "an offset acknowledged twice", want: "was acknowledged for 1.0 and for 2.0", tell: func(_ *testing.T, c *Checker) {
		c.Acknowledged(p0, 1, 1, 4, []string{"1.0"})
		c.Acknowledged(p0, 1, 1, 4, []string{"2.0"})
	}},
	{name: "an offset read twice", want: "was read as 1.0 and as 2.0", tell: func(_ *testing.T, c *Checker) {
		c.Read(p0, 4, "1.0")
		c.Read(p0, 4, "2.0")
	}},
	{name: "another value read than acknowledged", want: "was acknowledged for 1.0 and read as 2.0", tell: func(_ *testing.T, c *Checker) {
		c.Acknowledged(p0, 1, 1, 4, []string{"1.0"})
		c.Read(p0, 4, "2.0")
	}},
	{name: "another value acknowledged than read", want: "is acknowledged for 1.0, and 2.0 was read", tell: func(_ *testing.T, c *Checker) {
		c.Read(p0, 4, "2.0")
		c.Acknowledged(p0, 1, 1, 4, []string{"1.0"})
	}},
	{name: "a leader without what was acknowledged", want: "acknowledged in an earlier epoch", tell: func(_ *testing.T, c *Checker) {
		c.Acknowledged(p0, 1, 1, 4, []string{"1.0"})
		c.Leads(Leader{Partition: p0, Node: 2, Epoch: 2, LEO: 4})
	}},
	{name: "a high watermark that goes back", want: "went back from 3 to 2", tell: func(_ *testing.T, c *Checker) {
		c.Leads(Leader{Partition: p0, Node: 2, Epoch: 2, HighWatermark: 3, LEO: 4})
		c.Leads(Leader{Partition: p0, Node: 2, Epoch: 2, HighWatermark: 2, LEO: 4})
	}},
	{name: "a leader without what was committed", want: "log of the leader of epoch 3 had only come to 3", tell: func(_ *testing.T, c *Checker) {
		c.Leads(Leader{Partition: p0, Node: 1, Epoch: 1, HighWatermark: 4, LEO: 4})
		c.Leads(Leader{Partition: p0, Node: 2, Epoch: 3, LEO: 3})
	}},
	{name: "a leader that commits after another has begun", want: "log of the leader of epoch 3 had only come to 3", tell: func(_ *testing.T, c *Checker) {
		c.Leads(Leader{Partition: p0, Node: 1, Epoch: 1, HighWatermark: 2, LEO: 4})
		c.Leads(Leader{Partition: p0, Node: 2, Epoch: 3, LEO: 3})
		c.Leads(Leader{Partition: p0, Node: 1, Epoch: 1, HighWatermark: 4, LEO: 4})
	}},
	{name: "a high watermark above the log end", want: "are not in order", tell: func(_ *testing.T, c *Checker) {
		c.Leads(Leader{Partition: p0, Node: 2, Epoch: 2, HighWatermark: 5, LEO: 4})
	}},
	{name: "two leaders in an epoch", want: "lead in epoch 2", tell: func(_ *testing.T, c *Checker) {
		c.Leads(Leader{Partition: p0, Node: 2, Epoch: 2})
		c.Leads(Leader{Partition: p0, Node: 3, Epoch: 2})
	}},
	{name: "an acknowledgement by another than the leader", want: "lead in epoch 2", tell: func(_ *testing.T, c *Checker) {
		c.Leads(Leader{Partition: p0, Node: 2, Epoch: 2})
		c.Acknowledged(p0, 3, 2, 0, []string{"1.0"})
	}},
	{name: "a leader that the metadata does not name", want: "lead in epoch 1", tell: func(t *testing.T, c *Checker) {
		c.Published(1, 1, imageOf(t, 5, image.Partition{ISR: isr(1, 2), Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1}))
		c.Leads(Leader{Partition: p0, Node: 2, Epoch: 1})
	}},
	{name: "a replica twice in sync", want: "is not within the replicas", tell: func(t *testing.T, c *Checker) {
		c.Published(1, 1, imageOf(t, 5, image.Partition{ISR: isr(1, 1), Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1}))
	}},
	{name: "in the ISR and in the ELR", want: "in the ISR and in the ELR", tell: func(t *testing.T, c *Checker) {
		c.Published(1, 1, imageOf(t, 5, image.Partition{ISR: isr(1), ELR: isr(1), Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1}))
	}},
	{name: "a leader with an empty ISR", want: "the ISR is empty", tell: func(t *testing.T, c *Checker) {
		c.Published(1, 1, imageOf(t, 5, image.Partition{Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1}))
	}},
	{name: "a leader that is not in sync", want: "is not in the ISR", tell: func(t *testing.T, c *Checker) {
		c.Published(1, 1, imageOf(t, 5, image.Partition{ISR: isr(2, 3), Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1}))
	}},
	{name: "a leader epoch that goes back", want: "the leader epoch went back", tell: func(t *testing.T, c *Checker) {
		c.Published(1, 1, imageOf(t, 5, image.Partition{ISR: isr(1), Leader: 1, LeaderEpoch: 2, PartitionEpoch: 1}))
		c.Published(1, 1, imageOf(t, 6, image.Partition{ISR: isr(1), Leader: 1, LeaderEpoch: 1, PartitionEpoch: 2}))
	}},
	{name: "a partition epoch that goes back", want: "the partition epoch went back", tell: func(t *testing.T, c *Checker) {
		c.Published(1, 1, imageOf(t, 5, image.Partition{ISR: isr(1), Leader: 1, LeaderEpoch: 1, PartitionEpoch: 2}))
		c.Published(1, 1, imageOf(t, 6, image.Partition{ISR: isr(1), Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1}))
	}},
	{name: "a new leader in the same epoch", want: "follows leader 1 in leader epoch", tell: func(t *testing.T, c *Checker) {
		c.Published(1, 1, imageOf(t, 5, image.Partition{ISR: isr(1, 2), Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1}))
		c.Published(1, 1, imageOf(t, 6, image.Partition{ISR: isr(1, 2), Leader: model.NoNode, LeaderEpoch: 1, PartitionEpoch: 2}))
	}},
	{name: "another ISR in the same partition epoch", want: "in partition epoch 1", tell: func(t *testing.T, c *Checker) {
		c.Published(1, 1, imageOf(t, 5, image.Partition{ISR: isr(1, 2), Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1}))
		c.Published(1, 1, imageOf(t, 6, image.Partition{ISR: isr(1), Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1}))
	}},
	{name: "two images at an offset", want: "another image at offset 5", tell: func(t *testing.T, c *Checker) {
		c.Published(1, 1, imageOf(t, 5, image.Partition{ISR: isr(1, 2), Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1}))
		c.Published(2, 1, imageOf(t, 5, image.Partition{ISR: isr(1), Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1}))
	}},
	{name: "images that go back", want: "of offset 5 after that of 6", tell: func(t *testing.T, c *Checker) {
		c.Published(1, 1, without(t, 5))
		c.Published(1, 1, without(t, 6))
		c.Published(1, 1, without(t, 5))
	}},
	{name: "a topic that is lost", want: "topic orders", tell: func(t *testing.T, c *Checker) {
		c.TopicMade("orders", topicID)
		c.Published(1, 1, without(t, 5))
	}},
	{name: "a topic that is removed", tell: func(t *testing.T, c *Checker) {
		c.TopicMade("orders", topicID)
		c.TopicLeaves("orders")
		c.Published(1, 1, without(t, 5))
		c.TopicRemoved(topicID)
		c.Published(1, 1, without(t, 6))
	}},
	{name: "a removed topic that comes again", want: "was removed, and is in the image of offset 6", tell: func(t *testing.T, c *Checker) {
		c.TopicRemoved(topicID)
		c.Published(1, 1, imageOf(t, 6, image.Partition{ISR: isr(1), Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1}))
	}},
	{name: "a topic made twice", want: "was made as", tell: func(_ *testing.T, c *Checker) {
		c.TopicMade("orders", topicID)
		c.TopicMade("orders", model.TopicID{8})
	}},
	{name: "one that counts without what was acknowledged", want: "has a log up to 4 of 5", tell: func(_ *testing.T, c *Checker) {
		c.Acknowledged(p0, 1, 1, 4, []string{"1.0"})
		c.Counts(p0, 2, 4)
	}},
	{name: "one that counts without what was read", want: "has a log up to 4 of 5", tell: func(_ *testing.T, c *Checker) {
		c.Read(p0, 4, "1.0")
		c.Counts(p0, 2, 4)
	}},
	{name: "two votes", want: "member 2 votes in term 7 for 3, after 1", tell: func(_ *testing.T, c *Checker) {
		c.Voted(2, 7, 1)
		c.Voted(2, 7, 3)
	}},
	{name: "two leaders of the quorum", want: "members 1 and 3 lead in term 7", tell: func(_ *testing.T, c *Checker) {
		c.LeadsQuorum(1, 7)
		c.LeadsQuorum(3, 7)
	}},
	{name: "no log at the leader", want: "has no log", tell: func(t *testing.T, c *Checker) {
		c.Logs(p0, 1, 1, []Log{logOf(t, 2, 1, "1.0")})
	}},
	{name: "an acknowledged record lost", want: "is lost", tell: func(t *testing.T, c *Checker) {
		c.Acknowledged(p0, 1, 1, 0, []string{"1.0", "1.1"})
		c.Logs(p0, 1, 1, []Log{logOf(t, 1, 1, "1.0")})
	}},
	{name: "an acknowledged record changed", want: "was acknowledged for 1.0 and holds 2.0", tell: func(t *testing.T, c *Checker) {
		c.Acknowledged(p0, 1, 1, 0, []string{"1.0"})
		c.Logs(p0, 1, 1, []Log{logOf(t, 1, 1, "2.0")})
	}},
	{name: "a record lost that was read", want: "read as 1.1, is lost", tell: func(t *testing.T, c *Checker) {
		c.Read(p0, 1, "1.1")
		c.Logs(p0, 1, 1, []Log{logOf(t, 1, 1, "1.0")})
	}},
	{name: "a record changed that was read", want: "was read as 1.0 and holds 2.0", tell: func(t *testing.T, c *Checker) {
		c.Read(p0, 0, "1.0")
		c.Logs(p0, 1, 1, []Log{logOf(t, 1, 1, "2.0")})
	}},
	{name: "logs of other values", want: "other bytes at offset 1", tell: func(t *testing.T, c *Checker) {
		c.Logs(p0, 1, 2, []Log{logOf(t, 1, 1, "1.0", "1.1"), logOf(t, 2, 1, "1.0", "2.0")})
	}},
	{name: "logs of other epochs", want: "other bytes at offset 0", tell: func(t *testing.T, c *Checker) {
		c.Logs(p0, 1, 2, []Log{logOf(t, 1, 1, "1.0", "1.1"), logOf(t, 2, 2, "1.0", "1.1")})
	}},
	{name: "a log in sync that is shorter", want: "ends at 1 below the high watermark 2", tell: func(t *testing.T, c *Checker) {
		c.Logs(p0, 1, 2, []Log{logOf(t, 1, 1, "1.0", "1.1"), logOf(t, 2, 1, "1.0")})
	}},
	{name: "a log in sync with a hole", want: "have 2 and 1 batches", tell: func(t *testing.T, c *Checker) {
		short := logOf(t, 2, 1, "1.0", "1.1")
		short.Batches = short.Batches[:1]
		c.Logs(p0, 1, 2, []Log{logOf(t, 1, 1, "1.0", "1.1"), short})
	}},
	{name: "a leader's log with a hole", want: "has offset 2 where 1 should be", tell: func(t *testing.T, c *Checker) {
		l := logOf(t, 1, 1, "2.0", "2.1", "2.2")
		l.Batches = [][]byte{l.Batches[0], l.Batches[2]}
		c.Logs(p0, 1, 3, []Log{l})
	}},
	{name: "damaged records", want: "is damaged", tell: func(t *testing.T, c *Checker) {
		l := logOf(t, 1, 1, "2.0")
		l.Batches[0] = l.Batches[0][:len(l.Batches[0])-1]
		c.Logs(p0, 1, 1, []Log{l})
	}},
	{name: "a record twice", want: "value 0 comes where 1 should", tell: func(t *testing.T, c *Checker) {
		c.Idempotent(1)
		c.Logs(p0, 1, 2, []Log{logOf(t, 1, 1, "1.0", "1.0")})
	}},
	{name: "records out of order", want: "value 1 comes where 0 should", tell: func(t *testing.T, c *Checker) {
		c.Idempotent(1)
		c.Logs(p0, 1, 1, []Log{logOf(t, 1, 1, "1.1")})
	}},
	{name: "what nobody wrote", want: "somebody wrote", tell: func(t *testing.T, c *Checker) {
		c.Logs(p0, 1, 1, []Log{logOf(t, 1, 1, "x")})
	}},
}

func TestHistories(t *testing.T) {
	for _, h := range histories {
		t.Run(h.name, func(t *testing.T) {
			var told []string
			c := New(func(v string) { told = append(told, v) })
			h.tell(t, c)
			switch {
			case len(told) != len(c.Violations()):
				t.Errorf("told of %d violations, has %d", len(told), len(c.Violations()))
			case h.want == "" && len(told) > 0:
				t.Errorf("violated: %v", told)
			case h.want != "" && (len(told) != 1 || !strings.Contains(told[0], h.want)):
				t.Errorf("violated: %q, want one that says %q", told, h.want)
			}
		})
	}
}

func TestCounts(t *testing.T) {
	c := New(nil)
	c.Published(1, 1, imageOf(t, 5, image.Partition{ISR: isr(1, 2), Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1}))
	c.Published(1, 1, imageOf(t, 6, image.Partition{ISR: isr(2), Adding: isr(3), Leader: 2, LeaderEpoch: 2, PartitionEpoch: 2}))
	c.Published(1, 1, imageOf(t, 7, image.Partition{ISR: isr(2), Leader: 2, LeaderEpoch: 2, PartitionEpoch: 3}))
	if c.Elections() != 1 || c.ISRChanges() != 1 || c.Moves() != 1 || c.Newest().Offset != 7 {
		t.Errorf("%d elections, %d changes of ISRs, %d moves, newest offset %d", c.Elections(), c.ISRChanges(), c.Moves(), c.Newest().Offset)
	}
}

func TestUnsettled(t *testing.T) {
	all := isr(1, 2, 3)
	settled := imageOf(t, 5, image.Partition{ISR: all, Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1})
	if got := Unsettled(settled, all); got != "" {
		t.Errorf("settled metadata: %q", got)
	}
	d := image.NewDelta(settled, 6)
	if err := d.Apply(&image.BrokerFenceRecord{ID: 3, Epoch: 1, Fenced: true}); err != nil {
		t.Fatal(err)
	}
	for want, img := range map[string]*image.Image{
		"is not registered": without(t, 5),
		"is fenced":         d.Image(),
		"is still to get replicas [3]": imageOf(t, 5, image.Partition{
			Replicas: all, ISR: isr(1, 2), Adding: isr(3), Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1,
		}),
		"has no leader":  imageOf(t, 5, image.Partition{ISR: all, Leader: model.NoNode, LeaderEpoch: 1, PartitionEpoch: 1}),
		"is not in sync": imageOf(t, 5, image.Partition{ISR: isr(1, 2), Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1}),
	} {
		if got := Unsettled(img, all); !strings.Contains(got, want) {
			t.Errorf("unsettled metadata: %q, want %q", got, want)
		}
	}
}
