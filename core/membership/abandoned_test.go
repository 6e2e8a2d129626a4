package membership

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// TestWhatIsLeftBehindIsTold: a broker that goes says which partitions nobody leads then.
func TestWhatIsLeftBehindIsTold(t *testing.T) {
	img := imageOf(t, &image.TopicRecord{ID: model.TopicID{1}, Name: "orders", ReplicationFactorTarget: 1}, &image.PartitionRecord{
		Partition: model.Partition{Topic: model.TopicID{1}}, Registration: image.Partition{
			Replicas: []model.NodeID{1}, Directories: []model.DirectoryID{{9}}, ISR: []model.NodeID{1}, Leader: 1,
		},
	})
	for node, want := range map[model.NodeID]string{1: "partitions=[orders-0]", 2: "others lead what this broker led"} {
		var log bytes.Buffer
		m := &Member{node: node, log: slog.New(slog.NewTextHandler(&log, nil)), deps: Deps{Image: func() *image.Image { return img }}}
		m.tellAbandoned()
		if !strings.Contains(log.String(), want) {
			t.Errorf("broker %d says\n%s, want %q", node, &log, want)
		}
	}
}
