package broker

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
	img, _ := oneTopic(t, model.DirectoryID{9})
	for node, want := range map[model.NodeID]string{1: "partitions=[orders-0]", 2: "others lead what this broker led"} {
		var log bytes.Buffer
		m := &membership{node: node, log: slog.New(slog.NewTextHandler(&log, nil)), image: func() *image.Image { return img }}
		m.tellAbandoned()
		if !strings.Contains(log.String(), want) {
			t.Errorf("broker %d says\n%s, want %q", node, &log, want)
		}
	}
}
