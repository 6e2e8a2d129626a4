package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type listedTopic struct {
	Topic      string `json:"topic"`
	ID         string `json:"id"`
	Partitions int    `json:"partitions"`
	Replicas   int    `json:"replicas"`
	Internal   bool   `json:"internal"`
}

func newTopicList(c *console) *cobra.Command {
	var (
		at       cluster
		internal bool
		format   string
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List topics",
		Example: `  brokerd topic list
  brokerd topic list --internal -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(cmd, format); err != nil {
				return err
			}
			admin, err := at.admin(cmd.Context())
			if err != nil {
				return err
			}
			defer admin.Close()
			topics, err := admin.ListTopicsWithInternal(cmd.Context())
			if err != nil {
				return fmt.Errorf("list topics: %w", err)
			}
			listed := []listedTopic{}
			var rows [][]string
			for _, t := range topics.Sorted() {
				if t.IsInternal && !internal {
					continue
				}
				l := listedTopic{t.Topic, topicID(t.ID), len(t.Partitions), t.Partitions.NumReplicas(), t.IsInternal}
				listed = append(listed, l)
				rows = append(rows, []string{l.Topic, strconv.Itoa(l.Partitions), strconv.Itoa(l.Replicas)})
			}
			if format == "json" {
				return writeJSON(c.out, listed)
			}
			if len(rows) == 0 {
				_, err := fmt.Fprintln(c.err, "there are no topics yet; `brokerd topic create NAME` makes one")
				return err
			}
			return writeTable(c.out, []string{"topic", "partitions", "replicas"}, rows)
		},
	}
	at.flag(cmd)
	cmd.Flags().BoolVar(&internal, "internal", false, "internal topics too")
	outputFlag(cmd, &format)
	return cmd
}

type describedTopic struct {
	listedTopic
	// MinISR is how many replicas have to be in sync for writes with acks=all: the least of
	// all partitions.
	MinISR   int                  `json:"min_isr"`
	List     []describedPartition `json:"partition_list"`
	Settings map[string]string    `json:"settings"` // those that differ from the default
}

type describedPartition struct {
	Partition   int32   `json:"partition"`
	Leader      int32   `json:"leader"` // -1: none
	LeaderEpoch int32   `json:"leader_epoch"`
	Replicas    []int32 `json:"replicas"`
	ISR         []int32 `json:"isr"`
	MinISR      int     `json:"min_isr"` // in effect
	Missing     int     `json:"missing_replicas"`
	LogStart    int64   `json:"log_start_offset"`
	LogEnd      int64   `json:"log_end_offset"`
	Error       string  `json:"error,omitempty"`
	// Loss is the last election after which acknowledged records may be missing.
	Loss *lossView `json:"loss,omitempty"`
}

func newTopicDescribe(c *console) *cobra.Command {
	var (
		at     cluster
		format string
	)
	cmd := &cobra.Command{
		Use:   "describe TOPIC",
		Short: "Show a topic's partitions, offsets and settings",
		Example: `  brokerd topic describe orders
  brokerd topic describe orders -o json`,
		Args: oneArg("a topic"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(cmd, format); err != nil {
				return err
			}
			client, err := at.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			topic, err := describe(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			if format == "json" {
				return writeJSON(c.out, topic)
			}
			return c.showTopic(topic)
		},
	}
	at.flag(cmd)
	outputFlag(cmd, &format)
	return cmd
}

func describe(ctx context.Context, client *kgo.Client, name string) (describedTopic, error) {
	topics, err := askTopics(ctx, client, name)
	if err != nil {
		return describedTopic{}, fmt.Errorf("describe %s: %w", name, err)
	}
	if len(topics) != 1 {
		return describedTopic{}, fmt.Errorf("describe %s: the answer tells of %d topics", name, len(topics))
	}
	t := topics[0]
	if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
		return describedTopic{}, answerError("describe", name, err, "")
	}
	admin := kadm.NewClient(client)
	starts, err := admin.ListStartOffsets(ctx, name)
	if err != nil {
		return describedTopic{}, fmt.Errorf("list start offsets of %s: %w", name, err)
	}
	ends, err := admin.ListEndOffsets(ctx, name)
	if err != nil {
		return describedTopic{}, fmt.Errorf("list end offsets of %s: %w", name, err)
	}
	out := describedTopic{listedTopic: listedTopic{Topic: name, ID: topicID(t.TopicID), Partitions: len(t.Partitions), Internal: t.IsInternal}, Settings: map[string]string{}}
	slices.SortFunc(t.Partitions, func(a, b kmsg.DescribeTopicPartitionsResponseTopicPartition) int {
		return cmp.Compare(a.Partition, b.Partition)
	})
	var losses []*lossView
	for i := range t.Partitions {
		p := &t.Partitions[i]
		v := partitionOf(name, p)
		d := describedPartition{
			Partition: p.Partition, Leader: p.LeaderID, LeaderEpoch: p.LeaderEpoch, Replicas: p.Replicas, ISR: p.ISR, MinISR: v.minISR, Missing: v.missing, LogStart: -1, LogEnd: -1, Loss: v.loss,
		}
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			d.Error = err.Error()
		}
		if o, ok := starts.Lookup(name, p.Partition); ok && o.Err == nil {
			d.LogStart = o.Offset
		}
		if o, ok := ends.Lookup(name, p.Partition); ok && o.Err == nil {
			d.LogEnd = o.Offset
		}
		out.List = append(out.List, d)
		if v.loss != nil {
			losses = append(losses, v.loss)
		}
		out.Replicas = max(out.Replicas, len(p.Replicas))
		if i == 0 || v.minISR < out.MinISR {
			out.MinISR = v.minISR
		}
	}
	locate(ctx, client, losses)
	configs, err := admin.DescribeTopicConfigs(ctx, name)
	if err != nil {
		return describedTopic{}, fmt.Errorf("describe settings of %s: %w", name, err)
	}
	for _, r := range configs {
		for _, cfg := range r.Configs {
			if cfg.Source == kmsg.ConfigSourceDynamicTopicConfig {
				out.Settings[cfg.Key] = cfg.MaybeValue()
			}
		}
	}
	return out, nil
}

func (c *console) showTopic(t describedTopic) error {
	if _, err := fmt.Fprintf(c.out, "topic     %s\nid        %s\n", t.Topic, t.ID); err != nil {
		return err
	}
	for _, name := range sortedKeys(t.Settings) {
		if _, err := fmt.Fprintf(c.out, "setting   %s=%s\n", name, t.Settings[name]); err != nil {
			return err
		}
	}
	if t.MinISR > 0 {
		if _, err := fmt.Fprintf(c.out, "min isr   %d in effect\n", t.MinISR); err != nil {
			return err
		}
	}
	if t.Replicas == 1 {
		if _, err := fmt.Fprintln(c.out, "note      not replicated: with its broker gone, so are its records"); err != nil {
			return err
		}
	}
	below := 0
	for _, p := range t.List {
		below += min(p.Missing, 1)
	}
	if below > 0 {
		if _, err := fmt.Fprintf(c.out, "target    %d of %d partitions have fewer replicas than they should; they get more as there are brokers for them\n", below, len(t.List)); err != nil {
			return err
		}
	}
	for _, p := range t.List {
		if p.Loss == nil {
			continue
		}
		if _, err := fmt.Fprintf(c.out, "loss      %s\n", printable(p.Loss.String())); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(c.out); err != nil {
		return err
	}
	var rows [][]string
	for _, p := range t.List {
		leader := strconv.Itoa(int(p.Leader))
		if p.Leader < 0 {
			leader = "none"
		}
		rows = append(rows, []string{
			strconv.Itoa(int(p.Partition)), leader, strconv.Itoa(int(p.LeaderEpoch)), joinIDs(p.Replicas), joinIDs(p.ISR),
			offsetText(p.LogStart), offsetText(p.LogEnd), p.Error,
		})
	}
	return writeTable(c.out, []string{"partition", "leader", "epoch", "replicas", "isr", "start", "end", "error"}, rows)
}

func offsetText(n int64) string {
	if n < 0 {
		return "?"
	}
	return strconv.FormatInt(n, 10)
}

func joinIDs(ids []int32) string {
	parts := make([]string, len(ids))
	for i, id := range ids {
		parts[i] = strconv.Itoa(int(id))
	}
	return strings.Join(parts, ",")
}
