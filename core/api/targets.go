package api

import (
	"sync"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/image/topicconfig"
	"github.com/brokerd/brokerd/core/model"
)

// target is a topic as producers meet it: what it is, and what it takes.
type target struct {
	topic    *image.Topic
	internal bool
	// policy lacks what differs from request to request: Now, and ZstdAllowed.
	policy batch.Policy
	// codec is the one that batches are kept in, where own says that there is one.
	codec batch.Codec
	own   bool
}

// targets keeps what was found out about topics for the newest image that was asked
// about, by name and by ID, so that a request makes no string of a name. All methods
// may be called concurrently.
type targets struct {
	configs              *configCache
	decompressedBytesMax int64

	mu     sync.RWMutex
	img    *image.Image
	byName map[string]*target
	byID   map[model.TopicID]*target
}

func newTargets(configs *configCache, decompressedBytesMax int64) *targets {
	return &targets{configs: configs, decompressedBytesMax: decompressedBytesMax}
}

// named is the topic with this name, or nil.
func (c *targets) named(img *image.Image, name []byte) *target {
	c.mu.RLock()
	if c.img == img {
		if t, ok := c.byName[string(name)]; ok {
			c.mu.RUnlock()
			return t
		}
	}
	c.mu.RUnlock()
	t, ok := img.TopicByName(string(name))
	if !ok {
		return nil
	}
	return c.learn(img, t)
}

// identified is the topic with this ID, or nil.
func (c *targets) identified(img *image.Image, id model.TopicID) *target {
	c.mu.RLock()
	if c.img == img {
		if t, ok := c.byID[id]; ok {
			c.mu.RUnlock()
			return t
		}
	}
	c.mu.RUnlock()
	t, ok := img.Topic(id)
	if !ok {
		return nil
	}
	return c.learn(img, t)
}

// learn keeps a topic, and forgets those of another image.
func (c *targets) learn(img *image.Image, t *image.Topic) *target {
	made := c.of(t, c.configs.of(img, t))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.img != img {
		c.img, c.byName, c.byID = img, make(map[string]*target), make(map[model.TopicID]*target)
	}
	c.byName[t.Name], c.byID[t.ID] = made, made
	return made
}

func (c *targets) of(t *image.Topic, cfg topicconfig.Config) *target {
	codec, own := batch.CodecNamed(cfg.CompressionType)
	return &target{
		topic:    t,
		internal: internal(t),
		policy: batch.Policy{
			MaxBytes:             int(cfg.MaxMessageBytes),
			SegmentBytes:         cfg.SegmentBytes,
			LogAppendTime:        cfg.TimestampType == topicconfig.LogAppendTime,
			TimestampBeforeMax:   literalMillis(cfg.TimestampBeforeMax),
			TimestampAfterMax:    literalMillis(cfg.TimestampAfterMax),
			Compacted:            cfg.CleanupPolicy.Compact,
			MaxDecompressedBytes: c.decompressedBytesMax,
		},
		codec: codec,
		own:   own,
	}
}
