package peer

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Usage is what the processes and their children have taken.
type Usage struct {
	RSS int64 // bytes resident now
	CPU time.Duration
}

// Usage reads /proc. What children shared with each other counts for each of them. The memory
// of the process that only starts several brokers is not a broker's, and does not count.
func (s *Server) Usage() (Usage, error) {
	if !s.Running() {
		return Usage{}, errors.New("it does not run")
	}
	all, err := processes()
	if err != nil {
		return Usage{}, err
	}
	var sum Usage
	for pid := range all.trees(s.roots()...) {
		sum.RSS, sum.CPU = sum.RSS+all[pid].RSS, sum.CPU+all[pid].CPU
	}
	if s.starter {
		sum.RSS -= all[s.roots()[0]].RSS
	}
	return sum, nil
}

// roots are the processes that were started.
func (s *Server) roots() (pids []int) {
	for _, p := range s.running {
		pids = append(pids, p.Pid())
	}
	return pids
}

// Pids are the processes and their children, by number; none where it does not run.
func (s *Server) Pids() ([]int, error) {
	if !s.Running() {
		return nil, nil
	}
	all, err := processes()
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(all.trees(s.roots()...))), nil
}

// Compiling is the processor time that the threads of a JVM have taken that compile: it
// stands still once the JVM has settled. It is zero for anything else.
func (s *Server) Compiling() (time.Duration, error) {
	if !s.Running() {
		return 0, errors.New("it does not run")
	}
	var tasks []string
	for _, pid := range s.roots() {
		more, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "stat"))
		if err != nil {
			return 0, err
		}
		tasks = append(tasks, more...)
	}
	var sum time.Duration
	for _, path := range tasks {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		if t, ok := parseStat(b); ok && (strings.HasPrefix(t.name, "C1 Compiler") || strings.HasPrefix(t.name, "C2 Compiler")) {
			sum += t.CPU
		}
	}
	return sum, nil
}

// clockTick is the unit of times in /proc: Linux has it at 100 to the second for
// programs, whatever its own is.
const clockTick = time.Second / 100

type process struct {
	Usage
	reaped time.Duration // of children that it has waited for
	name   string
	parent int
}

type table map[int]process

func processes() (table, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w", err)
	}
	all := make(table)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		if p, ok := parseStat(b); ok {
			all[pid] = p
		}
	}
	return all, nil
}

// parseStat reads a line of /proc/PID/stat: pid (name) state ppid ..., where the name may
// hold anything.
func parseStat(b []byte) (process, bool) {
	opens, closes := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if opens < 0 || closes < opens {
		return process{}, false
	}
	f := strings.Fields(string(b[closes+1:]))
	if len(f) < 22 {
		return process{}, false
	}
	var n [6]int64
	for i, at := range []int{1, 11, 12, 13, 14, 21} { // parent, user and system time, of children, resident pages
		n[i], _ = strconv.ParseInt(f[at], 10, 64)
	}
	return process{
		Usage:  Usage{RSS: n[5] * int64(os.Getpagesize()), CPU: time.Duration(n[1]+n[2]) * clockTick},
		reaped: time.Duration(n[3]+n[4]) * clockTick,
		name:   string(b[opens+1 : closes]),
		parent: int(n[0]),
	}, true
}

// trees are some processes and all below them.
func (t table) trees(roots ...int) map[int]bool {
	in := make(map[int]bool)
	for pid := range t {
		for p, depth := pid, 0; p > 1 && depth < len(t); p, depth = t[p].parent, depth+1 {
			if slices.Contains(roots, p) {
				in[pid] = true
				break
			}
		}
	}
	return in
}
