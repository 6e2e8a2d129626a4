package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/brokerd/brokerd/core/doctor"
)

const (
	// fixLines bounds the lines of a plan that are shown.
	fixLines = 20
	// settleMax is how long it is waited for the next partition of a batch to be moved.
	settleMax = 5 * time.Minute
)

// fix shows what replicas and leaders can mend, and does it once somebody says yes. What is
// done is done when it was interrupted, and the next one plans for the rest.
func (d *doctoring) fix(ctx context.Context, client *kgo.Client) error {
	e, err := examine(ctx, client, &d.at)
	if err != nil {
		return couldNot(ctx, err)
	}
	plan := doctor.Mend(e.seen)
	if len(plan.Moves)+len(plan.Elections) == 0 {
		_, err := fmt.Fprintln(d.console.out, "there is nothing that other replicas or leaders would mend")
		return err
	}
	if err := d.showPlan(&plan); err != nil {
		return err
	}
	if !d.yes {
		if !d.console.inTerminal {
			return &codeError{exitUnasked, errors.New("nothing was done: there is nobody to ask, so add --yes")}
		}
		if yes, err := d.console.confirm(ctx, "Do that?"); err != nil {
			return err
		} else if !yes {
			return &codeError{exitUnasked, errors.New("nothing was done; answer y, or add --yes")}
		}
	}
	return d.carryOut(ctx, client, e.view, &plan)
}

func (d *doctoring) showPlan(plan *doctor.Plan) error {
	var rows [][]string
	for _, m := range plan.Moves {
		rows = append(rows, []string{m.Topic, strconv.Itoa(int(m.Partition)), joinIDs(m.From), joinIDs(m.To)})
	}
	more := max(0, len(rows)-fixLines)
	if len(rows) > 0 {
		if err := writeTable(d.console.out, []string{"topic", "partition", "replicas", "would be"}, rows[:len(rows)-more]); err != nil {
			return err
		}
	}
	text := ""
	if more > 0 {
		text = fmt.Sprintf("and %d more\n", more)
	}
	_, err := fmt.Fprintf(d.console.out, "%s%d %s other replicas, or another order of them; then the first replica leads %d\n", text, len(plan.Moves), map[bool]string{true: "partition gets", false: "partitions get"}[len(plan.Moves) == 1], len(plan.Elections))
	return err
}

// carryOut moves so many at a time, and has leaders elected when they are moved.
func (d *doctoring) carryOut(ctx context.Context, client *kgo.Client, v *clusterView, plan *doctor.Plan) error {
	m := &mover{console: d.console, client: client}
	var moves, elections []move
	for _, p := range plan.Moves {
		moves = append(moves, move{v.partition(p.Topic, p.Partition), p.To})
	}
	for _, p := range plan.Elections {
		elections = append(elections, move{partition: v.partition(p.Topic, p.Partition)})
	}
	var cannot []stuck
	err := m.move(ctx, moves, &cannot, func(batch []move) error {
		moving := settling{batch: batch, ask: func(ctx context.Context) error { return v.askMoves(ctx, client) }, pause: m.pause, now: time.Now, say: m.say}
		return moving.settle(ctx)
	})
	if err != nil {
		return err
	}
	refused, err := m.elect(ctx, elections)
	if err != nil {
		return err
	}
	return stuckError("mend the cluster", append(cannot, refused...))
}

// settling waits until partitions are moved.
type settling struct {
	batch []move
	ask   func(context.Context) error // for what is being reassigned
	pause func(context.Context) error
	now   func() time.Time
	say   func(format string, args ...any)
}

// settle waits until none of the batch is being reassigned, whatever else is. It ends without
// that where none of it got there within settleMax.
func (s *settling) settle(ctx context.Context) error {
	least, since := len(s.batch)+1, s.now()
	for {
		for _, m := range s.batch {
			m.partition.adding, m.partition.removing = nil, nil
		}
		if err := within(ctx, s.ask); err != nil {
			return fmt.Errorf("ask for reassignments: %w", err)
		}
		n, first := 0, ""
		for _, m := range s.batch {
			if len(m.partition.adding)+len(m.partition.removing) == 0 {
				continue
			}
			if n++; n == 1 {
				first = m.partition.String()
			}
		}
		now := s.now()
		switch {
		case n == 0:
			return nil
		case n < least:
			least, since = n, now
		case now.Sub(since) >= settleMax:
			return fmt.Errorf("%d of %d partitions are still being moved, %s among them, and none got there for %s: what has begun goes on by itself; "+
				"look at `brokerd cluster status` for brokers that are down or slow, and when nothing is being reassigned do this again for the rest", n, len(s.batch), first, settleMax)
		}
		s.say("%d of %d partitions are being moved", n, len(s.batch))
		if err := s.pause(ctx); err != nil {
			return err
		}
	}
}
