package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/image/topicconfig"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func describe(t *testing.T, h *Handler, kind kmsg.ConfigResourceType, name string, keys ...string) kmsg.DescribeConfigsResponseResource {
	t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms, req.IncludeDocumentation = true, true
	req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kind, ResourceName: name, ConfigNames: keys}}
	return ask[*kmsg.DescribeConfigsResponse](t, h, 4, req).Resources[0]
}

// layers shows a setting's synonyms, the winner first.
func layers(c kmsg.DescribeConfigsResponseResourceConfig) string {
	var out []string
	for _, s := range c.ConfigSynonyms {
		out = append(out, fmt.Sprintf("%s=%s/%d", s.Name, str(s.Value), s.Source))
	}
	return strings.Join(out, " ")
}

func TestDescribeTopicConfigs(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self)
	h := newHandler(c, func(cfg *Config, _ *Deps) {
		cfg.Properties = map[string]Property{
			"log.retention.hours": {Value: "2"},
			"log.segment.bytes":   {Value: "2097152", Default: true},
		}
	})
	r := describe(t, h, kmsg.ConfigResourceTypeTopic, "orders")
	if r.ErrorCode != 0 || len(r.Configs) != len(topicconfig.Definitions()) {
		t.Fatalf("code %d, %d settings", r.ErrorCode, len(r.Configs))
	}
	for _, s := range r.Configs {
		if s.Value == nil || s.ReadOnly || s.IsSensitive || str(s.Documentation) == "" || s.ConfigType == 0 || len(s.ConfigSynonyms) == 0 {
			t.Errorf("%+v", s)
		}
	}
	c.apply(&image.ConfigRecord{Resource: model.BrokerResource(model.NoNode), Key: "log.retention.ms", Value: "500"},
		&image.ConfigRecord{Resource: model.BrokerResource(self), Key: "log.retention.minutes", Value: "1"},
		&image.ConfigRecord{Resource: model.BrokerResource(2), Key: "log.retention.ms", Value: "3"},
		&image.ConfigRecord{Resource: model.Resource{Type: model.ResourceTopic, Name: "orders"}, Key: "retention.ms", Value: "9"})
	for key, want := range map[string]string{
		"retention.ms":        "retention.ms=9/1 log.retention.minutes=60000/2 log.retention.ms=500/3 log.retention.hours=7200000/4 log.retention.ms=604800000/5",
		"segment.bytes":       "log.segment.bytes=1073741824/5",
		"min.insync.replicas": "min.insync.replicas=2/5",
		"preallocate":         "log.preallocate=false/5",
	} {
		got := describe(t, h, kmsg.ConfigResourceTypeTopic, "orders", key).Configs
		if len(got) != 1 || layers(got[0]) != want {
			t.Errorf("%s: got %+v", key, got)
			continue
		}
		first := got[0].ConfigSynonyms[0]
		if str(got[0].Value) != str(first.Value) || got[0].Source != first.Source {
			t.Errorf("%s: value %s from %d", key, str(got[0].Value), got[0].Source)
		}
	}
}

// What is shown is what counts: every value equals what the settings resolve to.
func TestDescribedValuesResolve(t *testing.T) {
	c := newCluster(t)
	topic := c.topic("orders", self)
	properties := map[string]Property{"log.retention.ms": {Value: "3"}, "message.max.bytes": {Value: "77", Default: true}, "log.roll.ms": {Value: "9"}}
	for id, settings := range map[model.NodeID]map[string]string{
		model.NoNode: {"log.retention.minutes": "4", "log.roll.hours": "5", "log.segment.bytes": "1048577"},
		self:         {"log.retention.hours": "6", "log.segment.bytes": "1048578"},
		2:            {"log.retention.ms": "7", "log.segment.bytes": "1048579"},
	} {
		for k, v := range settings {
			c.apply(&image.ConfigRecord{Resource: model.BrokerResource(id), Key: k, Value: v})
		}
	}
	h := newHandler(c, func(cfg *Config, _ *Deps) { cfg.Properties = properties })
	shown := make(map[string]string)
	for _, s := range describe(t, h, kmsg.ConfigResourceTypeTopic, "orders").Configs {
		shown[s.Name] = str(s.Value)
	}
	a, err := topicconfig.Resolve(nil, shown)
	if err != nil {
		t.Fatal(err)
	}
	img := c.Image()
	it, _ := img.Topic(topic)
	if b := h.configs.of(img, it); a != b {
		t.Errorf("shown    %+v\nresolved %+v", a, b)
	}
}

func TestDescribeBrokerConfigs(t *testing.T) {
	c := newCluster(t)
	h := newHandler(c, func(cfg *Config, _ *Deps) {
		cfg.Properties = map[string]Property{
			"log.retention.ms":      {Value: "100"},
			"node.id":               {Value: "1", Doc: "this broker's number"},
			"num.partitions":        {Value: "1", Default: true},
			"ssl.keystore.password": {Value: "hunter2", Sensitive: true},
		}
	})
	c.apply(&image.ConfigRecord{Resource: model.Resource{Type: model.ResourceBroker}, Key: "log.retention.ms", Value: "200"},
		&image.ConfigRecord{Resource: model.Resource{Type: model.ResourceBroker, Name: "1"}, Key: "log.retention.ms", Value: "300"})
	r := describe(t, h, kmsg.ConfigResourceTypeBroker, "1")
	want := map[string]string{
		"log.retention.ms":      "log.retention.ms=300/2 log.retention.ms=200/3 log.retention.ms=100/4",
		"node.id":               "node.id=1/4",
		"num.partitions":        "num.partitions=1/5",
		"ssl.keystore.password": "ssl.keystore.password=null/4",
	}
	if len(r.Configs) != len(want) || !slices.IsSortedFunc(r.Configs, func(a, b kmsg.DescribeConfigsResponseResourceConfig) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("%d settings: %+v", len(r.Configs), r.Configs)
	}
	for _, s := range r.Configs {
		if got := layers(s); got != want[s.Name] {
			t.Errorf("%s: got %q", s.Name, got)
		}
		if s.ReadOnly == (s.Name == "log.retention.ms") {
			t.Errorf("%s: read-only %v", s.Name, s.ReadOnly)
		}
		if s.Name == "ssl.keystore.password" && (s.Value != nil || !s.IsSensitive) {
			t.Errorf("a secret is shown: %+v", s)
		}
	}
	all := describe(t, h, kmsg.ConfigResourceTypeBroker, "").Configs
	if len(all) != 1 || layers(all[0]) != "log.retention.ms=200/3" {
		t.Errorf("all brokers: %+v", all)
	}
}

func TestDescribeConfigsErrors(t *testing.T) {
	c := newCluster(t)
	c.topic("secret", self)
	c.denyTopic("secret", security.OpDescribeConfigs)
	c.denyTopic("nope-secret", security.OpDescribeConfigs)
	h := newHandler(c)
	for _, x := range []struct {
		kind kmsg.ConfigResourceType
		name string
		want int16
	}{
		{kmsg.ConfigResourceTypeTopic, "nope", 3},
		{kmsg.ConfigResourceTypeTopic, "n/o", 17},
		{kmsg.ConfigResourceTypeTopic, "", 17},
		{kmsg.ConfigResourceTypeTopic, "secret", 29},
		{kmsg.ConfigResourceTypeTopic, "nope-secret", 29},
		{kmsg.ConfigResourceTypeBroker, "2", 42},
		{kmsg.ConfigResourceTypeBroker, "one", 42},
		{kmsg.ConfigResourceTypeBroker, "01", 42},
		{kmsg.ConfigResourceTypeBrokerLogger, "1", 42},
		{kmsg.ConfigResourceType(99), "x", 42},
	} {
		if r := describe(t, h, x.kind, x.name); r.ErrorCode != x.want || len(r.Configs) != 0 || r.ErrorMessage == nil {
			t.Errorf("%d %q: %d %s", x.kind, x.name, r.ErrorCode, str(r.ErrorMessage))
		}
	}
	c.deny[security.Action{Operation: security.OpDescribeConfigs, Resource: security.Group, Name: "secret"}] = true
	for _, x := range []struct {
		kind kmsg.ConfigResourceType
		name string
		want int16
	}{
		{kmsg.ConfigResourceTypeGroupConfig, "any", 0},
		{kmsg.ConfigResourceTypeGroupConfig, "secret", 30},
		{kmsg.ConfigResourceTypeClientMetrics, "any", 0},
	} {
		if r := describe(t, h, x.kind, x.name); r.ErrorCode != x.want || len(r.Configs) != 0 {
			t.Errorf("%d %q: %+v, want code %d", x.kind, x.name, r, x.want)
		}
	}
	c.denyCluster(security.OpDescribeConfigs)
	for kind, name := range map[kmsg.ConfigResourceType]string{kmsg.ConfigResourceTypeBroker: "1", kmsg.ConfigResourceTypeClientMetrics: "any"} {
		if r := describe(t, h, kind, name); r.ErrorCode != 31 {
			t.Errorf("%d %q, denied: %d", kind, name, r.ErrorCode)
		}
	}
}

func TestIncrementalAlterConfigs(t *testing.T) {
	type entry = kmsg.IncrementalAlterConfigsRequestResourceConfig
	set := []entry{{Name: "retention.ms", Value: ptr("5")}}
	for _, x := range []struct {
		name     string
		kind     kmsg.ConfigResourceType
		resource string
		entries  []entry
		change   func(*cluster)
		want     int16
	}{
		{name: "good", kind: kmsg.ConfigResourceTypeTopic, resource: "orders", entries: set},
		{name: "delete takes no value", kind: kmsg.ConfigResourceTypeTopic, resource: "orders", entries: []entry{{Name: "retention.ms", Op: 1}}},
		{name: "this broker", kind: kmsg.ConfigResourceTypeBroker, resource: "1", entries: []entry{{Name: "log.retention.ms", Value: ptr("5")}}},
		{name: "all brokers", kind: kmsg.ConfigResourceTypeBroker, resource: "", entries: []entry{{Name: "log.retention.ms", Value: ptr("5")}}},
		{name: "a batch as large as a request", kind: kmsg.ConfigResourceTypeBroker, resource: "", entries: []entry{{Name: "message.max.bytes", Value: ptr("5000")}}},
		{name: "a batch larger than any request", kind: kmsg.ConfigResourceTypeBroker, resource: "", entries: []entry{{Name: "message.max.bytes", Value: ptr("5001")}}, want: 40},
		{name: "another broker", kind: kmsg.ConfigResourceTypeBroker, resource: "2", entries: set, want: 42},
		{name: "this broker in two digits", kind: kmsg.ConfigResourceTypeBroker, resource: "01", entries: set, want: 42},
		{name: "no broker", kind: kmsg.ConfigResourceTypeBroker, resource: "one", entries: set, want: 42},
		{name: "a batch larger than any request, here", kind: kmsg.ConfigResourceTypeBroker, resource: "1", entries: []entry{{Name: "message.max.bytes", Value: ptr("5001")}}, want: 40},
		{name: "unknown topic", kind: kmsg.ConfigResourceTypeTopic, resource: "nope", entries: set, want: 3},
		{name: "unknown type", kind: 99, resource: "orders", entries: set, want: 42},
		{name: "null value", kind: kmsg.ConfigResourceTypeTopic, resource: "orders", entries: []entry{{Name: "retention.ms"}}, want: 42},
		{name: "key twice", kind: kmsg.ConfigResourceTypeTopic, resource: "orders", entries: append(set, set...), want: 42},
		{name: "unknown operation", kind: kmsg.ConfigResourceTypeTopic, resource: "orders", entries: []entry{{Name: "retention.ms", Op: 4, Value: ptr("5")}}, want: 42},
		{name: "no name", kind: kmsg.ConfigResourceTypeTopic, resource: "orders", entries: []entry{{Value: ptr("5")}}, want: 42},
		{name: "unknown setting", kind: kmsg.ConfigResourceTypeTopic, resource: "orders", entries: []entry{{Name: "nope", Value: ptr("5")}}, want: 40},
		{name: "denied", kind: kmsg.ConfigResourceTypeTopic, resource: "orders", entries: set, want: 29,
			change: func(c *cluster) { c.denyTopic("orders", security.OpAlterConfigs) }},
		{name: "denied broker", kind: kmsg.ConfigResourceTypeBroker, resource: "1", entries: set, want: 31,
			change: func(c *cluster) { c.denyCluster(security.OpAlterConfigs) }},
		{name: "no controller", kind: kmsg.ConfigResourceTypeTopic, resource: "orders", entries: set, want: 7,
			change: func(c *cluster) { c.ctrlErr = fmt.Errorf("propose: %w", model.ErrRequestTimedOut) }},
	} {
		c := newCluster(t)
		c.topic("orders", self)
		if x.change != nil {
			x.change(c)
		}
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: x.kind, ResourceName: x.resource, Configs: x.entries}}
		h := newHandler(c, func(cfg *Config, _ *Deps) {
			cfg.Properties = map[string]Property{"socket.request.max.bytes": {Value: "5000"}}
		})
		got := ask[*kmsg.IncrementalAlterConfigsResponse](t, h, 1, req).Resources[0]
		if got.ErrorCode != x.want || (x.want == 0) != (got.ErrorMessage == nil) || got.ResourceName != x.resource || got.ResourceType != x.kind {
			t.Errorf("%s: %+v, %s", x.name, got, str(got.ErrorMessage))
		}
	}
}

// Resources are changed one by one, and one that is named twice not at all.
func TestAlterConfigs(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self)
	c.topic("audit", self)
	resource := model.Resource{Type: model.ResourceTopic, Name: "orders"}
	c.apply(&image.ConfigRecord{Resource: resource, Key: "retention.bytes", Value: "1"})
	req := kmsg.NewPtrAlterConfigsRequest()
	change := func(topic string) kmsg.AlterConfigsRequestResource {
		return kmsg.AlterConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: topic,
			Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: ptr("5")}}}
	}
	req.Resources = []kmsg.AlterConfigsRequestResource{change("orders"), change("audit"), change("nope"), change("audit")}
	for i, want := range []int16{0, 42, 3, 42} {
		req.ValidateOnly = i > 0 // the first time it counts
		if got := ask[*kmsg.AlterConfigsResponse](t, newHandler(c), 2, req).Resources[i]; got.ErrorCode != want {
			t.Errorf("%s: %d, want %d", got.ResourceName, got.ErrorCode, want)
		}
	}
	if got := c.Image().Config(resource); len(got) != 1 || got["retention.ms"] != "5" {
		t.Errorf("settings %v", got)
	}
	if got := c.Image().Config(model.Resource{Type: model.ResourceTopic, Name: "audit"}); len(got) != 0 {
		t.Errorf("settings of audit %v", got)
	}
}
