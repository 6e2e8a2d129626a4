package storagetest

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// defaultCaseTimeout bounds one case when Options do not.
const defaultCaseTimeout = 30 * time.Second

// stuckGrace is how long a case may take to notice that its time is over,
// before it is left behind.
const stuckGrace = 2 * time.Second

// Cases returns every case of the kit, in the order in which Run runs them.
func Cases() []Case {
	return slices.Concat(
		openCases(), closeCases(), providerCases(),
		appendCases(), partsCases(), pipelineCases(), repeatCases(), durabilityCases(),
		readCases(), scanCases(), timestampCases(),
		truncateCases(), trimCases(), retainCases(), replaceCases(),
		blobCases(), damageCases(), fullCases(),
		filesCases(), grantCases(), grantEndCases(), leaseCases(), leaseKeptCases(),
		concurrencyCases(), modelCases(),
	)
}

// Run runs the cases against the target, one after another, each on a fresh
// backing. Nothing that it started outlives it, except a call of a store that
// never returns. When ctx ends, the cases that remain fail.
func Run(ctx context.Context, target Target, opt Options) Report {
	if opt.Seed == 0 {
		opt.Seed = 1
	}
	if opt.CaseTimeout <= 0 {
		opt.CaseTimeout = defaultCaseTimeout
	}
	if opt.Progress == nil {
		opt.Progress = func(Result) {}
	}
	report := Report{Target: target.Name(), Seed: opt.Seed}
	for _, c := range Cases() {
		if opt.Filter != nil && !opt.Filter(c.Name) {
			continue
		}
		opt.Progress(Result{Name: c.Name})
		result := c.runOn(ctx, target, opt)
		opt.Progress(result)
		report.Results = append(report.Results, result)
	}
	return report
}

// runOn runs the case and says how it went.
func (c Case) runOn(ctx context.Context, target Target, opt Options) Result {
	result := Result{Name: c.Name, About: c.About}
	if lacking := c.Needs.lacking(target.Abilities()); lacking != "" {
		result.Status, result.Message = NotApplicable, "the target cannot "+lacking
		return result
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, opt.CaseTimeout)
	defer cancel()
	type outcome struct {
		status  Status
		message string
	}
	ended := make(chan outcome, 1)
	go func() {
		status, message := c.attempt(ctx, target, opt.Seed)
		ended <- outcome{status, message}
	}()
	select {
	case o := <-ended:
		result.Status, result.Message = o.status, o.message
	case <-afterEnd(ctx, stuckGrace):
		result.Status = Failed
		result.Message = fmt.Sprintf("the case did not end within %v: a call of the store hangs", opt.CaseTimeout+stuckGrace)
	}
	result.Duration = time.Since(began)
	return result
}

// afterEnd returns a channel that tells when ctx ended the given time ago.
func afterEnd(ctx context.Context, grace time.Duration) <-chan time.Time {
	deadline, _ := ctx.Deadline()
	return time.After(time.Until(deadline) + grace)
}

// attempt runs the case on a fresh backing and returns how it went, and why.
func (c Case) attempt(ctx context.Context, target Target, seed uint64) (status Status, message string) {
	name := fnv.New64a()
	_, _ = name.Write([]byte(c.Name)) // a hash never fails
	e := &env{
		ctx:    ctx,
		target: target,
		rng:    rand.New(rand.NewPCG(seed, name.Sum64())),
		start:  time.Now().Truncate(time.Millisecond),
		twice:  new(atomic.Int64),
	}
	defer func() {
		if e.backing == nil {
			return
		}
		if err := e.backing.Remove(context.WithoutCancel(ctx)); err != nil && status != Failed {
			status, message = Failed, fmt.Sprintf("remove the backing: %v", err)
		}
	}()
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			status, message = Failed, string(p)
		default:
			status, message = Failed, fmt.Sprintf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	backing, err := target.Fresh(ctx)
	e.must(err, "make a fresh backing")
	e.backing = backing
	e.openStore()
	if lacking := c.Offers.lacking(e.store.Capabilities()); lacking != "" {
		return NotApplicable, lacking
	}
	c.run(e)
	if n := e.twice.Load(); n > 0 {
		e.failf("%d appends were completed more than once", n)
	}
	return Passed, ""
}

// lacking names what is needed and not there, or returns "".
func (needs Abilities) lacking(has Abilities) string {
	var words []string
	for _, ability := range []struct {
		needs, has bool
		word       string
	}{
		{needs.Kill, has.Kill, "kill the store"},
		{needs.LosePower, has.LosePower, "lose power"},
		{needs.Damage, has.Damage, "damage stored bytes"},
		{needs.Derived, has.Derived, "damage indexes"},
		{needs.Fill, has.Fill, "fill the store up"},
	} {
		if ability.needs && !ability.has {
			words = append(words, ability.word)
		}
	}
	return strings.Join(words, ", nor ")
}
