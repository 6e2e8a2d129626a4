package main

import (
	"slices"
	"strings"
	"testing"
)

// Rows about one broker are not there with several, and those of the cluster are.
func TestClusterRows(t *testing.T) {
	all, o := testRows(t, "-brokers", "3")
	if o.brokers != 3 {
		t.Fatalf("%d brokers", o.brokers)
	}
	var names []string
	for _, r := range all {
		names = append(names, r.name)
	}
	for _, name := range []string{"produce-100B-raw", "consume-1KiB-franz", "sync", "single-64", "fsync", "create-1000", "idle-1000", "memory", "start-empty"} {
		if !slices.Contains(names, name) {
			t.Errorf("there is no %s", name)
		}
	}
	for _, name := range []string{"end-to-end", "connections", "start-killed", "process-sync"} {
		if slices.Contains(names, name) {
			t.Errorf("there is %s", name)
		}
	}
	memory := all[slices.Index(names, "memory")]
	if memory.sides[0].partitions != manyPartitions || memory.sides[1].partitions != manyPartitions {
		t.Errorf("memory: %+v", memory.sides)
	}
	for _, wrong := range [][]string{{"-brokers", "0"}, {"-brokers", "2"}, {"-brokers", "10"}, {"-brokers", "3", "-nats"}, {"-brokers", "3", "-bare"}, {"-secret"}} {
		if _, err := parse(wrong); err == nil {
			t.Errorf("%v is taken", wrong)
		}
	}
}

// Several brokers run with their own default, and the report says what they are.
func TestClusterSettings(t *testing.T) {
	b := &bench{o: options{brokers: 3, args: []string{"--set", "a=b"}}}
	plain := []string{"--set", `transport.config={"security":"plaintext"}`}
	for r, want := range map[role][]string{brokerd: append(plain, "--set", "a=b"), always: append(append([]string{"--flush", "always"}, plain...), "--set", "a=b")} {
		if got := b.arguments(r); !slices.Equal(got, want) {
			t.Errorf("%s gets %v, not %v", r, got, want)
		}
	}
	if text := newReport(b.o, nil).text(); !strings.Contains(text, "3 brokers on each side") || !strings.Contains(text, "plaintext on both sides") {
		t.Errorf("it does not say of how many brokers, and how they talk:\n%s", text)
	}
	b.o.secret = true
	if got := b.arguments(brokerd); !slices.Equal(got, b.o.args) {
		t.Errorf("with a secret brokerd gets %v", got)
	}
	if text := newReport(b.o, nil).text(); !strings.Contains(text, "mutual TLS in brokerd") {
		t.Errorf("it does not say how brokers talk:\n%s", text)
	}
	if text := newReport(options{brokers: 1}, nil).text(); strings.Contains(text, "on each side") {
		t.Errorf("of one broker:\n%s", text)
	}
}
