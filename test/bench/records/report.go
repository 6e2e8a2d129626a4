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
	notes []string // on what NATS did
	apart []string // rows that it has no part in
}

func newReport(o options, args []string) *report { return &report{o: o, args: args} }

// add adds a row: a line for each metric.
func (r *report) add(w *row, sides []*side) {
	second, third, floor := beside(sides)
	for i, m := range w.metrics {
		title, class := "", ""
		if i == 0 {
			title, class = w.title, w.durability
		}
		cells := []string{title, m.name, spreadOf(sides[0].values[i]).text(digits)}
		cells = append(append(cells, compared(m, i, sides[0], second)...), class)
		if r.o.nats {
			cells = append(append(cells, compared(m, i, sides[0], third)...), survives(i, third))
		}
		if r.o.bare {
			cells = append(cells, compared(m, i, sides[0], floor)...)
		}
		r.lines = append(r.lines, "| "+strings.Join(cells, " | ")+" |")
	}
	switch {
	case w.nats == nil:
		r.apart = append(r.apart, w.name)
	case w.nats.note != "":
		r.notes = append(r.notes, fmt.Sprintf("%s: %s.", w.title, w.nats.note))
	}
}

// beside are the other sides, or nil: the row's own, the one on NATS, and the bare loop.
func beside(sides []*side) (second, third, floor *side) {
	for _, s := range sides[1:] {
		switch {
		case s.role.isNATS():
			third = s
		case s.role == bare:
			floor = s
		default:
			second = s
		}
	}
	return second, third, floor
}

// compared are the cells of a side other than the first: its value, and the first one's ratio to it.
func compared(m metric, i int, first, s *side) []string {
	if s == nil {
		return []string{"", ""}
	}
	value, ratio := spreadOf(s.values[i]).text(digits), ""
	if s.label != "" {
		value = s.label + ": " + value
	}
	if !m.plain {
		ratio = spreadOf(ratios(first.values[i], s.values[i])).text(ratioText)
	}
	return []string{value, ratio}
}

func survives(metric int, s *side) string {
	if metric > 0 || s == nil {
		return ""
	}
	return s.role.durability()
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
	if r.o.brokers > 1 {
		between := "What brokers send each other is plaintext on both sides."
		if r.o.secret {
			between = "What brokers send each other is plaintext in Kafka, and mutual TLS in brokerd."
		}
		fmt.Fprintf(&b, "%d brokers on each side, all on this machine, topics of 3 replicas with min.insync.replicas=2, brokerd's default flush but in the row fsync. %s Processor time is that of all processes of all brokers.\n\n", r.o.brokers, between)
	}
	heads := []string{"row", "measure", "brokerd", second, "ratio", "survives"}
	if r.o.nats {
		heads = append(heads, string(nats), "ratio", "survives")
	}
	if r.o.bare {
		heads = append(heads, string(bare), "ratio")
	}
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(heads, " | "), strings.Repeat(" --- |", len(heads)))
	for _, l := range r.lines {
		b.WriteString(l + "\n")
	}
	if r.o.nats {
		b.WriteString("\n" + r.aboutNATS())
	}
	if r.o.bare {
		b.WriteString("\n" + aboutBare)
	}
	fmt.Fprintf(&b, "\nMachine: %s.\nRepeat: `go run ./test/bench/records %s`\n", machine(), strings.Join(r.args, " "))
	return b.String()
}

// aboutNATS says what its columns are.
func (r *report) aboutNATS() string {
	var b strings.Builder
	b.WriteString("NATS: one server with JetStream's file store and its defaults, a stream for each partition. " +
		"Each ratio is brokerd's value to that of the column before it. What an acknowledgement survives: with \"" + pageCache +
		"\" the message was written to its file, which is synced every two minutes; with \"" + synced +
		"\" (sync_interval: always) it was synced.\n")
	for _, n := range r.notes {
		b.WriteString("- " + n + "\n")
	}
	if len(r.apart) > 0 {
		fmt.Fprintf(&b, "Rows that NATS has no part in: %s.\n", strings.Join(r.apart, ", "))
	}
	return b.String()
}

// machine is what it ran on.
func machine() string {
	return fmt.Sprintf("%d processors (%s), %s GiB, Linux %s%s, %s, on %s", runtime.NumCPU(),
		field("/proc/cpuinfo", "model name"), gibibytes(field("/proc/meminfo", "MemTotal")), kernel(),
		congestion("/proc/sys/net/ipv4/tcp_congestion_control"), runtime.Version(), time.Now().Format(time.DateOnly))
}

// congestion tells the congestion control that such a file names, if it can be read: one
// that paces what it sends changes every number over loopback.
func congestion(path string) string {
	b, err := os.ReadFile(path)
	if name := strings.TrimSpace(string(b)); err == nil && name != "" {
		return ", TCP congestion control " + name + " (brokerd and the bare loop send with reno over loopback)"
	}
	return ""
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
