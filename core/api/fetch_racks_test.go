package api

import (
	"fmt"
	"testing"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// racks is a topic whose partitions these brokers lead, with all three in sync: the
// first in rack-a, the others in rack-b.
func racks(t *testing.T, leaders ...model.NodeID) *cluster {
	c := newCluster(t)
	c.apply(brokerRecord(2, "b.example", "rack-b", false), brokerRecord(3, "c.example", "rack-b", false))
	id := c.topic("orders", leaders...)
	for i := range leaders {
		c.apply(&image.PartitionChangeRecord{Partition: model.Partition{Topic: id, Index: int32(i)}, ISR: []model.NodeID{1, 2, 3}})
	}
	return c
}

// A leader sends a client to a replica in sync in its rack, several partitions to several,
// unless it is there itself; a follower serves clients in its own. (O9; KIP-392)
func TestFetchRacks(t *testing.T) {
	for _, tc := range []struct {
		name    string
		version int16
		rack    string
		change  func(c *cluster)
		want    string // the preferred replica of orders-0 and -1, and whether -2 may be read from a follower
	}{
		{name: "no rack", version: 11, want: "-1 -1 false"},
		{name: "before racks", version: 10, rack: "rack-b", want: "-1 -1 false"},
		{name: "nobody's rack", version: 17, rack: "rack-z", want: "-1 -1 false"},
		{name: "the leader's rack", version: 17, rack: "rack-a", want: "-1 -1 true"},
		{name: "followers' rack", version: 11, rack: "rack-b", want: "2 3 false"},
		{name: "followers' rack, by ID", version: 17, rack: "rack-b", want: "2 3 false"},
		{name: "one is fenced", version: 17, rack: "rack-b", want: "3 3 false",
			change: func(c *cluster) { c.apply(brokerRecord(2, "b.example", "rack-b", true)) }},
		{name: "one is not in sync", version: 17, rack: "rack-b", want: "3 3 false",
			change: func(c *cluster) {
				c.apply(&image.PartitionChangeRecord{Partition: model.Partition{Topic: topicID("orders")}, ISR: []model.NodeID{1, 3}})
			}},
		{name: "this one is not in sync", version: 17, rack: "rack-a", want: "-1 -1 false",
			change: func(c *cluster) {
				c.apply(&image.PartitionChangeRecord{Partition: model.Partition{Topic: topicID("orders"), Index: 2}, ISR: []model.NodeID{2, 3}})
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := racks(t, self, self, 2)
			if tc.change != nil {
				tc.change(c)
			}
			id := topicID("orders")
			c.fill(t, model.Partition{Topic: id}, model.Partition{Topic: id, Index: 1})
			req := toFetch("orders-0", "orders-1", "orders-2")
			req.Rack = tc.rack
			resp := ask[*kmsg.FetchResponse](t, newHandler(c), tc.version, req)
			parts := resp.Topics[0].Partitions
			asked := c.fetches[len(c.fetches)-1].Partitions
			if got := fmt.Sprint(parts[0].PreferredReadReplica, parts[1].PreferredReadReplica, asked[2].Nearby); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			for i, p := range parts[:2] {
				if sent := p.PreferredReadReplica != -1; sent == (len(p.RecordBatches) > 0) || p.HighWatermark != 1 {
					t.Errorf("partition %d: %d bytes of records, high watermark %d, sent elsewhere: %v", i, len(p.RecordBatches), p.HighWatermark, sent)
				}
			}
		})
	}
}

// In a session a client is told where to go although nothing else is new.
func TestFetchRackInSession(t *testing.T) {
	c := racks(t, self)
	h := newHandler(c)
	req := toFetch("orders-0")
	req.SessionEpoch = 0
	resp := ask[*kmsg.FetchResponse](t, h, 12, req)
	again := kmsg.NewPtrFetchRequest()
	again.SessionID, again.SessionEpoch, again.MaxBytes, again.Rack = resp.SessionID, 1, 1<<20, "rack-b"
	resp = ask[*kmsg.FetchResponse](t, h, 12, again)
	if len(resp.Topics) != 1 || resp.Topics[0].Partitions[0].PreferredReadReplica != 2 {
		t.Errorf("got %+v", resp.Topics)
	}
}
