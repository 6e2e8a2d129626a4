package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// lookEvery is how often a cluster is looked at while something moves.
	lookEvery = 500 * time.Millisecond
	// movesMax bounds the partitions of one request.
	movesMax = 500
	// movingMax bounds the partitions that are being reassigned at once.
	movingMax = 100
	// moveTries is how often a partition is tried that the controller refuses.
	moveTries = 3
)

func newBroker(c *console) *cobra.Command {
	return group("broker", "List brokers, and take work or everything from one", `  brokerd broker list
  brokerd broker drain 2
  brokerd broker decommission 2`,
		newBrokerList(c), newBrokerDrain(c), newBrokerDecommission(c))
}

func newBrokerList(c *console) *cobra.Command {
	var (
		at     cluster
		format string
	)
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List brokers, those that do not serve too",
		Example: "  brokerd broker list\n  brokerd broker list -o json",
		Args:    noArgs,
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
				return writeJSON(c.out, v.Brokers)
			}
			return c.showBrokers(v)
		},
	}
	at.flag(cmd)
	outputFlag(cmd, &format)
	return cmd
}

// brokerID reads the argument of a command.
func brokerID(cmd *cobra.Command, arg string) (int32, error) {
	n, err := strconv.ParseInt(arg, 10, 32)
	if err != nil || n < 0 {
		return 0, usagef(cmd, "%q is no broker's ID, which is a number; `brokerd broker list` shows them", arg)
	}
	return int32(n), nil
}

// mover moves things on one broker, and says how far it is.
type mover struct {
	console *console
	client  *kgo.Client
	id      int32
	said    string
}

// withMover runs a command about one broker.
func (c *console) withMover(cmd *cobra.Command, at *cluster, arg string, do func(context.Context, *mover) error) error {
	id, err := brokerID(cmd, arg)
	if err != nil {
		return err
	}
	client, err := at.connect(cmd.Context())
	if err != nil {
		return err
	}
	defer client.Close()
	return do(cmd.Context(), &mover{console: c, client: client, id: id})
}

// look shows the cluster, in which the broker has to be registered.
func (m *mover) look(ctx context.Context) (*clusterView, error) {
	v, err := lookAt(ctx, m.client)
	if err != nil {
		return nil, err
	}
	if v.broker(m.id) == nil {
		return nil, m.notFound()
	}
	return v, nil
}

func (m *mover) notFound() error {
	return &notFoundError{fmt.Sprintf("there is no broker %d; `brokerd broker list` shows those that are", m.id)}
}

// say tells how far it is, once.
func (m *mover) say(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); text != m.said {
		m.said = text
		_, _ = fmt.Fprintln(m.console.err, text)
	}
}

// pause waits before the next look.
func (m *mover) pause(ctx context.Context) error {
	t := time.NewTimer(lookEvery)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stuckError says what could not be moved: the first of it, and how many there are.
func stuckError(act string, all []stuck) error {
	if len(all) == 0 {
		return nil
	}
	const shown = 5
	var lines []string
	for _, s := range all[:min(shown, len(all))] {
		lines = append(lines, fmt.Sprintf("  %s %s", s.partition, s.why))
	}
	if n := len(all) - shown; n > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", n))
	}
	return fmt.Errorf("%s: %d partitions stay:\n%s", act, len(all), strings.Join(lines, "\n"))
}

// reassign has the controller begin moves, and returns those that it refuses.
func (m *mover) reassign(ctx context.Context, moves []move) (refused []stuck, err error) {
	for len(moves) > 0 {
		batch := moves[:min(movesMax, len(moves))]
		moves = moves[len(batch):]
		req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		for _, mv := range batch {
			t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
			t.Topic = mv.partition.topic
			t.Partitions = []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Partition: mv.partition.index, Replicas: mv.replicas}}
			req.Topics = append(req.Topics, t)
		}
		resp, err := req.RequestWith(ctx, m.client)
		if err == nil {
			err = kafkaError(resp.ErrorCode, resp.ErrorMessage)
		}
		if err != nil {
			return nil, fmt.Errorf("reassign partitions: %w", err)
		}
		for i, t := range resp.Topics {
			for _, p := range t.Partitions {
				if err := kafkaError(p.ErrorCode, p.ErrorMessage); err != nil && i < len(batch) {
					refused = append(refused, stuck{partition: batch[i].partition, why: err.Error()})
				}
			}
		}
	}
	return refused, nil
}

// elect has the first replicas lead, where they can.
func (m *mover) elect(ctx context.Context, moves []move) (refused []stuck, err error) {
	for len(moves) > 0 {
		batch := moves[:min(movesMax, len(moves))]
		moves = moves[len(batch):]
		req := kmsg.NewPtrElectLeadersRequest()
		for _, mv := range batch {
			req.Topics = append(req.Topics, kmsg.ElectLeadersRequestTopic{Topic: mv.partition.topic, Partitions: []int32{mv.partition.index}})
		}
		resp, err := req.RequestWith(ctx, m.client)
		if err == nil {
			err = kafkaError(resp.ErrorCode, nil)
		}
		if err != nil {
			return nil, fmt.Errorf("elect leaders: %w", err)
		}
		for i, t := range resp.Topics {
			for _, p := range t.Partitions {
				if err := kafkaError(p.ErrorCode, p.ErrorMessage); err != nil && !errors.Is(err, kerr.ElectionNotNeeded) && i < len(batch) {
					refused = append(refused, stuck{partition: batch[i].partition, why: err.Error()})
				}
			}
		}
	}
	return refused, nil
}

func newBrokerDrain(c *console) *cobra.Command {
	var (
		at   cluster
		undo bool
	)
	cmd := &cobra.Command{
		Use:   "drain BROKER",
		Short: "Have others lead what a broker leads",
		Long: `Makes the broker the last of the replicas of every partition, and has another
one that is in sync lead it. The broker keeps its replicas and stays in sync;
clients read and write elsewhere. That stays so over restarts, until --undo
has it lead its share again.

To restart a broker none of this is needed: it gives up what it leads when it
is stopped by SIGTERM.`,
		Example: `  brokerd broker drain 2
  brokerd broker drain 2 --undo`,
		Args: oneArg("a broker by its ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withMover(cmd, &at, args[0], func(ctx context.Context, m *mover) error {
				if undo {
					return m.undrain(ctx)
				}
				return m.drain(ctx)
			})
		},
	}
	at.flag(cmd)
	cmd.Flags().BoolVar(&undo, "undo", false, "have the broker lead its share again")
	return cmd
}

func (m *mover) drain(ctx context.Context) error {
	v, err := m.look(ctx)
	if err != nil {
		return err
	}
	moves, cannot := v.planDrain(m.id)
	m.say("broker %d leads %d partitions; %d are given to others", m.id, v.broker(m.id).Leaders, len(moves))
	if err := m.lead(ctx, moves, &cannot); err != nil {
		return err
	}
	if err := stuckError(fmt.Sprintf("drain broker %d", m.id), cannot); err != nil {
		return err
	}
	_, err = fmt.Fprintf(m.console.out, "broker %d leads nothing; `brokerd broker drain %d --undo` gives it its share again\n", m.id, m.id)
	return err
}

func (m *mover) undrain(ctx context.Context) error {
	v, err := m.look(ctx)
	if err != nil {
		return err
	}
	if state := v.broker(m.id).State; state != stateServing {
		return fmt.Errorf("broker %d is %s: start it first", m.id, state)
	}
	moves := v.planReturn(m.id)
	var cannot []stuck
	if err := m.lead(ctx, moves, &cannot); err != nil {
		return err
	}
	if err := stuckError(fmt.Sprintf("give leaders back to broker %d", m.id), cannot); err != nil {
		return err
	}
	_, err = fmt.Fprintf(m.console.out, "broker %d leads %d more partitions\n", m.id, len(moves))
	return err
}

// lead orders replicas, and has the first of each lead.
func (m *mover) lead(ctx context.Context, moves []move, cannot *[]stuck) error {
	return m.move(ctx, moves, cannot, func(batch []move) error {
		refused, err := m.elect(ctx, batch)
		*cannot = append(*cannot, refused...)
		return err
	})
}

// move reassigns so many at a time, and does with each batch what then does.
func (m *mover) move(ctx context.Context, moves []move, cannot *[]stuck, then func(batch []move) error) error {
	total := len(moves)
	for done := 0; len(moves) > 0; {
		batch := moves[:min(movingMax, len(moves))]
		moves = moves[len(batch):]
		refused, err := m.reassign(ctx, batch)
		if err != nil {
			return err
		}
		*cannot = append(*cannot, refused...)
		if err := then(batch); err != nil {
			return err
		}
		done += len(batch)
		m.say("%d of %d partitions moved", done, total)
	}
	return nil
}

func newBrokerDecommission(c *console) *cobra.Command {
	var (
		at    cluster
		fewer bool
	)
	cmd := &cobra.Command{
		Use:   "decommission BROKER",
		Short: "Move everything off a broker, and forget it",
		Long: `Gives the broker's replicas to others, takes its vote in the metadata quorum,
waits until it is stopped, and has the cluster forget it. It tells when to
stop the broker. Nothing is lost of what other replicas have; a broker that is
dead is replaced in the same way, once another one has been started.

Its vote goes to a broker that has none, if there is one. Where too few brokers
would be left for the replicas of a topic, nothing is done.

It may be interrupted at any time: what has begun goes on, and the same
command goes on with the rest. A data directory that was decommissioned cannot
come back: start the broker with an empty one.`,
		Example: `  brokerd broker decommission 3
  brokerd broker decommission 3 --fewer-replicas`,
		Args: oneArg("a broker by its ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withMover(cmd, &at, args[0], func(ctx context.Context, m *mover) error { return m.decommission(ctx, fewer) })
		},
	}
	at.flag(cmd)
	cmd.Flags().BoolVar(&fewer, "fewer-replicas", false, "go on with less replicas where there is no other broker to have one")
	return cmd
}
