package server

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/brokerd/brokerd/core/wire"
)

// A reply that never fits ends its connection, and the log names what was asked, by
// whom, and the setting; not each time.
func TestReplyBeyondTheMemoryIsTold(t *testing.T) {
	h := handlerFunc(func(context.Context, wire.Call) wire.Answer {
		return func(context.Context) wire.Reply {
			resp, cluster := kmsg.NewPtrMetadataResponse(), strings.Repeat("x", 8<<10)
			resp.ClusterID = &cluster
			for range 1 << 10 {
				topic := kmsg.NewMetadataResponseTopic()
				topic.Topic = &cluster
				resp.Topics = append(resp.Topics, topic)
			}
			return wire.Reply{Response: resp}
		}
	})
	cfg := testConfig()
	cfg.MaxRequestBytes = 256 << 10
	s := start(t, cfg, 4<<20, h)
	for range 3 {
		c := dial(t, s.addr)
		c.send(metadata(1))
		if b := c.closed(); len(b) > 0 {
			t.Errorf("%d bytes came", len(b))
		}
	}
	s.events.awaitClosed(t, ClosedMemory, 3)
	s.stop()
	if log := s.log.String(); strings.Count(log, "a reply does not fit the memory") != 1 ||
		!strings.Contains(log, "raise memory,") || !strings.Contains(log, "api=Metadata") || !strings.Contains(log, "client=tester") {
		t.Errorf("logged:\n%s", log)
	}
}

// Of one kind a line is let through, and then none for a while; what was left out is
// counted.
func TestSparse(t *testing.T) {
	var s sparse
	now := time.Now()
	for _, step := range []struct {
		kind string
		at   time.Duration
		ok   bool
		left int
	}{
		{"a", 0, true, 0},
		{"a", time.Second, false, 0},
		{"b", time.Second, true, 0},
		{"a", sparseEvery - 1, false, 0},
		{"a", sparseEvery, true, 2},
		{"a", sparseEvery + 1, false, 0},
		{"a", 2 * sparseEvery, true, 1},
	} {
		if ok, left := s.may(step.kind, now.Add(step.at)); ok != step.ok || left != step.left {
			t.Errorf("%s after %s: %v, %d left out", step.kind, step.at, ok, left)
		}
	}
}
