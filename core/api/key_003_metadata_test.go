package api

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func forTopics(names ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, n := range names {
		req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: &n})
	}
	return req
}

// told lists the topics of an answer with their error codes.
func told(resp *kmsg.MetadataResponse) string {
	var out []string
	for _, t := range resp.Topics {
		s := str(t.Topic)
		if t.ErrorCode != 0 {
			s += fmt.Sprintf("!%d", t.ErrorCode)
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func TestMetadataTopics(t *testing.T) {
	null := kmsg.NewPtrMetadataRequest()
	byID := func(id model.TopicID, name *string) *kmsg.MetadataRequest {
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{{TopicID: id, Topic: name}}
		return req
	}
	for _, c := range []struct {
		name    string
		version int16
		req     *kmsg.MetadataRequest
		want    string
	}{
		{"version 0: none is all", 0, forTopics(), "audit orders"},
		{"none", 1, forTopics(), ""},
		{"none, flexible", 12, forTopics(), ""},
		{"null is all", 1, null, "audit orders"},
		{"null is all, flexible", 12, null, "audit orders"},
		{"one", 4, forTopics("orders"), "orders"},
		{"one twice", 4, forTopics("orders", "orders"), "orders"},
		{"unknown", 4, forTopics("nope"), "nope!3"},
		{"invalid", 4, forTopics("no/pe"), "no/pe!17"},
		{"invalid: empty", 4, forTopics(""), "!17"},
		{"by ID", 12, byID(topicID("orders"), nil), "orders"},
		{"by ID, which wins over a name", 12, byID(topicID("orders"), ptr("audit")), "orders"},
		{"by an unknown ID", 12, byID(topicID("nope"), nil), "null!100"},
		{"by ID too early", 11, byID(topicID("orders"), ptr("orders")), "orders!42"},
		{"no name too early", 10, byID(model.TopicID{}, nil), "!42"},
		{"no name", 12, byID(model.TopicID{}, nil), "null!42"},
	} {
		f := newCluster(t)
		f.topic("orders", self)
		f.topic("audit", self)
		h := newHandler(f)
		if got := told(ask[*kmsg.MetadataResponse](t, h, c.version, c.req)); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestMetadataPartitions(t *testing.T) {
	c := newCluster(t)
	id := c.topic("orders", self, model.NoNode, 3, 2)
	h := newHandler(c)
	resp := ask[*kmsg.MetadataResponse](t, h, 12, forTopics("orders"))
	if len(resp.Brokers) != 2 || resp.Brokers[0].Host != "a.example" || str(resp.Brokers[0].Rack) != "rack-a" || resp.Brokers[1].Rack != nil {
		t.Errorf("brokers %+v", resp.Brokers)
	}
	if str(resp.ClusterID) != "cluster-one" || resp.ControllerID != 1 {
		t.Errorf("cluster %s, controller %d", str(resp.ClusterID), resp.ControllerID)
	}
	topic := resp.Topics[0]
	if model.TopicID(topic.TopicID) != id || topic.IsInternal {
		t.Errorf("topic %+v", topic)
	}
	for i, want := range []struct {
		code   int16
		leader int32
	}{{0, 1}, {5, -1}, {5, -1}, {0, 2}} { // broker 3 is fenced
		p := topic.Partitions[i]
		if p.ErrorCode != want.code || p.Leader != want.leader || p.LeaderEpoch != 7 || p.Partition != int32(i) {
			t.Errorf("partition %d: %+v", i, p)
		}
		if fmt.Sprint(p.Replicas, p.ISR, p.OfflineReplicas) != "[1 2 3] [1 2] [3]" {
			t.Errorf("partition %d: %v %v %v", i, p.Replicas, p.ISR, p.OfflineReplicas)
		}
	}
}

// Brokers are shown as the client's own listener has them.
func TestMetadataListener(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self, 2)
	h := newHandler(c)
	for version, code := range map[int16]int16{5: 5, 6: 72} {
		req := forTopics("orders")
		req.Version = version
		call := callOf(req)
		call.From.Listener = "ONLY-1"
		resp := decoded[*kmsg.MetadataResponse](t, req, h.Begin(t.Context(), call)(t.Context()))
		if len(resp.Brokers) != 1 || resp.Brokers[0].Port != 9093 {
			t.Errorf("brokers %+v", resp.Brokers)
		}
		ps := resp.Topics[0].Partitions
		if ps[0].ErrorCode != 0 || ps[1].ErrorCode != code || ps[1].Leader != -1 {
			t.Errorf("version %d: %+v", version, ps)
		}
	}
}

func TestMetadataOperations(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self)
	c.denyTopic("orders", security.OpDelete)
	c.denyCluster(security.OpAlter)
	req := forTopics("orders")
	h := newHandler(c)
	if resp := ask[*kmsg.MetadataResponse](t, h, 8, req); resp.AuthorizedOperations != notAsked || resp.Topics[0].AuthorizedOperations != notAsked {
		t.Errorf("not asked for: %+v", resp)
	}
	req.IncludeClusterAuthorizedOperations, req.IncludeTopicAuthorizedOperations = true, true
	resp := ask[*kmsg.MetadataResponse](t, h, 8, req)
	if got, want := resp.Topics[0].AuthorizedOperations, int32(1<<3|1<<4|1<<5|1<<7|1<<8|1<<10|1<<11); got != want {
		t.Errorf("topic %b, want %b", got, want)
	}
	if got, want := resp.AuthorizedOperations, int32(1<<5|1<<8|1<<9|1<<10|1<<11|1<<12); got != want {
		t.Errorf("cluster %b, want %b", got, want)
	}
}

// The answer to a request that makes a topic says that it is unknown, as Kafka's
// does; the next one has it.
func TestAutoCreate(t *testing.T) {
	for _, c := range []struct {
		name    string
		version int16
		broker  bool
		client  bool
		topic   string
		change  func(*cluster)
		want    string
		made    bool
	}{
		{name: "both allow it", version: 12, broker: true, client: true, topic: "new", want: "new!3", made: true},
		{name: "before clients could say", version: 3, broker: true, topic: "new", want: "new!3", made: true},
		// FR-81: a consumer's request for metadata does not bring back a topic.
		{name: "the client does not", version: 12, broker: true, topic: "new", want: "new!3"},
		{name: "the broker does not", version: 12, client: true, topic: "new", want: "new!3"},
		{name: "invalid name", version: 12, broker: true, client: true, topic: "new/", want: "new/!17"},
		{name: "internal name", version: 12, broker: true, client: true, topic: "__consumer_offsets", want: "__consumer_offsets!3"},
		{name: "may not create", version: 12, broker: true, client: true, topic: "new", want: "new!29",
			change: func(c *cluster) { c.denyTopic("new", security.OpCreate); c.denyCluster(security.OpCreate) }},
		{name: "may create this one", version: 12, broker: true, client: true, topic: "new", want: "new!3", made: true,
			change: func(c *cluster) { c.denyCluster(security.OpCreate) }},
		{name: "may not describe", version: 12, broker: true, client: true, topic: "new", want: "new!29",
			change: func(c *cluster) { c.denyTopic("new", security.OpDescribe) }},
		{name: "no controller", version: 12, broker: true, client: true, topic: "new", want: "new!3",
			change: func(c *cluster) { c.ctrlErr = model.ErrNotController }},
	} {
		f := newCluster(t)
		if c.change != nil {
			c.change(f)
		}
		h := newHandler(f, func(cfg *Config, _ *Deps) { cfg.AutoCreateTopics = c.broker })
		req := forTopics(c.topic)
		req.AllowAutoTopicCreation = c.client
		if got := told(ask[*kmsg.MetadataResponse](t, h, c.version, req)); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		if _, made := f.Image().TopicByName(c.topic); made != c.made {
			t.Errorf("%s: made %v", c.name, made)
		}
		if again := told(ask[*kmsg.MetadataResponse](t, h, c.version, req)); c.made && again != c.topic {
			t.Errorf("%s: asked again, got %q", c.name, again)
		}
	}
}

// slowController never answers.
type slowController struct {
	Controller
	asked int
}

func (s *slowController) CreateTopics(ctx context.Context, _ []model.NewTopic, _ bool) ([]model.TopicResult, error) {
	s.asked++
	<-ctx.Done()
	return nil, ctx.Err()
}

// A topic that takes long to make is unknown meanwhile, and a crowd of clients
// asks the controller once.
func TestAutoCreateInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowController{}
		h := newHandler(newCluster(t), func(_ *Config, d *Deps) { d.Controller = slow })
		answers := make(chan string, 3)
		for range cap(answers) {
			go func() {
				req := forTopics("new")
				req.AllowAutoTopicCreation = true
				answers <- told(ask[*kmsg.MetadataResponse](t, h, 12, req))
			}()
		}
		synctest.Wait()
		if len(answers) != 2 || slow.asked != 1 {
			t.Errorf("%d answers, %d commands", len(answers), slow.asked)
		}
		for range cap(answers) {
			if got := <-answers; got != "new!3" {
				t.Errorf("got %q", got)
			}
		}
		if len(h.creating.names) != 0 {
			t.Errorf("still in flight: %v", h.creating.names)
		}
	})
}

// FR-84: what a client was told of a topic never shrinks: each answer is made of
// one image.
func TestMetadataAfterCreatePartitions(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self)
	h := newHandler(c)
	more := kmsg.NewPtrCreatePartitionsRequest()
	more.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "orders", Count: 4}}
	if resp := ask[*kmsg.CreatePartitionsResponse](t, h, 3, more); resp.Topics[0].ErrorCode != 0 {
		t.Fatalf("got %+v", resp)
	}
	if got := len(ask[*kmsg.MetadataResponse](t, h, 12, forTopics("orders")).Topics[0].Partitions); got != 4 {
		t.Fatalf("%d partitions", got)
	}
}
