package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func newTopic(c *console) *cobra.Command {
	return group("topic", "Create, list, describe, alter and delete topics", `  brokerd topic create orders --partitions 6
  brokerd topic list
  brokerd topic describe orders`,
		newTopicCreate(c), newTopicList(c), newTopicDescribe(c), newTopicAlter(c), newTopicDelete(c))
}

// admin connects and wraps the client for administration.
func (c *cluster) admin(ctx context.Context) (*kadm.Client, error) {
	client, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(client), nil
}

// answerError is the cluster's error for one topic, in a sentence.
func answerError(act, topic string, err error, message string) error {
	if err == nil {
		return nil
	}
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return fmt.Errorf("%s %s: there is no such topic; `brokerd topic list` shows those that are (%w)", act, topic, shortError{err})
	case errors.Is(err, kerr.TopicAlreadyExists):
		return fmt.Errorf("%s %s: there is a topic of that name; choose another, or add --if-not-exists (%w)", act, topic, shortError{err})
	case message != "":
		return fmt.Errorf("%s %s: %s (%w)", act, topic, message, shortError{err})
	}
	var k *kerr.Error
	if errors.As(err, &k) {
		return fmt.Errorf("%s %s: %s (%w)", act, topic, strings.TrimSuffix(k.Description, "."), shortError{err})
	}
	return fmt.Errorf("%s %s: %w", act, topic, err)
}

// shortError shows a Kafka error by its name alone, where a sentence precedes.
type shortError struct{ err error }

func (e shortError) Error() string {
	var k *kerr.Error
	if errors.As(e.err, &k) {
		return k.Message
	}
	return e.err.Error()
}
func (e shortError) Unwrap() error { return e.err }

// topicID is the text form of a topic's ID that Kafka's own tools use.
func topicID(id kadm.TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// parsePairs reads name=value arguments of a flag.
func parsePairs(cmd *cobra.Command, flag string, pairs []string) (map[string]*string, error) {
	out := make(map[string]*string, len(pairs))
	for _, p := range pairs {
		name, value, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return nil, usagef(cmd, "%s %q is not name=value", flag, p)
		}
		out[name] = &value
	}
	return out, nil
}

type createdTopic struct {
	Topic      string `json:"topic"`
	ID         string `json:"id,omitempty"`
	Partitions int32  `json:"partitions"`
	Replicas   int16  `json:"replicas"`
	Existed    bool   `json:"existed,omitempty"`
}

func newTopicCreate(c *console) *cobra.Command {
	var (
		at         cluster
		partitions int32
		replicas   int16
		configs    []string
		existing   bool
		format     string
	)
	cmd := &cobra.Command{
		Use:   "create TOPIC...",
		Short: "Create topics",
		Long: `Creates topics. Without --replication-factor a topic gets as many replicas as the
cluster aims at, or as there are brokers when there are fewer.`,
		Example: `  brokerd topic create orders
  brokerd topic create orders payments --partitions 6 --config retention.ms=86400000
  brokerd topic create orders --if-not-exists -o json`,
		Args: someArgs("a topic"),
		RunE: func(cmd *cobra.Command, args []string) error {
			settings, err := parsePairs(cmd, "--config", configs)
			if err := errors.Join(err, checkOutput(cmd, format)); err != nil {
				return err
			}
			admin, err := at.admin(cmd.Context())
			if err != nil {
				return err
			}
			defer admin.Close()
			answers, err := admin.CreateTopics(cmd.Context(), partitions, replicas, settings, args...)
			if err != nil {
				return fmt.Errorf("create topics: %w", err)
			}
			var done []createdTopic
			var failed []error
			for _, a := range answers.Sorted() {
				existed := existing && errors.Is(a.Err, kerr.TopicAlreadyExists)
				if a.Err != nil && !existed {
					failed = append(failed, answerError("create", a.Topic, a.Err, a.ErrMessage))
					continue
				}
				t := createdTopic{Topic: a.Topic, Partitions: a.NumPartitions, Replicas: a.ReplicationFactor, Existed: existed}
				if !existed {
					t.ID = topicID(a.ID)
				}
				done = append(done, t)
			}
			return errors.Join(append([]error{c.showCreated(format, done)}, failed...)...)
		},
	}
	at.flag(cmd)
	cmd.Flags().Int32VarP(&partitions, "partitions", "p", -1, "partitions; -1: the cluster's default")
	cmd.Flags().Int16VarP(&replicas, "replication-factor", "r", -1, "replicas of each partition; -1: the cluster's target")
	cmd.Flags().StringArrayVarP(&configs, "config", "c", nil, "a setting of the topics, as name=value (repeatable)")
	cmd.Flags().BoolVar(&existing, "if-not-exists", false, "a topic that exists is no error")
	outputFlag(cmd, &format)
	return cmd
}

func (c *console) showCreated(format string, topics []createdTopic) error {
	if format == "json" {
		return writeJSON(c.out, append([]createdTopic{}, topics...))
	}
	if len(topics) == 0 {
		return nil
	}
	var rows [][]string
	for _, t := range topics {
		if t.Existed {
			rows = append(rows, []string{t.Topic, "", "", "existed already"})
			continue
		}
		rows = append(rows, []string{t.Topic, strconv.Itoa(int(t.Partitions)), strconv.Itoa(int(t.Replicas)), "created"})
	}
	return writeTable(c.out, []string{"topic", "partitions", "replicas", "result"}, rows)
}

func newTopicDelete(c *console) *cobra.Command {
	var (
		at  cluster
		yes bool
	)
	cmd := &cobra.Command{
		Use:   "delete TOPIC...",
		Short: "Delete topics and their records",
		Example: `  brokerd topic delete orders
  brokerd topic delete orders payments --yes`,
		Args: someArgs("a topic"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				if err := c.mayDelete(cmd, "Delete "+strings.Join(args, ", ")+" and all records?"); err != nil {
					return err
				}
			}
			admin, err := at.admin(cmd.Context())
			if err != nil {
				return err
			}
			defer admin.Close()
			answers, err := admin.DeleteTopics(cmd.Context(), args...)
			if err != nil {
				return fmt.Errorf("delete topics: %w", err)
			}
			var failed []error
			for _, a := range answers.Sorted() {
				if a.Err != nil {
					failed = append(failed, answerError("delete", a.Topic, a.Err, a.ErrMessage))
					continue
				}
				if _, err := fmt.Fprintf(c.out, "deleted %s\n", a.Topic); err != nil {
					return err
				}
			}
			return errors.Join(failed...)
		},
	}
	at.flag(cmd)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// mayDelete asks a person whether what the command is to delete may go.
func (c *console) mayDelete(cmd *cobra.Command, question string) error {
	if !c.inTerminal {
		return usagef(cmd, "nothing was deleted: there is nobody to ask, so add --yes")
	}
	yes, err := c.confirm(cmd.Context(), question)
	if err == nil && !yes {
		err = errors.New("nothing was deleted; answer y, or add --yes")
	}
	return err
}

// confirm asks a person, until ctx ends.
func (c *console) confirm(ctx context.Context, question string) (yes bool, err error) {
	_, _ = fmt.Fprintf(c.err, "%s [y/N] ", question)
	answers := make(chan string, 1)
	go func() { // it may wait for ever for a line
		var answer string
		_, _ = fmt.Fscanln(c.in, &answer) // an empty line is a no
		answers <- answer
	}()
	select {
	case answer := <-answers:
		return strings.EqualFold(answer, "y") || strings.EqualFold(answer, "yes"), nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func newTopicAlter(c *console) *cobra.Command {
	var (
		at         cluster
		partitions int
		set, unset []string
	)
	cmd := &cobra.Command{
		Use:   "alter TOPIC",
		Short: "Change a topic's settings or raise its partitions",
		Example: `  brokerd topic alter orders --config retention.ms=3600000
  brokerd topic alter orders --delete-config retention.ms
  brokerd topic alter orders --partitions 12`,
		Args: oneArg("a topic"),
		RunE: func(cmd *cobra.Command, args []string) error {
			settings, err := parsePairs(cmd, "--config", set)
			if err != nil {
				return err
			}
			if partitions == 0 && len(set)+len(unset) == 0 {
				return usagef(cmd, "nothing is to change: give --config, --delete-config or --partitions")
			}
			admin, err := at.admin(cmd.Context())
			if err != nil {
				return err
			}
			defer admin.Close()
			if partitions != 0 {
				if err := raisePartitions(cmd.Context(), admin, args[0], partitions); err != nil {
					return err
				}
			}
			if err := alterConfigs(cmd.Context(), admin, args[0], settings, unset); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.out, "altered %s\n", args[0])
			return err
		},
	}
	at.flag(cmd)
	cmd.Flags().IntVarP(&partitions, "partitions", "p", 0, "the number of partitions to grow to")
	cmd.Flags().StringArrayVarP(&set, "config", "c", nil, "a setting, as name=value (repeatable)")
	cmd.Flags().StringArrayVar(&unset, "delete-config", nil, "a setting to take back to its default (repeatable)")
	return cmd
}

func raisePartitions(ctx context.Context, admin *kadm.Client, topic string, count int) error {
	answers, err := admin.UpdatePartitions(ctx, count, topic)
	if err != nil {
		return fmt.Errorf("raise partitions of %s: %w", topic, err)
	}
	a, err := answers.On(topic, nil)
	if err != nil {
		return answerError("raise partitions of", topic, err, a.ErrMessage)
	}
	return answerError("raise partitions of", topic, a.Err, a.ErrMessage)
}

func alterConfigs(ctx context.Context, admin *kadm.Client, topic string, set map[string]*string, unset []string) error {
	var changes []kadm.AlterConfig
	for name, value := range set {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: value})
	}
	slices.SortFunc(changes, func(a, b kadm.AlterConfig) int { return strings.Compare(a.Name, b.Name) })
	for _, name := range unset {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name})
	}
	if len(changes) == 0 {
		return nil
	}
	answers, err := admin.AlterTopicConfigs(ctx, changes, topic)
	if err != nil {
		return fmt.Errorf("alter %s: %w", topic, err)
	}
	for _, a := range answers {
		if a.Err != nil {
			return answerError("alter", topic, a.Err, a.ErrMessage)
		}
	}
	return nil
}
