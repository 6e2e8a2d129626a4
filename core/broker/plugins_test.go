package broker

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/pluginhost"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What the host tells of a plugin that serves again reaches the replicas, so that
// idle logs are opened without being asked for.
func TestReplicasHearOfAPluginThatIsBack(t *testing.T) {
	b := start(t, settings(t, t.TempDir()))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := client(t, b, kgo.DefaultProduceTopic("idle"), kgo.AllowAutoTopicCreation())
	if err := c.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr(); err != nil {
		t.Fatalf("produce: %v\n%s", err, b.log)
	}
	b.plugins.happened(pluginhost.Event{Kind: pluginhost.Started, Store: "main", Plugin: "memstore", Pid: b.plugins.state("main").pid, Restarts: 1})
	for !strings.Contains(b.log.String(), "the store was started again") {
		select {
		case <-ctx.Done():
			t.Fatalf("the log is not opened again:\n%s", b.log)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
