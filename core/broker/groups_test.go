package broker

import (
	"context"
	"errors"
	"testing"

	"github.com/brokerd/brokerd/core/api"
	"github.com/brokerd/brokerd/core/coordinator"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// askedController keeps what it was asked.
type askedController struct {
	api.Controller
	topics []model.NewTopic
	more   []model.MorePartitions
}

func (c *askedController) CreateTopics(_ context.Context, topics []model.NewTopic, _ bool) ([]model.TopicResult, error) {
	c.topics = topics
	return make([]model.TopicResult, len(topics)), nil
}

func (c *askedController) CreatePartitions(_ context.Context, more []model.MorePartitions, _ bool) ([]error, error) {
	c.more = more
	out := make([]error, len(more))
	for i, m := range more {
		if m.Topic == "missing" {
			out[i] = model.ErrUnknownTopicOrPartition
		}
	}
	return out, nil
}

// FR-7: a client that asks for the offsets topic by name, before any group does, must
// not leave it with one partition, nor with retention.
func TestTheOffsetsTopicIsMadeWhole(t *testing.T) {
	behind := &askedController{}
	c := offsetsTopic{Controller: behind, topic: coordinator.DefaultTopic()}
	asked := []model.NewTopic{{Name: "orders", Partitions: -1, ReplicationFactor: -1}, {Name: model.OffsetsTopic, Partitions: -1, ReplicationFactor: -1}}
	if _, err := c.CreateTopics(t.Context(), asked, false); err != nil {
		t.Fatal(err)
	}
	if got := behind.topics[0]; got.Partitions != -1 || got.Internal || got.Configs != nil {
		t.Errorf("another topic became %+v", got)
	}
	if got := behind.topics[1]; got.Partitions != 50 || !got.Internal || *got.Configs["cleanup.policy"] != "compact" {
		t.Errorf("the offsets topic became %+v", got)
	}
	if asked[1].Internal {
		t.Error("the caller's own was changed")
	}
}

func TestTheOffsetsTopicDoesNotGrow(t *testing.T) {
	behind := &askedController{}
	c := offsetsTopic{Controller: behind, topic: coordinator.DefaultTopic()}
	errs, err := c.CreatePartitions(t.Context(), []model.MorePartitions{{Topic: "orders"}, {Topic: model.OffsetsTopic}, {Topic: "missing"}}, false)
	if err != nil {
		t.Fatal(err)
	}
	if errs[0] != nil || !errors.Is(errs[1], model.ErrInvalidPartitions) || !errors.Is(errs[2], model.ErrUnknownTopicOrPartition) {
		t.Errorf("%v", errs)
	}
	if len(behind.more) != 2 {
		t.Errorf("the controller was asked for %+v", behind.more)
	}
	if errs, err := c.CreatePartitions(t.Context(), []model.MorePartitions{{Topic: model.OffsetsTopic}}, false); err != nil || len(errs) != 1 || errs[0] == nil {
		t.Errorf("%v, %v", errs, err)
	}
}

func TestRetentionOfOffsetsIsWarnedOf(t *testing.T) {
	for policy, want := range map[string]int{"": 1, "compact": 0, "delete": 1, "compact,delete": 1} {
		d := image.NewDelta(&image.Image{}, 1)
		records := []image.Record{&image.ClusterRecord{Cluster: image.Cluster{ID: "c", FeatureLevel: 1}}, &image.TopicRecord{ID: model.TopicID{1}, Name: model.OffsetsTopic, ReplicationFactorTarget: 1}}
		if policy != "" {
			records = append(records, &image.ConfigRecord{
				Resource: model.Resource{Type: model.ResourceTopic, Name: model.OffsetsTopic}, Key: "cleanup.policy", Value: policy,
			})
		}
		for _, r := range records {
			if err := d.Apply(r); err != nil {
				t.Fatal(err)
			}
		}
		if got := groupWarnings(d.Image(), model.NoNode, nil); len(got) != want {
			t.Errorf("policy %q: %q", policy, got)
		}
	}
	if got := groupWarnings(&image.Image{}, model.NoNode, nil); len(got) != 0 {
		t.Errorf("without the topic: %q", got)
	}
}
