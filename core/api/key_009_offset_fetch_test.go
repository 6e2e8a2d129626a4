package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/security"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// toFetchOffsets asks in the way of every version for partitions 0 and 1 of topics;
// for all that there is without one.
func toFetchOffsets(group string, topics ...string) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = group
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	for _, name := range topics {
		req.Topics = append(req.Topics, kmsg.OffsetFetchRequestTopic{Topic: name, Partitions: []int32{0, 1}})
		g.Topics = append(g.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: name, TopicID: topicID(name), Partitions: []int32{0, 1}})
	}
	req.Groups = []kmsg.OffsetFetchRequestGroup{g}
	return req
}

// shownOffsets is an answer of any version in one line.
func shownOffsets(r *kmsg.OffsetFetchResponse) string {
	var b strings.Builder
	names := make(map[[16]byte]string)
	for _, n := range []string{"orders", "secret", "missing", "gone"} {
		names[topicID(n)] = n
	}
	if r.Version < 8 {
		fmt.Fprintf(&b, "%d:", r.ErrorCode)
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				fmt.Fprintf(&b, " %s-%d=%d/%d%s!%d", t.Topic, p.Partition, p.Offset, p.LeaderEpoch, *p.Metadata, p.ErrorCode)
			}
		}
	}
	for _, g := range r.Groups {
		fmt.Fprintf(&b, "%s %d:", g.Group, g.ErrorCode)
		for _, t := range g.Topics {
			name := t.Topic
			if r.Version >= 10 {
				name = names[t.TopicID]
			}
			for _, p := range t.Partitions {
				fmt.Fprintf(&b, " %s-%d=%d/%d%s!%d", name, p.Partition, p.Offset, p.LeaderEpoch, *p.Metadata, p.ErrorCode)
			}
		}
	}
	return b.String()
}

func TestOffsetFetch(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self, self)
	c.topic("secret", self)
	c.denyTopic("secret", security.OpDescribe)
	c.denyGroup("closed", security.OpDescribe)
	for _, topic := range []string{"gone", "orders", "secret"} {
		c.groups.offset("crew", topic, 0, 7)
	}
	h := newHandler(c)
	for _, tc := range []struct {
		name    string
		version int16
		req     *kmsg.OffsetFetchRequest
		want    string
	}{
		{"named", 1, toFetchOffsets("crew", "orders"), "0: orders-0=7/-1m!0 orders-1=-1/-1!0"},
		{"named", 7, toFetchOffsets("crew", "orders"), "0: orders-0=7/3m!0 orders-1=-1/-1!0"},
		{"named", 9, toFetchOffsets("crew", "orders"), "crew 0: orders-0=7/3m!0 orders-1=-1/-1!0"},
		{"by ID", 10, toFetchOffsets("crew", "orders"), "crew 0: orders-0=7/3m!0 orders-1=-1/-1!0"},
		{"topic that is not there", 5, toFetchOffsets("crew", "missing", "gone"), "0: missing-0=-1/-1!0 missing-1=-1/-1!0 gone-0=7/3m!0 gone-1=-1/-1!0"},
		{"topic that is not there, by ID", 10, toFetchOffsets("crew", "missing", "orders"), "crew 0: missing-0=-1/-1!100 missing-1=-1/-1!100 orders-0=7/3m!0 orders-1=-1/-1!0"},
		{"group that is not there", 5, toFetchOffsets("nobody", "orders"), "0: orders-0=-1/-1!0 orders-1=-1/-1!0"},
		{"group without a name", 5, toFetchOffsets("", "orders"), "0: orders-0=-1/-1!0 orders-1=-1/-1!0"},
		{"hidden topic", 5, toFetchOffsets("crew", "secret", "orders"), "0: secret-0=-1/-1!29 secret-1=-1/-1!29 orders-0=7/3m!0 orders-1=-1/-1!0"},
		{"hidden topic, by ID", 10, toFetchOffsets("crew", "secret"), "crew 0: secret-0=-1/-1!29 secret-1=-1/-1!29"},
		{"all", 2, toFetchOffsets("crew"), "0: gone-0=7/-1m!0 orders-0=7/-1m!0"},
		{"all", 8, toFetchOffsets("crew"), "crew 0: gone-0=7/3m!0 orders-0=7/3m!0"},
		{"all, by ID", 10, toFetchOffsets("crew"), "crew 0: orders-0=7/3m!0"},
		{"closed", 1, toFetchOffsets("closed", "orders"), "0: orders-0=-1/-1!30 orders-1=-1/-1!30"},
		{"closed", 2, toFetchOffsets("closed", "orders"), "30:"},
		{"closed", 8, toFetchOffsets("closed", "orders"), "closed 30:"},
		{"none", 1, toFetchOffsets("crew"), "0:"},
	} {
		if got := shownOffsets(ask[*kmsg.OffsetFetchResponse](t, h, tc.version, tc.req)); got != tc.want {
			t.Errorf("%s, version %d: %s, want %s", tc.name, tc.version, got, tc.want)
		}
	}
	two := toFetchOffsets("crew", "orders")
	two.Groups = append(two.Groups, toFetchOffsets("closed").Groups[0], toFetchOffsets("crew").Groups[0])
	two.Groups[2].MemberID, two.Groups[2].MemberEpoch = ptr("m-1"), 4
	if got, want := shownOffsets(ask[*kmsg.OffsetFetchResponse](t, h, 9, two)), "crew 0: orders-0=7/3m!0 orders-1=-1/-1!0closed 30:crew 0: gone-0=7/3m!0 orders-0=7/3m!0"; got != want {
		t.Errorf("many groups: %s, want %s", got, want)
	}
	if q := c.groups.asked[len(c.groups.asked)-1].(model.FetchOffsets); q.MemberID != "m-1" || q.Epoch != 4 || !q.All {
		t.Errorf("asked %+v", q)
	}
}

// An offset of a topic that was deleted is not one of the topic that has its name now.
func TestOffsetFetchOfEarlierTopic(t *testing.T) {
	c := newCluster(t)
	c.topic("orders", self, self)
	c.groups.offset("crew", "orders", 0, 7)
	c.groups.groups["crew"].offsets[0].TopicID = topicID("earlier")
	if got, want := shownOffsets(ask[*kmsg.OffsetFetchResponse](t, newHandler(c), 10, toFetchOffsets("crew", "orders"))), "crew 0: orders-0=-1/-1!0 orders-1=-1/-1!0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
