package api

import (
	"sync"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/image/topicconfig"
	"github.com/brokerd/brokerd/core/model"
)

// node is a broker as one listener shows it.
type node struct {
	id     model.NodeID
	host   string
	port   int32
	rack   *string
	fenced bool
}

// nodes are the brokers that have this listener, by id. Fenced ones are among
// them.
func nodes(img *image.Image, listener string) []node {
	var out []node
	for b := range img.Brokers() {
		if n, ok := nodeOf(b, listener); ok {
			out = append(out, n)
		}
	}
	return out
}

func nodeOf(b *image.Broker, listener string) (node, bool) {
	e, ok := b.Listeners[listener]
	if !ok {
		return node{}, false
	}
	n := node{id: b.ID, host: e.Host, port: e.Port, fenced: b.Fenced}
	if b.Rack != "" {
		n.rack = &b.Rack
	}
	return n, true
}

// alive finds a broker that is registered and not fenced.
func alive(img *image.Image, id model.NodeID) (*image.Broker, bool) {
	b, ok := img.Broker(id)
	return b, ok && !b.Fenced
}

// shownController is the broker that clients are sent to with admin requests:
// any will do, since all of them reach the controller; this one if it is alive.
func (h *Handler) shownController(all []node) model.NodeID {
	first := model.NoNode
	for _, n := range all {
		if n.fenced {
			continue
		}
		if n.id == h.cfg.NodeID {
			return n.id
		}
		if first == model.NoNode {
			first = n.id
		}
	}
	return first
}

// partition finds a partition's registration; false where it does not exist.
func partition(t *image.Topic, index int32) (image.Partition, bool) {
	if !hasPartition(t, index) {
		return image.Partition{}, false
	}
	return t.Partitions[index], true
}

// hasPartition reports whether a partition exists.
func hasPartition(t *image.Topic, index int32) bool {
	return index >= 0 && int(index) < len(t.Partitions)
}

// partitionState is how metadata shows a partition to one listener.
type partitionState struct {
	leader  model.NodeID
	err     error
	offline []model.NodeID
}

// stateOf tells leader, error and offline replicas. A fenced broker is never
// shown as leader.
func stateOf(img *image.Image, p image.Partition, listener string) partitionState {
	s := partitionState{leader: model.NoNode}
	for _, r := range p.Replicas {
		if _, ok := alive(img, r); !ok {
			s.offline = append(s.offline, r)
		}
	}
	leader, ok := alive(img, p.Leader)
	if !ok {
		s.err = model.ErrLeaderNotAvailable
		return s
	}
	if _, ok := leader.Listeners[listener]; !ok {
		s.err = model.ErrListenerNotFound
		return s
	}
	s.leader = p.Leader
	return s
}

func numbers(ids []model.NodeID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}

// set are the properties that somebody set and that stand in for topic settings.
// Defaults are not among them: those of topics are the topic's own.
func set(properties map[string]Property) map[string]string {
	out := make(map[string]string)
	for name, p := range properties {
		d, key, ok := topicconfig.LookupBroker(name)
		if !ok || p.Default {
			continue
		}
		if v, _, _ := d.FromBroker(map[string]string{key.Name: p.Value}); d.Check(v) == nil {
			out[name] = p.Value
		}
	}
	return out
}

// configCache keeps the resolved settings of topics for the newest image that
// was asked about.
type configCache struct {
	node   model.NodeID
	static map[string]string

	mu      sync.Mutex
	img     *image.Image
	byTopic map[model.TopicID]topicconfig.Config
}

func newConfigCache(node model.NodeID, properties map[string]Property) *configCache {
	return &configCache{node: node, static: set(properties)}
}

// of resolves a topic's settings. What is in the image was validated before it
// got there; should it not resolve all the same, the topic works by its own
// settings alone, or by the defaults.
func (c *configCache) of(img *image.Image, t *image.Topic) topicconfig.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.img != img {
		c.img, c.byTopic = img, make(map[model.TopicID]topicconfig.Config)
	}
	if cfg, ok := c.byTopic[t.ID]; ok {
		return cfg
	}
	cfg, err := img.TopicConfig(t.Name, c.node, c.static)
	if err != nil {
		cfg, err = topicconfig.Resolve(nil, img.Config(model.Resource{Type: model.ResourceTopic, Name: t.Name}))
	}
	if err != nil {
		cfg, _ = topicconfig.Resolve(nil, nil)
	}
	c.byTopic[t.ID] = cfg
	return cfg
}
