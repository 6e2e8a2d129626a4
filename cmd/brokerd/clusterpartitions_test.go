package main

import (
	"encoding/hex"
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
			loss: "orders-3: acknowledged records from offset 258 on may be missing since 2001-09-09T01:46:40Z (all that were in sync had lost their power, and the longest log leads, leader epoch 5)"},
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
	list := slices.Repeat([]string{"123/123/1"}, lossLines+3)
	v := placed(t, 3, list...)
	for i := range v.partitions {
		v.partitions[i].loss = &lossView{Topic: "t", Partition: int32(i), At: now.Add(-time.Hour)}
	}
	v.partitions[0].loss.At = now.Add(-lossShown)
	v.partitions[1].loss = nil
	v.findLosses(now)
	v.judge()
	if len(v.Losses) != lossLines+1 || v.Losses[0].Partition != 2 || len(v.Problems) > 0 {
		t.Errorf("%d losses, %q", len(v.Losses), v.Problems)
	}
	var out strings.Builder
	if err := (&console{out: &out}).showLosses(v); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != lossLines+1 || !strings.HasPrefix(lines[0], "loss       t-2: acknowledged records may be missing since 2026-01-31T11:00:00Z") ||
		lines[lossLines] != "loss       1 more partitions; -o json has them all" {
		t.Errorf("shown:\n%s", out.String())
	}
}
