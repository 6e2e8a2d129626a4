//go:build unix

package transporttcp

import (
	"context"
	"fmt"
	"testing"

	"github.com/brokerd/brokerd/sdk/transport"
)

// BenchmarkLink sends messages of one size over a link, from two parts each, to a receiver
// that uses one buffer again and again.
func BenchmarkLink(b *testing.B) {
	for _, security := range []map[string]any{{"security": "plaintext"}, {"secret": testSecret}} {
		name := "tls"
		if security["security"] != nil {
			name = "plaintext"
		}
		for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%s/%dKiB", name, size>>10), func(b *testing.B) { benchmarkLink(b, security, size) })
		}
	}
}

func benchmarkLink(b *testing.B, security map[string]any, size int) {
	from, to := open(b, identity(1), security), open(b, identity(2), security)
	sender, receiver := join(b, from, to, transport.Data)
	room := make([]byte, size)
	reuse := func(_ context.Context, n int) ([]byte, error) { return room[:n], nil }
	message := [][]byte{make([]byte, 40), make([]byte, size-40)}
	ctx := b.Context()
	b.SetBytes(int64(size))
	b.ReportAllocs()
	before := processor(b)
	b.ResetTimer()
	failed := make(chan error, 1)
	n := b.N
	go func() {
		var err error
		for i := 0; i < n && err == nil; i++ {
			err = sender.Send(ctx, message...)
		}
		failed <- err
	}()
	for range n {
		if _, err := receiver.Receive(ctx, reuse); err != nil {
			b.Fatalf("receive: %v", err)
		}
	}
	if err := <-failed; err != nil {
		b.Fatalf("send: %v", err)
	}
	b.StopTimer()
	b.ReportMetric((processor(b)-before).Seconds()/(float64(n)*float64(size)/1e9), "cpu-s/GB")
}

// BenchmarkRoundTrip sends a small message there and back.
func BenchmarkRoundTrip(b *testing.B) {
	for name, security := range map[string]map[string]any{"plaintext": {"security": "plaintext"}, "tls": {"secret": testSecret}} {
		b.Run(name, func(b *testing.B) {
			from, to := open(b, identity(1), security), open(b, identity(2), security)
			near, far := join(b, from, to, transport.Control)
			ctx := b.Context()
			room := make([]byte, 100)
			reuse := func(_ context.Context, n int) ([]byte, error) { return room[:n], nil }
			b.ReportAllocs()
			failed := make(chan error, 1)
			n := b.N
			go func() {
				m := make([]byte, 100)
				echo := func(_ context.Context, n int) ([]byte, error) { return m[:n], nil }
				var err error
				for i := 0; i < n && err == nil; i++ {
					if _, err = far.Receive(ctx, echo); err == nil {
						err = far.Send(ctx, m)
					}
				}
				failed <- err
			}()
			message := make([]byte, 100)
			before := processor(b)
			for range n {
				if err := near.Send(ctx, message); err != nil {
					b.Fatal(err)
				}
				if _, err := near.Receive(ctx, reuse); err != nil {
					b.Fatal(err)
				}
			}
			if err := <-failed; err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64((processor(b)-before).Microseconds())/float64(n), "cpu-µs/op")
		})
	}
}
