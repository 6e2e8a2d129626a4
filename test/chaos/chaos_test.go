package main

import (
	"bytes"
	"testing"
	"time"
)

// TestChaos has each kind of event once, and one broker become three. What decides is drawn;
// the output says what it was.
func TestChaos(t *testing.T) {
	var out bytes.Buffer
	opts := options{
		events: events(), count: 1, growths: 1, longest: time.Second,
		seed: uint64(time.Now().UnixNano() % 100_000), dir: t.TempDir(), out: &out,
	}
	broken, err := chaos(t.Context(), opts)
	if err != nil || broken {
		t.Errorf("a promise was broken, or not tried: %v\n%s", err, out.String())
		return
	}
	t.Log(out.String())
}
