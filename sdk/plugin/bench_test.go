package plugin_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// benchDepth is how many appends are in flight, over benchLogs logs.
const (
	benchDepth = 64
	benchLogs  = 8
)

// sink is a store that takes appends after checking their CRC, as every store
// does, and keeps nothing.
type sink struct{ storage.Store }

func (sink) Info() storage.Info { return storage.Info{Name: "sink"} }

func (s sink) Open(context.Context, storage.Config) (storage.Store, storage.DirectoryID, error) {
	return sinkStore{}, storage.DirectoryID{}, nil
}

type sinkStore struct{ storage.Store }

func (sinkStore) Capabilities() storage.Capabilities { return storage.Capabilities{} }
func (sinkStore) Shutdown(context.Context) error     { return nil }
func (sinkStore) Append(_ context.Context, r storage.AppendRequest, done func(storage.AppendResult, error)) {
	if err := recordbatch.CheckCRC(r.Data[0]); err != nil {
		done(storage.AppendResult{}, storage.Errorf(storage.ErrInvalid, "%v", err))
		return
	}
	done(storage.AppendResult{LEO: r.BaseOffset + 1, Survives: storage.SurvivesProcess}, nil)
}

func (sinkStore) Read(_ context.Context, r storage.ReadRequest) (storage.ReadResult, error) {
	return storage.ReadResult{Data: make([]byte, r.MaxBytes), Next: r.Offset + 1}, nil
}

// BenchmarkAppend measures appends with benchDepth in flight: called directly,
// and through a plugin's process.
func BenchmarkAppend(b *testing.B) {
	for _, bytes := range []int{1 << 10, 16 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("direct/%dKiB", bytes>>10), func(b *testing.B) { benchAppend(b, sinkStore{}, bytes) })
		b.Run(fmt.Sprintf("grpc/%dKiB", bytes>>10), func(b *testing.B) {
			p := launch(b, plugin.LaunchConfig{Args: []string{roleSink}})
			s, _, err := p.Store(b.Context(), storage.Config{})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Abandon()
			benchAppend(b, s, bytes)
		})
	}
}

func benchAppend(b *testing.B, s storage.Store, bytes int) {
	reqs := make([]storage.AppendRequest, benchLogs)
	for i := range reqs {
		reqs[i] = appendOf(storage.Handle(i+1), 0, bytes)
	}
	slots := make(chan struct{}, benchDepth)
	var failed atomic.Pointer[error]
	b.SetBytes(int64(bytes))
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		slots <- struct{}{}
		s.Append(b.Context(), reqs[i%benchLogs], func(_ storage.AppendResult, err error) {
			if err != nil {
				failed.Store(&err)
			}
			<-slots
		})
	}
	for range benchDepth {
		slots <- struct{}{}
	}
	if err := failed.Load(); err != nil {
		b.Fatal(*err)
	}
}

// BenchmarkRead measures reads by benchLogs readers through a plugin's process.
func BenchmarkRead(b *testing.B) {
	for _, bytes := range []int{1 << 10, 256 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("grpc/%dKiB", bytes>>10), func(b *testing.B) {
			p := launch(b, plugin.LaunchConfig{Args: []string{roleSink}})
			s, _, err := p.Store(b.Context(), storage.Config{})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Abandon()
			b.SetBytes(int64(bytes))
			b.ReportAllocs()
			b.SetParallelism(benchLogs)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := s.Read(b.Context(), storage.ReadRequest{Handle: 1, MaxBytes: bytes}); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
