package coordinator

import (
	"regexp"
	"testing"

	"github.com/brokerd/brokerd/core/model"
)

// The hashes are those that Java computes.
func TestPartitionOf(t *testing.T) {
	for group, hash := range map[string]int32{
		"":                   0,
		"a":                  97,
		"Aa":                 2112,
		"BB":                 2112,
		"hello":              99162322,
		"polygenelubricants": 0,       // -2^31, which has no opposite
		"\U0001F600":         1772899, // two units of UTF-16
	} {
		for _, n := range []int{1, 50, 7} {
			if got := PartitionOf(group, n); got != hash%int32(n) {
				t.Errorf("%q of %d partitions: %d, want %d", group, n, got, hash%int32(n))
			}
		}
	}
}

func TestRandomIDIsAUUID(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	a, b := RandomID(), RandomID()
	if !form.MatchString(a) || a == b {
		t.Errorf("%s, %s", a, b)
	}
}

func TestCompleteMakesTheOffsetsTopicWhatItIs(t *testing.T) {
	topic := Topic{Partitions: 9, ReplicationTarget: 2, SegmentBytes: 1 << 20}
	deletes, own := "delete", "1048576"
	for _, tc := range []struct {
		name       string
		asked      model.NewTopic
		partitions int32
		target     int16
		policy     string
		internal   bool
	}{
		{"another topic", model.NewTopic{Name: "orders", Partitions: -1, ReplicationFactor: -1}, -1, 0, "", false},
		{"by metadata", model.NewTopic{Name: model.OffsetsTopic, Partitions: -1, ReplicationFactor: -1}, 9, 2, "compact", true},
		{"by hand", model.NewTopic{Name: model.OffsetsTopic, Partitions: 3, ReplicationFactor: 1}, 3, 0, "compact", true},
		{"with another policy", model.NewTopic{Name: model.OffsetsTopic, Partitions: 3, ReplicationFactor: 1,
			Configs: map[string]*string{"cleanup.policy": &deletes}}, 3, 0, "delete", true},
		{"with an assignment", model.NewTopic{Name: model.OffsetsTopic, Partitions: -1, ReplicationFactor: -1,
			Assignment: map[int32][]model.NodeID{0: {1}}}, -1, 2, "compact", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := topic.Complete(tc.asked)
			if got.Partitions != tc.partitions || got.ReplicationTarget != tc.target || got.Internal != tc.internal {
				t.Errorf("%+v", got)
			}
			policy := ""
			if p := got.Configs["cleanup.policy"]; p != nil {
				policy = *p
			}
			if policy != tc.policy {
				t.Errorf("cleanup.policy %q, want %q", policy, tc.policy)
			}
			if s := got.Configs["segment.bytes"]; tc.internal && (s == nil || *s != own) {
				t.Errorf("segment.bytes is not %s", own)
			}
		})
	}
}
