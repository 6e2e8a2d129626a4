package main

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// TestLogModelRefuses has histories that one log allows, and such that none does.
func TestLogModelRefuses(t *testing.T) {
	a, b, c := record{0, 0, 1}, record{0, 0, 2}, record{1, 0, 1}
	appended := func(r record, offset, call, ret int64) timed {
		return timed{step{appends, offset, r}, call, ret}
	}
	read := func(r record, offset, call, ret int64) timed { return timed{step{reads, offset, r}, call, ret} }
	end := func(act act, offset, call, ret int64) timed { return timed{step{act: act, offset: offset}, call, ret} }
	tests := []struct {
		name string
		ops  []timed
		want porcupine.CheckResult
	}{
		{"one after the other", []timed{appended(a, 10, 1, 2), appended(b, 11, 3, 4), read(a, 10, 5, 6), read(b, 11, 5, 6), end(ends, 12, 7, 8)}, porcupine.Ok},
		{"sent the other way round, at one time", []timed{appended(a, 11, 1, 9), appended(b, 10, 2, 9)}, porcupine.Ok},
		{"read before the answer", []timed{appended(a, 10, 1, 9), read(a, 10, 2, 3)}, porcupine.Ok},
		{"no answer, and read", []timed{appended(a, 10, 1, forever), read(a, 10, 2, 3)}, porcupine.Ok},
		{"an end between two", []timed{appended(a, 10, 1, 9), appended(b, 11, 1, 9), end(ends, 11, 2, 3)}, porcupine.Ok},
		{"an old end of a deposed leader", []timed{appended(a, 10, 1, 2), end(endsLate, 10, 3, 4)}, porcupine.Ok},
		{"an end that does not have what was acknowledged", []timed{appended(a, 10, 1, 2), end(ends, 10, 3, 4)}, porcupine.Illegal},
		{"an end that goes back", []timed{appended(a, 10, 1, forever), end(ends, 11, 2, 3), end(ends, 10, 4, 5)}, porcupine.Illegal},
		{"an end of what was not sent yet", []timed{end(endsLate, 11, 1, 2), appended(a, 10, 3, 4)}, porcupine.Illegal},
		{"read, and the end is before it", []timed{appended(a, 10, 1, 9), read(a, 10, 2, 3), end(ends, 10, 4, 5)}, porcupine.Illegal},
		{"read before it was sent", []timed{read(a, 10, 1, 2), appended(a, 10, 3, 4)}, porcupine.Illegal},
		{"acknowledged, and another one read", []timed{appended(a, 10, 1, 2), read(b, 10, 3, 4)}, porcupine.Illegal},
		{"two at one offset", []timed{appended(a, 10, 1, 9), appended(b, 10, 1, 9)}, porcupine.Illegal},
		{"acknowledged at an offset before one that was there", []timed{appended(a, 11, 1, 2), appended(b, 10, 3, 4)}, porcupine.Illegal},
		{"before the window's beginning", []timed{end(begins, 10, 5, forever), appended(a, 10, 1, 2)}, porcupine.Illegal},
		{"after what comes after the window", []timed{end(goesOn, 11, 0, 3), appended(a, 10, 4, 5)}, porcupine.Illegal},
		{"a third", []timed{appended(a, 10, 1, 9), appended(c, 11, 1, 9), appended(b, 12, 1, 9), read(c, 11, 2, 3), read(b, 12, 4, 5)}, porcupine.Ok},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := check(10, test.ops); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// TestSearchIsShort: windows as busy clients leave them are decided soon, right and wrong ones.
func TestSearchIsShort(t *testing.T) {
	const flying = 60
	window := func(wrong bool) []timed {
		ops := []timed{{step{act: begins}, 0, forever}, {step{act: goesOn, offset: windowRecords}, 0, forever}}
		for n := range int64(windowRecords) {
			r := record{0, 0, int(n) + 1}
			ops = append(ops, timed{step{appends, n, r}, 10 * n, 10*(n+flying) + 5}, timed{step{reads, n, r}, 10 * n, 10*(n+flying) + 7})
			if n%4 == 3 {
				ops = append(ops, timed{step{act: ends, offset: n - 1}, 10 * (n + 1), 10 * (n + flying)}, timed{step{act: endsLate, offset: n - 3}, 10 * n, 10 * (n + flying)})
			}
		}
		if wrong {
			ops = append(ops, timed{step{act: ends, offset: 40}, 10*(40+flying) + 6, 10*(40+flying) + 8})
		}
		return ops
	}
	began := time.Now()
	if got := check(0, window(false)); got != porcupine.Ok {
		t.Errorf("%s", got)
	}
	if got := check(0, window(true)); got != porcupine.Illegal {
		t.Errorf("a wrong one: %s", got)
	}
	if took := time.Since(began); took > decideMax/2 {
		t.Errorf("it took %s", took)
	} else {
		t.Log(took)
	}
}

// heard is a history to which things happen one after the other, each for a while.
type heard struct {
	*history
	now int64
}

func (h *heard) at() int64 { h.now += 10; return h.now }

// put sends a record, has it acknowledged and read.
func (h *heard) put(r record, offset int64, epoch int32) {
	h.sentAt[r] = h.at()
	c := h.lines[0].cell(offset)
	c.acked, c.ackedAt = r, h.at()
	c.read, c.readAt = r, h.at()
	h.lines[0].sign(epoch, h.now)
}

func (h *heard) end(offset int64, epoch int32) {
	call := h.at()
	h.lines[0].sign(epoch, h.at())
	h.lines[0].ends = append(h.lines[0].ends, endRead{call, h.now, offset, epoch})
}

// TestHistoryTells builds histories of several windows, right and wrong ones.
func TestHistoryTells(t *testing.T) {
	const windows, count = 3, 3*windowRecords - 20
	tests := []struct {
		name string
		do   func(h *heard, n int64)
		want int
	}{
		{"nothing wrong", func(*heard, int64) {}, 0},
		{"the end is told", func(h *heard, n int64) { h.end(n, 1) }, 0},
		{"the end is told late", func(h *heard, n int64) {
			if n == 150 {
				h.end(149, 1)
			}
		}, 1},
		{"the end is told late, of an earlier window", func(h *heard, n int64) {
			if n == 150 {
				h.end(20, 1)
			}
		}, 2},
		{"the end is told late by a deposed leader", func(h *heard, n int64) {
			if n == 150 {
				h.end(20, 0)
			}
		}, 0},
		{"the end is told before it is there", func(h *heard, n int64) {
			if n == 50 {
				h.end(220, 1)
			}
		}, 3},
		{"an answer is missing", func(h *heard, n int64) {
			if n == 120 {
				h.lines[0].cell(119).ackedAt = 0
			}
		}, 0},
		{"another one was acknowledged", func(h *heard, n int64) {
			if n == 120 {
				h.lines[0].cell(119).acked = record{1, 0, 7}
			}
		}, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := newLedger(1, true, false)
			h := &heard{history: newHistory(l)}
			for n := range int64(count) {
				h.put(record{0, 0, int(n) + 1}, n, 1)
				test.do(h, n+1)
			}
			h.finish()
			if broken, told := l.sum(); broken[disordered] != test.want || broken[undecided] != 0 {
				t.Errorf("%d windows are wrong, want %d\n%v", broken[disordered], test.want, told)
			}
			if h.checked() != windows {
				t.Errorf("%d windows were checked, want %d", h.checked(), windows)
			}
		})
	}
}
