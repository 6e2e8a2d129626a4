package api

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// toCommit commits one offset after another from 10 on, in the order given, topic by
// topic.
func toCommit(group string, topics map[string][]int32) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = group
	offset := int64(10)
	for _, name := range sorted(topics) {
		topic := kmsg.NewOffsetCommitRequestTopic()
		topic.Topic, topic.TopicID = name, topicID(name)
		for _, p := range topics[name] {
			part := kmsg.NewOffsetCommitRequestTopicPartition()
			part.Partition, part.Offset, part.LeaderEpoch = p, offset, 7
			topic.Partitions = append(topic.Partitions, part)
			offset++
		}
		req.Topics = append(req.Topics, topic)
	}
	return req
}

func sorted[V any](m map[string]V) []string {
	var names []string
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func commitCodes(r *kmsg.OffsetCommitResponse) []int16 {
	var codes []int16
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			codes = append(codes, p.ErrorCode)
		}
	}
	return codes
}

func TestOffsetCommit(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self, self)
	c.topic("secret", self)
	c.denyTopic("secret", security.OpRead)
	c.denyTopic("nowhere", security.OpRead)
	h := newHandler(c)
	req := toCommit("crew", map[string][]int32{"missing": {0}, "nowhere": {0}, "orders": {0, 1, 2, -1}, "secret": {0}})
	req.Topics[2].Partitions[1].Metadata = ptr("far too long")
	got := ask[*kmsg.OffsetCommitResponse](t, h, 8, req)
	if want := []int16{3, 29, 0, 12, 3, 3, 29}; !slices.Equal(commitCodes(got), want) {
		t.Errorf("by name: %v, want %v", commitCodes(got), want)
	}
	q := c.groups.asked[0].(model.CommitOffsets)
	want := []model.GroupOffset{
		{TopicPartition: model.TopicPartition{Topic: "orders"}, TopicID: topicID("orders"), Offset: 12, LeaderEpoch: 7},
		{TopicPartition: model.TopicPartition{Topic: "orders", Partition: 1}, TopicID: topicID("orders"), Offset: 13, LeaderEpoch: 7, Metadata: "far too long"},
	}
	if !reflect.DeepEqual(q.Offsets, want) || q.Generation != -1 || q.Retention >= 0 {
		t.Errorf("asked %+v", q)
	}
	if got := commitCodes(ask[*kmsg.OffsetCommitResponse](t, h, 10, req)); !slices.Equal(got, []int16{100, 100, 0, 12, 3, 3, 29}) {
		t.Errorf("by ID: %v", got)
	}
	before := len(c.groups.asked)
	if got := commitCodes(ask[*kmsg.OffsetCommitResponse](t, h, 8, toCommit("crew", map[string][]int32{"missing": {0, 1}}))); !slices.Equal(got, []int16{3, 3}) {
		t.Errorf("nothing to commit: %v", got)
	}
	c.denyGroup("crew", security.OpRead)
	if got := commitCodes(ask[*kmsg.OffsetCommitResponse](t, h, 8, req)); !slices.Equal(got, []int16{30, 30, 30, 30, 30, 30, 30}) {
		t.Errorf("denied: %v", got)
	}
	if len(c.groups.asked) != before {
		t.Error("the coordinator was asked what was refused already")
	}
}

func TestOffsetCommitRetention(t *testing.T) {
	for _, tc := range []struct {
		version int16
		ms      int64
		want    time.Duration
	}{{2, 1500, 1500 * time.Millisecond}, {4, 0, 0}, {4, -1, -1}, {4, 1<<63 - 1, time.Duration(1<<63 - 1).Truncate(time.Millisecond)}, {5, 1500, -1}} {
		c := newCluster(t)
		c.topic("orders", self)
		req := toCommit("crew", map[string][]int32{"orders": {0}})
		req.RetentionTimeMillis = tc.ms
		ask[*kmsg.OffsetCommitResponse](t, newHandler(c), tc.version, req)
		if got := c.groups.asked[0].(model.CommitOffsets).Retention; got != tc.want {
			t.Errorf("version %d, %d ms: %v, want %v", tc.version, tc.ms, got, tc.want)
		}
	}
}

// Every error of the coordinator, as clients of different versions know it.
func TestGroupErrors(t *testing.T) {
	for _, tc := range []struct {
		err                        error
		commitV8, commitV9, fetch2 int16
	}{
		{model.ErrCoordinatorLoading, 14, 14, 14},
		{model.ErrCoordinatorNotAvailable, 15, 15, 16},
		{model.ErrNotCoordinator, 16, 16, 16},
		{model.ErrNotEnoughReplicas, 15, 15, 16},
		{model.ErrRequestTimedOut, 15, 15, 16},
		{context.Canceled, 15, 15, 16},
		{model.ErrNotLeaderOrFollower, 16, 16, 16},
		{model.ErrStorage, 16, 16, 16},
		{model.ErrIllegalGeneration, 22, 22, 22},
		{model.ErrUnknownMemberID, 25, 25, 25},
		{model.ErrRebalanceInProgress, 27, 27, 27},
		{model.ErrGroupIDNotFound, 22, 69, 69},
		{model.ErrFencedInstanceID, 82, 82, 82},
		{model.ErrStaleMemberEpoch, 113, 113, 113},
	} {
		c := newCluster(t)
		c.topic("orders", self)
		c.groups.err = tc.err
		h := newHandler(c)
		req := toCommit("crew", map[string][]int32{"orders": {0}})
		if got := ask[*kmsg.OffsetCommitResponse](t, h, 8, req).Topics[0].Partitions[0].ErrorCode; got != tc.commitV8 {
			t.Errorf("%v: commit version 8 has %d, want %d", tc.err, got, tc.commitV8)
		}
		if got := ask[*kmsg.OffsetCommitResponse](t, h, 9, req).Topics[0].Partitions[0].ErrorCode; got != tc.commitV9 {
			t.Errorf("%v: commit version 9 has %d, want %d", tc.err, got, tc.commitV9)
		}
		if got := ask[*kmsg.OffsetFetchResponse](t, h, 2, toFetchOffsets("crew", "orders")); got.ErrorCode != tc.fetch2 || len(got.Topics) != 0 {
			t.Errorf("%v: fetch has %+v, want %d", tc.err, got, tc.fetch2)
		}
	}
}

// What no batch can hold is a client's doing: it is told so, and the broker's log is not
// filled with a line for each partition.
func TestTooLargeCommitIsNoFault(t *testing.T) {
	for _, err := range []error{model.ErrMessageTooLarge, model.ErrRecordListTooLarge} {
		c := newCluster(t)
		c.topic("orders", self, self, self)
		c.groups.err = fmt.Errorf("the group's record is too large to be written: %w", err)
		h := newHandler(c)
		var log bytes.Buffer
		h.log = slog.New(slog.NewTextHandler(&log, nil))
		req := toCommit("crew", map[string][]int32{"orders": {0, 1, 2}})
		if got := commitCodes(ask[*kmsg.OffsetCommitResponse](t, h, 9, req)); !slices.Equal(got, []int16{-1, -1, -1}) {
			t.Errorf("%v: codes are %v, want UNKNOWN_SERVER_ERROR of each", err, got)
		}
		if log.Len() > 0 {
			t.Errorf("%v is logged: %s", err, log.String())
		}
	}
}

// Questions of one connection reach the coordinator in the order in which they were
// begun, and nobody waits for an answer before the next is asked. A broker that stops
// waits for none of them.
func TestGroupQuestionsKeepOrder(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self)
	c.groups.hold = true
	h := newHandler(c)
	var answers []func(context.Context) int16
	for i := range int64(20) {
		req := toCommit("crew", map[string][]int32{"orders": {0}})
		req.Topics[0].Partitions[0].Offset = i
		req.Version = 8
		answer := begin(t.Context(), h, callOf(req))
		answers = append(answers, func(ctx context.Context) int16 {
			return commitCodes(decoded[*kmsg.OffsetCommitResponse](t, req, answer(ctx)))[0]
		})
	}
	for i, q := range c.groups.asked {
		if got := q.(model.CommitOffsets).Offsets[0].Offset; got != int64(i) {
			t.Fatalf("question %d is about offset %d", i, got)
		}
	}
	join := groupRequests()[3]
	join.SetVersion(9)
	waiting := h.Begin(t.Context(), callOf(join))
	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = []string{"a", "b"}
	many := h.Begin(t.Context(), callOf(describe))
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if r := waiting(stopped); !r.Close || r.Response != nil || r.Reason == "" {
		t.Errorf("a join that is given up: %+v", r)
	}
	if r := many(stopped); !r.Close || r.Response != nil {
		t.Errorf("questions that are given up: %+v", r)
	}
	c.groups.release() // must not block on answers that nobody waits for
	for i, answer := range answers {
		if code := answer(t.Context()); code != 0 {
			t.Errorf("answer %d: %d", i, code)
		}
	}
}
