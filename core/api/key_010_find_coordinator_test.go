package api

import (
	"context"
	"fmt"
	"testing"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func toFind(kind int8, keys ...string) *kmsg.FindCoordinatorRequest {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKey, req.CoordinatorType, req.CoordinatorKeys = keys[0], kind, keys
	return req
}

// The answer names the endpoint of the listener that was used. (FR-79)
func TestFindCoordinator(t *testing.T) {
	for _, tc := range []struct {
		name string
		kind int8
		key  string
		node model.NodeID
		err  error
		code int16
		want string // node and endpoint
	}{
		{name: "group", key: "crew", node: 2, want: "2 b.example:9092"},
		{name: "no name", key: "", node: 1, want: "1 a.example:9092"},
		{name: "denied", key: "closed", node: 1, code: 30, want: "-1 :-1"},
		{name: "fenced", key: "crew", node: 3, code: 15, want: "-1 :-1"},
		{name: "unknown broker", key: "crew", node: 9, code: 15, want: "-1 :-1"},
		{name: "no topic", key: "crew", node: -1, err: fmt.Errorf("%w: no broker for __consumer_offsets", model.ErrCoordinatorNotAvailable), code: 15, want: "-1 :-1"},
		{name: "too late", key: "crew", node: -1, err: context.DeadlineExceeded, code: 15, want: "-1 :-1"},
		{name: "transactions", kind: 1, key: "crew", code: 35, want: "-1 :-1"},
		{name: "transactions denied", kind: 1, key: "closed", code: 53, want: "-1 :-1"},
		{name: "share", kind: 2, key: "crew:1:2", code: 42, want: "-1 :-1"},
		{name: "unknown", kind: 9, key: "crew", code: 42, want: "-1 :-1"},
	} {
		c := newCluster(t)
		c.groups.node, c.groups.err = tc.node, tc.err
		c.denyGroup("closed", security.OpDescribe)
		c.deny[security.Action{Operation: security.OpDescribe, Resource: security.TransactionalID, Name: "closed"}] = true
		h := newHandler(c)
		got := ask[*kmsg.FindCoordinatorResponse](t, h, 3, toFind(tc.kind, tc.key))
		if shown := fmt.Sprintf("%d %s:%d", got.NodeID, got.Host, got.Port); got.ErrorCode != tc.code || shown != tc.want || (got.ErrorMessage == nil) != (tc.code == 0) {
			t.Errorf("%s: %d, %s, %s; want %d, %s", tc.name, got.ErrorCode, shown, str(got.ErrorMessage), tc.code, tc.want)
		}
		many := ask[*kmsg.FindCoordinatorResponse](t, h, 6, toFind(tc.kind, tc.key, "closed"))
		first, second := many.Coordinators[0], many.Coordinators[1]
		if shown := fmt.Sprintf("%d %s:%d", first.NodeID, first.Host, first.Port); first.Key != tc.key || first.ErrorCode != tc.code || shown != tc.want {
			t.Errorf("%s, one of many: %+v", tc.name, first)
		}
		if second.Key != "closed" || second.ErrorCode == 0 {
			t.Errorf("%s: the other key has %+v", tc.name, second)
		}
	}
	c := newCluster(t)
	c.groups.node = 2
	req := toFind(0, "crew")
	call := callOf(req)
	for listener, code := range map[string]int16{"ONLY-" + nodeName(2): 0, "ONLY-" + nodeName(1): 15} {
		call.From.Listener = listener
		got := decoded[*kmsg.FindCoordinatorResponse](t, req, newHandler(c).Begin(t.Context(), call)(t.Context()))
		if got.ErrorCode != code || code == 0 && got.Port != 9093 {
			t.Errorf("listener %s: %+v", listener, got)
		}
	}
}

// Of many groups in one request, the first that has no coordinator waits for all.
func TestFindCoordinatorAsksOnceForAll(t *testing.T) {
	c := newCluster(t)
	c.groups.err = fmt.Errorf("%w: no broker for __consumer_offsets", model.ErrCoordinatorNotAvailable)
	got := ask[*kmsg.FindCoordinatorResponse](t, newHandler(c), 6, toFind(0, "a", "b", "c"))
	for _, one := range got.Coordinators {
		if one.ErrorCode != 15 {
			t.Errorf("%s: %d", one.Key, one.ErrorCode)
		}
	}
	if c.groups.gone != 2 {
		t.Errorf("%d of the other 2 groups were not waited for", c.groups.gone)
	}
}
