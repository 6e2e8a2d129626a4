package peer

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Moment is what the machine's processors have done up to now.
type Moment struct {
	busy  time.Duration // of all, for programs and the kernel, without interrupts
	stole time.Duration // what other machines on the same hardware took
	at    time.Time
	all   table
}

// Now looks.
func Now() (Moment, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Moment{}, fmt.Errorf("look what the machine does: %w", err)
	}
	m := Moment{at: time.Now()}
	if m.busy, m.stole, err = parseMachine(string(b)); err != nil {
		return Moment{}, err
	}
	m.all, err = processes()
	return m, err
}

// parseMachine reads the first line of /proc/stat: user nice system idle iowait irq
// softirq steal, in ticks of all processors.
func parseMachine(text string) (busy, stole time.Duration, err error) {
	line, _, _ := strings.Cut(text, "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return 0, 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	var n [9]int64
	for i := range n {
		if i == 0 {
			continue
		}
		if n[i], err = strconv.ParseInt(f[i], 10, 64); err != nil {
			return 0, 0, fmt.Errorf("/proc/stat begins with %q", line)
		}
	}
	return time.Duration(n[1]+n[2]+n[3]) * clockTick, time.Duration(n[8]) * clockTick, nil
}

// kernelThreads is the parent of the kernel's own threads, which work for whoever writes.
const kernelThreads = 2

// Others is how many processors all but the given processes, with what they started, and
// but the kernel's own threads have kept busy from one moment to another. Both ways to
// know it may miss something: the machine's sum is sampled, and of a process that came
// and went only its parent tells, if it waited for it. The larger of both counts.
func Others(from, to Moment, ours ...int) float64 {
	ours = append(ours, kernelThreads)
	sampled := to.busy - from.busy - (to.all.took(ours) - from.all.took(ours))
	told := to.all.others(ours) - from.all.others(ours)
	return max(0, max(sampled, told).Seconds()/to.at.Sub(from.at).Seconds())
}

// Stolen is how many processors were taken away by other machines meanwhile.
func Stolen(from, to Moment) float64 {
	return (to.stole - from.stole).Seconds() / to.at.Sub(from.at).Seconds()
}

// took is the time of some processes and all below them, with those that they have
// waited for.
func (t table) took(roots []int) time.Duration {
	var sum time.Duration
	for pid := range t.trees(roots...) {
		sum += t[pid].CPU + t[pid].reaped
	}
	return sum
}

// others is the time of all the rest.
func (t table) others(roots []int) time.Duration {
	var all time.Duration
	for _, p := range t {
		all += p.CPU + p.reaped
	}
	return all - t.took(roots)
}
