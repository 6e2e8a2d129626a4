package peer

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// moment is one of the machine, so many ticks after another.
func moment(ticks int, busy time.Duration, all table) Moment {
	return Moment{at: time.Unix(0, 0).Add(time.Duration(ticks) * clockTick), busy: busy, all: all}
}

func used(parent int, cpu, reaped time.Duration) process {
	return process{Usage: Usage{CPU: cpu}, reaped: reaped, parent: parent}
}

func TestOthers(t *testing.T) {
	const (
		us, server, plugin, kernel, they, child = 10, 11, 12, 30, 40, 41
		s                                       = time.Second
	)
	base := table{1: used(0, 0, 0), 2: used(0, 0, 0), us: used(1, s, 0), server: used(us, s, 0), plugin: used(server, s, 0), kernel: used(2, s, 0), they: used(1, s, 0), child: used(they, s, 0)}
	change := func(changes table) table {
		next := make(table)
		for pid, p := range base {
			next[pid] = p
		}
		for pid, p := range changes {
			next[pid] = p
		}
		return next
	}
	gone := change(table{they: used(1, s, 2*s)}) // it has waited for its child, which had used one second before
	delete(gone, child)
	for _, c := range []struct {
		name string
		busy time.Duration // more, of the machine
		to   table
		want float64 // in ten seconds
	}{
		{"nothing", 0, base, 0},
		{"ours, their children and the kernel", 9 * s, change(table{us: used(1, 4*s, 0), server: used(us, 4*s, 0), plugin: used(server, 3*s, 0), kernel: used(2, 2*s, 0)}), 0},
		{"a child of ours that was waited for", 5 * s, change(table{us: used(1, s, 5*s)}), 0},
		{"theirs", 2 * s, change(table{they: used(1, 3*s, 0)}), 0.2},
		{"theirs, which the machine's sum misses", 0, change(table{they: used(1, 3*s, 0)}), 0.2},
		{"a child of theirs that has ended", s, gone, 0.1},
		{"one that came and went and nobody waited for", 3 * s, base, 0.3},
	} {
		got := Others(moment(0, 0, base), moment(1000, c.busy, c.to), us)
		if math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, not %v", c.name, got, c.want)
		}
	}
}

func TestParseMachine(t *testing.T) {
	busy, stole, err := parseMachine("cpu  100 20 30 4000 5 6 7 8 0 0\ncpu0 1 2 3\n")
	if err != nil || busy != 1500*time.Millisecond || stole != 80*time.Millisecond {
		t.Errorf("busy %v, stolen %v, %v", busy, stole, err)
	}
	for _, wrong := range []string{"", "cpu 1 2 3", "cpu a b c d e f g h", "intr 1 2 3 4 5 6 7 8 9"} {
		if _, _, err := parseMachine(wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}

func TestParseStat(t *testing.T) {
	const line = "77 (a (strange) name) S 5 77 77 0 -1 4194560 1 2 3 4 250 50 7 3 20 0 4 0 9000 123456 11 18446744073709551615"
	p, ok := parseStat([]byte(line))
	want := process{Usage: Usage{RSS: 11 * int64(os.Getpagesize()), CPU: 3 * time.Second}, reaped: 100 * time.Millisecond, name: "a (strange) name", parent: 5}
	if !ok || p != want {
		t.Errorf("%+v, %v", p, ok)
	}
	for _, wrong := range []string{"", "77 S 5", "77 (x) S 5 6"} {
		if _, ok := parseStat([]byte(wrong)); ok {
			t.Errorf("%q is taken", wrong)
		}
	}
}

func TestThisProcessIsFound(t *testing.T) {
	all, err := processes()
	if err != nil {
		t.Fatal(err)
	}
	if p := all[os.Getpid()]; p.parent != os.Getppid() || p.RSS == 0 {
		t.Errorf("%+v", p)
	}
	if !all.trees(os.Getppid())[os.Getpid()] {
		t.Error("it is not below its parent")
	}
	if all.trees(os.Getpid())[os.Getppid()] {
		t.Error("its parent is below it")
	}
}

func TestBytesBelow(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	before, err := bytesBelow(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a", "b", "c"), make([]byte, 1234), 0o644); err != nil {
		t.Fatal(err)
	}
	after, err := bytesBelow(dir)
	if err != nil || after-before < 1234 {
		t.Errorf("%d and then %d, %v", before, after, err)
	}
	if n, err := bytesBelow(filepath.Join(dir, "none")); n != 0 || err != nil {
		t.Errorf("a folder that is not there: %d, %v", n, err)
	}
}
