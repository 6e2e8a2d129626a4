package group

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/brokerd/brokerd/core/model"
)

// TestInputsAreNotKept: the host may use an input again for the next step, also where the
// request waits.
func TestInputsAreNotKept(t *testing.T) {
	var out Effects
	m := serving(DefaultSettings(), nil, &out)
	key := model.TopicPartition{Topic: "t"}
	commit := &Commit{ID: 1, CommitOffsets: model.CommitOffsets{Group: "g", Generation: -1, Retention: -1, Offsets: []model.GroupOffset{{TopicPartition: key, Offset: 5}}}}
	fetch := &FetchOffsets{ID: 2, FetchOffsets: model.FetchOffsets{Group: "g", Partitions: []model.TopicPartition{key}}}
	out.Reset()
	m.Step(storyBegins, commit, &out)
	*commit = Commit{}
	m.Step(storyBegins, fetch, &out)
	*fetch = FetchOffsets{}
	m.Step(storyBegins, &Written{Gen: m.gen, ID: out.Writes[0].ID}, &out)
	if len(out.Responses) != 2 || out.Responses[0].ID != 1 || out.Responses[1].ID != 2 {
		t.Fatalf("answers %+v", out.Responses)
	}
	if a := out.Responses[1].Answer.(Fetched); len(a.Offsets) != 1 || a.Offsets[0].Offset != 5 {
		t.Errorf("fetched %+v", a)
	}
}

// TestLongNames: a member ID is a string that clients can give back, however long the
// name in it was.
func TestLongNames(t *testing.T) {
	for extra := range 4 {
		var out Effects
		m := serving(DefaultSettings(), nil, &out)
		out.Reset()
		name := strings.Repeat("c", extra) + strings.Repeat("€", nameMax)
		m.Step(storyBegins, &Join{ID: 1, JoinGroup: model.JoinGroup{Group: "g", ClientID: name, ProtocolType: "consumer", AsksForID: true,
			SessionTimeout: 10 * time.Second, Protocols: []model.GroupProtocol{{Name: "range"}}}}, &out)
		if id := out.Responses[0].Answer.(Joined).MemberID; !utf8.ValidString(id) || len(id) < nameMax-3 || len(id) > nameMax+2 {
			t.Errorf("the ID has %d bytes: %q", len(id), id[max(0, len(id)-20):])
		}
	}
}
