package group

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The records of the log have Kafka's schemas, so that Kafka's own tools read them. The
// versions are those that Kafka 4.4 writes; all earlier ones are read.
//
//	key 1 (and 0): group, topic, partition  -> OffsetCommitValue, version 4, or 1 with
//	                                           an expiry of its own (which 2 dropped)
//	key 2: group                            -> GroupMetadataValue, version 3
const (
	keyOffsetOld = 0
	keyOffset    = 1
	keyGroup     = 2

	offsetVersion        = 4
	offsetVersionExpires = 1
	offsetVersionMax     = 4
	groupVersion         = 3
	groupVersionMax      = 4
)

var errDamaged = errors.New("the record is cut short")

func offsetKey(group string, key model.TopicPartition) []byte {
	return appendOffsetKey(make([]byte, 0, offsetKeyBytes(group, key)), group, key)
}

func appendOffsetKey(dst []byte, group string, key model.TopicPartition) []byte {
	k := kmsg.OffsetCommitKey{Version: keyOffset, Group: group, Topic: key.Topic, Partition: key.Partition}
	return k.AppendTo(dst)
}

// offsetKeyBytes is the length of an offset's key: a version, the strings with their
// lengths, and the partition.
func offsetKeyBytes(group string, key model.TopicPartition) int {
	return 2 + 2 + len(group) + 2 + len(key.Topic) + 4
}

func groupKey(group string) []byte {
	k := kmsg.GroupMetadataKey{Version: keyGroup, Group: group}
	return k.AppendTo(make([]byte, 0, 4+len(group)))
}

// encode makes the value of an offset's record.
func (c *committed) encode() []byte { return c.appendTo(make([]byte, 0, c.bytesMax())) }

// bytesMax is what the value takes at most: numbers and an ID of together 45 bytes, the
// lengths of strings, and tagged fields.
func (c *committed) bytesMax() int { return 56 + len(c.metadata) }

func (c *committed) appendTo(dst []byte) []byte {
	v := kmsg.OffsetCommitValue{Version: offsetVersion, Offset: c.offset, LeaderEpoch: c.epoch, Metadata: c.metadata,
		CommitTimestamp: c.at, ExpireTimestamp: c.expires, TopicID: c.topicID}
	if c.expires >= 0 {
		v.Version = offsetVersionExpires
	}
	return v.AppendTo(dst)
}

// decodeOffset reads the value of an offset's record.
func decodeOffset(b []byte) (committed, error) {
	version, err := versionOf(b, offsetVersionMax)
	if err != nil {
		return committed{}, fmt.Errorf("offset: %w", err)
	}
	var v kmsg.OffsetCommitValue
	if err := v.ReadFrom(b); err != nil {
		return committed{}, fmt.Errorf("read an offset: %w", err)
	}
	c := committed{offset: v.Offset, epoch: v.LeaderEpoch, topicID: v.TopicID, metadata: v.Metadata, at: v.CommitTimestamp, expires: -1}
	if version < 3 {
		c.epoch = model.NoEpoch
	}
	if version == offsetVersionExpires {
		c.expires = v.ExpireTimestamp
	}
	return c, nil
}

// record makes the record of the group as it is, with the assignments of the
// generation where they are not the members' yet.
func (g *group) record(now time.Time, assignments map[string][]byte) Record {
	v := kmsg.GroupMetadataValue{Version: groupVersion, ProtocolType: g.protocolType, Generation: g.generation, CurrentStateTimestamp: g.since}
	if g.protocol != "" {
		v.Protocol = kmsg.StringPtr(g.protocol)
	}
	if g.leader != "" {
		v.Leader = kmsg.StringPtr(g.leader)
	}
	v.Members = make([]kmsg.GroupMetadataValueMember, len(g.members))
	for i, mem := range g.members {
		to := &v.Members[i]
		to.MemberID, to.ClientID, to.ClientHost = mem.id, mem.clientID, mem.clientHost
		if mem.instance != "" {
			to.InstanceID = kmsg.StringPtr(mem.instance)
		}
		to.RebalanceTimeoutMillis = int32(mem.rebalance / time.Millisecond)
		to.SessionTimeoutMillis = int32(mem.session / time.Millisecond)
		to.Subscription, to.Assignment = mem.metadata(g.protocol), mem.assignment
		if assignments != nil {
			to.Assignment = assignments[mem.id]
		}
	}
	g.recorded = true
	return Record{Key: groupKey(g.id), Value: v.AppendTo(nil), Timestamp: now.UnixMilli()}
}

// decodeGroup reads the value of a group's record.
func decodeGroup(id string, b []byte) (*group, error) {
	version, err := versionOf(b, groupVersionMax)
	if err != nil {
		return nil, fmt.Errorf("group %q: %w", id, err)
	}
	var v kmsg.GroupMetadataValue
	if err := v.ReadFrom(b); err != nil {
		return nil, fmt.Errorf("read group %q: %w", id, err)
	}
	g := newGroup(id)
	g.recorded = true
	g.generation, g.protocolType, g.since = max(v.Generation, 0), v.ProtocolType, v.CurrentStateTimestamp
	g.loadedAt = g.generation
	if v.Protocol != nil {
		g.protocol = *v.Protocol
	}
	for i := range v.Members {
		g.restore(&v.Members[i], version)
	}
	if _, ok := g.byID[pointed(v.Leader)]; ok {
		g.leader = *v.Leader
	}
	if len(g.members) > 0 {
		g.state = model.GroupStable
	}
	g.subscribe(func(int) bool { return true })
	return g, nil
}

// restore takes in a member of the log. Only what it offers for the protocol of the
// generation is there.
func (g *group) restore(v *kmsg.GroupMetadataValueMember, version int16) {
	mem := &member{id: v.MemberID, instance: pointed(v.InstanceID), clientID: v.ClientID, clientHost: v.ClientHost, synced: true, loaded: true}
	if _, twice := g.byID[mem.id]; twice || mem.id == "" {
		return
	}
	if _, twice := g.static[mem.instance]; twice {
		return
	}
	mem.session = time.Duration(max(v.SessionTimeoutMillis, 0)) * time.Millisecond
	mem.rebalance = time.Duration(max(v.RebalanceTimeoutMillis, 0)) * time.Millisecond
	if version < 1 {
		mem.rebalance = mem.session
	}
	mem.protocols = []model.GroupProtocol{{Name: g.protocol, Metadata: bytes.Clone(v.Subscription)}}
	mem.assignment = bytes.Clone(v.Assignment)
	g.add(mem)
}

func pointed(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// versionOf is the version that a key or value begins with.
func versionOf(b []byte, most int16) (int16, error) {
	if len(b) < 2 {
		return 0, errDamaged
	}
	version := int16(binary.BigEndian.Uint16(b))
	if version < 0 || version > most {
		return 0, fmt.Errorf("version %d is not known", version)
	}
	return version, nil
}
