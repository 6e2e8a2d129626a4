package api

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Describe implements Quorum.
func (c *cluster) Describe(context.Context) (model.QuorumStatus, error) {
	if c.ctrlErr != nil {
		return model.QuorumStatus{}, c.ctrlErr
	}
	return model.QuorumStatus{Leader: self, Epoch: 4, HighWatermark: 90, Voters: []model.QuorumVoter{{ID: self, Directory: model.DirectoryID{1}, LEO: 91}},
		Observers: c.observers}, nil
}

// AddVoter implements Quorum.
func (c *cluster) AddVoter(_ context.Context, id model.NodeID, dir model.DirectoryID) error {
	return c.changeVoter("add", id, dir)
}

// RemoveVoter implements Quorum.
func (c *cluster) RemoveVoter(_ context.Context, id model.NodeID, dir model.DirectoryID) error {
	return c.changeVoter("remove", id, dir)
}

func (c *cluster) changeVoter(how string, id model.NodeID, dir model.DirectoryID) error {
	switch {
	case c.ctrlErr != nil:
		return c.ctrlErr
	case id == self && how == "add":
		return model.ErrDuplicateVoter
	case id == 2:
		return model.ErrVoterNotFound
	}
	c.voters = append(c.voters, fmt.Sprintf("%s %d/%x", how, id, dir[0]))
	return nil
}

// RemoveMember implements Quorum.
func (c *cluster) RemoveMember(_ context.Context, id model.NodeID, dir model.DirectoryID) error {
	if id == self {
		return fmt.Errorf("it votes: %w", model.ErrInvalidRequest)
	}
	c.apply(&image.MemberRemovalRecord{Directory: dir})
	return nil
}

// ElectLeaders implements Operations, for a cluster in which nobody but the leader can lead.
func (c *cluster) ElectLeaders(_ context.Context, partitions []model.Partition, unclean bool) ([]error, error) {
	if c.ctrlErr != nil {
		return nil, c.ctrlErr
	}
	out := make([]error, len(partitions))
	for i, at := range partitions {
		p, _, _ := c.Image().Partition(at)
		switch {
		case unclean && p.Leader == model.NoNode:
			out[i] = model.ErrEligibleLeadersNotAvailable
		case unclean, p.Leader == p.Replicas[0]:
			out[i] = fmt.Errorf("the preferred replica leads: %w", model.ErrElectionNotNeeded)
		case p.Leader == 2:
			c.apply(&image.PartitionChangeRecord{Partition: at, LeaderChange: true, Leader: p.Replicas[0]})
		default:
			out[i] = model.ErrPreferredLeaderNotAvailable
		}
	}
	return out, nil
}

// AlterReassignments implements Operations, for brokers 1 to 3: what is reassigned goes on
// until it is cancelled.
func (c *cluster) AlterReassignments(_ context.Context, changes []model.Reassignment) ([]error, error) {
	if c.ctrlErr != nil {
		return nil, c.ctrlErr
	}
	out := make([]error, len(changes))
	for i, change := range changes {
		p, _, _ := c.Image().Partition(change.Partition)
		removing := []model.NodeID{}
		switch {
		case change.Replicas == nil && len(p.Removing) == 0:
			out[i] = model.ErrNoReassignment
			continue
		case change.Replicas == nil:
		case len(change.Replicas) == 0 || change.Replicas[0] > 3 || change.Replicas[0] < 0:
			out[i] = model.ErrInvalidAssignment
			continue
		default:
			for _, r := range p.Replicas {
				if !slices.Contains(change.Replicas, r) {
					removing = append(removing, r)
				}
			}
		}
		c.apply(&image.PartitionChangeRecord{Partition: change.Partition, Removing: removing})
	}
	return out, nil
}

// UnregisterBroker implements Operations.
func (c *cluster) UnregisterBroker(_ context.Context, id model.NodeID, epoch model.BrokerEpoch) error {
	if c.ctrlErr != nil {
		return c.ctrlErr
	}
	c.apply(&image.BrokerRemovalRecord{ID: id, Epoch: epoch})
	return nil
}

func TestElectLeaders(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self, 2, 3, model.NoNode) // 1 is preferred everywhere, and can take over from 2 alone
	c.topic("well", self, self)
	h := newHandler(c)
	codes := func(kind int8, topics ...kmsg.ElectLeadersRequestTopic) string {
		req := kmsg.NewPtrElectLeadersRequest()
		req.ElectionType, req.Topics = kind, topics
		got := ask[*kmsg.ElectLeadersResponse](t, h, 2, req)
		out := fmt.Sprint(got.ErrorCode)
		for _, topic := range got.Topics {
			out += " " + topic.Topic
			for _, p := range topic.Partitions {
				out += fmt.Sprintf(" %d=%d", p.Partition, p.ErrorCode)
				if (p.ErrorMessage == nil) != (p.ErrorCode == 0) {
					t.Errorf("partition %d, code %d: message %v", p.Partition, p.ErrorCode, p.ErrorMessage)
				}
			}
		}
		return out
	}
	named := []kmsg.ElectLeadersRequestTopic{{Topic: "orders", Partitions: []int32{0, 1, 2, 3, 4, -1}}, {Topic: "nothing", Partitions: []int32{0}}}
	for _, tc := range []struct {
		kind   int8
		topics []kmsg.ElectLeadersRequestTopic
		want   string
	}{
		{electUnclean, named, "0 orders 0=84 1=84 2=84 3=83 4=3 -1=3 nothing 0=3"},
		{electUnclean, nil, "0 orders 3=83 well"},
		{electPreferred, named, "0 orders 0=84 1=0 2=80 3=80 4=3 -1=3 nothing 0=3"},
		{electPreferred, nil, "0 orders 2=80 3=80 well"},
		{electPreferred, []kmsg.ElectLeadersRequestTopic{}, "0"},
		{7, named[1:], "42 nothing 0=42"},
		{7, nil, "42"},
	} {
		if got := codes(tc.kind, tc.topics...); got != tc.want {
			t.Errorf("election %d of %+v: %s, want %s", tc.kind, tc.topics, got, tc.want)
		}
	}
	if p, _, _ := c.Image().Partition(model.Partition{Topic: topicID("orders"), Index: 1}); p.Leader != self {
		t.Errorf("broker %d leads", p.Leader)
	}
	c.ctrlErr = model.ErrNotController
	if got, want := codes(electPreferred, named...), "41 orders 0=41 1=41 2=41 3=41 4=3 -1=3 nothing 0=3"; got != want {
		t.Errorf("without a controller: %s, want %s", got, want)
	}
}

func TestReassignments(t *testing.T) {
	c := newCluster(t)
	c.topic("audit", self)
	c.topic("orders", self, 2)
	h := newHandler(c)
	list := func(topics ...kmsg.ListPartitionReassignmentsRequestTopic) string {
		req := kmsg.NewPtrListPartitionReassignmentsRequest()
		req.Topics = topics
		got := ask[*kmsg.ListPartitionReassignmentsResponse](t, h, 0, req)
		out := fmt.Sprint(got.ErrorCode)
		for _, topic := range got.Topics {
			for _, p := range topic.Partitions {
				out += fmt.Sprintf(" %s-%d %v+%v-%v", topic.Topic, p.Partition, p.Replicas, p.AddingReplicas, p.RemovingReplicas)
			}
		}
		return out
	}
	same := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	same("at first", list(), "0")
	strict := func(r *kmsg.AlterPartitionAssignmentsRequest) *kmsg.AlterPartitionAssignmentsRequest {
		r.AllowReplicationFactorChange = false
		return r
	}
	none := reassign("orders", 0)
	none.Topics[0].Partitions[0].Replicas = []int32{}
	for _, tc := range []struct {
		what    string
		version int16
		req     *kmsg.AlterPartitionAssignmentsRequest
		want    int16
	}{
		{"nothing to cancel", 1, reassign("orders", 1), 85},
		{"another count", 1, strict(reassign("orders", 1, 2, 1)), 38},
		{"another count, asked in version 0", 0, strict(reassign("audit", 0, 2, 1)), 0},
		{"as many", 1, strict(reassign("orders", 1, 2, 1, 3)), 0},
		{"fewer", 1, reassign("orders", 1, 2, 1), 0},
		{"no replicas", 1, none, 39},
		{"unknown broker", 1, reassign("orders", 0, 9), 39},
		{"negative broker", 1, reassign("orders", 0, -9), 39},
		{"unknown partition", 1, reassign("orders", 2, 1), 3},
		{"negative partition", 1, reassign("orders", -1, 1), 3},
		{"unknown topic", 1, reassign("nothing", 0, 1), 3},
	} {
		got := ask[*kmsg.AlterPartitionAssignmentsResponse](t, h, tc.version, tc.req)
		if p := got.Topics[0].Partitions[0]; got.ErrorCode != 0 || p.ErrorCode != tc.want || (p.ErrorMessage == nil) != (tc.want == 0) || p.Partition != tc.req.Topics[0].Partitions[0].Partition {
			t.Errorf("%s: %+v, want code %d", tc.what, got, tc.want)
		}
	}
	same("all", list(), "0 audit-0 [1 2 3]+[]-[3] orders-1 [1 2 3]+[]-[3]")
	same("some", list(kmsg.ListPartitionReassignmentsRequestTopic{Topic: "orders", Partitions: []int32{0, 1, 7, -1}},
		kmsg.ListPartitionReassignmentsRequestTopic{Topic: "nothing", Partitions: []int32{0}}), "0 orders-1 [1 2 3]+[]-[3]")
	ask[*kmsg.AlterPartitionAssignmentsResponse](t, h, 1, reassign("orders", 1))
	same("one cancelled", list(), "0 audit-0 [1 2 3]+[]-[3]")

	many := reassign("orders", 0, 2)
	many.Topics[0].Partitions = append(many.Topics[0].Partitions, reassign("", 8, 2).Topics[0].Partitions[0], reassign("", 1).Topics[0].Partitions[0])
	var codes []int16
	for _, p := range ask[*kmsg.AlterPartitionAssignmentsResponse](t, h, 1, many).Topics[0].Partitions {
		codes = append(codes, p.ErrorCode)
	}
	if !slices.Equal(codes, []int16{0, 3, 85}) {
		t.Errorf("each on its own: %v", codes)
	}
	c.ctrlErr = model.ErrNotController
	if got := ask[*kmsg.AlterPartitionAssignmentsResponse](t, h, 1, reassign("orders", 0, 1)); got.ErrorCode != 41 {
		t.Errorf("without a controller: %+v", got)
	}
}

func TestVoters(t *testing.T) {
	c := newCluster(t)
	h := newHandler(c)
	for _, tc := range []struct {
		id          int32
		cluster     *string
		add, remove int16
	}{
		{3, nil, 0, 0},
		{3, ptr("cluster-one"), 0, 0},
		{3, ptr("cluster-two"), 104, 104},
		{2, nil, 127, 127},
		{1, nil, 126, 0},
		{-1, nil, 42, 42},
	} {
		add, remove := kmsg.NewPtrAddRaftVoterRequest(), kmsg.NewPtrRemoveRaftVoterRequest()
		add.VoterID, add.VoterDirectoryID, add.ClusterID = tc.id, [16]byte{0xd}, tc.cluster
		remove.VoterID, remove.VoterDirectoryID, remove.ClusterID = tc.id, [16]byte{0xd}, tc.cluster
		if got := ask[*kmsg.AddRaftVoterResponse](t, h, 1, add); got.ErrorCode != tc.add || (got.ErrorMessage == nil) != (tc.add == 0) {
			t.Errorf("add %d of %s: %+v, want code %d", tc.id, str(tc.cluster), got, tc.add)
		}
		if got := ask[*kmsg.RemoveRaftVoterResponse](t, h, 0, remove); got.ErrorCode != tc.remove || (got.ErrorMessage == nil) != (tc.remove == 0) {
			t.Errorf("remove %d of %s: %+v, want code %d", tc.id, str(tc.cluster), got, tc.remove)
		}
	}
	if want := []string{"add 3/d", "remove 3/d", "add 3/d", "remove 3/d", "remove 1/d"}; !slices.Equal(c.voters, want) {
		t.Errorf("asked %q, want %q", c.voters, want)
	}
}

func TestDescribeQuorum(t *testing.T) {
	c := newCluster(t)
	c.observers = []model.QuorumVoter{{ID: 3, Directory: model.DirectoryID{3}, LEO: 80, LastContact: testTime(), LastCaughtUp: testTime().Add(-time.Second)}}
	h := newHandler(c)
	got := ask[*kmsg.DescribeQuorumResponse](t, h, 2, quorumRequest(metadataTopic, 0))
	p := got.Topics[0].Partitions[0]
	if p.ErrorCode != 0 || p.LeaderID != 1 || p.LeaderEpoch != 4 || p.HighWatermark != 90 {
		t.Errorf("quorum %+v", p)
	}
	now := testTime().UnixMilli()
	if v := p.CurrentVoters; len(v) != 1 || v[0].ReplicaID != 1 || v[0].ReplicaDirectoryID != [16]byte{1} || v[0].LogEndOffset != 91 ||
		v[0].LastFetchTimestamp != now || v[0].LastCaughtUpTimestamp != now {
		t.Errorf("voters %+v", v)
	}
	if v := p.Observers; len(v) != 1 || v[0].ReplicaID != 3 || v[0].LogEndOffset != 80 || v[0].LastFetchTimestamp != now || v[0].LastCaughtUpTimestamp != now-1000 {
		t.Errorf("observers %+v", v)
	}
	if n := got.Nodes; len(n) != 1 || n[0].NodeID != 1 || len(n[0].Listeners) != 1 || n[0].Listeners[0].Host != "a.example" || n[0].Listeners[0].Port != 9092 {
		t.Errorf("nodes %+v", n)
	}
	for _, req := range []*kmsg.DescribeQuorumRequest{quorumRequest("orders", 0), quorumRequest(metadataTopic, 1), quorumRequest(metadataTopic, 0, 0)} {
		got := ask[*kmsg.DescribeQuorumResponse](t, h, 2, req)
		for _, p := range got.Topics[0].Partitions {
			if p.ErrorCode != 3 || len(p.CurrentVoters) != 0 || len(got.Nodes) != 0 {
				t.Errorf("%+v: %+v", req.Topics, got)
			}
		}
	}
	c.ctrlErr = model.ErrNotController
	if p := ask[*kmsg.DescribeQuorumResponse](t, h, 0, quorumRequest(metadataTopic, 0)).Topics[0].Partitions[0]; p.ErrorCode != 41 || p.LeaderID != -1 {
		t.Errorf("where nobody leads: %+v", p)
	}
}

// A broker that serves, or votes, is kept; one that does not is forgotten, also by the quorum.
func TestUnregisterBroker(t *testing.T) {
	c := newCluster(t)
	c.apply(brokerRecord(self, "a.example", "", true),
		&image.MemberRecord{Directory: model.DirectoryID{1}, Node: self},
		&image.MemberRecord{Directory: model.DirectoryID{3}, Node: 3},
		&image.MemberRecord{Directory: model.DirectoryID{4}, Node: 4})
	h := newHandler(c)
	for _, want := range []struct {
		id   int32
		code int16
		left bool
	}{{1, 42, true}, {2, 42, true}, {3, 0, false}, {3, 102, false}, {4, 0, false}, {4, 102, false}, {-1, 102, false}} {
		req := kmsg.NewPtrUnregisterBrokerRequest()
		req.BrokerID = want.id
		got := ask[*kmsg.UnregisterBrokerResponse](t, h, 0, req)
		if _, left := c.Image().Broker(model.NodeID(want.id)); got.ErrorCode != want.code || left != want.left || (got.ErrorMessage == nil) != (want.code == 0) {
			t.Errorf("broker %d: code %d, registered %v, want %+v", want.id, got.ErrorCode, left, want)
		}
		if left := len(membersOf(c.Image(), model.NodeID(want.id))); (left > 0) != (want.id == int32(self)) {
			t.Errorf("broker %d: it is a member of the quorum with %d directories", want.id, left)
		}
	}
}
