package api

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/image/topicconfig"
	"github.com/brokerd/brokerd/core/model"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// setting is one setting as DescribeConfigs shows it: its value, where that
// comes from, and every place that says something about it, the winner first.
type setting struct {
	name      string
	value     string
	source    kmsg.ConfigSource
	readOnly  bool
	sensitive bool
	kind      topicconfig.Type
	doc       string
	synonyms  []synonym
}

type synonym struct {
	name   string
	value  string
	source kmsg.ConfigSource
}

// topicSettings are all settings that a topic with these of its own has on one
// broker. What is shown is what configCache.of resolves.
func topicSettings(img *image.Image, id model.NodeID, own map[string]string, static map[string]Property) []setting {
	broker := img.Config(model.BrokerResource(id))
	all := img.Config(model.BrokerResource(model.NoNode))
	started := set(static)
	var out []setting
	for _, d := range topicconfig.Definitions() {
		s := setting{name: d.Name, kind: d.Type, doc: d.Doc}
		if v, ok := own[d.Name]; ok {
			s.synonyms = append(s.synonyms, synonym{d.Name, v, kmsg.ConfigSourceDynamicTopicConfig})
		}
		for _, layer := range []struct {
			from   map[string]string
			source kmsg.ConfigSource
		}{
			{broker, kmsg.ConfigSourceDynamicBrokerConfig},
			{all, kmsg.ConfigSourceDynamicDefaultBrokerConfig},
			{started, kmsg.ConfigSourceStaticBrokerConfig},
			{clusterDefaults(img), kmsg.ConfigSourceDefaultConfig},
		} {
			if v, key, ok := d.FromBroker(layer.from); ok {
				s.synonyms = append(s.synonyms, synonym{key, v, layer.source})
			}
		}
		if n := len(s.synonyms); n == 0 || s.synonyms[n-1].source != kmsg.ConfigSourceDefaultConfig {
			s.synonyms = append(s.synonyms, synonym{defaultName(d), d.Default, kmsg.ConfigSourceDefaultConfig})
		}
		s.value, s.source = s.synonyms[0].value, s.synonyms[0].source
		out = append(out, s)
	}
	return out
}

// defaultName is the name under which a default is shown: the broker's, where
// there is one.
func defaultName(d topicconfig.Definition) string {
	if len(d.Broker) > 0 {
		return d.Broker[0].Name
	}
	return d.Name
}

// clusterDefaults is what the cluster aims at, in the broker's names.
func clusterDefaults(img *image.Image) map[string]string {
	if img.Cluster.MinISRTarget <= 0 {
		return nil
	}
	return map[string]string{"min.insync.replicas": strconv.Itoa(int(img.Cluster.MinISRTarget))}
}

// brokerSettings are those of one broker, or, with id NoNode, those that were
// set for all brokers. A property is read-only unless it stands in for a
// topic's setting, or can be changed while the broker runs.
func brokerSettings(img *image.Image, id model.NodeID, static map[string]Property) []setting {
	all := img.Config(model.BrokerResource(model.NoNode))
	var own map[string]string
	names := make(map[string]bool)
	for name := range all {
		names[name] = true
	}
	if id != model.NoNode {
		own = img.Config(model.BrokerResource(id))
		for name := range own {
			names[name] = true
		}
		for name := range static {
			names[name] = true
		}
	}
	var out []setting
	for _, name := range slices.Sorted(maps.Keys(names)) {
		s := setting{name: name, kind: topicconfig.String, readOnly: true}
		if d, ok := topicconfig.LookupOnBroker(name); ok {
			s.kind, s.doc, s.readOnly = d.Type, d.Doc, false
		}
		if v, ok := own[name]; ok {
			s.synonyms = append(s.synonyms, synonym{name, v, kmsg.ConfigSourceDynamicBrokerConfig})
		}
		if v, ok := all[name]; ok {
			s.synonyms = append(s.synonyms, synonym{name, v, kmsg.ConfigSourceDynamicDefaultBrokerConfig})
		}
		if p, ok := static[name]; ok && id != model.NoNode {
			source := kmsg.ConfigSourceStaticBrokerConfig
			if p.Default {
				source = kmsg.ConfigSourceDefaultConfig
			}
			s.synonyms = append(s.synonyms, synonym{name, p.Value, source})
			s.sensitive = p.Sensitive
			if p.Doc != "" {
				s.doc = p.Doc
			}
		}
		s.value, s.source = s.synonyms[0].value, s.synonyms[0].source
		out = append(out, s)
	}
	return out
}

func nodeName(id model.NodeID) string { return strconv.Itoa(int(id)) }

// brokerResource reads the name of a broker resource: "" for all brokers, which
// is NoNode, or the number of this broker.
func (h *Handler) brokerResource(name string) (model.NodeID, error) {
	if name == "" {
		return model.NoNode, nil
	}
	n, err := strconv.ParseInt(name, 10, 32)
	switch {
	case err != nil || name != nodeName(model.NodeID(n)):
		return 0, fmt.Errorf("%w: broker %q is not a number", model.ErrInvalidRequest, name)
	case model.NodeID(n) != h.cfg.NodeID:
		return 0, fmt.Errorf("%w: this is broker %d, not %d", model.ErrInvalidRequest, h.cfg.NodeID, n)
	}
	return h.cfg.NodeID, nil
}
