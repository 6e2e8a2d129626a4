package clients

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// How a case can end.
const (
	resultPass   = "pass"
	resultFail   = "FAIL"
	resultNone   = "none"    // the client has no such thing
	resultNotRun = "not run" // the broker may not be restarted
)

// row is one case of one client.
type row struct {
	client, version, name string
	result, why           string
	took                  time.Duration
}

// table gathers the rows. It may be used by several goroutines.
type table struct {
	mu   sync.Mutex
	rows []row
}

func (t *table) add(r row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = append(t.rows, r)
}

// whyShownBytes is how much of a reason the table has room for; the log has all.
const whyShownBytes = 100

// print writes the rows, those of one client together, and their sums.
func (t *table) print(w io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.rows) == 0 {
		return
	}
	slices.SortStableFunc(t.rows, func(a, b row) int { return cmp.Compare(a.client, b.client) })
	sums := make(map[string]int)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\nCLIENT\tVERSION\tCASE\tRESULT\tSECONDS\tREASON")
	for _, r := range t.rows {
		sums[r.result]++
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%.1f\t%s\n", r.client, r.version, r.name, r.result, r.took.Seconds(), firstLine(r.why))
	}
	tw.Flush()
	fmt.Fprintf(w, "%d passed, %d failed, %d none, %d not run\n",
		sums[resultPass], sums[resultFail], sums[resultNone], sums[resultNotRun])
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if len(s) > whyShownBytes {
		s = s[:whyShownBytes] + "..."
	}
	return s
}
