package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/wire"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// BenchmarkRoundTrip sends small requests, some at a time, and reads the replies, in
// one process.
func BenchmarkRoundTrip(b *testing.B) {
	for _, inFlight := range []int{1, 10} {
		b.Run(fmt.Sprintf("inflight=%d", inFlight), func(b *testing.B) {
			var out []byte
			for i := range inFlight {
				out = append(out, metadata(int32(i))...)
			}
			benchmark(b, testConfig(), handlerFunc(echo), out, inFlight)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*inFlight), "ns/request")
		})
	}
}

// benchmark sends out, and reads as many replies, again and again.
func benchmark(b *testing.B, cfg Config, h wire.Handler, out []byte, replies int) {
	s := New(cfg, h, memory.New(256<<20), discard(), nil)
	if err := s.Listen(); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	nc, err := net.Dial("tcp", s.Addrs()["PLAIN"].String())
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.Write(out); err != nil {
		b.Fatal(err)
	}
	size := 0
	for range replies {
		_, body, err := receive(nc)
		if err != nil {
			b.Fatal(err)
		}
		size += sizeBytes + correlationBytes + len(body)
	}
	in := make([]byte, size)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := nc.Write(out); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(nc, in); err != nil {
			b.Fatal(err)
		}
	}
}
