package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// process makes what a process showed from words: `run A`, `pass A`, `panic`, each
// line a second after the one before.
func process(t *testing.T, story string) *tally {
	t.Helper()
	now := time.Unix(0, 0)
	tally := newTally(now)
	for line := range strings.Lines(story) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		now = now.Add(time.Second)
		e := fmt.Sprintf(`{"Action":%q,"Test":%q,"Elapsed":1}`, fields[0], fields[len(fields)-1])
		if fields[0] == "panic" {
			e = `{"Action":"output","Test":"","Output":"panic: oh\n"}`
		}
		tally.take(now, []byte(e))
	}
	return tally
}

func TestSettle(t *testing.T) {
	for _, c := range []struct {
		name, story string
		killed      bool
		want        string
	}{
		{"all ended", "run A\nrun A/x\npass A/x\npass A\nrun B\nfail B", false, "A=PASS A/x=PASS B=FAIL"},
		{"one hangs: it alone is to blame", "run A\npass A\nrun B\nrun B/x", true, "A=PASS B=TIMEOUT"},
		{"those that wait are not to blame", "run A\npause A\nrun B\n", true, "B=TIMEOUT"},
		{"nor those whose subtests wait", "run A\nrun A/x\npause A/x\nrun B\n", true, "B=TIMEOUT"},
		{"those that went on are", "run A\npause A\ncont A\n", true, "A=TIMEOUT"},
		{"one panics: the others run again", "run A\npause A\nrun B\ncont A\nfail B\npanic", false, "B=FAIL"},
		{"nobody is told to have panicked", "run A\nrun B\npanic", false, "A=FAIL B=FAIL"},
		{"a parent that did not end has no finished subtests", "run A\nrun A/x\npass A/x\nrun A/y\nrun B\nfail B\npanic", false, "B=FAIL"},
		{"a split one has", "run S\nrun S/x\npass S/x\nrun S/y\nfail S/y\nfail S\npanic", false, "S/x=PASS S/y=FAIL"},
		{"a split one hangs", "run S\nrun S/x\npass S/x\nrun S/y\nrun S/y/z", true, "S/x=PASS S/y=TIMEOUT"},
		{"a split one fails without a panic", "run S\nrun S/x\nfail S/x\nfail S", false, "S=FAIL S/x=FAIL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := &standing{known: results{}, split: []string{"S"}}
			tally := process(t, c.story)
			if !st.settle(tally, tally.running(tally.last), c.killed) {
				t.Error("nothing new was learned")
			}
			var got []string
			for _, name := range slices.Sorted(maps.Keys(st.known)) {
				got = append(got, name+"="+string(st.known[name].status))
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("known: %q, want %q", got, c.want)
			}
		})
	}
}

// TestSettleKeepsTheFirst: what failed once stays failed, whatever later processes
// say of it, and one that shows nothing new is seen to.
func TestSettleKeepsTheFirst(t *testing.T) {
	st := &standing{known: results{"A": {status: failed}}}
	tally := process(t, "run A\npass A")
	if st.settle(tally, nil, false) {
		t.Error("something new was learned")
	}
	if st.known["A"].status != failed {
		t.Error("a second run made a failed test pass")
	}
}

func TestFinish(t *testing.T) {
	st := &standing{known: results{"A": {status: passed}, "S": {status: passed}, "S/x": {status: failed}}, split: []string{"S"}}
	if !st.left([]string{"A", "B"}) || st.left([]string{"A", "S"}) {
		t.Error("what is left is not what is unknown")
	}
	st.finish([]string{"A", "B", "S"})
	for name, want := range map[string]status{"A": passed, "B": timedOut, "S": failed} {
		if got := st.known[name].status; got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// TestSkip: what is known is not run again, all else is.
func TestSkip(t *testing.T) {
	st := &standing{known: results{"A": {}, "A/x": {}, "B[1]": {}, "S/x": {}, "S/y/z": {}}, split: []string{"S"}}
	if got, want := st.skip([]string{"C"}), "^(C|A|B[1])$|^S$/^x$"; got != want {
		t.Errorf("skip is %q, want %q", got, want)
	}
	if got := (&standing{}).skip(nil); got != "" {
		t.Errorf("nothing is known, and skipped is %q", got)
	}
}

func TestReadTable(t *testing.T) {
	const table = "[0045_a  / 0.1s] x\n| 0045_a                 |     PASSED |   1.250s | Ok |\n" +
		"| \x1b[31m0045_b  \x1b[0m  | FAILED |  2.000s |\n| 0045_c_mock | SKIPPED |   0.000s |\n| 0045_d_local | PASSED | 0.1s |\n"
	for _, c := range []struct {
		name, printed string
		hung          bool
		want          string
	}{
		{"a table", table, false, "0045_a=PASS 0045_b=FAIL 0045_c_mock=SKIP"},
		{"no table: it took its process down", "[0045_b_local / 0.1s] WARN: SKIPPING TEST\n[0045_c /  0.5s] === Running test 0045_c ===\n[0045_a /  0.5s] === Running test 0045_a ===\nAborted\n", false, "0045_a=FAIL"},
		{"it hung after its table", table, true, "0045=TIMEOUT"},
		{"no name either", "cannot load\n", false, "0045=FAIL"},
		{"it hung", "[0045_a_long_one/  0.5s] === Running test 0045_a_long_one ===\n", true, "0045_a_long_one=TIMEOUT"},
	} {
		got := readTable("0045", c.printed, c.hung, time.Second)
		var words []string
		for _, name := range slices.Sorted(maps.Keys(got)) {
			words = append(words, name+"="+string(got[name].status))
		}
		if strings.Join(words, " ") != c.want {
			t.Errorf("%s: %q, want %q", c.name, words, c.want)
		}
	}
}

// TestPieces: a piece counts under its own name, and only where it ran.
func TestPieces(t *testing.T) {
	l := librdkafka{pieces: librdkafkaPieces{"0081_admin", []string{"do_a", "do_ab"}}}
	if got, want := fmt.Sprint(l.jobs([]string{"0018", "0081"}, "")), "[{0018 } {0081 do_a} {0081 do_ab}]"; got != want {
		t.Errorf("jobs: %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(l.jobs(nil, "do_a$")), "[{0081 do_a}]"; got != want {
		t.Errorf("jobs: %s, want %s", got, want)
	}
	all := results{"0081_admin": {passed, time.Second}}
	if got := pieceOf(all, "0081_admin", "do_a", "[0081_admin / 0.1s] [ do_a:17: x: PASS (0.1s) ]"); got["0081_admin/do_a"].status != passed || len(got) != 1 {
		t.Errorf("a piece that ran: %v", got)
	}
	if got := pieceOf(all, "0081_admin", "do_a", "[0081_admin / 0.1s] [ do_ab:17: x ]"); len(got) != 0 {
		t.Errorf("a piece that did not run: %v", got)
	}
}

func TestTestNumbers(t *testing.T) {
	const source = "_TEST(0001_multiobj, 0),\n_TEST(0009_mock, TEST_F_LOCAL, x),\n_TEST(0184_long, 0, TEST_BRKVER(1)),\n" +
		"_TEST(0045_a, 0),\n_TEST(0045_b_mock, TEST_F_LOCAL),\n_TEST(0100_hand, TEST_F_MANUAL),\n"
	for only, want := range map[string]string{"": "0184 0001 0045", "^0045_a": "0045", "multi|mock": "0001"} {
		got, err := testNumbers(source, only)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %q (%v), want %q", only, got, err, want)
		}
	}
	if _, err := testNumbers(source, "("); err == nil {
		t.Error("a pattern that is none was taken")
	}
}

// TestPatterns: those of the table are none that only the suites would find wrong.
func TestPatterns(t *testing.T) {
	for _, su := range suites() {
		if g, is := su.runner.(goSuite); is {
			if _, err := regexp.Compile(g.tests); err != nil {
				t.Errorf("%s: %v", su.name, err)
			}
		}
	}
}
