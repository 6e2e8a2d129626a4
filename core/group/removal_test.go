package group

import (
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// TestPartlyRefusedDeletion: what does not fit into one write takes several, and where
// one of them is refused the client learns that, and what is here is what is in the log.
func TestPartlyRefusedDeletion(t *testing.T) {
	var log []Record
	at := storyBegins.UnixMilli()
	for i := range int32(20) {
		key := model.TopicPartition{Topic: strings.Repeat("t", 30_000), Partition: i}
		log = append(log, Record{Key: offsetKey("g", key), Value: (&committed{at: at, expires: -1}).encode(), Timestamp: at})
	}
	empty := newGroup("g")
	empty.generation, empty.protocolType = 7, "consumer"
	log = append(log, empty.record(storyBegins, nil))
	const parts = 7
	for refused := range parts + 1 {
		var out Effects
		m := serving(DefaultSettings(), log, &out)
		out.Reset()
		m.Step(storyBegins, &Delete{ID: 1, Group: "g"}, &out)
		writes := out.Writes
		if len(writes) != parts {
			t.Fatalf("%d writes", len(writes))
		}
		after := log
		for i, w := range writes {
			done := &Written{Gen: w.Gen, ID: w.ID}
			if i == refused {
				done.Err = model.ErrNotEnoughReplicas
			} else {
				after = append(after[:len(after):len(after)], w.Records...)
			}
			m.Step(storyBegins.Add(time.Second), done, &out)
		}
		if len(out.Responses) != 1 || (errOf(out.Responses[0].Answer) == nil) != (refused == parts) {
			t.Fatalf("part %d is refused: %+v", refused, out.Responses)
		}
		var again Effects
		other := serving(DefaultSettings(), after, &again)
		if is, want := shape(m.groups["g"]), shape(other.groups["g"]); is != want {
			t.Errorf("part %d is refused: the group is %s, and in the log %s", refused, is, want)
		}
		if refused < parts && len(m.groups["g"].offsets) != len(other.groups["g"].offsets) {
			t.Errorf("part %d is refused: %d offsets are left", refused, len(m.groups["g"].offsets))
		}
	}
}
