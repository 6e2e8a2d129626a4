package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/brokerd/brokerd/core/doctor"
)

// The exit codes of the doctor, which others do not share.
const (
	exitClean    = 0
	exitFindings = 1
	exitUnasked  = 2
)

const watchDefault = 5 * time.Second

// diagnosis is what the doctor says.
type diagnosis struct {
	At      time.Time `json:"at"`
	Cluster string    `json:"cluster"`
	doctor.Report
	// Unasked could not be asked, and is not judged.
	Unasked []unasked `json:"unasked"`

	brokers, topics, partitions, groups int
}

type doctoring struct {
	console *console
	at      cluster
	format  string
	json    bool
	mend    bool
	yes     bool
	watch   time.Duration
}

func newDoctor(c *console) *cobra.Command {
	d := &doctoring{console: c}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is wrong with a cluster, and what the next death would stop",
		Long: `Looks at a cluster, and says what is wrong with it now, and what would be if one
of its brokers, racks or controllers died: which partitions would stop, refuse
writes with acks=all, or lose records, and which groups would have no
coordinator. Each finding says what it is, why it matters, what to do, and by
which command.

It asks by Kafka's protocol alone, and so works on every cluster that speaks
it, Apache Kafka's too. What a cluster cannot be asked is told, and not judged:
how many replicas a topic is to have, brokerd alone tells. Addresses are tried
from here.

With --fix it shows which partitions would get replicas on which brokers, and
where the first replica would lead, and does that once you say yes. It may be
interrupted: what has begun goes on, and the same command does the rest.

Its exit codes are its own: 0 when nothing was found, 1 when something was, and
2 when the cluster could not be asked, or not for enough to say that it is well.`,
		Example: `  brokerd doctor
  brokerd doctor -b broker1:9092,broker2:9092 --json
  brokerd doctor --watch=10s
  brokerd doctor --fix
  brokerd doctor >/dev/null || echo "look at the cluster"`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(cmd, d.format); err != nil {
				return err
			}
			if d.watch < 0 {
				return usagef(cmd, "--watch=%s is negative", d.watch)
			}
			if d.mend && d.watch > 0 {
				return usagef(cmd, "give one of --fix and --watch")
			}
			if d.json {
				d.format = "json"
			}
			return d.run(cmd.Context())
		},
	}
	d.at.flag(cmd)
	outputFlag(cmd, &d.format)
	cmd.Flags().BoolVar(&d.json, "json", false, "the same as -o json")
	cmd.Flags().DurationVar(&d.watch, "watch", 0, "look again and again, after so long")
	cmd.Flags().Lookup("watch").NoOptDefVal = watchDefault.String()
	cmd.Flags().BoolVar(&d.mend, "fix", false, "show what other replicas and leaders would mend, and do it")
	cmd.Flags().BoolVarP(&d.yes, "yes", "y", false, "with --fix, do not ask")
	return cmd
}

// codeError is an error with an exit code of its own.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string { return e.err.Error() }
func (e *codeError) Unwrap() error { return e.err }

// run looks once, or until it is interrupted.
func (d *doctoring) run(ctx context.Context) error {
	client, err := d.at.connect(ctx)
	if err != nil {
		return couldNot(ctx, err)
	}
	defer client.Close()
	if d.mend {
		return d.fix(ctx, client)
	}
	for {
		err := d.look(ctx, client)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case d.watch == 0:
			return err
		}
		if err != nil {
			_, _ = fmt.Fprintln(d.console.err, "brokerd: "+explain(err))
		}
		next := time.NewTimer(d.watch)
		select {
		case <-next.C:
		case <-ctx.Done():
			next.Stop()
			return ctx.Err()
		}
	}
}

// couldNot is the end of a doctor who could not ask.
func couldNot(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &codeError{exitUnasked, err}
}

// look asks, judges, shows, and says by its error what was found.
func (d *doctoring) look(ctx context.Context, client *kgo.Client) error {
	e, err := examine(ctx, client, &d.at)
	if err != nil {
		return couldNot(ctx, err)
	}
	v := &diagnosis{At: time.Now().UTC().Truncate(time.Second), Cluster: e.view.Cluster, Report: doctor.Examine(e.seen), Unasked: e.unasked,
		brokers: len(e.seen.Brokers), topics: len(e.seen.Topics), partitions: len(e.view.partitions), groups: len(e.seen.Groups)}
	if v.Unasked == nil {
		v.Unasked = []unasked{}
	}
	if d.format == "json" {
		err = writeJSON(d.console.out, v)
	} else {
		err = d.show(v)
	}
	if err != nil {
		return err
	}
	return v.verdict()
}

func (v *diagnosis) verdict() error {
	switch n := len(v.Findings); {
	case n == 1:
		return &codeError{exitFindings, fmt.Errorf("1 finding: %s", v.Findings[0].What)}
	case n > 1:
		return &codeError{exitFindings, fmt.Errorf("%d findings, the first of them: %s", n, v.Findings[0].What)}
	}
	for _, u := range v.Unasked {
		if !u.Missing {
			return &codeError{exitUnasked, fmt.Errorf("nothing was found, but not all could be asked: %s (%s)", u.What, u.Why)}
		}
	}
	return nil
}

// orUnknown counts partitions, and others of which nobody knows whether they are to be counted.
func orUnknown(sure, others doctor.Partitions) string {
	switch n := sure.Count(); {
	case len(others) == 0:
		return strconv.Itoa(n)
	case n == 0:
		return "?"
	default:
		return fmt.Sprintf("%d or more", n)
	}
}

// show shows a diagnosis to people.
func (d *doctoring) show(v *diagnosis) error {
	var out strings.Builder
	fmt.Fprintf(&out, "cluster %s at %s\nbrokers %d, topics %d, partitions %d, groups %d\n\n", v.Cluster, v.At.Format(time.RFC3339), v.brokers, v.topics, v.partitions, v.groups)
	var rows [][]string
	for i := range v.Deaths {
		death := &v.Deaths[i]
		quorum := "goes on"
		if death.EndsQuorum {
			quorum = "ends"
		}
		rows = append(rows, []string{death.Subject.String(), strconv.Itoa(death.Stops.Count()), orUnknown(death.RefusesWrites, death.MayRefuseWrites),
			strconv.Itoa(death.Loses.Count()), orUnknown(death.Unclean, death.MayBeUnclean), strconv.Itoa(len(death.Groups)), quorum})
	}
	if err := writeTable(&out, []string{"if it died", "stop", "refuse writes", "lose all copies", "lose records", "groups stop", "quorum"}, rows); err != nil {
		return err
	}
	for i := range v.Findings {
		f := &v.Findings[i]
		fmt.Fprintf(&out, "\n%-8s  %s, %s\n  what  %s\n  why   %s\n  do    %s\n  run   %s\n", f.Severity, f.ID, f.Subject, printable(f.What), printable(f.Why), printable(f.Do), printable(f.Command))
	}
	if len(v.Unasked) > 0 {
		out.WriteByte('\n')
	}
	for _, u := range v.Unasked {
		fmt.Fprintf(&out, "could not be asked: %s (%s)\n", u.What, printable(u.Why))
	}
	if len(v.Findings) == 0 {
		out.WriteString("\nnothing was found\n")
	}
	_, err := fmt.Fprint(d.console.out, out.String())
	return err
}
