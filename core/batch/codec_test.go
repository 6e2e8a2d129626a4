package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// payloadOf is the records of a good batch, not compressed.
func payloadOf(t testing.TB, records ...Record) []byte {
	return build(t, Options{}, records...)[recordbatch.HeaderBytes:]
}

// Encodings that clients use beside those of Build.
func TestEncodings(t *testing.T) {
	records := []Record{{Timestamp: now, Value: bytes.Repeat([]byte("some words "), 20_000)}}
	payload := payloadOf(t, records...)
	var gz, lz, zs bytes.Buffer
	two := gzip.NewWriter(&gz) // two members
	_, _ = two.Write(payload[:100])
	_ = two.Close()
	two.Reset(&gz)
	_, _ = two.Write(payload[100:])
	_ = two.Close()
	lw := lz4.NewWriter(&lz)
	_ = lw.Apply(lz4.BlockSizeOption(lz4.Block4Mb), lz4.BlockChecksumOption(true), lz4.ChecksumOption(true), lz4.SizeOption(uint64(len(payload))))
	_, _ = lw.Write(payload)
	_ = lw.Close()
	zw, err := zstd.NewWriter(&zs, zstd.WithWindowSize(64<<20), zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = zw.Write(payload[:10])
	_ = zw.Flush() // the size is not known in advance, the window is large
	_, _ = zw.Write(payload[10:])
	_ = zw.Close()
	framed := xerialFramed(t, payload)
	again := append(xerialFramed(t, payload[:50]), xerialFramed(t, payload[50:])...)
	for _, test := range []struct {
		name    string
		codec   Codec
		payload []byte
	}{
		{"gzip of two members", Gzip, gz.Bytes()},
		{"snappy as one block", Snappy, snappy.Encode(nil, payload)},
		{"snappy in frames", Snappy, framed},
		{"snappy in frames, header repeated", Snappy, again},
		{"lz4 with all options", LZ4, lz.Bytes()},
		{"zstd with a large window", Zstd, zs.Bytes()},
	} {
		t.Run(test.name, func(t *testing.T) {
			data := raw(test.codec, 1, test.payload)
			if _, err := Check(data, lenient()); err != nil {
				t.Fatal(err)
			}
			n := 0
			for r, err := range Records(data, 0) {
				if err != nil || !bytes.Equal(r.Value, records[0].Value) {
					t.Fatalf("%d bytes, %v", len(r.Value), err)
				}
				n++
			}
			if n != 1 {
				t.Fatalf("%d records", n)
			}
		})
	}
}

// xerialFramed is payload in snappy as xerial's library frames it.
func xerialFramed(t *testing.T, payload []byte) []byte {
	t.Helper()
	framed, err := compress(Snappy, payload)
	if err != nil {
		t.Fatal(err)
	}
	return framed
}

// A payload that is damaged, cut or of another codec is refused.
func TestUndecodable(t *testing.T) {
	payload := payloadOf(t, Record{Value: bytes.Repeat([]byte("abc"), 1000)})
	for c := Gzip; c <= Zstd; c++ {
		good, err := compress(c, payload)
		if err != nil {
			t.Fatal(err)
		}
		for name, bad := range map[string][]byte{
			"empty": nil, "cut": good[:len(good)/2], "cut at the start": good[1:], "other": []byte("not compressed at all"),
		} {
			if _, err := Check(raw(c, 1, bad), lenient()); !errors.Is(err, model.ErrInvalidRecord) {
				t.Errorf("%s, %s: %v", c, name, err)
			}
		}
	}
}

// A small batch that unfolds to much is refused at the limit, by Check and by
// Records.
func TestBomb(t *testing.T) {
	const limit = 256 << 10
	payload := payloadOf(t, Record{Value: make([]byte, 8<<20)})
	for c := Gzip; c <= Zstd; c++ {
		compressed, err := compress(c, payload)
		if err != nil {
			t.Fatal(err)
		}
		bomb := raw(c, 1, compressed)
		p := lenient()
		p.MaxDecompressedBytes = limit
		if _, err := Check(bomb, p); !errors.Is(err, model.ErrMessageTooLarge) {
			t.Errorf("%s: Check gives %v", c, err)
		}
		before := allocated()
		for _, err := range Records(bomb, limit) {
			if !errors.Is(err, model.ErrMessageTooLarge) {
				t.Errorf("%s: Records gives %v", c, err)
			}
		}
		if grown := allocated() - before; grown > 6<<20 {
			t.Errorf("%s: %d bytes were allocated for a limit of %d", c, grown, limit)
		}
		p.MaxDecompressedBytes = int64(len(payload))
		if _, err := Check(bomb, p); err != nil {
			t.Errorf("%s: as much as is allowed: %v", c, err)
		}
	}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// Sizes that are claimed inside a payload cost nothing.
func TestClaimedSizes(t *testing.T) {
	claim := binary.AppendUvarint(nil, 1<<31)
	xerial := append([]byte(xerialMagic), 0, 0, 0, 1, 0, 0, 0, 1)
	for _, test := range []struct {
		name    string
		codec   Codec
		payload []byte
		want    error
	}{
		{"snappy, one block", Snappy, append(claim, 0), model.ErrInvalidRecord},
		{"snappy, 100 MiB in few bytes", Snappy, append(binary.AppendUvarint(nil, 100<<20), 0), model.ErrInvalidRecord},
		{"snappy, frame beyond the end", Snappy, append(bytes.Clone(xerial), 0x7f, 0xff, 0xff, 0xff, 0), model.ErrInvalidRecord},
		{"snappy, negative frame", Snappy, append(bytes.Clone(xerial), 0xff, 0xff, 0xff, 0xff, 0), model.ErrInvalidRecord},
		{"snappy, block in a frame", Snappy, append(append(bytes.Clone(xerial), 0, 0, 0, byte(len(claim)+1)), append(claim, 0)...), model.ErrInvalidRecord},
		{"snappy, header cut", Snappy, xerial[:12], model.ErrInvalidRecord},
		// magic, descriptor with an 8-byte content size of 1 TiB
		{"zstd, content of 1 TiB", Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 1, 0, 0, 0}, model.ErrMessageTooLarge},
		// magic, no content size, the greatest window
		{"zstd, greatest window", Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xff, 1, 0, 0}, model.ErrInvalidRecord},
	} {
		t.Run(test.name, func(t *testing.T) {
			data := raw(test.codec, 1, test.payload)
			before := allocated()
			if _, err := Check(data, lenient()); !errors.Is(err, test.want) {
				t.Fatalf("got %v, want %v", err, test.want)
			}
			if grown := allocated() - before; grown > 4<<20 {
				t.Fatalf("%d bytes were allocated", grown)
			}
		})
	}
}

// Many check at once, good ones and bad ones; decoders come back whole.
func TestConcurrentChecks(t *testing.T) {
	var good, bad [][]byte
	for c := None; c <= Zstd; c++ {
		b := build(t, Options{Codec: c}, Record{Timestamp: now, Value: []byte(strings.Repeat("x", 100_000))})
		good = append(good, b)
		payload := bytes.Clone(b[recordbatch.HeaderBytes:])
		bad = append(bad, raw(c, 1, payload[:len(payload)/2]))
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				for i := range good {
					if _, err := Check(bad[i], lenient()); err == nil {
						t.Error("a bad batch passed")
					}
					if _, err := Check(good[i], lenient()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := len(decoders.gate) + len(decoders.wide); n != 0 {
		t.Fatalf("%d decoders were not given back", n)
	}
}
