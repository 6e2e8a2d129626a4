package api

import (
	"context"
	"testing"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// requests are one of each API that does something, at a version.
func requests(t testing.TB, version int16) map[int16]kmsg.Request {
	produce := kmsg.NewPtrProduceRequest()
	produce.Acks, produce.TimeoutMillis = -1, 1000
	produce.Topics = []kmsg.ProduceRequestTopic{{Topic: "orders", TopicID: topicID("orders"), Partitions: []kmsg.ProduceRequestTopicPartition{
		{Partition: 0, Records: records(t, batch.Options{}, "v")}}}}

	fetch := kmsg.NewPtrFetchRequest()
	fetch.MaxBytes, fetch.MinBytes = 1<<20, 1
	part := kmsg.NewFetchRequestTopicPartition()
	part.PartitionMaxBytes = 1 << 20
	fetch.Topics = []kmsg.FetchRequestTopic{{Topic: "orders", TopicID: topicID("orders"), Partitions: []kmsg.FetchRequestTopicPartition{part}}}

	list := kmsg.NewPtrListOffsetsRequest()
	offset := kmsg.NewListOffsetsRequestTopicPartition()
	offset.Timestamp = model.TimestampLatest
	list.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "orders", Partitions: []kmsg.ListOffsetsRequestTopicPartition{offset}}}

	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Topics = []kmsg.MetadataRequestTopic{{Topic: ptr("orders")}}

	apiVersions := kmsg.NewPtrApiVersionsRequest()
	apiVersions.ClientSoftwareName, apiVersions.ClientSoftwareVersion = "brokerd-test", "1.0"

	create := kmsg.NewPtrCreateTopicsRequest()
	create.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "new", NumPartitions: 2, ReplicationFactor: 1}}

	remove := kmsg.NewPtrDeleteTopicsRequest()
	remove.TopicNames = []string{"old"}
	remove.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: ptr("old")}}

	trim := kmsg.NewPtrDeleteRecordsRequest()
	trim.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "orders", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: -1}}}}

	epochs := kmsg.NewPtrOffsetForLeaderEpochRequest()
	epoch := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	epoch.LeaderEpoch = 7
	epochs.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "orders", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{epoch}}}

	describe := kmsg.NewPtrDescribeConfigsRequest()
	describe.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "orders"}}
	describe.IncludeSynonyms, describe.IncludeDocumentation = true, true

	alter := kmsg.NewPtrAlterConfigsRequest()
	alter.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "orders",
		Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: ptr("1")}}}}

	incremental := kmsg.NewPtrIncrementalAlterConfigsRequest()
	incremental.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "orders",
		Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: ptr("1")}}}}

	more := kmsg.NewPtrCreatePartitionsRequest()
	more.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "orders", Count: 5}}

	described := kmsg.NewPtrDescribeTopicPartitionsRequest()
	described.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: "orders"}}

	out := make(map[int16]kmsg.Request)
	for _, r := range append([]kmsg.Request{produce, fetch, list, metadata, apiVersions, create, remove, trim, epochs, describe, alter, incremental, more, described,
		kmsg.NewPtrInitProducerIDRequest(), kmsg.NewPtrDescribeLogDirsRequest(), kmsg.NewPtrDescribeClusterRequest()}, append(adminRequests(), groupRequests()...)...) {
		r.SetVersion(version)
		out[r.Key()] = r
	}
	return out
}

// failure returns the error codes of an answer that should have none.
func failure(r kmsg.Response) []int16 {
	var codes []int16
	see := func(code int16) {
		if code != 0 {
			codes = append(codes, code)
		}
	}
	switch r := r.(type) {
	case *kmsg.ProduceResponse:
		see(r.Topics[0].Partitions[0].ErrorCode)
	case *kmsg.FetchResponse:
		see(r.ErrorCode)
		see(r.Topics[0].Partitions[0].ErrorCode)
	case *kmsg.ListOffsetsResponse:
		see(r.Topics[0].Partitions[0].ErrorCode)
	case *kmsg.MetadataResponse:
		for _, topic := range r.Topics {
			see(topic.ErrorCode)
			for _, p := range topic.Partitions[:1] {
				see(p.ErrorCode)
			}
		}
	case *kmsg.ApiVersionsResponse:
		see(r.ErrorCode)
	case *kmsg.CreateTopicsResponse:
		see(r.Topics[0].ErrorCode)
	case *kmsg.DeleteTopicsResponse:
		see(r.Topics[0].ErrorCode)
	case *kmsg.DeleteRecordsResponse:
		see(r.Topics[0].Partitions[0].ErrorCode)
	case *kmsg.OffsetForLeaderEpochResponse:
		see(r.Topics[0].Partitions[0].ErrorCode)
	case *kmsg.DescribeConfigsResponse:
		see(r.Resources[0].ErrorCode)
	case *kmsg.AlterConfigsResponse:
		see(r.Resources[0].ErrorCode)
	case *kmsg.IncrementalAlterConfigsResponse:
		see(r.Resources[0].ErrorCode)
	case *kmsg.CreatePartitionsResponse:
		see(r.Topics[0].ErrorCode)
	case *kmsg.DescribeTopicPartitionsResponse:
		see(r.Topics[0].ErrorCode)
	case *kmsg.InitProducerIDResponse:
		see(r.ErrorCode)
	case *kmsg.DescribeLogDirsResponse:
		see(r.ErrorCode)
	case *kmsg.DescribeClusterResponse:
		see(r.ErrorCode)
	default:
		if !adminFailure(r, see) && !groupFailure(r, see) {
			see(wire.CodeUnknown)
		}
	}
	return codes
}

// Every advertised version of every API does its work, and its answer is read
// back by the codec at that version.
func TestEveryVersion(t *testing.T) {
	for _, a := range wire.APIs() {
		for v := a.Serves; v <= a.Max; v++ {
			c := newCluster(t)
			c.topic("orders", self, 2)
			c.topic("old", self)
			c.groups.stable("crew")
			c.groups.offset("idle", "orders", 0, 3)
			h := newHandler(c)
			req := requests(t, v)[a.Key]
			if req == nil {
				t.Fatalf("%s has no request", a.Name())
			}
			reply := begin(t.Context(), h, callOf(req))(t.Context())
			if got := failure(decoded[kmsg.Response](t, req, reply)); len(got) > 0 {
				t.Errorf("%s version %d failed: %v", a.Name(), v, got)
			}
			if a.Key != wire.KeyAPIVersions && a.Key != wire.KeyDescribeCluster && len(c.asked) == 0 {
				t.Errorf("%s version %d asked the authorizer nothing", a.Name(), v)
			}
		}
	}
}

// What is not served closes the connection, except for ApiVersions. (KIP-511)
func TestUnknownVersions(t *testing.T) {
	h := newHandler(newCluster(t))
	for _, call := range []wire.Call{
		{Header: wire.Header{Key: wire.KeyProduce, Version: 2}},
		{Header: wire.Header{Key: wire.KeyFetch, Version: 3}},
		{Header: wire.Header{Key: wire.KeyMetadata, Version: 14}},
		{Header: wire.Header{Key: kmsg.TxnOffsetCommit.Int16(), Version: 0}},
		{Header: wire.Header{Key: wire.KeyOffsetCommit, Version: 1}},
		{Header: wire.Header{Key: 999, Version: 0}},
		{Header: wire.Header{Key: wire.KeyMetadata, Version: 9}, Body: []byte{0xff}},
	} {
		if reply := h.Begin(t.Context(), call)(t.Context()); !reply.Close || encoded(0, reply) != nil || reply.Reason == "" {
			t.Errorf("%+v: %+v", call.Header, reply)
		}
	}
	for _, version := range []int16{6, 99, -1} {
		call := wire.Call{Header: wire.Header{Key: wire.KeyAPIVersions, Version: version}, Body: []byte("not parsed")}
		reply := h.Begin(t.Context(), call)(t.Context())
		if reply.Close || reply.Version == nil || *reply.Version != 0 {
			t.Fatalf("version %d: %+v", version, reply)
		}
		got := decoded[*kmsg.ApiVersionsResponse](t, kmsg.NewPtrApiVersionsRequest(), reply)
		if got.ErrorCode != 35 || len(got.ApiKeys) != 1 || got.ApiKeys[0].ApiKey != 18 || got.ApiKeys[0].MaxVersion != 5 {
			t.Errorf("version %d: %+v", version, got)
		}
	}
}

// What is not advertised closes the connection at any version, and these are not:
// an answer that is advertised and does not do its work sends clients the wrong
// way, as one that is missing does not.
func TestWhatIsNotServed(t *testing.T) {
	h := newHandler(newCluster(t))
	for what, keys := range map[string][]int16{
		"between Kafka's brokers":          {4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82},
		"authentication":                   {17, 36},
		"transactions":                     {24, 25, 26, 27, 28, 65, 66},
		"delegation tokens":                {38, 39, 40, 41},
		"moving replicas between stores":   {34},
		"quotas and credentials":           {49, 51},
		"features":                         {57},
		"the new consumer groups, KIP-848": {68},
		"telemetry, KIP-714":               {71, 72},
		"share groups, KIP-932":            {76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92},
		"streams groups, KIP-1071":         {88, 89},
		"unknown, or later":                {-1, 93, 94, 999},
	} {
		for _, key := range keys {
			for _, version := range []int16{0, 1, 5} {
				reply := h.Begin(t.Context(), wire.Call{Header: wire.Header{Key: key, Version: version}, Body: make([]byte, 64)})(t.Context())
				if !reply.Close || encoded(0, reply) != nil || reply.Reason == "" {
					t.Errorf("%s: key %d version %d: %+v", what, key, version, reply)
				}
			}
		}
	}
}

func TestAPIVersions(t *testing.T) {
	e := &events{}
	h := newHandler(newCluster(t), func(_ *Config, d *Deps) { d.Events = e })
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "apache-kafka-java", "4.1.0"
	got := ask[*kmsg.ApiVersionsResponse](t, h, 4, req)
	if len(got.ApiKeys) != len(wire.APIs()) || got.FinalizedFeaturesEpoch != -1 || len(got.SupportedFeatures) != 0 {
		t.Fatalf("got %+v", got)
	}
	if e.software != "apache-kafka-java/4.1.0" {
		t.Errorf("software %q", e.software)
	}
	for _, bad := range []string{"", "-x", "x-", "a b", "a\n", "ü", ".x", string(make([]byte, 300))} {
		req.ClientSoftwareName = bad
		if got := ask[*kmsg.ApiVersionsResponse](t, h, 3, req); got.ErrorCode != 42 {
			t.Errorf("software name %q: %d", bad, got.ErrorCode)
		}
	}
	if got := ask[*kmsg.ApiVersionsResponse](t, h, 2, kmsg.NewPtrApiVersionsRequest()); got.ErrorCode != 0 {
		t.Errorf("version 2 has no software name: %d", got.ErrorCode)
	}
}

// A client that reached the wrong broker is told so. (KIP-1242, FR-79)
func TestAPIVersionsMisrouted(t *testing.T) {
	h := newHandler(newCluster(t))
	for _, c := range []struct {
		cluster *string
		node    int32
		want    int16
	}{
		{nil, -1, 0},
		{ptr("cluster-one"), 1, 0},
		{ptr("cluster-two"), 1, 129},
		{ptr("cluster-one"), 2, 129},
		{ptr("cluster-one"), -1, 42},
		{nil, 1, 42},
	} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "test", "1"
		req.ClusterID, req.NodeID = c.cluster, c.node
		if got := ask[*kmsg.ApiVersionsResponse](t, h, 5, req); got.ErrorCode != c.want {
			t.Errorf("cluster %s, node %d: %d, want %d", str(c.cluster), c.node, got.ErrorCode, c.want)
		}
	}
}

func FuzzHandle(f *testing.F) {
	for _, a := range wire.APIs() {
		for v := a.Serves; v <= a.Max; v++ {
			f.Add(a.Key, v, requests(f, v)[a.Key].AppendTo(nil))
		}
	}
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		c := newCluster(t)
		c.topic("orders", self, 2)
		c.groups.stable("crew")
		c.groups.offset("idle", "orders", 0, 3)
		c.ctrlErr = model.ErrNotController // what is asked of the controller does not matter here
		h := newHandler(c)
		call := wire.Call{Header: wire.Header{Key: key, Version: version}, Body: body, From: wire.Peer{Listener: listener, Principal: security.Anonymous}}
		ctx := t.Context()
		if key == wire.KeyFetch { // what a client asks to wait for is waited for
			stopped, cancel := context.WithCancel(ctx)
			cancel()
			ctx = stopped
		}
		reply := begin(t.Context(), h, call)(ctx)
		if reply.Version != nil {
			version = *reply.Version
		}
		if body := encoded(version, reply); body != nil {
			read(t, key, version, body)
		}
	})
}

// read reads the body of a response as a client would.
func read(t testing.TB, key, version int16, body []byte) kmsg.Response {
	t.Helper()
	resp := kmsg.ResponseForKey(key)
	resp.SetVersion(version)
	if err := resp.ReadFrom(body); err != nil {
		t.Fatalf("key %d version %d: the answer cannot be read: %v", key, version, err)
	}
	return resp
}
