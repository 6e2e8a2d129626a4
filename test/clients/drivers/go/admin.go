package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// administrator is what a client's admin part can. A nil function is something that
// it does not have.
type administrator struct {
	createTopic   func(ctx context.Context, topic string, partitions int, configs map[string]string) error
	topics        func(ctx context.Context) ([]string, error)
	partitions    func(ctx context.Context, topic string) (int, error)
	config        func(ctx context.Context, topic, name string) (string, error)
	alterConfig   func(ctx context.Context, topic, name, value string) error
	grow          func(ctx context.Context, topic string, partitions int) error
	offsets       func(ctx context.Context, topic string, partition int32) (start, end int64, err error)
	deleteRecords func(ctx context.Context, topic string, partition int32, before int64) error
	commit        func(ctx context.Context, group, topic string, partition int32, offset int64) error
	committed     func(ctx context.Context, group, topic string, partition int32) (int64, error)
	deleteOffset  func(ctx context.Context, group, topic string, partition int32) error
	groups        func(ctx context.Context) ([]string, error)
	groupState    func(ctx context.Context, group string) (string, error)
	deleteGroup   func(ctx context.Context, group string) error
	deleteTopic   func(ctx context.Context, topic string) error
	cluster       func(ctx context.Context) (brokers int, err error)
	// more are calls beside these, by name. They check their own answers.
	more map[string]func(ctx context.Context, topic string) error
}

const (
	topicPartitions = 3
	grownPartitions = 5
	placedRecords   = 100 // in partition 0
	adminTimeout    = 60 * time.Second
)

// step is a call, how it is known to have had its effect, and whether the client has
// it.
type step struct {
	call  string
	has   bool
	do    func() error
	check func() error
}

// run does all that the administrator has, in an order in which each can be read
// back, and prints what went well.
func (a administrator) run(ctx context.Context, o options, out *output, produce func(context.Context, options) error) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	steps := slices.Concat(a.onTopics(ctx, o.topic), a.onRecords(ctx, o, produce), a.onGroups(ctx, o.topic))
	for _, name := range slices.Sorted(maps.Keys(a.more)) {
		steps = append(steps, step{call: name, has: true, do: func() error { return a.more[name](ctx, o.topic) }})
	}
	steps = append(steps, step{
		call: "delete_topic", has: a.deleteTopic != nil,
		do:    func() error { return a.deleteTopic(ctx, o.topic) },
		check: func() error { return a.listed(ctx, o.topic, false) },
	})
	for _, s := range steps {
		if !s.has {
			continue
		}
		err := s.do()
		if err == nil && s.check != nil {
			err = eventually(s.check)
		}
		if err := out.did(s.call, err); err != nil {
			return err
		}
	}
	return nil
}

func (a administrator) onTopics(ctx context.Context, topic string) []step {
	config := func(name, want string) func() error {
		return func() error {
			got, err := a.config(ctx, topic, name)
			return same(name, got, want, err)
		}
	}
	partitions := func(want int) func() error {
		return func() error {
			got, err := a.partitions(ctx, topic)
			return same("partitions", got, want, err)
		}
	}
	return []step{
		{call: "describe_cluster", has: a.cluster != nil, do: func() error {
			n, err := a.cluster(ctx)
			if err == nil && n == 0 {
				err = fmt.Errorf("no brokers")
			}
			return err
		}},
		{call: "create_topic", has: a.createTopic != nil, do: func() error {
			return a.createTopic(ctx, topic, topicPartitions, map[string]string{"retention.ms": "3600000"})
		}},
		{call: "list_topics", has: a.topics != nil, do: func() error { return nil }, check: func() error { return a.listed(ctx, topic, true) }},
		{call: "describe_topic", has: a.partitions != nil, do: partitions(topicPartitions)},
		{call: "describe_configs", has: a.config != nil, do: config("retention.ms", "3600000")},
		{call: "alter_configs", has: a.alterConfig != nil, do: func() error {
			return a.alterConfig(ctx, topic, "retention.ms", "7200000")
		}, check: config("retention.ms", "7200000")},
		{call: "create_partitions", has: a.grow != nil, do: func() error {
			return a.grow(ctx, topic, grownPartitions)
		}, check: partitions(grownPartitions)},
	}
}

func (a administrator) onRecords(ctx context.Context, o options, produce func(context.Context, options) error) []step {
	bounds := func(wantStart, wantEnd int64) func() error {
		return func() error {
			start, end, err := a.offsets(ctx, o.topic, 0)
			if err == nil && (start != wantStart || end < wantEnd) {
				err = fmt.Errorf("partition 0 is from %d to %d, want from %d to %d at least", start, end, wantStart, wantEnd)
			}
			return err
		}
	}
	return []step{
		{call: "list_offsets", has: a.offsets != nil, do: func() error {
			o.count, o.timestamp = 3*placedRecords, time.Now().UnixMilli()
			return produce(ctx, o)
		}, check: bounds(0, placedRecords)},
		{call: "delete_records", has: a.deleteRecords != nil, do: func() error {
			return a.deleteRecords(ctx, o.topic, 0, 7)
		}, check: bounds(7, placedRecords)},
	}
}

func (a administrator) onGroups(ctx context.Context, topic string) []step {
	group := topic + "-group"
	return []step{
		{call: "alter_group_offsets", has: a.commit != nil, do: func() error { return a.commit(ctx, group, topic, 0, 42) }},
		{call: "list_group_offsets", has: a.committed != nil, do: func() error {
			at, err := a.committed(ctx, group, topic, 0)
			if err := same("committed", at, 42, err); err != nil {
				return err
			}
			at, err = a.committed(ctx, group, topic, 1)
			return same("not committed", at, -1, err)
		}},
		{call: "list_groups", has: a.groups != nil, do: func() error { return a.grouped(ctx, group, true) }},
		{call: "describe_group", has: a.groupState != nil, do: func() error {
			state, err := a.groupState(ctx, group)
			return same("state", state, "Empty", err)
		}},
		{call: "delete_group_offset", has: a.deleteOffset != nil, do: func() error {
			if err := a.commit(ctx, group, topic, 1, 43); err != nil {
				return err
			}
			return a.deleteOffset(ctx, group, topic, 0)
		}, check: func() error {
			at, err := a.committed(ctx, group, topic, 0)
			return same("committed", at, -1, err)
		}},
		{call: "delete_group", has: a.deleteGroup != nil, do: func() error {
			return a.deleteGroup(ctx, group)
		}, check: func() error { return a.grouped(ctx, group, false) }},
	}
}

// listed checks that the topic is among all, or is not.
func (a administrator) listed(ctx context.Context, topic string, want bool) error {
	all, err := a.topics(ctx)
	return same("topic "+topic+" is listed", slices.Contains(all, topic), want, err)
}

// grouped checks that the group is among all, or is not.
func (a administrator) grouped(ctx context.Context, group string, want bool) error {
	all, err := a.groups(ctx)
	return same("group "+group+" is listed", slices.Contains(all, group), want, err)
}

func same[T comparable](what string, got, want T, err error) error {
	if err == nil && got != want {
		err = fmt.Errorf("%s: %v, want %v", what, got, want)
	}
	return err
}

// answered checks that an answer is the error that it is to be.
func answered(got, want error) error {
	if errors.Is(got, want) {
		return nil
	}
	return errors.Join(fmt.Errorf("the answer is not: %w", want), got)
}
