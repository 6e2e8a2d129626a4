package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// report is the table, as Markdown.
type report struct {
	o     options
	args  []string
	lines []string
}

func newReport(o options, args []string) *report { return &report{o: o, args: args} }

// add adds a row: a line for each metric.
func (r *report) add(w *row, sides []*side) {
	for i, m := range w.metrics {
		title, class := "", ""
		if i == 0 {
			title, class = w.title, w.durability
		}
		first := spreadOf(sides[0].values[i]).text(digits)
		second, ratio := "", ""
		if len(sides) > 1 {
			second = spreadOf(sides[1].values[i]).text(digits)
			if sides[1].label != "" {
				second = sides[1].label + ": " + second
			}
			if !m.plain {
				ratio = spreadOf(ratios(sides[0].values[i], sides[1].values[i])).text(ratioText)
			}
		}
		r.lines = append(r.lines, fmt.Sprintf("| %s | %s | %s | %s | %s | %s |", title, m.name, first, second, ratio, class))
	}
}

func (r *report) text() string {
	var b strings.Builder
	second := string(kafka)
	if r.o.beside != "" {
		second = r.o.beside
	}
	if r.o.force {
		b.WriteString("NOT TO BE REPORTED: what other processes did was not looked at (-force).\n\n")
	}
	fmt.Fprintf(&b, "Medians of %d rounds in turn (least to most).\n\n", r.o.rounds)
	fmt.Fprintf(&b, "| row | measure | brokerd | %s | ratio | survives |\n| --- | --- | --- | --- | --- | --- |\n", second)
	for _, l := range r.lines {
		b.WriteString(l + "\n")
	}
	fmt.Fprintf(&b, "\nMachine: %s.\nRepeat: `go run ./test/bench/records %s`\n", machine(), strings.Join(r.args, " "))
	return b.String()
}

// machine is what it ran on.
func machine() string {
	return fmt.Sprintf("%d processors (%s), %s GiB, Linux %s, %s, on %s", runtime.NumCPU(),
		field("/proc/cpuinfo", "model name"), gibibytes(field("/proc/meminfo", "MemTotal")), kernel(), runtime.Version(), time.Now().Format(time.DateOnly))
}

// field is what a line of such a file says behind its colon.
func field(path, name string) string {
	f, err := os.Open(path)
	if err != nil {
		return "?"
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if key, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "?"
}

func gibibytes(kb string) string {
	var n float64
	if _, err := fmt.Sscan(kb, &n); err != nil {
		return "?"
	}
	return fmt.Sprintf("%.0f", n/(1<<20))
}

func kernel() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(b))
}
