package main

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/brokerd/brokerd/test/faultfs"
)

// TestPowerCut has all brokers lose power under load, with each flush policy.
func TestPowerCut(t *testing.T) {
	if faultfs.Missing(func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }) {
		t.Skip("it needs disks of faults")
	}
	for _, flush := range []string{flushAlways, flushReplicated} {
		t.Run(flush, func(t *testing.T) {
			var out bytes.Buffer
			opts := options{
				powerCuts: 2, flush: flush, longest: time.Second,
				seed: uint64(time.Now().UnixNano() % 100_000), dir: t.TempDir(), brokerd: brokerd, out: &out,
			}
			broken, err := chaos(t.Context(), opts)
			if err != nil || broken {
				t.Fatalf("a promise was broken, or not tried: %v\n%s", err, out.String())
			}
			t.Log(out.String())
		})
	}
}

// TestForget: what the brokers name as lost is expected no more, all below it is.
func TestForget(t *testing.T) {
	l := newLedger(1, true)
	for n := 1; n <= 4; n++ {
		r := l.send(0, 0)
		l.ack(r, int64(n-1))
	}
	rd := l.newReader()
	for n := 1; n <= 3; n++ {
		rd.took(0, int64(n-1), record{0, 0, n})
	}
	if lost := l.forget(0, 2); lost != 2 {
		t.Errorf("%d acknowledged records were forgotten, not 2", lost)
	}
	l.renew()
	if err := l.passed(l.mark()); err == nil {
		t.Error("the new producer has an acknowledgement")
	}
	mark := l.mark()
	l.ack(l.send(1, 0), 2) // where another one was
	if err := l.passed(mark); err != nil {
		t.Error(err)
	}
	rd = l.newReader()
	rd.took(0, 0, record{0, 0, 1})
	rd.finish("without one that is below")
	if broken, _ := l.sum(); broken[lost] != 2 || broken[changed] != 0 {
		t.Errorf("%v", broken)
	}
}
