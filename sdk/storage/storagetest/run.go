package storagetest

import "time"

// Case is one rule of the specification, checked.
type Case struct {
	// Name is short, unique, and stable: "append-repeat".
	Name string
	// About is the rule, in a sentence.
	About string
	// Needs is what the target must be able to do.
	Needs Abilities

	run func(e *env)
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
	// NotApplicable: the target cannot run the case; it says nothing about the
	// store. Result.Message says what is lacking.
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
