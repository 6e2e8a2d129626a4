package image

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/brokerd/brokerd/core/model"
)

var testCluster = &ClusterRecord{Cluster{ID: "c", FeatureLevel: 1, ReplicationFactorTarget: 3, MinISRTarget: 2}}

func topicID(n byte) model.TopicID { return model.TopicID{15: n} }

func registration(replicas ...model.NodeID) Partition {
	p := Partition{Replicas: replicas, ISR: replicas, Leader: replicas[0]}
	for _, r := range replicas {
		p.Directories = append(p.Directories, model.DirectoryID{15: byte(r)})
	}
	return p
}

func mustImage(t *testing.T, records ...Record) *Image {
	t.Helper()
	img, err := FromRecords(1, append([]Record{testCluster}, records...)...)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func mustApply(t *testing.T, base *Image, records ...Record) *Image {
	t.Helper()
	d := NewDelta(base, base.Offset+1)
	for _, r := range records {
		if err := d.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	return d.Image()
}

func TestPartitionChangeRaisesEpochs(t *testing.T) {
	p := model.Partition{Topic: topicID(1)}
	before := mustImage(t, &TopicRecord{ID: p.Topic, Name: "t"}, &PartitionRecord{p, registration(1, 2)})

	shrunk := mustApply(t, before, &PartitionChangeRecord{Partition: p, ISR: []model.NodeID{2}})
	if got, _, _ := shrunk.Partition(p); got.PartitionEpoch != 1 || got.LeaderEpoch != 0 || got.Leader != 1 || !slices.Equal(got.ISR, []model.NodeID{2}) {
		t.Errorf("after an ISR change: %+v", got)
	}
	led := mustApply(t, shrunk, &PartitionChangeRecord{Partition: p, LeaderChange: true, Leader: 2})
	if got, _, _ := led.Partition(p); got.PartitionEpoch != 2 || got.LeaderEpoch != 1 || got.Leader != 2 {
		t.Errorf("after a leader change: %+v", got)
	}
	if got, _, _ := before.Partition(p); got.PartitionEpoch != 0 || got.Leader != 1 || len(got.ISR) != 2 {
		t.Errorf("the first image changed: %+v", got)
	}
}

func TestBrokerEpochIsTheOffset(t *testing.T) {
	img := mustApply(t, mustImage(t), &BrokerRecord{ID: 7, Directories: []model.DirectoryID{{1}}, Fenced: true})
	if b, ok := img.Broker(7); !ok || b.Epoch != 2 {
		t.Fatalf("broker 7 = %+v, %v; want epoch 2", b, ok)
	}
	img = mustApply(t, img, &BrokerFenceRecord{ID: 7, Epoch: 2})
	if b, _ := img.Broker(7); b.Fenced || b.Epoch != 2 {
		t.Errorf("unfenced: %+v", b)
	}
}

// A removed topic is known as removed until its last directory has confirmed.
func TestRemovedTopicOutlivesItsTopic(t *testing.T) {
	one, two := model.DirectoryID{1}, model.DirectoryID{2}
	resource := model.Resource{Type: model.ResourceTopic, Name: "t"}
	img := mustImage(t, &BrokerRecord{ID: 2, Directories: []model.DirectoryID{two}},
		&TopicRecord{ID: topicID(1), Name: "t"}, &PartitionRecord{model.Partition{Topic: topicID(1)}, registration(1, 2)},
		&ConfigRecord{Resource: resource, Key: "retention.ms", Value: "1"})

	d := NewDelta(img, 2)
	if err := d.Apply(&TopicRemovalRecord{ID: topicID(1), Name: "t", Directories: []model.DirectoryID{one, two}}); err != nil {
		t.Fatal(err)
	}
	img = d.Image()
	if img.TopicCount() != 0 || img.PartitionCount() != 0 || img.Config(resource) != nil {
		t.Errorf("left behind: %d topics, %d partitions, %v", img.TopicCount(), img.PartitionCount(), img.Config(resource))
	}
	img = mustApply(t, img, &TopicPurgeRecord{topicID(1), one})
	if r, ok := img.Removed(topicID(1)); !ok || !slices.Equal(r.Directories, []model.DirectoryID{two}) {
		t.Fatalf("Removed = %+v, %v", r, ok)
	}
	b, _ := img.Broker(2)
	for name, last := range map[string]Record{
		"confirmed": &TopicPurgeRecord{topicID(1), two},
		"forgotten": &BrokerRemovalRecord{ID: 2, Epoch: b.Epoch},
	} {
		if r, ok := mustApply(t, img, last).Removed(topicID(1)); ok {
			t.Errorf("%s: still remembered: %+v", name, r)
		}
	}
}

func TestEffectiveMinISR(t *testing.T) {
	tests := []struct{ minISR, replicas, target, want int }{
		{2, 3, 3, 2}, {2, 2, 3, 1}, {2, 1, 3, 1}, {2, 1, 1, 1}, {2, 2, 2, 2}, {3, 2, 2, 2}, {1, 3, 3, 1}, {3, 3, 5, 2}, {0, 1, 1, 1},
	}
	for _, tt := range tests {
		if got := EffectiveMinISR(tt.minISR, tt.replicas, tt.target); got != tt.want {
			t.Errorf("EffectiveMinISR(%d, %d, %d) = %d; want %d", tt.minISR, tt.replicas, tt.target, got, tt.want)
		}
	}
}

func TestMinISRPrecedence(t *testing.T) {
	minISR := func(img *Image) int {
		c, err := img.TopicConfig("t", model.NoNode, nil)
		if err != nil {
			t.Error(err)
		}
		return c.MinISR
	}
	img := mustImage(t, &TopicRecord{ID: topicID(1), Name: "t"})
	if got := minISR(img); got != 2 {
		t.Errorf("from the cluster's target: %d", got)
	}
	// Leader and controller go by the same: a broker's own has no effect. (KIP-966)
	own := mustApply(t, img, &BrokerRecord{ID: 1}, &ConfigRecord{Resource: model.BrokerResource(1), Key: MinISRKey, Value: "1"})
	if c, err := own.TopicConfig("t", 1, map[string]string{MinISRKey: "9"}); err != nil || c.MinISR != 2 {
		t.Errorf("with settings of one broker: %d, %v", c.MinISR, err)
	}
	img = mustApply(t, img, &ConfigRecord{Resource: model.Resource{Type: model.ResourceBroker}, Key: MinISRKey, Value: "3"})
	if got := minISR(img); got != 3 {
		t.Errorf("from the cluster-wide setting: %d", got)
	}
	img = mustApply(t, img, &ConfigRecord{Resource: model.Resource{Type: model.ResourceTopic, Name: "t"}, Key: MinISRKey, Value: "1"})
	if got := minISR(img); got != 1 {
		t.Errorf("from the topic: %d", got)
	}
	if c, err := img.TopicConfig("t", model.NoNode, map[string]string{MinISRKey: "9"}); err != nil || c.MinISR != 1 {
		t.Errorf("TopicConfig: %d, %v", c.MinISR, err)
	}
	if c, err := img.TopicConfig("u", model.NoNode, map[string]string{MinISRKey: "9"}); err != nil || c.MinISR != 3 {
		t.Errorf("TopicConfig of another: %d, %v", c.MinISR, err)
	}
}

// What operators are shown is what leaders go by: whatever is set where, and however many
// replicas there are.
func TestMinISRInEffect(t *testing.T) {
	topic := model.Resource{Type: model.ResourceTopic, Name: "t"}
	for _, set := range [][]Record{
		nil,
		{&ConfigRecord{Resource: topic, Key: MinISRKey, Value: "3"}},
		{&ConfigRecord{Resource: model.Resource{Type: model.ResourceBroker}, Key: MinISRKey, Value: "1"}},
		{&ConfigRecord{Resource: topic, Key: MinISRKey, Value: "1"}, &ConfigRecord{Resource: model.Resource{Type: model.ResourceBroker}, Key: MinISRKey, Value: "3"}},
		{&ConfigRecord{Resource: topic, Key: MinISRKey, Value: "none"}},
	} {
		img := mustImage(t, append([]Record{&TopicRecord{ID: topicID(1), Name: "t", ReplicationFactorTarget: 3},
			&PartitionRecord{model.Partition{Topic: topicID(1)}, registration(1)},
			&PartitionRecord{model.Partition{Topic: topicID(1), Index: 1}, registration(1, 2)},
			&PartitionRecord{model.Partition{Topic: topicID(1), Index: 2}, registration(1, 2, 3)},
			&PartitionRecord{model.Partition{Topic: topicID(1), Index: 3}, registration(1, 2, 3)},
			&PartitionChangeRecord{Partition: model.Partition{Topic: topicID(1), Index: 3}, Adding: []model.NodeID{2, 3}, Removing: []model.NodeID{}}}, set...)...)
		for _, static := range []map[string]string{nil, {MinISRKey: "9"}} {
			minISR := 1 // of settings that cannot be read
			if c, err := img.TopicConfig("t", model.NoNode, static); err == nil {
				minISR = c.MinISR
			}
			top, _ := img.TopicByName("t")
			got := img.MinISR(static)
			for i := range top.Partitions {
				p := &top.Partitions[i]
				if got, want := got(top, p), EffectiveMinISR(minISR, p.Counted(), 3); got != want {
					t.Errorf("%+v, static %v, %d replicas: %d, want %d", set, static, len(p.Replicas), got, want)
				}
			}
		}
	}
}

// A loss stays with its partition until there is another one.
func TestALossStays(t *testing.T) {
	p := model.Partition{Topic: topicID(1)}
	img := mustImage(t, &TopicRecord{ID: p.Topic, Name: "t"}, &PartitionRecord{p, registration(1, 2)})
	lost := &Loss{Epoch: 1, From: 7, At: 9}
	img = mustApply(t, img, &PartitionChangeRecord{Partition: p, LeaderChange: true, Leader: 2, Loss: lost})
	img = mustApply(t, img, &PartitionChangeRecord{Partition: p, LeaderChange: true, Leader: 1})
	if got, _, _ := img.Partition(p); got.Loss == nil || *got.Loss != *lost {
		t.Errorf("got %+v", got)
	}
	img = mustApply(t, img, &PartitionChangeRecord{Partition: p, LeaderChange: true, Leader: 2, Loss: &Loss{Epoch: 3, From: -1, Unclean: true}})
	if got, _, _ := img.Partition(p); got.Loss.Epoch != 3 {
		t.Errorf("got %+v", got.Loss)
	}
}

// A broker's own settings stand between a topic's and those of all brokers, on
// that broker alone, and are in a snapshot.
func TestBrokersOwnSettings(t *testing.T) {
	set := func(r model.Resource, key, value string) Record {
		return &ConfigRecord{Resource: r, Key: key, Value: value}
	}
	all := model.BrokerResource(model.NoNode)
	img := mustImage(t, &TopicRecord{ID: topicID(1), Name: "t"}, &TopicRecord{ID: topicID(2), Name: "own"},
		set(all, "log.retention.ms", "200"), set(model.BrokerResource(1), "log.retention.minutes", "1"),
		set(model.Resource{Type: model.ResourceTopic, Name: "own"}, "retention.ms", "10"))
	snapshot, err := FromRecords(1, slices.Collect(img.Records())...)
	if err != nil {
		t.Fatal(err)
	}
	static := map[string]string{"log.retention.ms": "100", "message.max.bytes": "7"}
	for _, tt := range []struct {
		topic string
		node  model.NodeID
		want  time.Duration
	}{
		{"t", 1, time.Minute}, {"t", 2, 200 * time.Millisecond}, {"t", model.NoNode, 200 * time.Millisecond}, {"own", 1, 10 * time.Millisecond},
	} {
		c, err := snapshot.TopicConfig(tt.topic, tt.node, static)
		if err != nil || c.RetentionAge != tt.want || c.MaxMessageBytes != 7 {
			t.Errorf("%s on %d: %+v, %v; want an age of %v", tt.topic, tt.node, c, err, tt.want)
		}
	}
	img = mustApply(t, img, &ConfigRecord{Resource: model.BrokerResource(1), Key: "log.retention.minutes", Unset: true},
		&ConfigRecord{Resource: all, Key: "log.retention.ms", Unset: true})
	if c, err := img.TopicConfig("t", 1, static); err != nil || c.RetentionAge != 100*time.Millisecond {
		t.Errorf("taken away: %v, %v", c.RetentionAge, err)
	}
}

func TestRecordsThatDoNotFit(t *testing.T) {
	p := model.Partition{Topic: topicID(1)}
	good := []Record{testCluster, &BrokerRecord{ID: 1}, &TopicRecord{ID: p.Topic, Name: "t"}, &PartitionRecord{p, registration(1, 2)}, &ProducerIDsRecord{1000}}
	other := model.Partition{Topic: topicID(1), Index: 2}
	half := registration(1, 2)
	half.Directories = half.Directories[:1]
	tests := map[string]Record{
		"another cluster":         &ClusterRecord{Cluster{ID: "d", FeatureLevel: 1}},
		"feature level too new":   &ClusterRecord{Cluster{ID: "c", FeatureLevel: FeatureLevel + 1}},
		"broker below 0":          &BrokerRecord{ID: -1},
		"fence of nobody":         &BrokerFenceRecord{ID: 2},
		"fence of an older life":  &BrokerFenceRecord{ID: 1, Epoch: 99},
		"removal of nobody":       &BrokerRemovalRecord{ID: 2},
		"topic ID twice":          &TopicRecord{ID: p.Topic, Name: "u"},
		"topic name twice":        &TopicRecord{ID: topicID(2), Name: "t"},
		"topic ID zero":           &TopicRecord{Name: "u"},
		"partition with a gap":    &PartitionRecord{other, registration(1)},
		"partition of no topic":   &PartitionRecord{model.Partition{Topic: topicID(9)}, registration(1)},
		"too few directories":     &PartitionRecord{model.Partition{Topic: p.Topic, Index: 1}, half},
		"change of no partition":  &PartitionChangeRecord{Partition: other},
		"leader without replica":  &PartitionChangeRecord{Partition: p, LeaderChange: true, Leader: 3},
		"ISR without replica":     &PartitionChangeRecord{Partition: p, ISR: []model.NodeID{3}},
		"ELR without replica":     &PartitionChangeRecord{Partition: p, ELR: []model.NodeID{3}},
		"adding without replica":  &PartitionChangeRecord{Partition: p, Adding: []model.NodeID{3}},
		"no replicas":             &PartitionChangeRecord{Partition: p, Replicas: []model.NodeID{}, Directories: []model.DirectoryID{}},
		"setting of no topic":     &ConfigRecord{Resource: model.Resource{Type: model.ResourceTopic, Name: "u"}, Key: "k"},
		"member without ID":       &MemberRecord{Node: 1},
		"producer IDs going back": &ProducerIDsRecord{999},
	}
	for name, r := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := FromRecords(1, append(slices.Clone(good), r)...)
			if !errors.Is(err, ErrInconsistent) {
				t.Errorf("Apply = %v; want ErrInconsistent", err)
			}
		})
	}
	if _, err := FromRecords(1, &BrokerRecord{ID: 1}); !errors.Is(err, ErrInconsistent) {
		t.Errorf("a log that does not begin with its cluster: %v", err)
	}
}

func TestTopicsAreInNameOrder(t *testing.T) {
	img := mustImage(t, &TopicRecord{ID: topicID(1), Name: "b"}, &TopicRecord{ID: topicID(2), Name: "a"}, &TopicRecord{ID: topicID(3), Name: "c"})
	var names []string
	for topic := range img.Topics() {
		names = append(names, topic.Name)
	}
	if strings.Join(names, "") != "abc" {
		t.Errorf("Topics = %v", names)
	}
}

func nodeIDs() *rapid.Generator[[]model.NodeID] {
	return rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) model.NodeID {
		return model.NodeID(rapid.IntRange(0, 4).Draw(t, "node"))
	}), 1, 3, rapid.ID[model.NodeID])
}

// anyRecord draws a record that more often than not fits an image made of such
// records.
func anyRecord() *rapid.Generator[Record] {
	return rapid.Custom(func(t *rapid.T) Record {
		id := topicID(byte(rapid.IntRange(1, 4).Draw(t, "topic")))
		p := model.Partition{Topic: id, Index: int32(rapid.IntRange(0, 2).Draw(t, "index"))}
		name := fmt.Sprint("t", rapid.IntRange(1, 4).Draw(t, "name"))
		node := model.NodeID(rapid.IntRange(0, 4).Draw(t, "node"))
		replicas := nodeIDs().Draw(t, "replicas")
		reg := registration(replicas...)
		reg.ISR = replicas[:rapid.IntRange(0, len(replicas)).Draw(t, "isr")]
		dir := model.DirectoryID{15: byte(node)}
		switch rapid.IntRange(1, 15).Draw(t, "kind") {
		case 1:
			c := *testCluster
			c.Cluster.MinISRTarget = int16(rapid.IntRange(1, 3).Draw(t, "min ISR"))
			return &c
		case 2:
			return &BrokerRecord{ID: node, Epoch: model.BrokerEpoch(rapid.IntRange(0, 1).Draw(t, "epoch")), Rack: rapid.String().Draw(t, "rack"),
				Listeners:   map[string]Endpoint{"PLAINTEXT": {Host: name, Port: 9092}, name: {Port: rapid.Int32().Draw(t, "port")}},
				Directories: []model.DirectoryID{dir}, Fenced: rapid.Bool().Draw(t, "fenced"), ShuttingDown: rapid.Bool().Draw(t, "shutting down")}
		case 3:
			r := &BrokerFenceRecord{ID: node, Epoch: 1, Fenced: rapid.Bool().Draw(t, "fenced"), ShuttingDown: rapid.Bool().Draw(t, "shutting down")}
			if rapid.Bool().Draw(t, "offline") {
				r.Offline = []model.DirectoryID{dir}
			}
			return r
		case 4:
			return &BrokerRemovalRecord{ID: node, Epoch: 1}
		case 5, 6:
			return &TopicRecord{ID: id, Name: name, Internal: rapid.Bool().Draw(t, "internal"), ReplicationFactorTarget: 3}
		case 7, 8:
			return &PartitionRecord{p, reg}
		case 9:
			r := &PartitionChangeRecord{Partition: p, LeaderChange: rapid.Bool().Draw(t, "leader")}
			if rapid.Bool().Draw(t, "reassigned") {
				r.Replicas, r.Directories, r.ISR = reg.Replicas, reg.Directories, append([]model.NodeID{}, reg.ISR...)
			}
			if r.LeaderChange {
				r.Leader = node
			}
			if rapid.Bool().Draw(t, "eligible") {
				r.ELR, r.LastKnownELR = replicas[:1], []model.NodeID{}
			}
			if rapid.Bool().Draw(t, "reassigning") {
				r.Adding, r.Removing = replicas[:1], []model.NodeID{}
			}
			if rapid.Bool().Draw(t, "lossy") {
				r.Loss = &Loss{Epoch: 3, From: rapid.Int64Range(-1, 1<<40).Draw(t, "from"), Unclean: rapid.Bool().Draw(t, "unclean"), At: 1 << 40}
			}
			return r
		case 10:
			return &TopicRemovalRecord{ID: id, Name: name, Directories: reg.Directories}
		case 11:
			return &ConfigRecord{Resource: model.Resource{Type: model.ResourceTopic, Name: name}, Key: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"), Unset: rapid.Bool().Draw(t, "unset")}
		case 12:
			return &MemberRecord{Directory: model.DirectoryID{15: byte(node) + 1}, Node: node, Endpoint: name, MayVote: rapid.Bool().Draw(t, "may vote")}
		case 13:
			return &MemberRemovalRecord{Directory: model.DirectoryID{15: byte(node) + 1}}
		case 14:
			return &PartitionTargetRecord{Partition: p, Chosen: int16(rapid.IntRange(0, 3).Draw(t, "chosen")), Raised: rapid.Bool().Draw(t, "raised")}
		default:
			return rapid.SampledFrom([]Record{&TopicPurgeRecord{id, dir}, &ProducerIDsRecord{rapid.Int64Range(0, 1<<40).Draw(t, "id")}}).Draw(t, "other")
		}
	})
}

// A history of whatever was accepted: its snapshot makes an equal image, through
// the codec too; no earlier image changes; and counts agree with what is there.
func TestSnapshotGivesAnEqualImage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		img, err := FromRecords(1, testCluster)
		if err != nil {
			t.Fatal(err)
		}
		type frozen struct {
			img     *Image
			records []byte
		}
		var history []frozen
		for _, r := range rapid.SliceOfN(anyRecord(), 1, 60).Draw(t, "records") {
			d := NewDelta(img, img.Offset+1)
			if err := d.Apply(r); err != nil {
				continue // the delta is thrown away
			}
			img = d.Image()
			history = append(history, frozen{img, AppendBatch(nil, slices.Collect(img.Records()))})
		}
		for _, h := range history {
			if again := AppendBatch(nil, slices.Collect(h.img.Records())); !slices.Equal(again, h.records) {
				t.Fatalf("image at %d changed after it was published", h.img.Offset)
			}
		}
		decoded, err := DecodeBatch(AppendBatch(nil, slices.Collect(img.Records())))
		if err != nil {
			t.Fatal(err)
		}
		again, err := FromRecords(img.Offset, decoded...)
		if err != nil {
			t.Fatal(err)
		}
		requireEqual(t, img, again)
	})
}

func requireEqual(t *rapid.T, a, b *Image) {
	partitions := 0
	for topic := range a.Topics() {
		partitions += len(topic.Partitions)
		other, ok := b.TopicByName(topic.Name)
		if !ok || !reflect.DeepEqual(topic, other) {
			t.Fatalf("topic %+v became %+v", topic, other)
		}
	}
	if partitions != a.PartitionCount() || partitions != b.PartitionCount() || a.TopicCount() != b.TopicCount() {
		t.Fatalf("%d partitions; counted %d and %d of %d and %d topics", partitions, a.PartitionCount(), b.PartitionCount(), a.TopicCount(), b.TopicCount())
	}
	for what, equal := range map[string]bool{
		"cluster": a.Cluster == b.Cluster && a.Offset == b.Offset && a.NextProducerID() == b.NextProducerID(),
		"brokers": reflect.DeepEqual(maps.Collect(a.brokers.all()), maps.Collect(b.brokers.all())),
		"configs": reflect.DeepEqual(maps.Collect(a.configs.all()), maps.Collect(b.configs.all())),
		"removed": reflect.DeepEqual(maps.Collect(a.removed.all()), maps.Collect(b.removed.all())),
	} {
		if !equal {
			t.Fatalf("%s differ", what)
		}
	}
}

func BenchmarkPartitionChangeAmongManyTopics(b *testing.B) {
	d := NewDelta(&Image{}, 1)
	_ = d.Apply(testCluster)
	p := model.Partition{}
	for n := range 20000 {
		id := model.TopicID{14: byte(n >> 8), 15: byte(n), 0: 1}
		p.Topic = id
		_ = d.Apply(&TopicRecord{ID: id, Name: fmt.Sprint("topic-", n)})
		_ = d.Apply(&PartitionRecord{p, registration(1, 2, 3)})
	}
	img := d.Image()
	b.ReportAllocs()
	for b.Loop() {
		d := NewDelta(img, img.Offset+1)
		if err := d.Apply(&PartitionChangeRecord{Partition: p, ISR: []model.NodeID{1}}); err != nil {
			b.Fatal(err)
		}
		img = d.Image()
	}
}
