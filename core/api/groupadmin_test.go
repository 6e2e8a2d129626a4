package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestDescribeGroups(t *testing.T) {
	c := newCluster(t)
	c.groups.stable("crew")
	c.denyGroup("closed", security.OpDescribe)
	c.denyGroup("crew", security.OpDelete)
	h := newHandler(c)
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{"crew", "nobody", "closed", "crew"}
	for _, tc := range []struct {
		version int16
		want    []string // code, message, state, authorized operations
	}{
		{0, []string{"0 null Stable", "0 null Dead", "30 null ", "0 null Stable"}},
		{5, []string{"0 null Stable", "0 null Dead", "30 null ", "0 null Stable"}},
		{6, []string{"0 null Stable", "69 Group nobody not found. Dead", "30 null ", "0 null Stable"}},
	} {
		got := ask[*kmsg.DescribeGroupsResponse](t, h, tc.version, req)
		for i, g := range got.Groups {
			if s := fmt.Sprintf("%d %s %s", g.ErrorCode, str(g.ErrorMessage), g.State); s != tc.want[i] || g.Group != req.Groups[i] || g.AuthorizedOperations != notAsked {
				t.Errorf("version %d, group %s: %s, want %s (%+v)", tc.version, req.Groups[i], s, tc.want[i], g)
			}
		}
		if first, again := got.Groups[0].Members, got.Groups[3].Members; len(again) != len(first) {
			t.Errorf("version %d: %d members, and %d where the group is named again", tc.version, len(first), len(again))
		}
		m := got.Groups[0].Members[0]
		if got.Groups[0].ProtocolType != "consumer" || got.Groups[0].Protocol != "range" || m.MemberID != "m-1" || (m.InstanceID != nil) != (tc.version >= 4) ||
			m.ClientID != "c" || m.ClientHost != "/192.0.2.9" || string(m.ProtocolMetadata) != "md" || string(m.MemberAssignment) != "as" {
			t.Errorf("version %d: %+v", tc.version, got.Groups[0])
		}
	}
	req.IncludeAuthorizedOperations = true
	got := ask[*kmsg.DescribeGroupsResponse](t, h, 6, req)
	if ops := got.Groups[0].AuthorizedOperations; ops != 1<<3|1<<8|1<<10|1<<11 {
		t.Errorf("operations %b", ops)
	}
	if got.Groups[1].AuthorizedOperations != notAsked || got.Groups[2].AuthorizedOperations != notAsked {
		t.Errorf("operations on what is not there: %+v", got.Groups)
	}
	c.groups.err = model.ErrCoordinatorLoading
	if got := ask[*kmsg.DescribeGroupsResponse](t, h, 6, req); got.Groups[0].ErrorCode != 14 {
		t.Errorf("loading: %+v", got.Groups[0])
	}
}

// TestRepeatedGroups: a group is asked about once by a request, however often that names
// it. What is known of a group may be large, and its name is a few bytes.
func TestRepeatedGroups(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self)
	c.groups.stable("crew")
	c.groups.stable("other")
	h := newHandler(c)
	names := []string{"crew", "other", "crew", "crew", "other"}
	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = names
	consumers := kmsg.NewPtrConsumerGroupDescribeRequest()
	consumers.Groups = names
	fetch := kmsg.NewPtrOffsetFetchRequest()
	for _, name := range names {
		fetch.Groups = append(fetch.Groups, toFetchOffsets(name).Groups[0])
	}
	for _, tc := range []struct {
		req   kmsg.Request
		shown func(kmsg.Response) []string
	}{
		{describe, func(r kmsg.Response) (names []string) {
			for _, g := range r.(*kmsg.DescribeGroupsResponse).Groups {
				names = append(names, fmt.Sprint(g.Group, len(g.Members)))
			}
			return names
		}},
		{consumers, func(r kmsg.Response) (names []string) {
			for _, g := range r.(*kmsg.ConsumerGroupDescribeResponse).Groups {
				names = append(names, fmt.Sprint(g.Group, g.ErrorCode/69))
			}
			return names
		}},
		{fetch, func(r kmsg.Response) (names []string) {
			for _, g := range r.(*kmsg.OffsetFetchResponse).Groups {
				names = append(names, fmt.Sprint(g.Group, len(g.Topics)))
			}
			return names
		}},
	} {
		c.groups.asked = nil
		got := tc.shown(ask[kmsg.Response](t, h, tc.req.MaxVersion(), tc.req))
		if want := []string{"crew1", "other1", "crew1", "crew1", "other1"}; !slices.Equal(got, want) || len(c.groups.asked) != 2 {
			t.Errorf("%T: %q, want %q; asked %v", tc.req, got, want, c.groups.asked)
		}
	}
}

func TestConsumerGroupDescribe(t *testing.T) {
	c := newCluster(t)
	c.groups.stable("crew")
	c.denyGroup("closed", security.OpDescribe)
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups, req.IncludeAuthorizedOperations = []string{"crew", "nobody", "closed", ""}, true
	got := ask[*kmsg.ConsumerGroupDescribeResponse](t, newHandler(c), 1, req)
	for i, want := range []string{"69 Group crew is not a consumer group.", "69 Group nobody not found.", "30 null", "24 null"} {
		g := got.Groups[i]
		if s := fmt.Sprintf("%d %s", g.ErrorCode, str(g.ErrorMessage)); s != want || g.Group != req.Groups[i] || g.AuthorizedOperations != notAsked {
			t.Errorf("group %s: %s, want %s", req.Groups[i], s, want)
		}
	}
}

func TestListGroups(t *testing.T) {
	c := newCluster(t)
	c.groups.stable("crew")
	c.groups.offset("idle", "orders", 0, 3)
	c.groups.stable("secret")
	c.denyGroup("secret", security.OpDescribe)
	h := newHandler(c)
	for _, tc := range []struct {
		version       int16
		states, types []string
		want          string
	}{
		{0, nil, nil, "crew consumer , idle  , secret consumer "},
		{3, []string{"Stable"}, nil, "crew consumer , idle  , secret consumer "},
		{4, nil, nil, "crew consumer Stable, idle  Empty, secret consumer Stable"},
		{4, []string{"sTABLE"}, nil, "crew consumer Stable, secret consumer Stable"},
		{5, []string{"Empty", "Dead"}, []string{"Classic"}, "idle  Empty classic"},
		{5, nil, []string{"consumer"}, ""},
		{5, []string{"nonsense"}, nil, ""},
	} {
		req := kmsg.NewPtrListGroupsRequest()
		req.StatesFilter, req.TypesFilter = tc.states, tc.types
		got := ask[*kmsg.ListGroupsResponse](t, h, tc.version, req)
		var lines []string
		for _, g := range got.Groups {
			line := g.Group + " " + g.ProtocolType + " " + g.GroupState
			if g.GroupType != "" {
				line += " " + g.GroupType
			}
			lines = append(lines, line)
		}
		if s := strings.Join(lines, ", "); s != tc.want {
			t.Errorf("version %d, %v, %v: %q, want %q", tc.version, tc.states, tc.types, s, tc.want)
		}
	}
	c.denyCluster(security.OpDescribe)
	c.groups.err = model.ErrCoordinatorLoading
	got := ask[*kmsg.ListGroupsResponse](t, h, 5, kmsg.NewPtrListGroupsRequest())
	if got.ErrorCode != 14 || len(got.Groups) != 2 {
		t.Errorf("hidden, loading: %+v", got)
	}
}

func TestDeleteGroups(t *testing.T) {
	c := newCluster(t)
	c.groups.stable("crew")
	c.groups.offset("idle", "orders", 0, 3)
	c.groups.offset("closed", "orders", 0, 3)
	c.denyGroup("closed", security.OpDelete)
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Groups = []string{"crew", "idle", "idle", "nobody", "closed"}
	got := ask[*kmsg.DeleteGroupsResponse](t, newHandler(c), 3, req)
	var lines []string
	for _, g := range got.Groups {
		lines = append(lines, fmt.Sprintf("%s %d %s", g.Group, g.ErrorCode, str(g.ErrorMessage)))
	}
	if want := []string{"crew 68 group is not empty", "idle 0 null", "nobody 69 Group nobody not found.", "closed 30 group authorization failed"}; !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q", lines, want)
	}
	if len(c.groups.groups) != 2 {
		t.Errorf("%d groups are left", len(c.groups.groups))
	}
}

func TestOffsetDelete(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self, self)
	c.topic("secret", self)
	c.denyTopic("secret", security.OpRead)
	c.denyGroup("closed", security.OpDelete)
	c.groups.stable("crew")
	c.groups.offset("idle", "orders", 0, 3)
	h := newHandler(c)
	for _, tc := range []struct {
		group  string
		topics string
		code   int16
		want   []int16
	}{
		{"idle", "orders missing secret", 0, []int16{0, 3, 3, 3, 29, 29}},
		{"crew", "orders", 0, []int16{86, 3}},
		{"nobody", "orders", 69, nil},
		{"nobody", "missing", 0, []int16{3, 3}},
		{"", "orders", 24, nil},
		{"closed", "orders", 30, nil},
	} {
		req := kmsg.NewPtrOffsetDeleteRequest()
		req.Group = tc.group
		for _, name := range strings.Fields(tc.topics) {
			req.Topics = append(req.Topics, kmsg.OffsetDeleteRequestTopic{Topic: name, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}, {Partition: 2}}})
		}
		got := ask[*kmsg.OffsetDeleteResponse](t, h, 0, req)
		var codes []int16
		for _, topic := range got.Topics {
			for _, p := range topic.Partitions {
				codes = append(codes, p.ErrorCode)
			}
		}
		if got.ErrorCode != tc.code || !slices.Equal(codes, tc.want) {
			t.Errorf("group %s, %s: %d, %v; want %d, %v", tc.group, tc.topics, got.ErrorCode, codes, tc.code, tc.want)
		}
	}
	if n := len(c.groups.groups["idle"].offsets); n != 0 {
		t.Errorf("%d offsets are left", n)
	}
}

// A request that names more groups than one may ends its connection.
func TestTooManyGroups(t *testing.T) {
	h := newHandler(newCluster(t))
	for _, req := range groupRequests() {
		names := make([]string, groupsMax+1)
		switch r := req.(type) {
		case *kmsg.DescribeGroupsRequest:
			r.Groups = names
		case *kmsg.DeleteGroupsRequest:
			r.Groups = names
		case *kmsg.ConsumerGroupDescribeRequest:
			r.Groups = names
		case *kmsg.FindCoordinatorRequest:
			r.Version, r.CoordinatorKeys = 4, names
		case *kmsg.OffsetFetchRequest:
			r.Version, r.Groups = 8, make([]kmsg.OffsetFetchRequestGroup, groupsMax+1)
		default:
			continue
		}
		if reply := h.Begin(t.Context(), callOf(req))(t.Context()); !reply.Close || reply.Reason == "" {
			t.Errorf("%T is answered", req)
		}
	}
}
