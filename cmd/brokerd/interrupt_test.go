package main

import (
	"context"
	"io"
	"testing"
	"time"
)

// begin runs a command with what is typed until end is called, which interrupts it and
// returns its code.
func begin(t *testing.T, in io.Reader, args ...string) (out, errs *screen, end func() int) {
	t.Helper()
	ctx, interrupt := context.WithCancel(context.Background())
	t.Cleanup(interrupt)
	out, errs = newScreen(), newScreen()
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, &console{in: in, inTerminal: true, out: out, err: errs}, args) }()
	return out, errs, func() int {
		interrupt()
		select {
		case code := <-ended:
			return code
		case <-time.After(20 * time.Second):
			t.Fatalf("it goes on after an interrupt\n%s%s", out, errs)
			return 0
		}
	}
}

// Ctrl-C ends what waits for somebody to type, and what was typed before is told of.
func TestInterruptedProduce(t *testing.T) {
	address, _ := dev(t, t.TempDir())
	if code, _, errs := call(t, "", "topic", "create", "typed", "-b", address); code != exitOK {
		t.Fatal(errs)
	}
	typed, keyboard := io.Pipe()
	defer keyboard.Close()
	_, errs, end := begin(t, typed, "produce", "-t", "typed", "-b", address)
	errs.waitFor(t, `Ctrl-D ends`)
	if _, err := io.WriteString(keyboard, "one\n"); err != nil {
		t.Fatal(err)
	}
	got, _, endConsume := begin(t, nil, "consume", "-t", "typed", "--from-beginning", "-b", address)
	got.waitFor(t, `one`)
	if code := endConsume(); code != exitOK {
		t.Errorf("code %d of an interrupted consumer that has no end", code)
	}
	if code := end(); code != exitInterrupted {
		t.Errorf("code %d\n%s", code, errs)
	}
	errs.waitFor(t, `1 record to typed`)
}

// Who wants all records, or so many, can tell an interrupt from the end.
func TestInterruptedConsume(t *testing.T) {
	address, _ := dev(t, t.TempDir())
	if code, _, errs := call(t, "one\ntwo\n", "produce", "-t", "few", "-b", address); code != exitOK {
		t.Fatal(errs)
	}
	out, errs, end := begin(t, nil, "consume", "-t", "few", "--from-beginning", "-n", "3", "-b", address)
	out.waitFor(t, `two`)
	if code := end(); code != exitInterrupted {
		t.Errorf("code %d\n%s", code, errs)
	}
}

// Ctrl-C at a question is no answer: nothing is done.
func TestInterruptedQuestion(t *testing.T) {
	address, _ := dev(t, t.TempDir())
	if code, _, errs := call(t, "", "topic", "create", "kept", "-b", address); code != exitOK {
		t.Fatal(errs)
	}
	for _, args := range [][]string{{"topic", "delete", "kept"}, {"group", "delete", "readers"}} {
		typed, keyboard := io.Pipe()
		_, errs, end := begin(t, typed, append(args, "-b", address)...)
		errs.waitFor(t, `\[y/N\]`)
		if code := end(); code != exitInterrupted {
			t.Errorf("%q: code %d\n%s", args, code, errs)
		}
		_ = keyboard.Close()
	}
	if code, _, errs := call(t, "", "topic", "describe", "kept", "-b", address); code != exitOK {
		t.Errorf("the topic is gone: %s", errs)
	}
}
