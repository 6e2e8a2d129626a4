package broker

import (
	"fmt"
	"net"
	"strings"

	"github.com/brokerd/brokerd/core/config"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// settingsWarnings are what an operator should read about the configuration.
func settingsWarnings(cfg config.Config, hostname string) []string {
	out := cfg.ReachWarnings(hostname)
	if host, _, err := net.SplitHostPort(cfg.Admin.Listen); err == nil {
		if l := (config.Listener{Host: host}); l.Wildcard() || !l.Loopback() {
			out = append(out, fmt.Sprintf("admin.listen is %s: whoever reaches it reads metrics and status without proving who they are", cfg.Admin.Listen))
		}
	}
	if cfg.Flush == config.FlushInterval {
		out = append(out, fmt.Sprintf("flush is interval: a loss of power loses acknowledged records of up to the last %s, unless another broker has them", cfg.Replicas.FlushInterval))
	}
	return out
}

// replicationWarnings are what the loss of one broker would cost, from the
// metadata alone.
func replicationWarnings(img *image.Image, cfg config.Config) []string {
	brokers, topics, below := img.BrokerCount(), 0, 0
	var fenced []string
	for b := range img.Brokers() {
		if b.Fenced {
			fenced = append(fenced, fmt.Sprint(b.ID))
		}
	}
	var internal []string
	for t := range img.Topics() {
		topics++
		if belowTarget(t) {
			below++
			if t.Internal {
				internal = append(internal, t.Name)
			}
		}
	}
	var out []string
	switch {
	case brokers == 1:
		out = append(out, "not replicated: this is the only broker, so that its loss is the loss of all records; what it has is replicated once others have joined")
	case below > 0:
		out = append(out, fmt.Sprintf("%d of %d topics have fewer replicas than they should; the controller gives them more, as there are brokers for them", below, topics))
	}
	if brokers == 2 {
		out = append(out, "two brokers: the death of the one that votes for the controller stops changes of leaders and topics, so that a third is missing")
	}
	if len(fenced) > 0 && brokers > 1 {
		out = append(out, fmt.Sprintf("brokers that are not there, or not yet: %s; records are that much nearer to being lost", strings.Join(fenced, ", ")))
	}
	if len(internal) > 0 && brokers > 1 {
		out = append(out, fmt.Sprintf("internal topics below their target: %s", strings.Join(internal, ", ")))
	}
	c := img.Cluster
	if c.ReplicationFactorTarget > 0 && c.ReplicationFactorTarget != cfg.Topics.ReplicationFactor {
		out = append(out, fmt.Sprintf("default.replication.factor is %d here, but the cluster was founded with %d, which counts", cfg.Topics.ReplicationFactor, c.ReplicationFactorTarget))
	}
	return out
}

// groupWarnings are about settings under which committed offsets would be lost.
func groupWarnings(img *image.Image, node model.NodeID, static map[string]string) []string {
	if _, made := img.TopicByName(model.OffsetsTopic); !made {
		return nil
	}
	c, err := img.TopicConfig(model.OffsetsTopic, node, static)
	if err != nil || !c.CleanupPolicy.Delete {
		return nil
	}
	return []string{fmt.Sprintf("%s has cleanup.policy=delete, so that what groups have committed goes with its retention; set it to compact", model.OffsetsTopic)}
}

func belowTarget(t *image.Topic) bool {
	for i := range t.Partitions {
		if t.BelowTarget(&t.Partitions[i]) {
			return true
		}
	}
	return false
}
