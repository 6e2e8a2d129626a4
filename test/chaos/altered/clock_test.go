package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestClockIsSet: the wall clock goes where it is set, and measured time goes on.
func TestClockIsSet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clock")
	if err := os.WriteFile(path, make([]byte, 8), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := openClock(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, by := range []time.Duration{0, 72 * time.Hour, -72 * time.Hour, time.Minute} {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		var b [8]byte
		binary.NativeEndian.PutUint64(b[:], uint64(by/time.Second))
		if _, err := f.WriteAt(b[:], 0); err != nil {
			t.Fatal(err)
		}
		f.Close()
		before := time.Now()
		now := c.Now()
		after := time.Now()
		if wall := now.Round(0); wall.Before(before.Add(by).Round(0)) || wall.After(after.Add(by).Round(0)) {
			t.Errorf("set by %s: %s, between %s and %s", by, now, before, after)
		}
		if now.Sub(before) < 0 || now.Sub(before) > after.Sub(before) {
			t.Errorf("set by %s: %s have passed of %s", by, now.Sub(before), after.Sub(before))
		}
	}
}
