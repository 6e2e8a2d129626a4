package cluster

import (
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/model"
)

// administer makes topics and changes settings, again and again while faults are on.
func (c *cluster) administer() {
	c.w.After(c.w.Between(100*time.Millisecond, 5*time.Second), func() {
		if !c.faulty {
			return
		}
		if c.w.Chance(2) {
			c.newTopic()
		} else {
			c.changeSettings()
		}
		c.administer()
	})
}

// newTopic makes one, unless a disk was lost and nobody has noticed: it could be put there
// alone.
func (c *cluster) newTopic() {
	for _, n := range c.nodes {
		if n.wiped {
			return
		}
	}
	c.topics++
	topic := model.NewTopic{
		Name: fmt.Sprintf("topic%d", c.topics), Partitions: int32(1 + c.w.Rand.IntN(2)),
		ReplicationFactor: int16(min(len(c.nodes), 2+c.w.Rand.IntN(2))),
	}
	c.makeTopic(topic, func(model.TopicID) { c.report.Topics++ })
}

// changeSettings gives the topic of the producers another minimum of its ISR.
func (c *cluster) changeSettings() {
	n := c.someNode()
	if n == nil {
		return
	}
	value := fmt.Sprint(1 + c.w.Rand.IntN(2))
	change := model.ConfigChange{
		Resource: model.Resource{Type: model.ResourceTopic, Name: topicName},
		Ops:      []model.ConfigOp{{Key: "min.insync.replicas", Value: &value}},
	}
	n.command(controller.AlterConfigs{Changes: []model.ConfigChange{change}}, func(a controller.Answer) {
		if a.Err == nil && a.Errs[0] == nil {
			c.report.Changes++
			c.w.Note("%s in sync are needed of %s", value, topicName)
		}
	})
}
