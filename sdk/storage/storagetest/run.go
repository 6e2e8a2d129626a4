package storagetest

import (
	"time"

	"github.com/brokerd/brokerd/sdk/storage"
)

// Case is one rule of the specification, checked.
type Case struct {
	// Name is short, unique, and stable: "append-repeat".
	Name string
	// About is the rule, in a sentence.
	About string
	// Needs is what the target must be able to do.
	Needs Abilities
	// Offers is what the store must offer.
	Offers Offers

	run func(e *env)
}

// Offers are parts of the contract that a store may leave out; see
// storage.Capabilities.
type Offers struct {
	Grants bool
	Leases bool
}

// lacking names what is asked for and not offered, or returns "".
func (o Offers) lacking(has storage.Capabilities) string {
	switch {
	case o.Grants && !has.Grants:
		return "the store does not grant writes"
	case o.Leases && !has.Leases:
		return "the store does not lend leases"
	}
	return ""
}

// Options steer a run. The zero value runs everything with seed 1.
type Options struct {
	// Seed decides everything that is random. Zero means 1.
	Seed uint64
	// Filter chooses cases by name; nil runs all.
	Filter func(name string) bool
	// Progress is told before each case begins (with a zero Result apart from
	// its name) and after it ended. Nil tells nobody.
	Progress func(Result)
	// CaseTimeout bounds one case. Zero means 30 s.
	CaseTimeout time.Duration
}

// Status is how a case ended.
type Status int

const (
	// Running: it has not ended.
	Running Status = iota
	// Passed: the rule holds, as far as the case can see.
	Passed
	// Failed: it does not; Result.Message says what was seen.
	Failed
	// NotApplicable: the target cannot run the case, or the store does not offer
	// what it is about; it says nothing about the store. Result.Message says what
	// is lacking.
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
		return "running"
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
