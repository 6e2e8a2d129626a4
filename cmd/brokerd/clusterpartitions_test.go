package main

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestPartitionsTellMore(t *testing.T) {
	for _, c := range []struct {
		name   string
		tags   map[uint32]string
		minISR int
		loss   string // "": none
	}{
		{name: "of a cluster that tells nothing", minISR: 1},
		{name: "the minimum", tags: map[uint32]string{tagMinISR: "00000002"}, minISR: 2},
		{name: "the longest log", tags: map[uint32]string{tagLoss: "00000005" + "0000000000000102" + "000000e8d4a51000" + "00"}, minISR: 1,
			loss: "orders-3: acknowledged records from offset 258 on may be missing since 2001-09-09T01:46:40Z (all that were in sync may have lost something, as by a loss of power: the longest log leads, leader epoch 5)"},
		{name: "an unclean election", tags: map[uint32]string{tagLoss: "00000005" + "ffffffffffffffff" + "000000e8d4a51000" + "01"}, minISR: 1,
			loss: "orders-3: acknowledged records may be missing since 2001-09-09T01:46:40Z (an unclean election, leader epoch 5)"},
		{name: "what cannot be read", tags: map[uint32]string{tagLoss: "00", tagMinISR: "0000000001"}, minISR: 1},
	} {
		p := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		p.Partition = 3
		for tag, text := range c.tags {
			b, err := hex.DecodeString(text)
			if err != nil {
				t.Fatal(err)
			}
			p.UnknownTags.Set(tag, b)
		}
		v := partitionOf("orders", &p)
		loss := ""
		if v.loss != nil {
			loss = v.loss.String()
		}
		if v.minISR != c.minISR || loss != c.loss {
			t.Errorf("%s: min ISR %d, loss %q", c.name, v.minISR, loss)
		}
	}
}

// A loss is shown while it may matter, and is no problem: whoever waits until all is well
// does not wait for it.
func TestLossesAreShown(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	v := placed(t, 3, slices.Repeat([]string{"123/123/1"}, 2*lossLines+lossPartitions+5)...)
	for i := range v.partitions {
		from := int64(i)
		l := &lossView{Topic: fmt.Sprintf("t%02d", i), Partition: 7, From: &from, At: now.Add(-time.Hour)}
		if i >= 2*lossLines { // all of one topic
			l.Topic, l.Partition, l.Unclean = "__all", int32(i-2*lossLines), true
		}
		v.partitions[i].loss = l
	}
	v.partitions[0].loss.At = now.Add(-lossShown)
	v.partitions[1].loss = nil
	v.partitions[2].loss.From = nil
	v.findLosses(now)
	v.judge()
	if len(v.Losses) != len(v.partitions)-2 || len(v.Problems) > 0 {
		t.Errorf("%d losses, %q", len(v.Losses), v.Problems)
	}
	shown := func() []string {
		var out strings.Builder
		if err := (&console{out: &out}).showLosses(v); err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(out.String()), "\n")
	}
	const why = " (all that were in sync may have lost something, as by a loss of power: the longest log leads)"
	lines := shown()
	if len(lines) != lossLines+1 || lines[0] != "loss       t02: acknowledged records may be missing since 2026-01-31T11:00:00Z, of partition 7"+why ||
		lines[1] != "loss       t03: acknowledged records may be missing since 2026-01-31T11:00:00Z, of partition 7 from offset 3 on"+why ||
		lines[lossLines] != "loss       in 19 more topics; -o json has them all" {
		t.Errorf("shown:\n%s", strings.Join(lines, "\n"))
	}
	v.Losses = v.Losses[2*lossLines-3:]
	v.Losses[2].At = now.Add(-2 * time.Hour)
	lines = shown()
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "loss       t39:") ||
		!strings.HasPrefix(lines[1], "loss       __all: acknowledged records may be missing since 2026-01-31T10:00:00Z, of partition 0 from offset 40 on, 1 from offset 41 on, ") ||
		!strings.HasSuffix(lines[1], ", 9 from offset 49 on, 5 more (an unclean election)") {
		t.Errorf("shown:\n%s", strings.Join(lines, "\n"))
	}
}

// What a broker tells of partitions below their target is counted, and shown, and is no problem.
func TestBelowTargetIsShown(t *testing.T) {
	told := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
	told.LeaderID, told.Replicas, told.ISR = 1, []int32{1, 2}, []int32{1}
	told.UnknownTags.Set(tagMissing, []byte{0, 0, 0, 2})
	waits, raised := partitionOf("a", &told), partitionOf("b", &told)
	raised.adding, waits.replicas = []int32{2}, []int32{1}
	moved := partitionOf("b", &told) // by an operator, to no more than it has
	moved.adding, moved.removing, moved.index = []int32{2}, []int32{1}, 1
	v := &clusterView{partitions: []partitionView{waits, raised, moved, {topic: "c", leader: 1, replicas: []int32{1}, isr: []int32{1}}}}
	v.count()
	v.judge()
	if n := v.Partitions; n.BelowTarget != 3 || n.Raised != 1 || len(v.Problems) > 0 {
		t.Errorf("counted %+v, problems %q", n, v.Problems)
	}
	var out bytes.Buffer
	c := &console{out: &out}
	if err := c.showStatus(v); err != nil || !strings.Contains(out.String(), "target     3 partitions have fewer replicas than they should; 1 of them are being given more\n") {
		t.Errorf("shown (%v):\n%s", err, out.String())
	}
}
