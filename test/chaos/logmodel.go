package main

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// act is what an operation does to one partition's log, as clients see it: through its high
// watermark.
type act int

const (
	// appends: a record came to be at an offset, where the log ended.
	appends act = iota
	// reads: a consumer was given a record at an offset, below the log's end.
	reads
	// ends: the leader told the log's end.
	ends
	// endsLate: one told it that may have been deposed, and so not have known of all.
	endsLate
	// begins and goesOn tie a window to the operations around it.
	begins
	goesOn
)

func (a act) String() string {
	return [...]string{"append", "read", "end", "end, as a deposed leader may tell it,", "before", "after"}[a]
}

// step is the input of an operation. What was answered is part of it, so that no output is
// needed: an append of unknown outcome has taken effect where a reader has found it, and
// never returns.
type step struct {
	act    act
	offset int64
	record record
}

func (s step) String() string {
	if s.act == appends || s.act == reads {
		return fmt.Sprintf("%v %v at %d", s.act, s.record, s.offset)
	}
	return fmt.Sprintf("%v %d", s.act, s.offset)
}

// logState is a log from a window's beginning on. It is never changed, but made anew.
type logState struct {
	base    int64
	records []record
	sum     uint64
}

var hashSeed = maphash.MakeSeed()

func (s logState) end() int64 { return s.base + int64(len(s.records)) }

func (s logState) with(r record) logState {
	next := slices.Concat(s.records, []record{r})
	return logState{s.base, next, maphash.Comparable(hashSeed, [2]any{s.sum, r})}
}

// do tells whether a log in this state allows a step, and the state after it.
func (s logState) do(op step) (bool, logState) {
	switch op.act {
	case appends:
		if op.offset != s.end() {
			return false, s
		}
		return true, s.with(op.record)
	case reads:
		return op.offset >= s.base && op.offset < s.end() && s.records[op.offset-s.base] == op.record, s
	case endsLate:
		return op.offset <= s.end(), s
	}
	return op.offset == s.end(), s
}

// logModel is the log of one partition, from an offset on.
func logModel(base int64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return logState{base: base} },
		Step: func(state, input, _ any) (bool, any) {
			ok, next := state.(logState).do(input.(step))
			return ok, next
		},
		Equal: func(a, b any) bool {
			x, y := a.(logState), b.(logState)
			return x.sum == y.sum && slices.Equal(x.records, y.records)
		},
		Hash: func(state any) uint64 { return state.(logState).sum },
	}
}

const (
	// decideMax bounds the checking of one window.
	decideMax = 20 * time.Second
	// searchMax bounds the part of it in which readings are operations of their own.
	searchMax = 2 * time.Second
	// forever is the time of an answer that never came.
	forever = math.MaxInt64
	// ranks is how many operations called at one time are kept in order: more than a window
	// has of them.
	ranks = 1 << 10
)

// timed is an operation with the times between which it took effect.
type timed struct {
	step
	call, ret int64 // nanoseconds since the history's beginning
}

// place is where in the order of the log's growth an operation can only be; strict: nothing
// of a later place is before it.
func (s step) place() (at int64, strict bool) {
	switch s.act {
	case appends:
		return 4 * (s.offset + 1), true
	case reads:
		return 4*(s.offset+1) + 1, false
	case endsLate:
		return 4*s.offset + 1, false
	}
	return 4*s.offset + 2, true
}

// check tells whether operations are those of one log from an offset on.
func check(base int64, ops []timed) porcupine.CheckResult {
	result := search(base, ops, searchMax)
	if result == porcupine.Unknown {
		// A reading may be at many places, which is what takes so long where none will do. It
		// says no more than that its record was there when it returned.
		result = search(base, folded(ops), decideMax-searchMax)
	}
	return result
}

// folded has each append be done when its record was read, in place of the readings of it.
func folded(ops []timed) []timed {
	seen := map[step]int64{}
	for _, op := range ops {
		if op.act == reads {
			as := step{appends, op.offset, op.record}
			if at, is := seen[as]; !is || op.ret < at {
				seen[as] = op.ret
			}
		}
	}
	var out []timed
	for _, op := range ops {
		if at, is := seen[op.step]; is {
			op.ret = min(op.ret, at)
		}
		if op.act != reads {
			out = append(out, op)
		}
	}
	return out
}

// search looks for an order. It has each operation called no earlier than those that must be
// before it, which changes nothing of what is possible, and has the search come upon an order
// at once where there is one.
func search(base int64, ops []timed, atMost time.Duration) porcupine.CheckResult {
	sorted := slices.Clone(ops)
	slices.SortStableFunc(sorted, func(a, b timed) int {
		x, _ := a.place()
		y, _ := b.place()
		return cmp.Or(cmp.Compare(x, y), cmp.Compare(a.call, b.call))
	})
	all := make([]porcupine.Operation, len(sorted))
	latest := int64(0)
	for i, op := range sorted {
		call := max(op.call, latest)
		if _, strict := op.place(); strict {
			latest = call
		}
		if call > op.ret {
			return porcupine.Illegal
		}
		ret := op.ret
		if ret != forever {
			ret = ret*ranks + ranks - 1
		}
		all[i] = porcupine.Operation{Input: op.step, Call: call*ranks + int64(i%ranks), Return: ret}
	}
	return porcupine.CheckOperationsTimeout(logModel(base), all, atMost)
}
