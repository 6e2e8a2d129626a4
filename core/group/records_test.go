package group

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

// TestGoldenRecords: the bytes of the log do not change. They are Kafka's: the same
// values, formatted by Kafka 4.4's OffsetsMessageFormatter and
// GroupMetadataMessageFormatter, are what went in.
func TestGoldenRecords(t *testing.T) {
	c := committed{offset: 258, epoch: 7, metadata: "m", at: 1_700_000_000_000, expires: -1}
	withID, own := c, c
	withID.topicID = model.TopicID{1, 2, 3}
	own.expires = c.at + 1000
	g := newGroup("g")
	g.generation, g.protocolType, g.protocol, g.since = 3, "consumer", "range", 1_700_000_000_000
	g.add(&member{id: "i-1", instance: "i", clientID: "c", clientHost: "/h", session: 10 * time.Second, rebalance: time.Minute,
		protocols: []model.GroupProtocol{{Name: "range", Metadata: consumerMetadata("t")}}, assignment: []byte{0, 1}})
	tests := []struct {
		name string
		is   []byte
		want string
	}{
		{"the key of an offset", offsetKey("g", model.TopicPartition{Topic: "t", Partition: 5}), "0001000167000174" + "00000005"},
		{"an offset", c.encode(), "0004" + "0000000000000102" + "00000007" + "026d" + "0000018bcfe56800" + "00"},
		{"an offset with its topic's ID", withID.encode(), "0004" + "0000000000000102" + "00000007" + "026d" + "0000018bcfe56800" + "01" + "0010" + "01020300000000000000000000000000"},
		{"an offset with its own expiry", own.encode(), "0001" + "0000000000000102" + "00016d" + "0000018bcfe56800" + "0000018bcfe56be8"},
		{"the key of a group", groupKey("g"), "0002000167"},
		{"a group", g.record(time.UnixMilli(1), nil).Value, "0003" + "0008636f6e73756d6572" + "00000003" + "000572616e6765" + "0003692d31" + "0000018bcfe56800" +
			"00000001" + "0003692d31" + "000169" + "000163" + "00022f68" + "0000ea60" + "00002710" + "00000011" + "0001000000010001" + "74ffffffff" + "00000000" + "000000020001"},
		{"an empty group", newGroup("g").record(time.UnixMilli(1), nil).Value, "0003" + "0000" + "00000000" + "ffff" + "ffff" + "0000000000000000" + "00000000"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if is := hex.EncodeToString(tt.is); is != tt.want {
				t.Errorf("is   %s\nwant %s", is, tt.want)
			}
		})
	}
}

// FuzzReplay: no record makes the machine panic, and what it makes of one it can write
// and read again.
func FuzzReplay(f *testing.F) {
	c := committed{offset: 258, epoch: 7, metadata: "m", at: 1_700_000_000_000, expires: 5}
	g := newGroup("g")
	g.protocolType, g.protocol = "consumer", "range"
	g.add(&member{id: "i-1", instance: "i", protocols: []model.GroupProtocol{{Name: "range", Metadata: consumerMetadata("t")}}})
	f.Add(offsetKey("g", model.TopicPartition{Topic: "t"}), c.encode())
	f.Add(groupKey("g"), g.record(time.UnixMilli(1), nil).Value)
	f.Add(groupKey("g"), []byte(nil))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		var out Effects
		m := serving(DefaultSettings(), []Record{{Key: key, Value: value}}, &out)
		out.Reset()
		for id, g := range m.groups {
			m.Step(storyBegins, &Describe{ID: 1, Group: id}, &out)
			m.Step(storyBegins, &Join{ID: 2, JoinGroup: model.JoinGroup{Group: id, ProtocolType: "consumer", SessionTimeout: 10 * time.Second,
				Protocols: []model.GroupProtocol{{Name: "range"}}}}, &out)
			if g.state == model.GroupEmpty {
				continue
			}
			record := g.record(storyBegins, nil)
			again, err := decodeGroup(id, record.Value)
			if err != nil || len(again.members) != len(g.members) {
				t.Fatalf("%d members become %v: %v", len(g.members), again, err)
			}
		}
		m.Step(storyBegins.Add(365*24*time.Hour), &Fired{}, &out)
	})
}

// FuzzTopics: no client's metadata makes it panic or take more than there is.
func FuzzTopics(f *testing.F) {
	f.Add(consumerMetadata("a", "bc"))
	f.Add([]byte{0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 1, 'x'})
	f.Add([]byte{0xff, 0xff, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, metadata []byte) {
		topics := map[string]struct{}{}
		readTopics(metadata, topics)
		size := 0
		for topic := range topics {
			size += 2 + len(topic)
			if !bytes.Contains(metadata, []byte(topic)) {
				t.Fatalf("topic %q is not in %q", topic, metadata)
			}
		}
		if size > len(metadata) {
			t.Fatalf("topics of %d bytes in %d", size, len(metadata))
		}
	})
}

// serving is a machine that has loaded records.
func serving(settings Settings, records []Record, out *Effects) *Machine {
	ids := 0
	m := New(settings, func() string { ids++; return string(rune('0' + ids%10)) }, Memory{})
	m.Step(storyBegins, &Lead{Epoch: 1}, out)
	m.Step(storyBegins, &Replay{Gen: m.gen, Records: records}, out)
	m.Step(storyBegins, &Loaded{Gen: m.gen}, out)
	return m
}

// TestDamagedGroups: a group whose record says the impossible is as far as possible.
func TestDamagedGroups(t *testing.T) {
	g := newGroup("g")
	g.protocolType, g.protocol, g.leader = "consumer", "range", "nobody"
	for _, id := range []string{"a", "a", "b", ""} {
		g.members = append(g.members, &member{id: id, instance: "i" + id, protocols: []model.GroupProtocol{{Name: "range"}}})
	}
	g.members = append(g.members, &member{id: "c", instance: "ia"})
	again, err := decodeGroup("g", g.record(time.UnixMilli(1), nil).Value)
	if err != nil {
		t.Fatal(err)
	}
	if len(again.members) != 2 || again.leader != "a" {
		t.Errorf("%d members, leader %q", len(again.members), again.leader)
	}
	if _, err := decodeGroup("g", []byte{0}); !errors.Is(err, errDamaged) {
		t.Errorf("a value of one byte: %v", err)
	}
}
