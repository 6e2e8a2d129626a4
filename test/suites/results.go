package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// status is how a test ended.
type status string

const (
	passed   status = "PASS"
	failed   status = "FAIL"
	skipped  status = "SKIP"
	timedOut status = "TIMEOUT" // it was ended, or its turn never came
	missing  status = "MISSING" // it was never heard of
)

// result is one test's end.
type result struct {
	status status
	took   time.Duration
}

// results are a suite's, by the test's name. Subtests have names with a slash.
type results map[string]result

// readResults reads lines of status, name and seconds. Empty lines and those that
// begin with # say nothing.
func readResults(r io.Reader) (results, error) {
	all := results{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("line %d: want status, name and seconds, got %q", n, line)
		}
		st := status(fields[0])
		if !slices.Contains([]status{passed, failed, skipped, timedOut}, st) {
			return nil, fmt.Errorf("line %d: unknown status %q", n, st)
		}
		secs, err := strconv.ParseFloat(fields[2], 64)
		if err != nil {
			return nil, fmt.Errorf("line %d: seconds: %w", n, err)
		}
		if _, twice := all[fields[1]]; twice {
			return nil, fmt.Errorf("line %d: %s is there twice", n, fields[1])
		}
		all[fields[1]] = result{st, time.Duration(secs * float64(time.Second))}
	}
	return all, lines.Err()
}

// write writes what readResults reads, in the order of the names.
func (r results) write(w io.Writer) error {
	for _, name := range slices.Sorted(maps.Keys(r)) {
		if _, err := fmt.Fprintf(w, "%s %s %.1f\n", r[name].status, name, r[name].took.Seconds()); err != nil {
			return err
		}
	}
	return nil
}

// counts says how many ended how.
func (r results) counts() string {
	n := map[status]int{}
	for _, one := range r {
		n[one.status]++
	}
	var parts []string
	for _, s := range []status{passed, failed, skipped, timedOut} {
		parts = append(parts, fmt.Sprintf("%d %s", n[s], strings.ToLower(string(s))))
	}
	return strings.Join(parts, ", ")
}

// ran counts the tests that ran to an end of their own.
func (r results) ran() int {
	n := 0
	for _, one := range r {
		if one.status == passed || one.status == failed {
			n++
		}
	}
	return n
}
