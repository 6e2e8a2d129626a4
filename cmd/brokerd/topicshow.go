package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
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
	// MinISR is min.insync.replicas as it is in effect: no more than there are
	// replicas.
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
	LogStart    int64   `json:"log_start_offset"`
	LogEnd      int64   `json:"log_end_offset"`
	Error       string  `json:"error,omitempty"`
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
			admin, err := at.admin(cmd.Context())
			if err != nil {
				return err
			}
			defer admin.Close()
			topic, err := describe(cmd.Context(), admin, args[0])
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

func describe(ctx context.Context, admin *kadm.Client, name string) (describedTopic, error) {
	topics, err := admin.ListTopicsWithInternal(ctx, name)
	if err != nil {
		return describedTopic{}, fmt.Errorf("describe %s: %w", name, err)
	}
	t := topics[name]
	if t.Err != nil {
		return describedTopic{}, answerError("describe", name, t.Err, "")
	}
	starts, err := admin.ListStartOffsets(ctx, name)
	if err != nil {
		return describedTopic{}, fmt.Errorf("list start offsets of %s: %w", name, err)
	}
	ends, err := admin.ListEndOffsets(ctx, name)
	if err != nil {
		return describedTopic{}, fmt.Errorf("list end offsets of %s: %w", name, err)
	}
	out := describedTopic{
		listedTopic: listedTopic{t.Topic, topicID(t.ID), len(t.Partitions), t.Partitions.NumReplicas(), t.IsInternal},
		Settings:    map[string]string{},
	}
	for _, p := range t.Partitions.Sorted() {
		d := describedPartition{Partition: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, Replicas: p.Replicas, ISR: p.ISR, LogStart: -1, LogEnd: -1}
		if p.Err != nil {
			d.Error = p.Err.Error()
		}
		if o, ok := starts.Lookup(name, p.Partition); ok && o.Err == nil {
			d.LogStart = o.Offset
		}
		if o, ok := ends.Lookup(name, p.Partition); ok && o.Err == nil {
			d.LogEnd = o.Offset
		}
		out.List = append(out.List, d)
	}
	configs, err := admin.DescribeTopicConfigs(ctx, name)
	if err != nil {
		return describedTopic{}, fmt.Errorf("describe settings of %s: %w", name, err)
	}
	for _, r := range configs {
		for _, cfg := range r.Configs {
			if n, err := strconv.Atoi(cfg.MaybeValue()); cfg.Key == "min.insync.replicas" && err == nil {
				out.MinISR = min(n, max(1, out.Replicas))
			}
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
