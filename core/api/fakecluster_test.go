package api

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/image/topicconfig"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
)

// cluster is a fake of all that a Handler asks: an image changed by a simple
// controller, and logs in memory.
type cluster struct {
	img atomic.Pointer[image.Image]

	mu      sync.Mutex
	logs    map[model.Partition]*memLog
	changed chan struct{} // closed on every append
	nextPID int64
	deny    map[security.Action]bool
	asked   []security.Action

	// What fails next, where a test sets it.
	appendErr error
	fetchErr  map[model.Partition]error
	ctrlErr   error
	appends   []model.Append // every one, in order
	fetches   []model.Fetch
	file      *os.File // where there is one, fetches that may are answered with sections of it
	hold      bool     // appends are not answered until release
	unspent   bool     // appends are answered while their bytes are looked at
	held      []func()
	trims     []model.TrimQuery
	groups    *coordinator
	voters    []string // what was asked about voters
	observers []model.QuorumVoter
}

func newCluster(t testing.TB) *cluster {
	c := &cluster{logs: make(map[model.Partition]*memLog), changed: make(chan struct{}), deny: make(map[security.Action]bool), fetchErr: make(map[model.Partition]error), groups: newCoordinator()}
	img, err := image.FromRecords(1,
		&image.ClusterRecord{Cluster: image.Cluster{ID: "cluster-one", FeatureLevel: 1, ReplicationFactorTarget: 3, MinISRTarget: 2}},
		brokerRecord(1, "a.example", "rack-a", false),
		brokerRecord(2, "b.example", "", false),
		brokerRecord(3, "c.example", "", true),
	)
	if err != nil {
		t.Fatal(err)
	}
	c.img.Store(img)
	return c
}

func brokerRecord(id model.NodeID, host, rack string, fenced bool) *image.BrokerRecord {
	return &image.BrokerRecord{ID: id, Epoch: 1, Rack: rack, Fenced: fenced, Directories: []model.DirectoryID{{byte(id)}},
		Listeners: map[string]image.Endpoint{listener: {Host: host, Port: 9092}, "ONLY-" + nodeName(id): {Host: host, Port: 9093}}}
}

func (c *cluster) apply(records ...image.Record) {
	old := c.img.Load()
	d := image.NewDelta(old, old.Offset+1)
	for _, r := range records {
		if err := d.Apply(r); err != nil {
			panic(err)
		}
	}
	c.img.Store(d.Image())
}

func topicID(name string) model.TopicID {
	var id model.TopicID
	copy(id[:], "id-"+name+"................")
	return id
}

// topic adds a topic whose partitions are led by these brokers.
func (c *cluster) topic(name string, leaders ...model.NodeID) model.TopicID {
	id := topicID(name)
	records := []image.Record{&image.TopicRecord{ID: id, Name: name, Internal: name == "__consumer_offsets", ReplicationFactorTarget: 3}}
	for i, leader := range leaders {
		replicas := []model.NodeID{1, 2, 3}
		records = append(records, &image.PartitionRecord{Partition: model.Partition{Topic: id, Index: int32(i)}, Registration: image.Partition{
			Replicas: replicas, Directories: []model.DirectoryID{{1}, {2}, {3}}, ISR: []model.NodeID{1, 2}, ELR: []model.NodeID{3},
			Leader: leader, LeaderEpoch: 7,
		}})
	}
	c.apply(records...)
	return id
}

func (c *cluster) Image() *image.Image { return c.img.Load() }

func (c *cluster) Authorize(_ context.Context, _ security.Principal, _ string, what security.Action) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, what)
	return !c.deny[what]
}

func (c *cluster) denyTopic(name string, ops ...security.Operation) {
	for _, op := range ops {
		c.deny[security.Action{Operation: op, Resource: security.Topic, Name: name}] = true
	}
}

func (c *cluster) denyCluster(ops ...security.Operation) {
	for _, op := range ops {
		c.deny[security.Action{Operation: op, Resource: security.Cluster, Name: security.ClusterName}] = true
	}
}

// The controller.

func (c *cluster) CreateTopics(ctx context.Context, topics []model.NewTopic, validateOnly bool) ([]model.TopicResult, error) {
	if c.ctrlErr != nil {
		return nil, c.ctrlErr
	}
	out := make([]model.TopicResult, len(topics))
	for i, t := range topics {
		out[i] = model.TopicResult{Name: t.Name, ID: topicID(t.Name), Partitions: max(1, t.Partitions), ReplicationFactor: 3}
		own := make(map[string]string)
		for k, v := range t.Configs {
			if v == nil {
				out[i].Err = model.ErrInvalidConfig
				continue
			}
			own[k] = *v
		}
		if _, ok := c.Image().TopicByName(t.Name); ok {
			out[i].Err = model.ErrTopicExists
		} else if _, err := topicconfig.Resolve(nil, own); err != nil {
			out[i].Err = errorOf(model.ErrInvalidConfig, err)
		}
		if out[i].Err != nil || validateOnly {
			continue
		}
		leaders := make([]model.NodeID, out[i].Partitions)
		for j := range leaders {
			leaders[j] = self
		}
		c.topic(t.Name, leaders...)
		for k, v := range own {
			c.apply(&image.ConfigRecord{Resource: model.Resource{Type: model.ResourceTopic, Name: t.Name}, Key: k, Value: v})
		}
	}
	return out, nil
}

func (c *cluster) DeleteTopics(_ context.Context, topics []model.TopicRef) ([]model.TopicResult, error) {
	if c.ctrlErr != nil {
		return nil, c.ctrlErr
	}
	out := make([]model.TopicResult, len(topics))
	for i, ref := range topics {
		t, ok := c.Image().Topic(ref.ID)
		if ref.Name != "" {
			t, ok = c.Image().TopicByName(ref.Name)
		}
		if !ok {
			out[i].Err = model.ErrUnknownTopicOrPartition
			continue
		}
		c.apply(&image.TopicRemovalRecord{ID: t.ID, Name: t.Name})
	}
	return out, nil
}

func (c *cluster) CreatePartitions(_ context.Context, more []model.MorePartitions, validateOnly bool) ([]error, error) {
	if c.ctrlErr != nil {
		return nil, c.ctrlErr
	}
	out := make([]error, len(more))
	for i, m := range more {
		t, _ := c.Image().TopicByName(m.Topic)
		if int(m.Count) <= len(t.Partitions) {
			out[i] = model.ErrInvalidPartitions
			continue
		}
		for j := len(t.Partitions); j < int(m.Count) && !validateOnly; j++ {
			c.apply(&image.PartitionRecord{Partition: model.Partition{Topic: t.ID, Index: int32(j)}, Registration: image.Partition{
				Replicas: []model.NodeID{1}, Directories: []model.DirectoryID{{1}}, ISR: []model.NodeID{1}, Leader: 1, LeaderEpoch: 7}})
		}
	}
	return out, nil
}

func (c *cluster) AlterConfigs(_ context.Context, changes []model.ConfigChange, validateOnly bool) ([]error, error) {
	if c.ctrlErr != nil {
		return nil, c.ctrlErr
	}
	out := make([]error, len(changes))
	for i, ch := range changes {
		for _, op := range ch.Ops {
			if _, ok := topicconfig.Lookup(op.Key); !ok && ch.Resource.Type == model.ResourceTopic {
				out[i] = model.ErrInvalidConfig
			}
		}
		if out[i] != nil || validateOnly {
			continue
		}
		if ch.Replace {
			for k := range c.Image().Config(ch.Resource) {
				c.apply(&image.ConfigRecord{Resource: ch.Resource, Key: k, Unset: true})
			}
		}
		for _, op := range ch.Ops {
			r := &image.ConfigRecord{Resource: ch.Resource, Key: op.Key, Unset: op.Kind == model.ConfigDelete}
			if op.Value != nil {
				r.Value = *op.Value
			}
			c.apply(r)
		}
	}
	return out, nil
}

func (c *cluster) AllocateProducerIDs(ctx context.Context) (model.ProducerIDBlock, error) {
	if c.ctrlErr != nil {
		return model.ProducerIDBlock{}, c.ctrlErr
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nextPID += 3
	return model.ProducerIDBlock{First: c.nextPID - 3, Count: 3}, nil
}
