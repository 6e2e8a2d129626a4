package group

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// TestTooMuchUnderWay: while the store takes nothing, memory does not grow.
func TestTooMuchUnderWay(t *testing.T) {
	var out Effects
	m := serving(DefaultSettings(), nil, &out)
	q := model.CommitOffsets{Group: "g", Generation: -1, Retention: -1, Offsets: []model.GroupOffset{{Metadata: strings.Repeat("m", 4096)}}}
	for i := range 100_000 {
		out.Reset()
		m.Step(storyBegins, &Commit{ID: RequestID(i), CommitOffsets: q}, &out)
		if len(out.Responses) == 0 {
			continue
		}
		if err := errOf(out.Responses[0].Answer); !errors.Is(err, model.ErrCoordinatorNotAvailable) {
			t.Fatal(err)
		}
		if m.writes.bytes > writeBytesMax+8192 || i > writesMax {
			t.Fatalf("%d bytes in %d writes", m.writes.bytes, i)
		}
		return
	}
	t.Fatal("there is no end")
}

// TestNothingMoreUnderWay: while too much is under way, neither members nor time add to
// it; what they wanted is done when there is room again.
func TestNothingMoreUnderWay(t *testing.T) {
	var out Effects
	m := serving(DefaultSettings(), nil, &out)
	now := storyBegins
	step := func(in Input) Effects {
		out = Effects{}
		m.Step(now, in, &out)
		return out
	}
	join := func(instance string) Effects {
		return step(&Join{ID: 1, JoinGroup: model.JoinGroup{Group: "g", InstanceID: instance, ClientID: "c", ProtocolType: "consumer", SessionTimeout: time.Hour / 2,
			RebalanceTimeout: time.Minute, Protocols: []model.GroupProtocol{{Name: "range", Metadata: consumerMetadata("t")}}}})
	}
	join("i")
	now = now.Add(3 * time.Second)
	id := step(&Fired{}).Responses[0].Answer.(Joined).MemberID
	sync := &Sync{ID: 2, SyncGroup: model.SyncGroup{Group: "g", Generation: 1, MemberID: id, InstanceID: "i", Assignments: []model.MemberAssignment{{MemberID: id, Assignment: []byte("A")}}}}
	fill := func() (end func()) {
		var last Write
		for m.full() == nil {
			last = step(&Commit{CommitOffsets: model.CommitOffsets{Group: "other", Generation: -1, Retention: -1, Offsets: []model.GroupOffset{{}}}}).Writes[0]
		}
		return func() {
			for first := m.writes.queue[0].id; first <= last.ID; first++ {
				step(&Written{Gen: m.gen, ID: first})
			}
		}
	}

	end := fill()
	refused := func(what string, e Effects) {
		t.Helper()
		if len(e.Writes) != 0 || len(e.Responses) != 1 || !errors.Is(errOf(e.Responses[0].Answer), model.ErrCoordinatorNotAvailable) {
			t.Fatalf("%s: %d writes, answers %+v", what, len(e.Writes), e.Responses)
		}
	}
	refused("an assignment", step(sync))
	end()
	w := step(sync).Writes[0]
	step(&Written{Gen: m.gen, ID: w.ID})

	end = fill()
	refused("a static member that comes back", join("i"))
	if e := step(&Heartbeat{GroupHeartbeat: model.GroupHeartbeat{Group: "g", Generation: 1, MemberID: id, InstanceID: "i"}}); errOf(e.Responses[0].Answer) != nil {
		t.Fatalf("the member that was there: %+v", e.Responses)
	}
	if e := step(&Leave{LeaveGroup: model.LeaveGroup{Group: "g", Members: []model.LeavingMember{{MemberID: id}}}}); len(e.Writes) != 0 || m.groups["g"].state != model.GroupEmpty {
		t.Fatalf("the last member leaves: %+v", e)
	}
	now = now.Add(DefaultSettings().ExpiryEvery)
	if e := step(&Fired{}); len(e.Writes) != 0 {
		t.Fatalf("an expiry writes %d times", len(e.Writes))
	}
	end()
	now = now.Add(DefaultSettings().ExpiryEvery)
	step(&Fired{})
	for len(m.writes.queue) > 0 {
		step(&Written{Gen: m.gen, ID: m.writes.queue[0].id})
	}
	if m.groups["g"] != nil {
		t.Errorf("the group is left: %+v", m.groups["g"])
	}
}
