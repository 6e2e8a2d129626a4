package main

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/brokerd/brokerd/test/faultfs"
)

// FR-40: all brokers lose power at once, under load, and their disks keep what was synced and
// of the rest what chance has it. With flush=always nothing that was acknowledged is lost; with
// flush=replicated the brokers say of which partition and from which offset on. With both the
// replicas are the same afterwards. (nats-server 7564)
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

// TestNoLoad: a load that could not be started is not ended.
func TestNoLoad(t *testing.T) {
	var ended int
	p := power{load: &load{}}
	for range 2 {
		p.endLoad(func(*load) { ended++ })
	}
	if ended != 1 {
		t.Errorf("one load was ended %d times", ended)
	}
}

// TestAlike: a replica that has lost everything is not like the others, whichever it is.
func TestAlike(t *testing.T) {
	a, b := []byte("00000000a"), []byte("00000000b")
	for _, tc := range []struct {
		name string
		logs [][][]byte
		same bool
	}{
		{"all", [][][]byte{{a, b}, {a, b}, {a, b}}, true},
		{"none", [][][]byte{nil, nil, nil}, false},
		{"the first has nothing", [][][]byte{nil, {a}, {a}}, false},
		{"the last has nothing", [][][]byte{{a}, {a}, nil}, false},
		{"one lacks the end", [][][]byte{{a, b}, {a}, {a, b}}, false},
		{"one has another", [][][]byte{{a, b}, {a, b}, {a, a}}, false},
	} {
		if err := alike(tc.logs); (err == nil) != tc.same {
			t.Errorf("%s: %v", tc.name, err)
		}
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
