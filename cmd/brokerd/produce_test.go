package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// Batches of many partitions do not gather to a request that the broker cannot
// read, which it would answer by closing the connection for ever.
func TestProduceKeepsRequestsSmall(t *testing.T) {
	address, _ := dev(t, t.TempDir(), "--set", "socket.request.max.bytes=1536KiB")
	if code, _, errs := call(t, "", "topic", "create", "wide", "-p", "8", "-b", address); code != exitOK {
		t.Fatal(errs)
	}
	var in strings.Builder
	const lines = 24
	for i := range lines {
		_, _ = fmt.Fprintf(&in, "key%d:%s\n", i, strings.Repeat("x", 600<<10))
	}
	code, _, errs := call(t, in.String(), "produce", "-t", "wide", "-k", ":", "-b", address)
	if want := fmt.Sprintf("%d records to wide\n", lines); code != exitOK || errs != want {
		t.Errorf("code %d, %q, want %q", code, errs, want)
	}
}

// A record that the broker can never read ends the command with a sentence.
func TestProduceGivesUp(t *testing.T) {
	address, _ := dev(t, t.TempDir(), "--set", "socket.request.max.bytes=1536KiB")
	if code, _, errs := call(t, "", "topic", "create", "large", "-c", "max.message.bytes=4194304", "-b", address); code != exitOK {
		t.Fatal(errs)
	}
	p := producing{topic: "large", partition: -1, codec: "none", acks: "all", patience: time.Second}
	opts, err := p.options(&cobra.Command{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := p.connect(t.Context(), cluster{bootstrap: address}, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var errs bytes.Buffer
	err = p.run(t.Context(), &console{in: strings.NewReader("small\n" + strings.Repeat("x", 3<<20) + "\nlater\n"), err: &errs}, client)
	if err == nil || !strings.Contains(err.Error(), "produce to large: a record was not acknowledged within 1s") || exitCode(err) != exitFailed {
		t.Errorf("got %v", err)
	}
}

// What is told to be sent is what the topic holds, and a refused line is the last.
func TestProduceCountsAcknowledged(t *testing.T) {
	address, _ := dev(t, t.TempDir())
	for i, tc := range []struct {
		in, acks, told, held string
	}{
		{"one\nTOOLARGE\n\ntwo\n", "all", "1 record to ", "one\n"},
		{"one\ntwo\nTOOLARGE\nthree\n", "1", "2 records to ", "one\ntwo\n"},
		{"TOOLARGE\none\n", "all", "0 records to ", ""},
		{"one\ntwo\n", "1", "2 records to ", "one\ntwo\n"},
	} {
		topic := fmt.Sprintf("t%d", i)
		if code, _, errs := call(t, "", "topic", "create", topic, "-b", address); code != exitOK {
			t.Fatal(errs)
		}
		want := exitOK
		if strings.Contains(tc.in, "TOOLARGE") {
			want = exitRefused
		}
		code, _, errs := call(t, strings.ReplaceAll(tc.in, "TOOLARGE", strings.Repeat("a", 3_000_000)), "produce", "-t", topic, "--acks", tc.acks, "-b", address)
		if code != want || !strings.HasPrefix(errs, tc.told+topic+"\n") {
			t.Errorf("%q: code %d, want %d, %q, want %q", tc.in, code, want, errs, tc.told)
		}
		if _, out, errs := call(t, "", "consume", "-t", topic, "--from-beginning", "-e", "-b", address); out != tc.held {
			t.Errorf("%q: the topic holds %q, want %q\n%s", tc.in, out, tc.held, errs)
		}
	}
}
