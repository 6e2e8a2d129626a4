package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/brokerd/brokerd/core/doctor"
)

// fixLines bounds the lines of a plan that are shown.
const fixLines = 20

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
	switch {
	case d.yes:
	case !d.console.inTerminal:
		return &codeError{exitUnasked, errors.New("nothing was done: there is nobody to ask, so add --yes")}
	case !d.console.confirm("Do that?"):
		return &codeError{exitUnasked, errors.New("nothing was done; answer y, or add --yes")}
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
	_, err := fmt.Fprintf(d.console.out, "%s%d partitions get other replicas, or another order of them; then the first replica leads %d\n", text, len(plan.Moves), len(plan.Elections))
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
	total := len(moves)
	for done := 0; len(moves) > 0; {
		batch := moves[:min(movingMax, len(moves))]
		moves = moves[len(batch):]
		refused, err := m.reassign(ctx, batch)
		if err != nil {
			return err
		}
		cannot = append(cannot, refused...)
		if err := m.settle(ctx, v); err != nil {
			return err
		}
		done += len(batch)
		m.say("%d of %d partitions moved", done, total)
	}
	refused, err := m.elect(ctx, elections)
	if err != nil {
		return err
	}
	return stuckError("mend the cluster", append(cannot, refused...))
}

// settle waits until nothing is being reassigned.
func (m *mover) settle(ctx context.Context, v *clusterView) error {
	for {
		for i := range v.partitions {
			v.partitions[i].adding, v.partitions[i].removing = nil, nil
		}
		if err := within(ctx, func(ctx context.Context) error { return v.askMoves(ctx, m.client) }); err != nil {
			return fmt.Errorf("ask for reassignments: %w", err)
		}
		n := len(slices.DeleteFunc(slices.Clone(v.partitions), func(p partitionView) bool { return len(p.adding)+len(p.removing) == 0 }))
		if n == 0 {
			return nil
		}
		m.say("%d partitions are being moved", n)
		if err := m.pause(ctx); err != nil {
			return err
		}
	}
}
