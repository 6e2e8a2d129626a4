package transporttest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/transport"
)

// Case is one rule of the contract, checked.
type Case struct {
	// Name is short, unique, and stable: "room-error".
	Name string
	// About is the rule, in a sentence.
	About string
	// Needs is what the target must be able to do, and its transport must offer.
	Needs Needs

	run func(e *env)
}

// Options steer a run. The zero value runs everything with seed 1.
type Options struct {
	// Seed decides what is random. Zero means 1.
	Seed uint64
	// Filter chooses cases by name; nil runs all.
	Filter func(name string) bool
	// Patience is how long a call may take that the contract says returns soon, and how
	// long a message may be under way. Zero means 20 s: machines are busy, and a call that
	// hangs is found all the same.
	Patience time.Duration
	// CaseTimeout bounds one case. Zero means 2 minutes.
	CaseTimeout time.Duration
	// Progress is told of each case when it has ended. It may be nil.
	Progress func(Result)
}

const (
	defaultPatience    = 20 * time.Second
	defaultCaseTimeout = 2 * time.Minute
	// stuckGrace is how long a case may take to notice that its time is over, before it is
	// left behind.
	stuckGrace = 2 * time.Second
)

// Status is how a case ended.
type Status int

const (
	// Passed: the rule holds, as far as the case can see.
	Passed Status = iota + 1
	// Failed: it does not; Result.Message says what was seen, and what is said of it.
	Failed
	// NotApplicable: the target cannot run the case, or the transport does not offer what
	// it is about; it says nothing about the transport. Result.Message says what is lacking.
	NotApplicable
)

// String returns the word for the status.
func (s Status) String() string {
	switch s {
	case Passed:
		return "passed"
	case Failed:
		return "FAILED"
	case NotApplicable:
		return "not applicable"
	default:
		return "unknown"
	}
}

// Result is how one case went.
type Result struct {
	Name     string
	About    string
	Status   Status
	Duration time.Duration
	Message  string
}

// Report is a whole run, in the order of Cases.
type Report struct {
	Target  string
	Seed    uint64
	Results []Result
}

// Count returns how many cases ended with the status.
func (r Report) Count(s Status) int {
	n := 0
	for _, result := range r.Results {
		if result.Status == s {
			n++
		}
	}
	return n
}

// OK says whether at least one case passed and none failed.
func (r Report) OK() bool { return r.Count(Passed) > 0 && r.Count(Failed) == 0 }

// Cases returns every case of the kit, in the order in which they are run.
func Cases() []Case {
	return slices.Concat(
		providerCases(), linkCases(), sizeCases(), roomCases(), orderCases(),
		dialCases(), targetCases(), proofCases(), strangerCases(),
		backpressureCases(), memoryCases(), laneCases(), concurrentCases(),
		contextCases(), endCases(), killCases(), closeCases(),
		historyCases(), idleCases(),
	)
}

// Run runs every case against the target, as a subtest each. Cases that are not applicable
// are skipped, with the reason. It fails the test when a case fails, or none passes.
func Run(t *testing.T, target Target) {
	t.Helper()
	report := check(t.Context(), target, Options{}, func(c Case, run func() Result) Result {
		result := Result{Name: c.Name, Status: NotApplicable}
		t.Run(c.Name, func(t *testing.T) {
			result = run()
			switch result.Status {
			case Passed:
			case NotApplicable:
				t.Skip(result.Message)
			default:
				t.Errorf("%s\nafter %v: %s", result.About, result.Duration.Round(time.Millisecond), result.Message)
			}
		})
		return result
	})
	for _, result := range report.Results {
		if result.Name == openName && result.Status == Failed {
			t.Error(result.Message)
		}
	}
}

// Check runs the cases against the target, one after another. Nothing that it started
// outlives it, except a call of a transport that never returns. When ctx ends, the cases
// that remain fail.
func Check(ctx context.Context, target Target, opt Options) Report {
	return check(ctx, target, opt, func(_ Case, run func() Result) Result { return run() })
}

// openName is the result that a transport has that cannot be opened at all.
const openName = "open"

// check runs each case that opt chooses through around.
func check(ctx context.Context, target Target, opt Options, around func(Case, func() Result) Result) Report {
	if opt.Seed == 0 {
		opt.Seed = 1
	}
	if opt.Patience <= 0 {
		opt.Patience = defaultPatience
	}
	if opt.CaseTimeout <= 0 {
		opt.CaseTimeout = defaultCaseTimeout
	}
	report := Report{Target: target.Name, Seed: opt.Seed}
	has, err := capabilities(ctx, target)
	if err != nil {
		result := Result{Name: openName, About: "a transport opens", Status: Failed, Message: err.Error()}
		if opt.Progress != nil {
			opt.Progress(result)
		}
		report.Results = []Result{result}
		return report
	}
	for _, c := range Cases() {
		if opt.Filter == nil || opt.Filter(c.Name) {
			result := around(c, func() Result { return c.runOn(ctx, target, has, opt) })
			report.Results = append(report.Results, result)
			if opt.Progress != nil {
				opt.Progress(result)
			}
		}
	}
	return report
}

// capabilities opens a transport to ask it what it offers.
func capabilities(ctx context.Context, target Target) (transport.Capabilities, error) {
	t, err := target.Open(ctx, identity(cluster, 1))
	if err != nil {
		return transport.Capabilities{}, fmt.Errorf("open a transport: %w", err)
	}
	has := t.Capabilities()
	if err := t.Close(); err != nil {
		return has, fmt.Errorf("close a transport: %w", err)
	}
	return has, nil
}
