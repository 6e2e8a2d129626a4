package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

func newCluster(c *console) *cobra.Command {
	return group("cluster", "Show how a cluster is", "  brokerd cluster status\n  brokerd cluster status -o json", newClusterStatus(c))
}

func newClusterStatus(c *console) *cobra.Command {
	var (
		at     cluster
		format string
	)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show controllers, brokers, and partitions that want something",
		Long: `Shows the controllers (the members of the quorum that keeps the metadata) and
how far each is behind, the brokers and what they have, and the partitions
that are not as they should be. It exits with 1 when something is wrong, and
says what.

A controller is the leader, a voter, or a learner that follows without a vote.
Partitions are counted as "below min isr" when writes with acks=all are
refused: the least that is needed in sync is min.insync.replicas, or less
where a topic has fewer replicas than it should. A "loss" names partitions
that got a leader which may lack acknowledged records, in the last 7 days: all
in sync lost their power at once, or an election was unclean. It does not
change the exit code.

A broker is serving, fenced (the controller does not hear it, or it has not
caught up yet), or stopping. Its epoch is that of its registration, and rises
with every start.`,
		Example: `  brokerd cluster status
  brokerd cluster status -b broker1:9092,broker2:9092 -o json
  until brokerd cluster status >/dev/null 2>&1; do sleep 1; done`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(cmd, format); err != nil {
				return err
			}
			client, err := at.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			v, err := lookAt(cmd.Context(), client)
			if err != nil {
				return err
			}
			if format == "json" {
				err = writeJSON(c.out, v)
			} else {
				err = c.showStatus(v)
			}
			switch n := len(v.Problems); {
			case err != nil:
				return err
			case n == 1:
				return errors.New("something is wrong: " + v.Problems[0])
			case n > 1:
				return fmt.Errorf("%d things are wrong, the first of them: %s", n, v.Problems[0])
			}
			return nil
		},
	}
	at.flag(cmd)
	outputFlag(cmd, &format)
	return cmd
}

func (c *console) showStatus(v *clusterView) error {
	if _, err := fmt.Fprintf(c.out, "cluster %s\n\n", v.Cluster); err != nil {
		return err
	}
	if len(v.Controllers) > 0 {
		var rows [][]string
		for _, m := range v.Controllers {
			heard := "never"
			if m.SilentMillis != nil {
				heard = (time.Duration(*m.SilentMillis) * time.Millisecond).Round(100*time.Millisecond).String() + " ago"
			}
			if m.Role == roleLeader {
				heard = "-"
			}
			rows = append(rows, []string{strconv.Itoa(int(m.ID)), m.Role, strconv.FormatInt(m.LogEnd, 10), strconv.FormatInt(m.Lag, 10), heard, m.Directory})
		}
		if err := writeTable(c.out, []string{"controller", "role", "offset", "lag", "heard", "directory id"}, rows); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(c.out); err != nil {
			return err
		}
	}
	if err := c.showBrokers(v); err != nil {
		return err
	}
	n := v.Partitions
	if _, err := fmt.Fprintf(c.out, "\npartitions %d, without leader %d, below min isr %d, under-replicated %d, reassigning %d\n",
		n.Total, n.Leaderless, n.BelowMinISR, n.UnderReplicated, n.Reassigning); err != nil {
		return err
	}
	if n.BelowTarget > 0 {
		if _, err := fmt.Fprintf(c.out, "target     %d partitions have fewer replicas than they should; %d of them are being given more\n", n.BelowTarget, n.Raised); err != nil {
			return err
		}
	}
	if err := c.showLosses(v); err != nil {
		return err
	}
	for _, p := range v.Problems {
		if _, err := fmt.Fprintf(c.out, "problem    %s\n", printable(p)); err != nil {
			return err
		}
	}
	return nil
}

func (c *console) showBrokers(v *clusterView) error {
	var rows [][]string
	for _, b := range v.Brokers {
		rows = append(rows, []string{strconv.Itoa(int(b.ID)), b.Address, orDash(b.Rack), numberText(b.Epoch), b.State,
			strconv.Itoa(b.Leaders), strconv.Itoa(b.Replicas), strconv.Itoa(b.Behind)})
	}
	return writeTable(c.out, []string{"broker", "address", "rack", "epoch", "state", "leaders", "replicas", "out of sync"}, rows)
}
