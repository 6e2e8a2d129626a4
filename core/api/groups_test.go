package api

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// coordinator is a fake of the group coordinator: groups of one member each, whose
// every join is a generation.
type coordinator struct {
	mu     sync.Mutex
	node   model.NodeID
	err    error // of every answer, where a test sets it
	asked  []any // every question, in order
	gone   int   // questions for a coordinator whose asker had gone
	groups map[string]*fakeGroup
	hold   bool // answers are not given until release
	held   []func()
}

type fakeGroup struct {
	model.DescribedGroup
	generation int32
	offsets    []model.GroupOffset
}

func newCoordinator() *coordinator {
	return &coordinator{node: self, groups: make(map[string]*fakeGroup)}
}

func (g *coordinator) Coordinator(ctx context.Context, group string) (model.NodeID, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, group)
	if _, ok := ctx.Deadline(); !ok {
		panic("the wait for a coordinator has no end")
	}
	if ctx.Err() != nil {
		g.gone++
	}
	return g.node, g.err
}

// reply notes the question and gives the answer, now or on release.
func reply[T any](g *coordinator, q any, done func(T), answer func() T) {
	g.mu.Lock()
	g.asked = append(g.asked, q)
	a := answer()
	if g.hold {
		g.held = append(g.held, func() { done(a) })
		g.mu.Unlock()
		return
	}
	g.mu.Unlock()
	done(a)
}

// release gives the answers that were held, the last first.
func (g *coordinator) release() {
	g.mu.Lock()
	held := g.held
	g.held, g.hold = nil, false
	g.mu.Unlock()
	for _, f := range slices.Backward(held) {
		f()
	}
}

func (g *coordinator) group(name string) *fakeGroup {
	f := g.groups[name]
	if f == nil {
		f = &fakeGroup{DescribedGroup: model.DescribedGroup{Group: name, State: model.GroupEmpty}}
		g.groups[name] = f
	}
	return f
}

func (g *coordinator) Join(_ context.Context, q model.JoinGroup, done func(model.JoinedGroup)) {
	reply(g, q, done, func() model.JoinedGroup {
		switch {
		case g.err != nil:
			return model.JoinedGroup{Generation: -1, Err: g.err}
		case len(q.Protocols) == 0:
			return model.JoinedGroup{Generation: -1, Err: model.ErrInconsistentProtocol}
		case q.MemberID == "" && q.AsksForID:
			return model.JoinedGroup{Generation: -1, MemberID: q.ClientID + "-id", Err: model.ErrMemberIDRequired}
		}
		f := g.group(q.Group)
		f.generation++
		f.State, f.ProtocolType, f.Protocol = model.GroupCompletingRebalance, q.ProtocolType, q.Protocols[0].Name
		id := q.MemberID
		if id == "" {
			id = q.ClientID + "-id"
		}
		f.Members = []model.DescribedMember{{MemberID: id, InstanceID: q.InstanceID, ClientID: q.ClientID, ClientHost: q.ClientHost, Metadata: q.Protocols[0].Metadata}}
		return model.JoinedGroup{Generation: f.generation, ProtocolType: q.ProtocolType, Protocol: f.Protocol, Leader: id, MemberID: id,
			Members: []model.JoinedMember{{MemberID: id, InstanceID: q.InstanceID, Metadata: q.Protocols[0].Metadata}}}
	})
}

func (g *coordinator) Sync(_ context.Context, q model.SyncGroup, done func(model.SyncedGroup)) {
	reply(g, q, done, func() model.SyncedGroup {
		f := g.group(q.Group)
		if g.err != nil || len(f.Members) == 0 {
			return model.SyncedGroup{Err: cmpErr(g.err, model.ErrUnknownMemberID)}
		}
		f.State = model.GroupStable
		for _, a := range q.Assignments {
			f.Members[0].Assignment = a.Assignment
		}
		return model.SyncedGroup{ProtocolType: f.ProtocolType, Protocol: f.Protocol, Assignment: f.Members[0].Assignment}
	})
}

func cmpErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func (g *coordinator) Heartbeat(_ context.Context, q model.GroupHeartbeat, done func(error)) {
	reply(g, q, done, func() error { return g.err })
}

func (g *coordinator) Leave(_ context.Context, q model.LeaveGroup, done func(model.LeftGroup)) {
	reply(g, q, done, func() model.LeftGroup {
		a := model.LeftGroup{Err: g.err, Members: make([]error, len(q.Members))}
		f := g.group(q.Group)
		for i, m := range q.Members {
			if len(f.Members) == 0 || m.MemberID != f.Members[0].MemberID {
				a.Members[i] = model.ErrUnknownMemberID
				continue
			}
			f.Members, f.State = nil, model.GroupEmpty
		}
		return a
	})
}

func (g *coordinator) Commit(_ context.Context, q model.CommitOffsets, done func(model.CommittedOffsets)) {
	q.Offsets = slices.Clone(q.Offsets) // they are the asker's again when it is answered
	reply(g, q, done, func() model.CommittedOffsets {
		a := model.CommittedOffsets{Err: g.err, Offsets: make([]error, len(q.Offsets))}
		f := g.group(q.Group)
		for i, o := range q.Offsets {
			if len(o.Metadata) > 10 {
				a.Offsets[i] = model.ErrOffsetMetadataTooLarge
				continue
			}
			f.offsets = slices.DeleteFunc(f.offsets, func(old model.GroupOffset) bool { return old.TopicPartition == o.TopicPartition })
			f.offsets = append(f.offsets, o)
		}
		slices.SortFunc(f.offsets, func(a, b model.GroupOffset) int {
			return strings.Compare(fmt.Sprintf("%s %09d", a.Topic, a.Partition), fmt.Sprintf("%s %09d", b.Topic, b.Partition))
		})
		return a
	})
}

func (g *coordinator) FetchOffsets(_ context.Context, q model.FetchOffsets, done func(model.FetchedOffsets)) {
	reply(g, q, done, func() model.FetchedOffsets {
		if g.err != nil {
			return model.FetchedOffsets{Err: g.err}
		}
		var known []model.GroupOffset
		if f := g.groups[q.Group]; f != nil {
			known = f.offsets
		}
		if q.All {
			return model.FetchedOffsets{Offsets: slices.Clone(known)}
		}
		a := model.FetchedOffsets{Offsets: make([]model.GroupOffset, len(q.Partitions))}
		for i, p := range q.Partitions {
			a.Offsets[i] = model.GroupOffset{TopicPartition: p, Offset: -1, LeaderEpoch: -1}
			for _, o := range known {
				if o.TopicPartition == p {
					a.Offsets[i] = o
				}
			}
		}
		return a
	})
}

func (g *coordinator) DeleteOffsets(_ context.Context, q model.DeleteOffsets, done func(model.DeletedOffsets)) {
	reply(g, q, done, func() model.DeletedOffsets {
		f := g.groups[q.Group]
		if f == nil || g.err != nil {
			return model.DeletedOffsets{Err: cmpErr(g.err, model.ErrGroupIDNotFound)}
		}
		a := model.DeletedOffsets{Partitions: make([]error, len(q.Partitions))}
		for i, p := range q.Partitions {
			if len(f.Members) > 0 {
				a.Partitions[i] = model.ErrGroupSubscribed
				continue
			}
			f.offsets = slices.DeleteFunc(f.offsets, func(o model.GroupOffset) bool { return o.TopicPartition == p })
		}
		return a
	})
}

func (g *coordinator) Describe(_ context.Context, group string, done func(model.DescribedGroup)) {
	reply(g, group, done, func() model.DescribedGroup {
		f := g.groups[group]
		if f == nil || g.err != nil {
			return model.DescribedGroup{Group: group, Err: cmpErr(g.err, model.ErrGroupIDNotFound)}
		}
		return f.DescribedGroup
	})
}

func (g *coordinator) Delete(_ context.Context, group string, done func(error)) {
	reply(g, group, done, func() error {
		f := g.groups[group]
		switch {
		case g.err != nil:
			return g.err
		case f == nil:
			return model.ErrGroupIDNotFound
		case len(f.Members) > 0:
			return model.ErrNonEmptyGroup
		}
		delete(g.groups, group)
		return nil
	})
}

func (g *coordinator) List(_ context.Context, done func(model.ListedGroups)) {
	reply(g, "list", done, func() model.ListedGroups {
		a := model.ListedGroups{Err: g.err}
		for _, f := range g.groups {
			a.Groups = append(a.Groups, model.ListedGroup{Group: f.Group, ProtocolType: f.ProtocolType, State: f.State})
		}
		slices.SortFunc(a.Groups, func(a, b model.ListedGroup) int { return strings.Compare(a.Group, b.Group) })
		return a
	})
}

// stable has a group with one member, and one offset.
func (g *coordinator) stable(name string) {
	f := g.group(name)
	f.generation, f.State, f.ProtocolType, f.Protocol = 1, model.GroupStable, "consumer", "range"
	f.Members = []model.DescribedMember{{MemberID: "m-1", InstanceID: "i-1", ClientID: "c", ClientHost: "/192.0.2.9", Metadata: []byte("md"), Assignment: []byte("as")}}
	g.offset(name, "orders", 0, 7)
}

func (g *coordinator) offset(group, topic string, partition int32, offset int64) {
	f := g.group(group)
	f.offsets = append(f.offsets, model.GroupOffset{
		TopicPartition: model.TopicPartition{Topic: topic, Partition: partition}, TopicID: topicID(topic), Offset: offset, LeaderEpoch: 3, Metadata: "m"})
}

func (c *cluster) denyGroup(name string, ops ...security.Operation) {
	for _, op := range ops {
		c.deny[security.Action{Operation: op, Resource: security.Group, Name: name}] = true
	}
}

// groupRequests are one of each API of groups that does something, about the group
// "crew" with the member "m-1".
func groupRequests() []kmsg.Request {
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Group, commit.MemberID, commit.Generation = "crew", "m-1", 1
	commit.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "orders", TopicID: topicID("orders"), Partitions: []kmsg.OffsetCommitRequestTopicPartition{
		{Partition: 0, Offset: 5, LeaderEpoch: 7, Metadata: ptr("m")}}}}

	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Group, fetch.RequireStable = "crew", true
	fetch.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "orders", Partitions: []int32{0}}}
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group, group.Topics = "crew", []kmsg.OffsetFetchRequestGroupTopic{{Topic: "orders", TopicID: topicID("orders"), Partitions: []int32{0}}}
	fetch.Groups = []kmsg.OffsetFetchRequestGroup{group}

	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorKey, find.CoordinatorKeys = "crew", []string{"crew"}

	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.MemberID, join.ProtocolType = "crew", "m-1", "consumer"
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 10_000, 60_000
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte("md")}}

	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Group, beat.MemberID, beat.Generation = "crew", "m-1", 1

	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group, leave.MemberID, leave.Members = "crew", "m-1", []kmsg.LeaveGroupRequestMember{{MemberID: "m-1"}}

	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID, sync.Generation, sync.ProtocolType, sync.Protocol = "crew", "m-1", 1, ptr("consumer"), ptr("range")
	sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: "m-1", MemberAssignment: []byte("new")}}

	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = []string{"crew"}

	list := kmsg.NewPtrListGroupsRequest()

	remove := kmsg.NewPtrDeleteGroupsRequest()
	remove.Groups = []string{"idle"}

	forget := kmsg.NewPtrOffsetDeleteRequest()
	forget.Group = "idle"
	forget.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: "orders", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}}}

	consumers := kmsg.NewPtrConsumerGroupDescribeRequest()
	consumers.Groups = []string{"crew"}
	return []kmsg.Request{commit, fetch, find, join, beat, leave, sync, describe, list, remove, forget, consumers}
}

// groupFailure is failure for the APIs of groups.
func groupFailure(r kmsg.Response, see func(int16)) bool {
	switch r := r.(type) {
	case *kmsg.OffsetCommitResponse:
		see(r.Topics[0].Partitions[0].ErrorCode)
	case *kmsg.OffsetFetchResponse:
		see(r.ErrorCode)
		for _, t := range r.Topics {
			see(t.Partitions[0].ErrorCode)
		}
		for _, g := range r.Groups {
			see(g.ErrorCode)
			see(g.Topics[0].Partitions[0].ErrorCode)
		}
	case *kmsg.FindCoordinatorResponse:
		see(r.ErrorCode)
		for _, c := range r.Coordinators {
			see(c.ErrorCode)
		}
	case *kmsg.JoinGroupResponse:
		see(r.ErrorCode)
	case *kmsg.HeartbeatResponse:
		see(r.ErrorCode)
	case *kmsg.LeaveGroupResponse:
		see(r.ErrorCode)
		for _, m := range r.Members {
			see(m.ErrorCode)
		}
	case *kmsg.SyncGroupResponse:
		see(r.ErrorCode)
	case *kmsg.DescribeGroupsResponse:
		see(r.Groups[0].ErrorCode)
	case *kmsg.ListGroupsResponse:
		see(r.ErrorCode)
	case *kmsg.DeleteGroupsResponse:
		see(r.Groups[0].ErrorCode)
	case *kmsg.OffsetDeleteResponse:
		see(r.ErrorCode)
		for _, t := range r.Topics {
			see(t.Partitions[0].ErrorCode)
		}
	case *kmsg.ConsumerGroupDescribeResponse:
		if code := r.Groups[0].ErrorCode; code != 69 {
			see(code) // there are no groups of that type, and tools go on from there
		}
	default:
		return false
	}
	return true
}
