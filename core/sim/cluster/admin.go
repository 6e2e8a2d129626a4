package cluster

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/brokerd/brokerd/core/controller"
	"github.com/brokerd/brokerd/core/model"
)

// administer makes and removes topics and changes settings, again and again while faults
// are on.
func (c *cluster) administer(round int) {
	c.w.After(c.w.Between(100*time.Millisecond, 5*time.Second), func() {
		if !c.faulty || c.round != round {
			return
		}
		switch {
		case c.opts.Throttle > 0 && c.w.Chance(3):
			c.changeThrottles()
		case c.w.Chance(2):
			c.changeSettings()
		case len(c.more) < c.opts.TopicsMax:
			c.newTopic()
		default:
			c.removeTopic()
		}
		c.administer(round)
	})
}

// removeTopic asks some node to remove a topic that is not the producers'.
func (c *cluster) removeTopic() {
	n := c.someNode()
	if n == nil {
		return
	}
	t := c.more[c.w.Rand.IntN(len(c.more))]
	c.check.TopicLeaves(t.Name)
	n.command(controller.DeleteTopics{Topics: []model.TopicRef{t}}, func(a controller.Answer) {
		at := slices.Index(c.more, t)
		if a.Err != nil || at < 0 || a.Topics[0].Err != nil && !errors.Is(a.Topics[0].Err, model.ErrUnknownTopicOrPartition) {
			return
		}
		c.w.Note("topic %s is removed", t.Name)
		c.report.Removals++
		c.check.TopicRemoved(t.ID)
		c.more = slices.Delete(c.more, at, at+1)
	})
}

// reassign gives a partition other replicas, or has it keep those that it had (KIP-455), unless
// something was lost that nobody has noticed: it could be put there alone.
func (c *cluster) reassign() {
	asked := c.someNode()
	if asked == nil || !c.noticed(nil) {
		return
	}
	p := model.Partition{Topic: c.topic, Index: int32(c.w.Rand.IntN(c.opts.Partitions))}
	if len(c.more) > 0 && c.w.Chance(3) {
		p = model.Partition{Topic: c.more[c.w.Rand.IntN(len(c.more))].ID}
	}
	change := model.Reassignment{Partition: p}
	if !c.w.Chance(5) {
		change.Replicas = c.drawOthers(c.retiring, 1+c.w.Rand.IntN(3))
	}
	over := c.doubt()
	asked.command(controller.AlterReassignments{Changes: []model.Reassignment{change}}, func(a controller.Answer) {
		if a.Err == nil {
			over()
		}
		if a.Err == nil && a.Errs[0] == nil {
			c.report.Reassigned++
			c.w.Note("partition %s is to have replicas %v", p, change.Replicas)
		}
	})
}

// purged: a directory holds no log of a topic any more that was removed. The controller is
// told until it answers.
func (n *node) purged(topic model.TopicID, dir model.DirectoryID) {
	l := n.life
	n.command(controller.ConfirmRemoval{Directory: dir, Topics: []model.TopicID{topic}}, func(a controller.Answer) {
		if a.Err != nil {
			l.After(time.Second, func() { n.purged(topic, dir) })
		}
	})
}

// newTopic makes one, unless a disk was lost and nobody has noticed: it could be put there
// alone.
func (c *cluster) newTopic() {
	if slices.ContainsFunc(c.nodes, func(n *node) bool { return n.wiped }) {
		return
	}
	c.topics++
	topic := model.NewTopic{
		Name: fmt.Sprintf("topic%d", c.topics), Partitions: int32(1 + c.w.Rand.IntN(2)),
		ReplicationFactor: c.replicas(min(len(c.nodes), 2+c.w.Rand.IntN(2))),
	}
	c.makeTopic(topic, func(id model.TopicID) {
		c.report.Topics++
		c.more = append(c.more, model.TopicRef{Name: topic.Name, ID: id})
	})
}

// throttled are the settings of a topic of which all replicas are throttled.
func throttled() map[string]*string {
	all := "*"
	return map[string]*string{"leader.replication.throttled.replicas": &all, "follower.replication.throttled.replicas": &all}
}

// throttledRates are the settings by which brokers send, and receive, what is throttled.
var throttledRates = []string{"leader.replication.throttled.rate", "follower.replication.throttled.rate"}

// liftThrottles takes the rates away, so that who has much to catch up with does so in the time
// that there is after the faults.
func (c *cluster) liftThrottles(round int) {
	if c.opts.Throttle == 0 || c.faulty || c.round != round {
		return
	}
	n := c.someNode()
	if n == nil {
		c.w.After(time.Second, func() { c.liftThrottles(round) })
		return
	}
	change := model.ConfigChange{Resource: model.BrokerResource(model.NoNode)}
	for _, key := range throttledRates {
		change.Ops = append(change.Ops, model.ConfigOp{Key: key, Kind: model.ConfigDelete})
	}
	n.command(controller.AlterConfigs{Changes: []model.ConfigChange{change}}, func(a controller.Answer) {
		if a.Err != nil || a.Errs[0] != nil {
			c.w.After(time.Second, func() { c.liftThrottles(round) })
			return
		}
		c.w.Note("the throttles are lifted")
	})
}

// changeThrottles gives all brokers another rate, or none, to send by or to receive by.
func (c *cluster) changeThrottles() {
	n := c.someNode()
	if n == nil {
		return
	}
	key := throttledRates[c.w.Rand.IntN(2)]
	op := model.ConfigOp{Key: key, Kind: model.ConfigDelete}
	if !c.w.Chance(4) {
		rate := fmt.Sprint(c.opts.Throttle >> c.w.Rand.IntN(3))
		op = model.ConfigOp{Key: key, Value: &rate}
	}
	change := model.ConfigChange{Resource: model.BrokerResource(model.NoNode), Ops: []model.ConfigOp{op}}
	n.command(controller.AlterConfigs{Changes: []model.ConfigChange{change}}, func(a controller.Answer) {
		if a.Err == nil && a.Errs[0] == nil {
			c.report.Throttles++
			c.w.Note("%s is changed to %v", key, op.Value != nil)
		}
		c.liftThrottles(c.round) // if the faults have ended meanwhile
	})
}

// changeSettings gives the topic of the producers another minimum of its ISR. With a minimum
// of one, what a node has lost may be the last of it: for a while nobody knows which it is.
func (c *cluster) changeSettings() {
	n := c.someNode()
	if n == nil || !c.noticed(nil) {
		return
	}
	over := c.doubt()
	value := fmt.Sprint(1 + c.w.Rand.IntN(2))
	change := model.ConfigChange{
		Resource: model.Resource{Type: model.ResourceTopic, Name: topicName},
		Ops:      []model.ConfigOp{{Key: "min.insync.replicas", Value: &value}},
	}
	n.command(controller.AlterConfigs{Changes: []model.ConfigChange{change}}, func(a controller.Answer) {
		if a.Err == nil {
			over()
		}
		if a.Err == nil && a.Errs[0] == nil {
			c.report.Changes++
			c.w.Note("%s in sync are needed of %s", value, topicName)
		}
	})
}
