package batch

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"pgregory.net/rapid"
)

// agrees fails unless walker.next takes every record that sweep has taken, from first
// on, and finds the same in it.
func agrees(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, payload []byte, first, end int32) swept {
	t.Helper()
	got := sweep(payload, first, end)
	w := walker{buf: payload, limit: int64(len(payload))}
	want := swept{least: 1<<63 - 1, most: -1 << 63}
	for i := range got.records {
		r, err := w.next()
		if err != nil || r.offsetDelta != first+i {
			t.Fatalf("record %d, offset delta %d, was taken: %v", i, r.offsetDelta, err)
		}
		want.least, want.most = min(want.least, r.timestampDelta), max(want.most, r.timestampDelta)
		want.nullKey = want.nullKey || r.keyNull
		want.records++
	}
	want.bytes = w.pos
	if got != want {
		t.Fatalf("swept %+v, there was %+v", got, want)
	}
	return got
}

// What clients usually send is swept, but for a last record that is smaller than the
// room for a head.
func TestSweepTakesOrdinaryRecords(t *testing.T) {
	value := bytes.Repeat([]byte("v"), 40)
	for _, c := range []struct {
		name    string
		records int
		record  Record
	}{
		{"one", 1, Record{Value: value}},
		{"many", 10_000, Record{Key: []byte("key"), Value: value}},
		{"large", 3, Record{Key: value, Value: make([]byte, 1<<19)}},
		{"headers", 100, Record{Value: value, Headers: []Header{{Key: "h", Value: value}, {Key: "null"}}}},
		{"far in time", 100, Record{Timestamp: 1 << 19, Value: value}},
	} {
		t.Run(c.name, func(t *testing.T) {
			records := make([]Record, c.records)
			for i := range records {
				records[i] = c.record
				if records[i].Timestamp = now; i > 0 {
					records[i].Timestamp += c.record.Timestamp
				}
			}
			payload := payloadOf(t, records...)
			if got := agrees(t, payload, 0, int32(c.records)); int(got.records) != c.records || got.bytes != len(payload) {
				t.Fatalf("swept %d of %d records, %d of %d bytes", got.records, c.records, got.bytes, len(payload))
			}
		})
	}
}

// Every record that is built, whole or with changed bytes, is to sweep what it is to
// walker.next, or left to that.
func TestSweepAgreesWithNext(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := drawRecords(t)
		data, err := Build(Options{}, records...)
		if err != nil {
			t.Fatal(err)
		}
		payload := data[recordbatch.HeaderBytes:]
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			payload[rapid.IntRange(0, len(payload)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "to")
		}
		agrees(t, payload[:rapid.IntRange(0, len(payload)).Draw(t, "cut")], 0, int32(len(records)))
	})
}

// FuzzSweep: whatever the bytes, sweep takes nothing that walker.next refuses.
func FuzzSweep(f *testing.F) {
	f.Add(payloadOf(f, two()...), int32(0), int32(2))
	f.Add(payloadOf(f, Record{Value: make([]byte, 300), Headers: []Header{{Key: "h"}}}), int32(0), int32(1))
	f.Add(append([]byte{12, 0, 0x80, 0x80, 0x80, 0x80, 1}, make([]byte, 64)...), int32(0), int32(1))
	f.Fuzz(func(t *testing.T, payload []byte, first, end int32) {
		if first >= 0 {
			agrees(t, payload, first, end)
		}
	})
}

// What is swept and what is looked at one by one are under the same rules, whichever
// comes first.
func TestSweptRecordsAreJudged(t *testing.T) {
	small, large := []byte("v"), make([]byte, 1<<21) // too large to be swept
	for _, at := range []int{0, 1, 50, 98, 99} {
		records := make([]Record, 100)
		for i := range records {
			records[i] = Record{Timestamp: now, Key: small, Value: bytes.Repeat(small, 50)}
		}
		records[50].Value = large
		records[at].Key, records[at].Timestamp = nil, now+10
		data := build(t, Options{}, records...)
		p := lenient()
		if got, err := Check(data, p); err != nil || got.Info.MaxTimestamp != now+10 {
			t.Fatalf("record %d: %+v, %v", at, got, err)
		}
		p.Compacted = true
		if _, err := Check(data, p); fmt.Sprint(err) != fmt.Sprintf("invalid record: record %d: a compacted topic needs keys", at) {
			t.Fatalf("record %d has no key: %v", at, err)
		}
		p.Compacted, p.TimestampAfterMax = false, 9
		if _, err := Check(data, p); fmt.Sprint(err) != fmt.Sprintf("invalid timestamp: record %d: timestamp %d is more than 9 ms after the broker's %d", at, now+10, now) {
			t.Fatalf("record %d is late: %v", at, err)
		}
	}
}
