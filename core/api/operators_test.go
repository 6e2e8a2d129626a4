package api

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// adminRequests are one of each API of operators' tools that does something.
func adminRequests() []kmsg.Request {
	elect := kmsg.NewPtrElectLeadersRequest()
	elect.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "orders", Partitions: []int32{0}}}

	move := reassign("orders", 0, 2, 1)
	voter := kmsg.NewPtrAddRaftVoterRequest()
	voter.VoterID, voter.VoterDirectoryID = 3, [16]byte{3}
	voteless := kmsg.NewPtrRemoveRaftVoterRequest()
	voteless.VoterID, voteless.VoterDirectoryID = 3, [16]byte{3}

	quotas := kmsg.NewPtrDescribeClientQuotasRequest()
	quotas.Components = []kmsg.DescribeClientQuotasRequestComponent{{EntityType: "user", MatchType: kmsg.QuotasMatchTypeAny}}

	users := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
	users.Users = []kmsg.DescribeUserSCRAMCredentialsRequestUser{{Name: "ann"}}

	producers := kmsg.NewPtrDescribeProducersRequest()
	producers.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "orders", Partitions: []int32{0}}}

	gone := kmsg.NewPtrUnregisterBrokerRequest()
	gone.BrokerID = 3

	allow := kmsg.NewPtrCreateACLsRequest()
	allow.Creations = []kmsg.CreateACLsRequestCreation{{
		ResourceType: kmsg.ACLResourceTypeTopic, ResourceName: "orders", ResourcePatternType: kmsg.ACLResourcePatternTypeLiteral,
		Principal: "User:ann", Host: "*", Operation: kmsg.ACLOperationRead, PermissionType: kmsg.ACLPermissionTypeAllow}}

	forget := kmsg.NewPtrDeleteACLsRequest()
	forget.Filters = []kmsg.DeleteACLsRequestFilter{kmsg.NewDeleteACLsRequestFilter()}

	return []kmsg.Request{kmsg.NewPtrDescribeACLsRequest(), allow, forget, elect, move, voter, voteless, kmsg.NewPtrListPartitionReassignmentsRequest(), quotas, users,
		quorumRequest(metadataTopic, 0), producers, gone, kmsg.NewPtrListConfigResourcesRequest()}
}

// reassign asks that one partition get these replicas; null without any.
func reassign(topic string, partition int32, replicas ...int32) *kmsg.AlterPartitionAssignmentsRequest {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: topic, Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{
		{Partition: partition, Replicas: replicas}}}}
	return req
}

func quorumRequest(topic string, partitions ...int32) *kmsg.DescribeQuorumRequest {
	req := kmsg.NewPtrDescribeQuorumRequest()
	req.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: topic}}
	for _, p := range partitions {
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, kmsg.DescribeQuorumRequestTopicPartition{Partition: p})
	}
	return req
}

// adminFailure is failure for the answers to adminRequests. Some have one code
// that says that there is nothing to do, or nothing to show: any other is told.
func adminFailure(r kmsg.Response, see func(int16)) bool {
	but := func(code, expected int16) {
		if code != expected {
			see(code)
			if code == 0 {
				see(wire.CodeUnknown)
			}
		}
	}
	switch r := r.(type) {
	case *kmsg.DescribeACLsResponse:
		but(r.ErrorCode, 54)
	case *kmsg.CreateACLsResponse:
		but(r.Results[0].ErrorCode, 54)
	case *kmsg.DeleteACLsResponse:
		but(r.Results[0].ErrorCode, 54)
	case *kmsg.ElectLeadersResponse:
		see(r.ErrorCode)
		but(r.Topics[0].Partitions[0].ErrorCode, wire.NewErrors().Code(model.ErrElectionNotNeeded))
	case *kmsg.AlterPartitionAssignmentsResponse:
		see(r.ErrorCode)
		see(r.Topics[0].Partitions[0].ErrorCode)
	case *kmsg.AddRaftVoterResponse:
		see(r.ErrorCode)
	case *kmsg.RemoveRaftVoterResponse:
		see(r.ErrorCode)
	case *kmsg.ListPartitionReassignmentsResponse:
		see(r.ErrorCode)
	case *kmsg.DescribeClientQuotasResponse:
		see(r.ErrorCode)
	case *kmsg.DescribeUserSCRAMCredentialsResponse:
		see(r.ErrorCode)
		but(r.Results[0].ErrorCode, wire.CodeResourceNotFound)
	case *kmsg.DescribeQuorumResponse:
		see(r.ErrorCode)
		see(r.Topics[0].Partitions[0].ErrorCode)
	case *kmsg.DescribeProducersResponse:
		see(r.Topics[0].Partitions[0].ErrorCode)
	case *kmsg.UnregisterBrokerResponse:
		see(r.ErrorCode)
	case *kmsg.ListConfigResourcesResponse:
		see(r.ErrorCode)
	default:
		return false
	}
	return true
}

// Who may not describe or alter the cluster hears that, and nothing else.
func TestAdminNeedsTheCluster(t *testing.T) {
	const refused = 31
	for _, req := range adminRequests() {
		c := newCluster(t)
		c.topic("orders", self)
		c.denyCluster(security.OpDescribe, security.OpAlter, security.OpDescribeConfigs)
		switch r := askNewest(t, newHandler(c), req).(type) {
		case *kmsg.DescribeACLsResponse:
			wantCode(t, req, r.ErrorCode, refused)
		case *kmsg.CreateACLsResponse:
			wantCode(t, req, r.Results[0].ErrorCode, refused)
		case *kmsg.DeleteACLsResponse:
			wantCode(t, req, r.Results[0].ErrorCode, refused)
		case *kmsg.ElectLeadersResponse:
			wantCode(t, req, r.ErrorCode, refused)
			wantCode(t, req, r.Topics[0].Partitions[0].ErrorCode, refused)
		case *kmsg.AlterPartitionAssignmentsResponse:
			wantCode(t, req, r.ErrorCode, refused)
			if p, _, _ := c.Image().Partition(model.Partition{Topic: topicID("orders")}); len(p.Removing) > 0 {
				t.Errorf("partition reassigned: %+v", p)
			}
		case *kmsg.AddRaftVoterResponse:
			wantCode(t, req, r.ErrorCode, refused)
			if len(c.voters) > 0 {
				t.Errorf("voters changed: %q", c.voters)
			}
		case *kmsg.RemoveRaftVoterResponse:
			wantCode(t, req, r.ErrorCode, refused)
			if len(c.voters) > 0 {
				t.Errorf("voters changed: %q", c.voters)
			}
		case *kmsg.ListPartitionReassignmentsResponse:
			wantCode(t, req, r.ErrorCode, refused)
		case *kmsg.DescribeClientQuotasResponse:
			wantCode(t, req, r.ErrorCode, refused)
		case *kmsg.DescribeUserSCRAMCredentialsResponse:
			wantCode(t, req, r.ErrorCode, refused)
			if len(r.Results) > 0 {
				t.Errorf("it is told of %+v", r.Results)
			}
		case *kmsg.DescribeQuorumResponse:
			wantCode(t, req, r.ErrorCode, refused)
			if len(r.Topics) > 0 || len(r.Nodes) > 0 {
				t.Errorf("it is told of %+v", r)
			}
		case *kmsg.DescribeProducersResponse: // goes by topic
		case *kmsg.UnregisterBrokerResponse:
			wantCode(t, req, r.ErrorCode, refused)
			if _, ok := c.Image().Broker(3); !ok {
				t.Error("the broker is forgotten")
			}
		case *kmsg.ListConfigResourcesResponse:
			wantCode(t, req, r.ErrorCode, refused)
			if len(r.ConfigResources) > 0 {
				t.Errorf("it is told of %+v", r.ConfigResources)
			}
		default:
			t.Errorf("%T is not looked at", r)
		}
	}
}

func askNewest(t *testing.T, h *Handler, req kmsg.Request) kmsg.Response {
	t.Helper()
	return ask[kmsg.Response](t, h, req.MaxVersion(), req)
}

func wantCode(t *testing.T, req kmsg.Request, got, want int16) {
	t.Helper()
	if got != want {
		t.Errorf("%s: code %d, want %d", kmsg.NameForKey(req.Key()), got, want)
	}
}

func TestDescribeProducers(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self, 2, self)
	c.topic("secret", self)
	c.denyTopic("secret", security.OpRead)
	h := newHandler(c)
	for i := range int32(2) {
		data := records(t, batch.Options{Producer: &batch.Producer{ID: int64(40 + i), Epoch: int16(i), Sequence: 9 * i}}, "v")
		info, err := recordbatch.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		c.Append(t.Context(), model.Append{Partition: model.Partition{Topic: topicID("orders")}, Batch: info, Data: data}, func(model.Appended) {})
	}
	req := kmsg.NewPtrDescribeProducersRequest()
	for _, topic := range []string{"orders", "secret", "nothing", "bad name"} {
		req.Topics = append(req.Topics, kmsg.DescribeProducersRequestTopic{Topic: topic, Partitions: []int32{0, 1, 2, 3, 4, 4, -1}})
	}
	got := ask[*kmsg.DescribeProducersResponse](t, h, 0, req)
	var codes []string
	for _, topic := range got.Topics {
		var of []int16
		for _, p := range topic.Partitions {
			of = append(of, p.ErrorCode)
		}
		codes = append(codes, fmt.Sprint(topic.Topic, of))
	}
	want := []string{"orders[0 6 0 3 42 42 3]", "secret[29 29 29 29 29 29 29]", "nothing[3 3 3 3 42 42 3]", "bad name[17 17 17 17 17 17 17]"}
	if !slices.Equal(codes, want) {
		t.Errorf("codes %q, want %q", codes, want)
	}
	at := testTime().UnixMilli()
	producers := []kmsg.DescribeProducersResponseTopicPartitionActiveProducer{
		{ProducerID: 40, LastTimestamp: at, CoordinatorEpoch: -1, CurrentTxnStartOffset: -1},
		{ProducerID: 41, ProducerEpoch: 1, LastSequence: 9, LastTimestamp: at, CoordinatorEpoch: -1, CurrentTxnStartOffset: -1},
	}
	if shown := got.Topics[0].Partitions[0].ActiveProducers; !reflect.DeepEqual(shown, producers) {
		t.Errorf("producers %+v, want %+v", shown, producers)
	}
	if n := len(got.Topics[0].Partitions[2].ActiveProducers); n != 0 {
		t.Errorf("%d producers of a partition that nobody wrote to", n)
	}
}

func TestDescribeClientQuotas(t *testing.T) {
	const exact, byDefault, every = kmsg.QuotasMatchTypeExact, kmsg.QuotasMatchTypeDefault, kmsg.QuotasMatchTypeAny
	filter := func(kind string, match kmsg.QuotasMatchType, name *string) kmsg.DescribeClientQuotasRequestComponent {
		return kmsg.DescribeClientQuotasRequestComponent{EntityType: kind, MatchType: match, Match: name}
	}
	h := newHandler(newCluster(t))
	for i, c := range []struct {
		want   int16
		filter []kmsg.DescribeClientQuotasRequestComponent
	}{
		{0, nil},
		{0, []kmsg.DescribeClientQuotasRequestComponent{filter("user", exact, ptr("ann")), filter("client-id", byDefault, nil)}},
		{0, []kmsg.DescribeClientQuotasRequestComponent{filter("ip", every, nil)}},
		{42, []kmsg.DescribeClientQuotasRequestComponent{filter("ip", every, nil), filter("user", every, nil)}},
		{42, []kmsg.DescribeClientQuotasRequestComponent{filter("user", every, nil), filter("user", byDefault, nil)}},
		{42, []kmsg.DescribeClientQuotasRequestComponent{filter("user", exact, nil)}},
		{42, []kmsg.DescribeClientQuotasRequestComponent{filter("user", byDefault, ptr("ann"))}},
		{42, []kmsg.DescribeClientQuotasRequestComponent{filter("user", every, ptr("ann"))}},
		{42, []kmsg.DescribeClientQuotasRequestComponent{filter("user", 9, nil)}},
		{42, []kmsg.DescribeClientQuotasRequestComponent{filter("", every, nil)}},
		{35, []kmsg.DescribeClientQuotasRequestComponent{filter("group", every, nil)}},
	} {
		req := kmsg.NewPtrDescribeClientQuotasRequest()
		req.Components = c.filter
		got := ask[*kmsg.DescribeClientQuotasResponse](t, h, 1, req)
		if got.ErrorCode != c.want || (got.ErrorMessage == nil) != (c.want == 0) || (got.Entries == nil) != (c.want != 0) {
			t.Errorf("filter %d: %+v, want code %d", i, got, c.want)
		}
	}
}

func TestDescribeUserSCRAMCredentials(t *testing.T) {
	h := newHandler(newCluster(t))
	req := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
	if got := ask[*kmsg.DescribeUserSCRAMCredentialsResponse](t, h, 0, req); got.ErrorCode != 0 || len(got.Results) != 0 {
		t.Errorf("of all users: %+v", got)
	}
	for _, name := range []string{"ann", "bob", "ann", "eve"} {
		req.Users = append(req.Users, kmsg.DescribeUserSCRAMCredentialsRequestUser{Name: name})
	}
	var shown []string
	for _, r := range ask[*kmsg.DescribeUserSCRAMCredentialsResponse](t, h, 0, req).Results {
		shown = append(shown, fmt.Sprintf("%s=%d", r.User, r.ErrorCode))
	}
	if want := []string{"ann=92", "bob=91", "eve=91"}; !slices.Equal(shown, want) {
		t.Errorf("users %q, want %q", shown, want)
	}
}

func TestListConfigResources(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self)
	c.topic("audit", self)
	h := newHandler(c)
	for _, want := range []struct {
		version int16
		types   []int8
		code    int16
		shown   string
	}{
		{0, nil, 0, ""},
		{1, nil, 0, "2/audit 2/orders 4/1 4/2 "},
		{1, []int8{2, 2}, 0, "2/audit 2/orders "},
		{1, []int8{4}, 0, "4/1 4/2 "},
		{1, []int8{8, 16, 32}, 0, ""},
		{1, []int8{2, 3}, 35, ""},
		{1, []int8{0}, 35, ""},
	} {
		req := kmsg.NewPtrListConfigResourcesRequest()
		req.ResourceTypes = want.types
		got := ask[*kmsg.ListConfigResourcesResponse](t, h, want.version, req)
		shown := ""
		for _, r := range got.ConfigResources {
			shown += fmt.Sprintf("%d/%s ", r.Type, r.Name)
		}
		if got.ErrorCode != want.code || shown != want.shown {
			t.Errorf("version %d, types %v: code %d, %q, want %+v", want.version, want.types, got.ErrorCode, shown, want)
		}
	}
}

// What operators ask beyond topics and settings.
func TestFranzOperates(t *testing.T) {
	c, opts := started(t)
	c.topic("orders", self, self)
	cl := client(t, append(opts, kgo.DefaultProduceTopic("orders"), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	adm := kadm.NewClient(cl)
	ctx := within(t)
	for range 3 {
		if err := cl.ProduceSync(ctx, &kgo.Record{Partition: 1, Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	all := kadm.TopicsSet{"orders": {0: {}, 1: {}}}
	producers, err := adm.DescribeProducers(ctx, all)
	if known := producers["orders"].Partitions[1].ActiveProducers.Sorted(); err != nil || len(known) != 1 || known[0].LastSequence != 2 || known[0].CurrentTxnStartOffset != -1 {
		t.Errorf("producers: %+v, %v", producers, err)
	}
	elections, err := adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, all)
	if e := elections["orders"][1]; err != nil || !errors.Is(e.Err, kerr.ElectionNotNeeded) {
		t.Errorf("elections: %+v, %v", elections, err)
	}
	if moving, err := adm.ListPartitionReassignments(ctx, nil); err != nil || len(moving) != 0 {
		t.Errorf("reassignments: %+v, %v", moving, err)
	}
	if quotas, err := adm.DescribeClientQuotas(ctx, false, []kadm.DescribeClientQuotaComponent{{Type: "user", MatchType: kmsg.QuotasMatchTypeAny}}); err != nil || len(quotas) != 0 {
		t.Errorf("quotas: %+v, %v", quotas, err)
	}
	users, err := adm.DescribeUserSCRAMs(ctx, "ann")
	if err != nil || !errors.Is(users["ann"].Err, kerr.ResourceNotFound) {
		t.Errorf("credentials: %+v, %v", users, err)
	}
	acls, err := adm.DescribeACLs(ctx, kadm.NewACLs().AnyResource().Allow().AllowHosts().Operations(kadm.OpAny))
	if err == nil && len(acls) > 0 {
		err = acls[0].Err
	}
	if !errors.Is(err, kerr.SecurityDisabled) {
		t.Errorf("ACLs: %+v, %v", acls, err)
	}
	quorum, err := quorumRequest(metadataTopic, 0).RequestWith(ctx, cl)
	if err != nil || quorum.Topics[0].Partitions[0].LeaderID != int32(self) {
		t.Errorf("quorum: %+v, %v", quorum, err)
	}
}
