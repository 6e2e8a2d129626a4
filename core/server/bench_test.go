package server

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/brokerd/brokerd/core/memory"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// benchmarkRoundTrip sends requests in groups and reads their replies.
func benchmarkRoundTrip(b *testing.B, group int) {
	s := New(testConfig(), handlerFunc(echo), memory.New(256<<20), discard(), nil)
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
	var out []byte
	for i := range group {
		out = append(out, metadata(int32(i))...)
	}
	if _, err := nc.Write(metadata(0)); err != nil {
		b.Fatal(err)
	}
	_, body, err := receive(nc)
	if err != nil {
		b.Fatal(err)
	}
	in := make([]byte, group*(len(body)+8))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := nc.Write(out); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(nc, in); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*group), "ns/request")
}
