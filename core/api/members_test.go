package api

import (
	"reflect"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestJoinGroup(t *testing.T) {
	c := newCluster(t)
	h := newHandler(c)
	join := func(version int16, change func(*kmsg.JoinGroupRequest)) (*kmsg.JoinGroupResponse, model.JoinGroup) {
		req := groupRequests()[3].(*kmsg.JoinGroupRequest)
		change(req)
		before := len(c.groups.asked)
		got := ask[*kmsg.JoinGroupResponse](t, h, version, req)
		if len(c.groups.asked) == before {
			return got, model.JoinGroup{}
		}
		return got, c.groups.asked[before].(model.JoinGroup)
	}
	got, q := join(9, func(r *kmsg.JoinGroupRequest) { r.InstanceID, r.Reason = ptr("i"), ptr("because") })
	want := model.JoinGroup{Group: "crew", MemberID: "m-1", InstanceID: "i", ClientID: "test", ClientHost: "/192.0.2.1", ProtocolType: "consumer",
		Protocols: []model.GroupProtocol{{Name: "range", Metadata: []byte("md")}}, SessionTimeout: 10 * time.Second, RebalanceTimeout: time.Minute,
		SkipsAssignment: true, Reason: "because"}
	if !reflect.DeepEqual(q, want) {
		t.Errorf("asked %+v, want %+v", q, want)
	}
	if got.Generation != 1 || *got.ProtocolType != "consumer" || *got.Protocol != "range" || got.LeaderID != "m-1" || got.MemberID != "m-1" || len(got.Members) != 1 || *got.Members[0].InstanceID != "i" {
		t.Errorf("got %+v", got)
	}
	for _, tc := range []struct {
		version     int16
		asks, skips bool
		rebalance   time.Duration
	}{{0, false, false, 10 * time.Second}, {1, false, false, time.Minute}, {3, false, false, time.Minute}, {4, true, false, time.Minute}, {8, true, false, time.Minute}, {9, true, true, time.Minute}} {
		if _, q := join(tc.version, func(*kmsg.JoinGroupRequest) {}); q.AsksForID != tc.asks || q.SkipsAssignment != tc.skips || q.RebalanceTimeout != tc.rebalance {
			t.Errorf("version %d asked %+v", tc.version, q)
		}
	}
	if got, _ := join(4, func(r *kmsg.JoinGroupRequest) { r.MemberID = "" }); got.ErrorCode != 79 || got.MemberID != "test-id" || got.Generation != -1 {
		t.Errorf("without an ID: %+v", got)
	}
	c.groups.err = model.ErrUnknownMemberID
	for version, null := range map[int16]bool{0: false, 6: false, 7: true, 9: true} {
		if got, _ := join(version, func(*kmsg.JoinGroupRequest) {}); got.ErrorCode != 25 || got.MemberID != "m-1" || got.Generation != -1 || (got.Protocol == nil) != null || got.ProtocolType != nil {
			t.Errorf("version %d, unknown: %+v", version, got)
		}
	}
	if got, q := join(9, func(r *kmsg.JoinGroupRequest) { r.Group = "" }); got.ErrorCode != 24 || q.MemberID != "" {
		t.Errorf("without a group: %+v, %+v", got, q)
	}
	c.denyGroup("crew", security.OpRead)
	if got, q := join(9, func(*kmsg.JoinGroupRequest) {}); got.ErrorCode != 30 || q.MemberID != "" {
		t.Errorf("denied: %+v, %+v", got, q)
	}
}

func TestSyncGroup(t *testing.T) {
	c := newCluster(t)
	c.groups.stable("crew")
	c.denyGroup("closed", security.OpRead)
	h := newHandler(c)
	for _, tc := range []struct {
		name    string
		version int16
		change  func(*kmsg.SyncGroupRequest)
		code    int16
	}{
		{"leader", 5, func(*kmsg.SyncGroupRequest) {}, 0},
		{"old", 4, func(r *kmsg.SyncGroupRequest) { r.Protocol, r.ProtocolType = nil, nil }, 0},
		{"no protocol", 5, func(r *kmsg.SyncGroupRequest) { r.Protocol = nil }, 23},
		{"no protocol type", 5, func(r *kmsg.SyncGroupRequest) { r.ProtocolType = nil }, 23},
		{"no group", 5, func(r *kmsg.SyncGroupRequest) { r.Group = "" }, 24},
		{"unknown", 5, func(r *kmsg.SyncGroupRequest) { r.Group = "nobody" }, 25},
		{"denied", 5, func(r *kmsg.SyncGroupRequest) { r.Group = "closed" }, 30},
	} {
		req := groupRequests()[6].(*kmsg.SyncGroupRequest)
		tc.change(req)
		got := ask[*kmsg.SyncGroupResponse](t, h, tc.version, req)
		if got.ErrorCode != tc.code || (got.Protocol != nil) != (tc.code == 0 && tc.version >= 5) || (string(got.MemberAssignment) == "new") != (tc.code == 0) {
			t.Errorf("%s: %+v", tc.name, got)
		}
	}
	q := c.groups.asked[0].(model.SyncGroup)
	if want := (model.SyncGroup{Group: "crew", Generation: 1, MemberID: "m-1", ProtocolType: "consumer", Protocol: "range",
		Assignments: []model.MemberAssignment{{MemberID: "m-1", Assignment: []byte("new")}}}); !reflect.DeepEqual(q, want) {
		t.Errorf("asked %+v", q)
	}
}

func TestHeartbeat(t *testing.T) {
	c := newCluster(t)
	c.denyGroup("closed", security.OpRead)
	h := newHandler(c)
	req := groupRequests()[4].(*kmsg.HeartbeatRequest)
	req.InstanceID = ptr("i")
	for group, code := range map[string]int16{"crew": 27, "": 24, "closed": 30} {
		req.Group, c.groups.err = group, model.ErrRebalanceInProgress
		if got := ask[*kmsg.HeartbeatResponse](t, h, 4, req); got.ErrorCode != code {
			t.Errorf("group %q: %d, want %d", group, got.ErrorCode, code)
		}
	}
	if want := []any{model.GroupHeartbeat{Group: "crew", Generation: 1, MemberID: "m-1", InstanceID: "i"}}; !reflect.DeepEqual(c.groups.asked, want) {
		t.Errorf("asked %+v", c.groups.asked)
	}
}

func TestLeaveGroup(t *testing.T) {
	c := newCluster(t)
	c.denyGroup("closed", security.OpRead)
	h := newHandler(c)
	leave := func(version int16, group, member string) *kmsg.LeaveGroupResponse {
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Group, req.MemberID = group, member
		req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: member, Reason: ptr("tired")}, {InstanceID: ptr("i")}}
		return ask[*kmsg.LeaveGroupResponse](t, h, version, req)
	}
	for group, code := range map[string]int16{"": 24, "closed": 30} {
		for _, version := range []int16{2, 5} {
			if got := leave(version, group, "m-1"); got.ErrorCode != code || len(got.Members) != 0 {
				t.Errorf("group %q, version %d: %+v", group, version, got)
			}
		}
	}
	c.groups.stable("crew")
	if got := leave(5, "crew", "m-1"); got.ErrorCode != 0 || got.Members[0].ErrorCode != 0 || got.Members[1].ErrorCode != 25 || *got.Members[1].InstanceID != "i" {
		t.Errorf("two members: %+v", got)
	}
	if q := c.groups.asked[0].(model.LeaveGroup); !reflect.DeepEqual(q.Members, []model.LeavingMember{{MemberID: "m-1", Reason: "tired"}, {InstanceID: "i"}}) {
		t.Errorf("asked %+v", q)
	}
	if got := leave(2, "crew", "m-1"); got.ErrorCode != 25 {
		t.Errorf("one that has gone: %+v", got)
	}
	c.groups.stable("crew")
	if got := leave(0, "crew", "m-1"); got.ErrorCode != 0 {
		t.Errorf("one member: %+v", got)
	}
}
