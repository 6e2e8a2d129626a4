package plugin_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
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

// lender is a sink that lends files: each log has one, which is granted again and
// again from its beginning, so that its pages are there, and leased for reads.
type lender struct{ sink }

func (lender) Open(context.Context, storage.Config) (storage.Store, storage.DirectoryID, error) {
	dir, err := os.MkdirTemp("", "lender")
	return &lenderStore{dir: dir, leo: map[storage.Handle]int64{}}, storage.DirectoryID{}, err
}

// lenderBytes is how large a lender's files become.
const lenderBytes = 32 << 20

type lenderStore struct {
	sinkStore
	dir string

	mu     sync.Mutex
	leo    map[storage.Handle]int64
	lastID uint64
}

func (s *lenderStore) Shutdown(context.Context) error { return os.RemoveAll(s.dir) }
func (s *lenderStore) Files() storage.Files           { return s }
func (s *lenderStore) Capabilities() storage.Capabilities {
	return storage.Capabilities{Survives: storage.SurvivesProcess, Grants: true, Leases: true}
}

func (s *lenderStore) Open(_ context.Context, specs []storage.OpenSpec) []storage.OpenResult {
	out := make([]storage.OpenResult, len(specs))
	for i, spec := range specs {
		out[i].Handle = storage.Handle(spec.ID.Partition)
	}
	return out
}

func (s *lenderStore) Append(ctx context.Context, r storage.AppendRequest, done func(storage.AppendResult, error)) {
	leo := r.Batches[len(r.Batches)-1].LastOffset + 1
	s.mu.Lock()
	s.leo[r.Handle] = leo
	s.mu.Unlock()
	if r.Granted == 0 {
		s.sinkStore.Append(ctx, r, done)
		return
	}
	done(storage.AppendResult{LEO: leo, Survives: storage.SurvivesProcess, GrantOver: r.Pos > lenderBytes*3/4}, nil)
}

func (s *lenderStore) path(h storage.Handle) string { return filepath.Join(s.dir, fmt.Sprint(h)) }

func (s *lenderStore) Grant(_ context.Context, h storage.Handle, epoch int32, _ storage.Survives) (storage.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := os.OpenFile(s.path(h), os.O_RDWR|os.O_CREATE, 0o600)
	s.lastID++
	return storage.Grant{
		ID: storage.GrantID(s.lastID), File: f, Limit: lenderBytes, LEO: s.leo[h], LeaderEpoch: epoch,
		MaxTimestamp: math.MaxInt64, MaxOffset: math.MaxInt64, EndMark: 61,
	}, err
}

func (s *lenderStore) End(context.Context, storage.Handle, storage.GrantID) error { return nil }
func (s *lenderStore) Return([]storage.LeaseID)                                   {}
func (s *lenderStore) Lock() (*os.File, error)                                    { return os.Open(os.DevNull) }

// Lease lends a file of batches of 16 KiB, which is made when it is first asked for.
func (s *lenderStore) Lease(_ context.Context, h storage.Handle, offset int64) (storage.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	const size, batches = 16 << 10, lenderBytes / (16 << 10)
	path := s.path(h) + "-lease"
	if _, err := os.Stat(path); err != nil {
		var data []byte
		for base := range int64(batches) {
			data = append(data, appendOf(h, base, size).Data[0]...)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return storage.Lease{}, err
		}
	}
	f, err := os.Open(path)
	s.lastID++
	return storage.Lease{
		ID: storage.LeaseID(s.lastID), File: f, FileID: uint64(h), Pos: offset * size, Limit: lenderBytes, First: offset, End: batches,
	}, err
}

// BenchmarkAppend measures appends with benchDepth in flight: called directly,
// and through a plugin's process over each carrier. With files the writes are the
// host's; "checked" leaves out its check of the CRC, which the caller has made.
func BenchmarkAppend(b *testing.B) {
	for _, bytes := range []int{1 << 10, 16 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("direct/%dKiB", bytes>>10), func(b *testing.B) { benchAppend(b, sinkStore{}, bytes, false) })
		for _, by := range []plugin.Carrier{plugin.CarrierGRPC, plugin.CarrierSocket, plugin.CarrierFiles} {
			for _, checked := range []bool{false, true} {
				if checked && by != plugin.CarrierFiles {
					continue
				}
				name := by.String()
				if checked {
					name += "-checked"
				}
				b.Run(fmt.Sprintf("%s/%dKiB", name, bytes>>10), func(b *testing.B) {
					p, s := lenderProcess(b, by)
					defer tellCost(b, p.Pid(), bytes)()
					benchAppend(b, s, bytes, checked)
				})
			}
		}
	}
}

// lenderProcess launches a lender and opens benchLogs logs.
func lenderProcess(b *testing.B, by plugin.Carrier) (*plugin.Process, *plugin.Store) {
	b.Helper()
	p := launch(b, plugin.LaunchConfig{Args: []string{roleLender}, Carrier: by})
	s, _, err := p.Store(b.Context(), storage.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = s.Shutdown(context.Background())
		s.Abandon()
	})
	for n := range benchLogs {
		openLog(b, s, int32(n+1))
	}
	return p, s
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

// benchAppend appends to benchLogs logs, each at its end. A request's batch is stamped
// again only when its append has completed.
func benchAppend(b *testing.B, s storage.Store, bytes int, checked bool) {
	var leo [benchLogs]int64
	free := make(chan int, benchDepth)
	reqs := make([]storage.AppendRequest, benchDepth)
	dones := make([]func(storage.AppendResult, error), benchDepth)
	var failed atomic.Pointer[error]
	for i := range reqs {
		reqs[i] = appendOf(0, 0, bytes)
		reqs[i].Checked = checked
		dones[i] = func(_ storage.AppendResult, err error) {
			if err != nil {
				failed.Store(&err)
			}
			free <- i
		}
		free <- i
	}
	b.SetBytes(int64(bytes))
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		slot := <-free
		req, log := &reqs[slot], i%benchLogs
		req.Handle, req.BaseOffset = storage.Handle(log+1), leo[log]
		req.Batches[0].BaseOffset, req.Batches[0].LastOffset = leo[log], leo[log]
		recordbatch.Stamp(req.Data[0], leo[log], 1)
		leo[log]++
		s.Append(context.Background(), *req, dones[slot])
	}
	for range benchDepth {
		<-free
	}
	if err := failed.Load(); err != nil {
		b.Fatal(*err)
	}
}

// BenchmarkRead measures reads by benchLogs readers through a plugin's process: each
// reads a log from its beginning again and again. Over gRPC and the socket the plugin
// makes the bytes of nothing; from files they are read, and their CRC is checked.
func BenchmarkRead(b *testing.B) {
	for _, bytes := range []int{16 << 10, 256 << 10, 1 << 20} {
		for _, by := range []plugin.Carrier{plugin.CarrierGRPC, plugin.CarrierSocket, plugin.CarrierFiles} {
			b.Run(fmt.Sprintf("%s/%dKiB", by, bytes>>10), func(b *testing.B) {
				p, s := lenderProcess(b, by)
				for n := range benchLogs { // so that the files are there
					req := storage.ReadRequest{Handle: storage.Handle(n + 1), UpTo: 1, MaxBytes: bytes, AtLeastOne: true}
					if _, err := s.Read(b.Context(), req); err != nil {
						b.Fatal(err)
					}
				}
				defer tellCost(b, p.Pid(), bytes)()
				benchRead(b, s, bytes)
			})
		}
	}
}

func benchRead(b *testing.B, s storage.Store, bytes int) {
	b.SetBytes(int64(bytes))
	b.ReportAllocs()
	var readers sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	for n := range benchLogs {
		readers.Go(func() {
			buf := make([]byte, bytes)
			for at := int64(0); left.Add(-1) >= 0; {
				res, err := s.Read(context.Background(), storage.ReadRequest{
					Handle: storage.Handle(n + 1), Offset: at, UpTo: math.MaxInt64, MaxBytes: bytes, AtLeastOne: true, Buf: buf,
				})
				if err != nil || len(res.Data) == 0 {
					b.Errorf("%d bytes, %v", len(res.Data), err)
					return
				}
				if at = res.Next; at+64 >= lenderBytes/(16<<10) {
					at = 0
				}
			}
		})
	}
	readers.Wait()
}
