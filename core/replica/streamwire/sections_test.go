package streamwire_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/core/replica/streamwire"
)

var orders = model.Partition{Topic: model.TopicID{0: 0xaa, 15: 0xbb}, Index: 0x0a0b0c0d}

// everything is one message with a section of each kind.
func everything() []byte {
	b := streamwire.AppendHello(nil, streamwire.Hello{Version: 1, Node: 7, BrokerEpoch: 0x1122, Incarnation: [16]byte{1, 15: 2}})
	b = streamwire.AppendCredit(b, streamwire.Credit{Released: 5, Window: 6})
	b, at := streamwire.Begin(b, streamwire.KindSubscribe)
	for range 2 {
		b = streamwire.AppendSubscribe(b, &streamwire.Subscribe{Partition: orders, Session: 1, Epoch: 2, PartitionEpoch: 8, LEO: 10, Counted: 9, LastEpoch: 2, LogStart: 3})
	}
	streamwire.Finish(b, at)
	b, at = streamwire.Begin(b, streamwire.KindAnswer)
	b = streamwire.AppendAnswer(b, &streamwire.Answer{
		Partition: orders, Session: 1, Epoch: 2, Verdict: partition.VerdictDiverges, From: 4, End: model.EpochEnd{Epoch: 5, EndOffset: 6}, LogStart: 7,
	})
	streamwire.Finish(b, at)
	b, at = streamwire.Begin(b, streamwire.KindAck)
	b = streamwire.AppendAck(b, &streamwire.Ack{Partition: orders, Session: 1, Epoch: 2, PartitionEpoch: 8, LEO: 3})
	streamwire.Finish(b, at)
	b, at = streamwire.Begin(b, streamwire.KindEnd)
	b = streamwire.AppendEnd(b, &streamwire.End{Partition: orders, Session: 1})
	streamwire.Finish(b, at)
	b, at = streamwire.BeginData(b)
	b = streamwire.AppendHead(b, &streamwire.Head{Partition: orders, Session: 1, Epoch: 2, From: 3, HighWater: 4, LogStart: 5, Bytes: 2})
	b = streamwire.AppendHead(b, &streamwire.Head{Partition: orders, Session: 1, Epoch: 2, From: 3, HighWater: 4, LogStart: 5, Bytes: 3})
	streamwire.FinishData(b, at, 5)
	return append(b, "hello"...)
}

// golden is everything, by hand.
const golden = "01" + "0000001e" + "0001" + "00000007" + "0000000000001122" + "01000000000000000000000000000002" +
	"02" + "00000010" + "0000000000000005" + "0000000000000006" +
	"03" + "00000080" + subscribe + subscribe +
	"04" + "0000003d" + orderz + "0000000000000001" + "00000002" + "01" + "0000000000000004" + "00000005" + "0000000000000006" + "0000000000000007" +
	"06" + "0000002c" + orderz + "0000000000000001" + "00000002" + "00000008" + "0000000000000003" +
	"07" + "0000001c" + orderz + "0000000000000001" +
	"05" + "00000081" + "00000002" + head + "00000002" + head + "00000003" + "68656c6c6f"

const (
	orderz    = "aa0000000000000000000000000000bb" + "0a0b0c0d"
	subscribe = orderz + "0000000000000001" + "00000002" + "00000008" + "000000000000000a" + "0000000000000009" + "00000002" + "0000000000000003"
	head      = orderz + "0000000000000001" + "00000002" + "0000000000000003" + "0000000000000004" + "0000000000000005"
)

func TestLayout(t *testing.T) {
	want, err := hex.DecodeString(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got := everything(); !bytes.Equal(got, want) {
		t.Fatalf("encoded\n%x, want\n%x", got, want)
	}
	if again, err := reencode(want); err != nil || !bytes.Equal(again, want) {
		t.Fatalf("read and written again it is\n%x, %v", again, err)
	}
}

// reencode reads a message and writes what it has read.
func reencode(message []byte) ([]byte, error) {
	var out []byte
	for rest := message; len(rest) > 0; {
		s, after, err := streamwire.Next(rest)
		if err != nil {
			return out, err
		}
		if out, err = again(out, s); err != nil {
			return out, err
		}
		rest = after
	}
	return out, nil
}

func again(out []byte, s streamwire.Section) ([]byte, error) {
	switch s.Kind {
	case streamwire.KindHello:
		h, err := streamwire.ReadHello(s.Body)
		return streamwire.AppendHello(out, h), err
	case streamwire.KindCredit:
		c, err := streamwire.ReadCredit(s.Body)
		return streamwire.AppendCredit(out, c), err
	case streamwire.KindData:
		heads, batches, err := streamwire.ReadData(s.Body)
		if err != nil {
			return out, err
		}
		out, at := streamwire.BeginData(out)
		for len(heads) > 0 {
			var h streamwire.Head
			if h, heads, err = streamwire.ReadHead(heads); err != nil {
				return out, err
			}
			out = streamwire.AppendHead(out, &h)
		}
		streamwire.FinishData(out, at, len(batches))
		return append(out, batches...), nil
	}
	out, at := streamwire.Begin(out, s.Kind)
	for body := s.Body; len(body) > 0; {
		var err error
		switch s.Kind {
		case streamwire.KindSubscribe:
			var e streamwire.Subscribe
			e, body, err = streamwire.ReadSubscribe(body)
			out = streamwire.AppendSubscribe(out, &e)
		case streamwire.KindAnswer:
			var e streamwire.Answer
			e, body, err = streamwire.ReadAnswer(body)
			out = streamwire.AppendAnswer(out, &e)
		case streamwire.KindAck:
			var e streamwire.Ack
			e, body, err = streamwire.ReadAck(body)
			out = streamwire.AppendAck(out, &e)
		case streamwire.KindEnd:
			var e streamwire.End
			e, body, err = streamwire.ReadEnd(body)
			out = streamwire.AppendEnd(out, &e)
		}
		if err != nil {
			return out, err
		}
	}
	streamwire.Finish(out, at)
	return out, nil
}

// Every message that ends early is malformed, and so is one whose numbers speak of more
// than there is.
func TestRefused(t *testing.T) {
	whole := everything()
	starts := map[int]bool{0: true}
	for rest := whole; len(rest) > 0; {
		_, after, err := streamwire.Next(rest)
		if err != nil {
			t.Fatal(err)
		}
		rest = after
		starts[len(whole)-len(rest)] = true
	}
	for n := range whole {
		if _, err := reencode(whole[:n]); (err == nil) != starts[n] {
			t.Errorf("the first %d bytes: %v", n, err)
		} else if err != nil && !errors.Is(err, streamwire.ErrMalformed) {
			t.Errorf("the first %d bytes: %v is not ErrMalformed", n, err)
		}
	}
	for name, message := range map[string]string{
		"kind 0":               "00" + "00000000",
		"kind 8":               "08" + "00000000",
		"half an ack":          "06" + "00000014" + orderz,
		"4 billion heads":      "05" + "00000004" + "ffffffff",
		"a head too many":      "05" + "00000040" + "00000002" + head + "00000000",
		"2 GiB of batches":     "05" + "00000040" + "00000001" + head + "7fffffff",
		"-1 bytes of batches":  "05" + "00000040" + "00000001" + head + "ffffffff",
		"more than heads say":  "05" + "00000041" + "00000001" + head + "00000000" + "00",
		"a section of 4 GiB":   "06" + "ffffffff" + orderz,
		"version 0":            "01" + "0000001e" + "0000" + "00000007" + "0000000000001122" + "01000000000000000000000000000002",
		"credit without bound": "02" + "00000010" + "ffffffffffffffff" + "0000000000000006",
		"verdict 9":            "04" + "0000003d" + orderz + "0000000000000001" + "00000002" + "09" + "0000000000000004" + "00000005" + "0000000000000006" + "0000000000000007",
	} {
		b, err := hex.DecodeString(message)
		if err != nil {
			t.Fatal(name, err)
		}
		if _, err := reencode(b); !errors.Is(err, streamwire.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzSections: whatever arrives is read or refused, without a panic, and what was read is
// what was written, but for what a later version's hello has more.
func FuzzSections(f *testing.F) {
	f.Add(everything())
	f.Fuzz(func(t *testing.T, message []byte) {
		out, err := reencode(message)
		if err != nil {
			if !errors.Is(err, streamwire.ErrMalformed) {
				t.Fatalf("%v is not ErrMalformed", err)
			}
			return
		}
		twice, err := reencode(out)
		if err != nil || !bytes.Equal(out, twice) {
			t.Fatalf("%x became %x, then %x, %v", message, out, twice, err)
		}
		if len(out) > len(message) {
			t.Fatalf("%d bytes were read out of %d", len(out), len(message))
		}
	})
}
