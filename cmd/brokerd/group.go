package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func newGroup(c *console) *cobra.Command {
	return group("group", "List, describe and delete consumer groups, and move their offsets", `  brokerd group list
  brokerd group describe billing
  brokerd group reset-offsets billing -t orders --to-earliest`,
		newGroupList(c), newGroupDescribe(c), newGroupReset(c), newGroupDelete(c))
}

// groupError is the cluster's error for one group, in a sentence.
func groupError(act, name string, err error, message string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.GroupIDNotFound):
		return fmt.Errorf("%s %s: there is no such group; `brokerd group list` shows those that are (%w)", act, name, shortError{err})
	case errors.Is(err, kerr.NonEmptyGroup):
		return fmt.Errorf("%s %s: the group has members; stop them first (%w)", act, name, shortError{err})
	}
	return answerError(act, name, err, message)
}

// one takes what kadm says of several requests together as what was said of one.
func one(err error) error {
	var shards *kadm.ShardErrors
	if errors.As(err, &shards) && len(shards.Errs) > 0 {
		return shards.Errs[0].Err
	}
	return err
}

// How long to wait for a group's coordinator, and between two questions.
const (
	coordinatorPatience = 10 * time.Second
	coordinatorPause    = 200 * time.Millisecond
)

// patiently asks a coordinator again while it says that it is about to answer: a
// cluster has none before its first group, and reads its groups after a start.
func patiently(ctx context.Context, ask func() error) error {
	late := time.NewTimer(coordinatorPatience)
	defer late.Stop()
	for {
		err := ask()
		if !errors.Is(err, kerr.CoordinatorNotAvailable) && !errors.Is(err, kerr.CoordinatorLoadInProgress) && !errors.Is(err, kerr.NotCoordinator) {
			return err
		}
		pause := time.NewTimer(coordinatorPause)
		select {
		case <-pause.C:
		case <-late.C:
			pause.Stop()
			return err
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		}
	}
}

type listedGroup struct {
	Group       string `json:"group"`
	State       string `json:"state"`
	Type        string `json:"protocol_type"` // consumer, connect, ...; empty: offsets alone
	Coordinator int32  `json:"coordinator"`
}

func newGroupList(c *console) *cobra.Command {
	var (
		at     cluster
		states []string
		format string
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List consumer groups",
		Example: `  brokerd group list
  brokerd group list --state Empty,Dead -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(cmd, format); err != nil {
				return err
			}
			if err := checkStates(cmd, states); err != nil {
				return err
			}
			admin, err := at.admin(cmd.Context())
			if err != nil {
				return err
			}
			defer admin.Close()
			var groups kadm.ListedGroups
			if err := patiently(cmd.Context(), func() error {
				groups, err = admin.ListGroups(cmd.Context(), states...)
				return one(err)
			}); err != nil {
				return answerError("list", "groups", err, "")
			}
			listed := []listedGroup{}
			var rows [][]string
			for _, g := range groups.Sorted() {
				listed = append(listed, listedGroup{g.Group, g.State, g.ProtocolType, g.Coordinator})
				rows = append(rows, []string{g.Group, g.State, orDash(g.ProtocolType)})
			}
			if format == "json" {
				return writeJSON(c.out, listed)
			}
			if len(rows) == 0 {
				_, err := fmt.Fprintln(c.err, "there are no such groups; `brokerd consume -t TOPIC --group NAME` makes one")
				return err
			}
			return writeTable(c.out, []string{"group", "state", "type"}, rows)
		},
	}
	at.flag(cmd)
	cmd.Flags().StringSliceVar(&states, "state", nil, "only groups in these states: Stable, PreparingRebalance, CompletingRebalance, Empty, Dead")
	outputFlag(cmd, &format)
	return cmd
}

// checkStates refuses a state that no group is ever in. Those of groups of the other
// protocols, that brokers of others have, are Assigning and Reconciling. (KIP-518)
func checkStates(cmd *cobra.Command, states []string) error {
	known := []string{"Stable", "PreparingRebalance", "CompletingRebalance", groupEmpty, groupDead, "Assigning", "Reconciling", "NotReady"}
	for _, s := range states {
		if !slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, s) }) {
			return usagef(cmd, "--state %s is none of %s", s, strings.Join(known[:5], ", "))
		}
	}
	return nil
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func newGroupDelete(c *console) *cobra.Command {
	var (
		at  cluster
		yes bool
	)
	cmd := &cobra.Command{
		Use:   "delete GROUP...",
		Short: "Delete groups without members, and their committed offsets",
		Example: `  brokerd group delete billing
  brokerd group delete billing audit --yes`,
		Args: someArgs("a group"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				if err := c.mayDelete(cmd, "Delete "+strings.Join(args, ", ")+" and all committed offsets?"); err != nil {
					return err
				}
			}
			admin, err := at.admin(cmd.Context())
			if err != nil {
				return err
			}
			defer admin.Close()
			var failed []error
			for _, name := range args {
				if err := deleteGroup(cmd.Context(), admin, name); err != nil {
					failed = append(failed, err)
					continue
				}
				if _, err := fmt.Fprintf(c.out, "deleted %s\n", name); err != nil {
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

func deleteGroup(ctx context.Context, admin *kadm.Client, name string) error {
	var answer kadm.DeleteGroupResponse
	err := patiently(ctx, func() error {
		var err error
		if answer, err = admin.DeleteGroup(ctx, name); err == nil {
			err = answer.Err
		}
		return one(err)
	})
	return groupError("delete", name, err, answer.ErrMessage)
}
