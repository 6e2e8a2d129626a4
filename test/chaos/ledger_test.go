package main

import (
	"fmt"
	"maps"
	"testing"
)

// TestLedgerTells breaks each promise that the ledger can see, and one that nobody made.
func TestLedgerTells(t *testing.T) {
	const idempotent, plain = 0, 1
	first, second, third := record{idempotent, 0, 1}, record{idempotent, 0, 2}, record{idempotent, 0, 3}
	again := record{plain, 0, 1}
	tests := []struct {
		name string
		do   func(l *ledger, rd *reader)
		want map[violation]int
	}{
		{"nothing", func(l *ledger, rd *reader) {
			l.ack(first, 0)
			rd.took(0, 0, first)
			rd.took(0, 1, again)
			rd.took(0, 2, second)
			l.ack(second, 2)
			l.ack(again, 1)
		}, map[violation]int{}},
		{"a plain producer's is there twice", func(l *ledger, rd *reader) {
			rd.took(0, 0, again)
			rd.took(0, 1, again)
			l.ack(again, 1)
		}, map[violation]int{}},
		{"an end that was cut", func(l *ledger, rd *reader) {
			l.ack(first, 0)
			l.ack(second, 1)
			rd.took(0, 0, first)
		}, map[violation]int{lost: 1}},
		{"another one there", func(l *ledger, rd *reader) {
			l.ack(again, 0)
			rd.took(0, 0, first)
		}, map[violation]int{changed: 1, lost: 1}},
		{"read, then another one acknowledged", func(l *ledger, rd *reader) {
			rd.took(0, 0, first)
			l.ack(again, 0)
		}, map[violation]int{changed: 1, lost: 1}},
		{"two acknowledged at one", func(l *ledger, rd *reader) {
			l.ack(first, 0)
			l.ack(again, 0)
			rd.took(0, 0, again)
		}, map[violation]int{changed: 1}},
		{"read, then another one read", func(l *ledger, rd *reader) {
			rd.took(0, 0, first)
			l.newReader().took(0, 0, again)
		}, map[violation]int{changed: 1}},
		{"twice", func(l *ledger, rd *reader) {
			rd.took(0, 0, first)
			rd.took(0, 1, second)
			rd.took(0, 2, second)
		}, map[violation]int{doubled: 1}},
		{"left out", func(l *ledger, rd *reader) {
			rd.took(0, 0, first)
			rd.took(0, 2, second)
		}, map[violation]int{hole: 1}},
		{"read from the start once more", func(l *ledger, rd *reader) {
			rd.took(0, 0, again)
			rd.took(0, 0, again)
		}, map[violation]int{hole: 1}},
		{"a record that never came", func(l *ledger, rd *reader) {
			rd.took(0, 0, first)
			rd.took(0, 1, third)
		}, map[violation]int{disorder: 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := newLedger(1, true, false)
			rd := l.newReader()
			test.do(l, rd)
			rd.finish("the end")
			if got, told := l.sum(); !maps.Equal(got, test.want) {
				t.Errorf("%v, want %v\n%v", got, test.want, told)
			}
		})
	}
}

// TestLedgerWaits: a mark is passed when each producer has an answer of a later record.
func TestLedgerWaits(t *testing.T) {
	l := newLedger(2, true)
	var sent []record
	for p := range 2 {
		sent = append(sent, l.send(0, p))
	}
	mark := l.mark()
	for p, r := range sent {
		l.ack(r, 0)
		l.ack(l.send(0, p), 1)
		if err, want := l.passed(mark), p == 1; (err == nil) != want {
			t.Errorf("after partition %d: %v", p, err)
		}
	}
}

// TestRecordsAreRead: a record's value tells which it is.
func TestRecordsAreRead(t *testing.T) {
	want := record{1, 2, 345}
	if got, err := parseRecord(fmt.Appendf(nil, "%v and more", want)); err != nil || got != want {
		t.Errorf("%v %v", got, err)
	}
	if got, err := parseRecord([]byte("none")); err == nil {
		t.Errorf("%v of none", got)
	}
}
