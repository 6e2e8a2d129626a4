package controller

import (
	"errors"
	"strings"
	"testing"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// TestSettingsAreBounded: what a client sends ends up in the metadata of every
// node, and a list is gone through once for each of its elements.
func TestSettingsAreBounded(t *testing.T) {
	topic := model.Resource{Type: model.ResourceTopic, Name: "t"}
	broker := model.Resource{Type: model.ResourceBroker}
	policies := strings.Repeat("delete,", configBytesMax/len("delete,")+1)
	for _, test := range []struct {
		name     string
		resource model.Resource
		kind     model.ConfigOpKind
		key      string
		value    string
		want     error
	}{
		{"broker", broker, model.ConfigSet, "log.cleanup.policy", policies, model.ErrInvalidConfig},
		{"broker, appended", broker, model.ConfigAppend, "log.cleanup.policy", policies, model.ErrInvalidConfig},
		{"broker, number in blanks", broker, model.ConfigSet, "log.retention.ms", "1" + strings.Repeat(" ", configBytesMax), model.ErrInvalidConfig},
		{"broker, within", broker, model.ConfigSet, "log.cleanup.policy", policies[:700], nil},
		{"topic", topic, model.ConfigSet, "cleanup.policy", policies, model.ErrInvalidConfig},
		{"topic, appended", topic, model.ConfigAppend, "leader.replication.throttled.replicas", strings.Repeat("1:1,", 1<<20), model.ErrInvalidConfig},
		{"topic, taken away", topic, model.ConfigSubtract, "cleanup.policy", policies, model.ErrInvalidConfig},
		{"topic, within", topic, model.ConfigAppend, "cleanup.policy", policies[:700], nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHost(t, DefaultConfig(), image.Cluster{ID: "c", FeatureLevel: 1, ReplicationFactorTarget: 1, MinISRTarget: 1})
			h.step(Lead{h.img})
			h.command(RegisterBroker{Registration{ClusterID: "c", FeatureLevelMax: 1, NodeID: 1, Incarnation: [16]byte{1}, Directories: []model.DirectoryID{{1}}}})
			h.commit(t)
			h.command(Heartbeat{Broker: 1, Epoch: 2, Offset: 2})
			h.commit(t)
			h.command(CreateTopics{Topics: []model.NewTopic{{Name: "t", Partitions: 1, ReplicationFactor: 1}}})
			h.commit(t)
			id, _ := h.command(AlterConfigs{Changes: []model.ConfigChange{{
				Resource: test.resource, Ops: []model.ConfigOp{{Key: test.key, Kind: test.kind, Value: &test.value}},
			}}})
			for len(h.proposals) > 0 {
				h.commit(t)
			}
			a := h.answers[id]
			if len(a.Errs) != 1 || !errors.Is(a.Errs[0], test.want) {
				t.Fatalf("got %v, want %v", a.Errs, test.want)
			}
			if a.Errs[0] != nil && len(a.Errs[0].Error()) > 1000 {
				t.Fatalf("the error has %d bytes", len(a.Errs[0].Error()))
			}
		})
	}
}
