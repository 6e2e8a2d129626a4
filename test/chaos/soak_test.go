package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSoakJudges: what a stall of a store explains is told, and all else is counted.
func TestSoakJudges(t *testing.T) {
	began := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	output := filepath.Join(t.TempDir(), "broker-1.log")
	words := fmt.Sprintf("%s --- broker 1 starts\ntime=%s level=WARN msg=\"%s: others lead what it led\" broker=1\ntime=%[2]s level=INFO msg=\"this broker is no longer fenced\"\n",
		began.Format("15:04:05.000"), began.Add(time.Minute).Format(time.RFC3339Nano), fencedWords)
	if err := os.WriteFile(output, []byte(words), 0o600); err != nil {
		t.Fatal(err)
	}
	l := newLedger(partitions, true)
	s := &soak{run: &run{cluster: &cluster{nodes: []*node{{n: 1, output: output}}, ledger: l}, out: io.Discard}}
	s.produced.Store(1)
	s.consumed.Store(1)
	s.stalls = []mishap{{began, "a stall"}}
	s.mishaps = []mishap{{began.Add(stallReach / 2), "explained"}, {began.Add(2 * stallReach), "not explained"}}
	told := strings.Join(s.judge(l), "\n")
	if got := l.count(falseAlarm); got != 2 || l.count(notServed) != 0 {
		t.Errorf("%d are counted, want 2\n%s\n%v", got, told, l.told)
	}
	if !strings.Contains(told, ": explained") || strings.Contains(told, ": not explained") {
		t.Error(told)
	}
}

// TestLongAppends reads from a broker's metrics which appends took too long.
func TestLongAppends(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "# HELP x\nbrokerd_replica_store_append_seconds_bucket{le=\"1\"} 95\nbrokerd_replica_store_append_seconds_bucket{le=\"2\"} 99\nbrokerd_replica_store_append_seconds_count 100\n")
	}))
	t.Cleanup(server.Close)
	got, err := longAppends(t.Context(), server.Listener.Addr().String())
	if err != nil || got != 5 {
		t.Errorf("%v %v, want 5", got, err)
	}
}
