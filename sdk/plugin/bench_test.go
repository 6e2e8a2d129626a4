package plugin_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
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
	if cap(r.Buf) < r.MaxBytes {
		r.Buf = make([]byte, r.MaxBytes)
	}
	return storage.ReadResult{Data: r.Buf[:r.MaxBytes], Next: r.Offset + 1}, nil
}

// BenchmarkAppend measures appends with benchDepth in flight: called directly,
// and through a plugin's process over each carrier.
func BenchmarkAppend(b *testing.B) {
	for _, bytes := range []int{1 << 10, 16 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("direct/%dKiB", bytes>>10), func(b *testing.B) { benchAppend(b, sinkStore{}, bytes) })
		for _, by := range []plugin.Carrier{plugin.CarrierGRPC, plugin.CarrierSocket} {
			b.Run(fmt.Sprintf("%s/%dKiB", by, bytes>>10), func(b *testing.B) {
				p := launch(b, plugin.LaunchConfig{Args: []string{roleSink}, Carrier: by})
				s, _, err := p.Store(b.Context(), storage.Config{})
				if err != nil {
					b.Fatal(err)
				}
				defer s.Abandon()
				defer tellCost(b, p.Pid(), bytes)()
				benchAppend(b, s, bytes)
			})
		}
	}
}

// tellCost reports, when it is called again, the processor seconds that a GB has
// cost since: of both processes, and of the plugin.
func tellCost(b *testing.B, pid, bytes int) func() {
	own, theirs := cpuSeconds("self"), cpuSeconds(fmt.Sprint(pid))
	return func() {
		gb := float64(b.N) * float64(bytes) / 1e9
		own, theirs := cpuSeconds("self")-own, cpuSeconds(fmt.Sprint(pid))-theirs
		b.ReportMetric((own+theirs)/gb, "cpu-s/GB")
		b.ReportMetric(theirs/gb, "plugin-cpu-s/GB")
		b.ReportMetric((own+theirs)*1e6/float64(b.N), "cpu-us/op")
	}
}

// cpuSeconds is what a process has used, user and system.
func cpuSeconds(process string) float64 {
	stat, err := os.ReadFile("/proc/" + process + "/stat")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100 // the kernel tells hundredths
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
		for _, by := range []plugin.Carrier{plugin.CarrierGRPC, plugin.CarrierSocket} {
			b.Run(fmt.Sprintf("%s/%dKiB", by, bytes>>10), func(b *testing.B) {
				p := launch(b, plugin.LaunchConfig{Args: []string{roleSink}, Carrier: by})
				s, _, err := p.Store(b.Context(), storage.Config{})
				if err != nil {
					b.Fatal(err)
				}
				defer s.Abandon()
				defer tellCost(b, p.Pid(), bytes)()
				benchRead(b, s, func() storage.ReadRequest { return storage.ReadRequest{Handle: 1, MaxBytes: bytes} })
			})
		}
	}
}

// benchRead reads from benchLogs goroutines, each with a buffer of its own.
func benchRead(b *testing.B, s storage.Store, next func() storage.ReadRequest) {
	b.SetBytes(int64(next().MaxBytes))
	b.ReportAllocs()
	b.SetParallelism(benchLogs)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		buf := make([]byte, next().MaxBytes)
		for pb.Next() {
			req := next()
			req.Buf = buf
			if _, err := s.Read(b.Context(), req); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
