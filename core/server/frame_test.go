package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"

	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// FuzzFrame: whatever comes, in whatever pieces, exactly the whole frames before
// the first bad one are begun, and no memory is left.
func FuzzFrame(f *testing.F) {
	two := append(metadata(1), request(kmsg.NewPtrFetchRequest(), 12, 2)...)
	f.Add(two, uint16(7))
	f.Add(two[:len(two)-1], uint16(1))
	f.Add(padded(40000, 3), uint16(500))
	f.Add([]byte{0, 0, 1}, uint16(1))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0}, uint16(3))
	f.Add(append(metadata(1), 0x7f, 0xff, 0xff, 0xff), uint16(100))
	f.Fuzz(func(t *testing.T, data []byte, piece uint16) {
		cfg := testConfig()
		cfg.MaxRequestBytes = 1 << 16
		budget := memory.New(4 << 20)
		var got []wire.Call
		s := New(cfg, handlerFunc(func(_ context.Context, c wire.Call) wire.Answer {
			got = append(got, c)
			return func(context.Context) wire.Reply { return wire.Reply{} }
		}), budget, discard(), nil)
		server, client := net.Pipe()
		c := newConn(s, "FUZZ", server)
		if !s.register(c) {
			t.Fatal("not registered")
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			defer s.unregister(c)
			c.run(t.Context())
		})
		for b := data; len(b) > 0; {
			n := min(len(b), int(piece)+1)
			if _, err := client.Write(b[:n]); err != nil {
				break // closed by the server
			}
			b = b[n:]
		}
		_ = client.Close()
		wg.Wait()
		s.workers.end()
		want := reference(s, data)
		if len(got) != len(want) {
			t.Fatalf("%d requests begun, want %d", len(got), len(want))
		}
		for i := range got {
			if got[i].Header != want[i].Header || !bytes.Equal(got[i].Body, want[i].Body) {
				t.Fatalf("request %d: %+v, want %+v", i, got[i], want[i])
			}
		}
		if budget.Used() != 0 || s.pool.shared.Used() != 0 || s.pool.untried.Used() != 0 || s.pool.overdraft.Used() != 0 {
			t.Fatalf("memory left: %d", budget.Used())
		}
	})
}

// reference frames what is all there.
func reference(s *Server, data []byte) (calls []wire.Call) {
	for len(data) >= sizeBytes {
		n := int64(int32(binary.BigEndian.Uint32(data)))
		if n < minHeaderBytes || n > int64(s.cfg.MaxRequestBytes) || int64(len(data)-sizeBytes) < n {
			return calls
		}
		h, body, err := s.flexible.parseHeader(data[sizeBytes:sizeBytes+n], "tester")
		if err != nil {
			return calls
		}
		calls = append(calls, wire.Call{Header: h, Body: body})
		data = data[sizeBytes+n:]
	}
	return calls
}

// Steps rise to the size, and none is more than four times what came before it,
// but for the least ones.
func TestSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(minHeaderBytes, 100<<20).Draw(t, "size")
		step, n := firstStep(size), 1
		if step > firstStepMaxBytes {
			t.Fatalf("first step %d of %d", step, size)
		}
		for step < size {
			next := nextStep(size, step)
			if next <= step || next > size {
				t.Fatalf("step %d after %d of %d", next, step, size)
			}
			if next > stepFactor*step && next > stepFactor*minStepBytes {
				t.Fatalf("step %d after %d of %d is too great", next, step, size)
			}
			if next == size && int64(step+next) > peakBytes(int32(size)) && size > stepFactor*minStepBytes {
				t.Fatalf("%d and %d at once for %d", step, next, size)
			}
			step, n = next, n+1
		}
		if n > 10 {
			t.Fatalf("%d steps for %d", n, size)
		}
	})
}

// Which versions are flexible is what the codec says, for every key and version.
func TestFlexibility(t *testing.T) {
	f := newFlexibility()
	for key := range int16(kmsg.MaxKey + 1) {
		req := kmsg.RequestForKey(key)
		if req == nil {
			continue
		}
		for v := range req.MaxVersion() + 1 {
			req.SetVersion(v)
			if got := f.of(key, v); got != req.IsFlexible() {
				t.Fatalf("key %d version %d: flexible %v", key, v, got)
			}
		}
	}
}
