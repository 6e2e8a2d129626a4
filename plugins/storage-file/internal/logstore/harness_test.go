package logstore

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

var testID = storage.LogID{Topic: [16]byte{1, 2, 3}, Partition: 7}

// batch makes one batch of so many records from an offset on, whose bytes
// differ from those of any other.
func batch(base int64, records, epoch int32, payload int, ts int64) []byte {
	b := make([]byte, payload)
	for i := range b {
		b[i] = byte(int64(i)*7 + base*31 + int64(epoch))
	}
	return recordbatch.Build(nil, recordbatch.Header{
		Info: recordbatch.Info{
			BaseOffset: base, LastOffset: base + int64(records) - 1, LeaderEpoch: epoch,
			BaseTimestamp: ts, MaxTimestamp: ts, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Records: records,
		},
		Payload: b,
	})
}

func request(h storage.Handle, base int64, require storage.Survives, batches ...[]byte) storage.AppendRequest {
	req := storage.AppendRequest{Handle: h, BaseOffset: base, Require: require}
	for _, b := range batches {
		info, err := recordbatch.Parse(b)
		if err != nil {
			panic(err) // the test's own batch
		}
		req.Batches = append(req.Batches, info)
		req.Data = append(req.Data, b)
		req.LeaderEpoch = max(req.LeaderEpoch, info.LeaderEpoch)
	}
	return req
}

func testConfig(boot string) Config {
	return Config{
		Dir: "/store", Identity: storage.Identity{ClusterID: "c", NodeID: 1}, BootID: boot, Note: "process 1",
		ReserveBytes: 1 << 10, Runners: 2, Syncers: 2,
		Options: storage.LogOptions{SegmentBytes: 1 << 10, SegmentAge: 24 * time.Hour, IndexIntervalBytes: 200},
	}
}

// running is a store with its Run.
type running struct {
	*Store
	below vfs.FS
	stop  func()
}

func start(fs vfs.FS, cfg Config) (*running, error) {
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	s, _, err := Open(fs, cfg, time.Now, logger)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { _ = s.Run(ctx) }()
	return &running{s, fs, func() { cancel(); <-s.ended }}, nil
}

func (r *running) ctx() context.Context { return context.Background() }

func mustStart(t testing.TB, fs vfs.FS, cfg Config) *running {
	t.Helper()
	r, err := start(fs, cfg)
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	t.Cleanup(r.stop)
	return r
}

func (r *running) open(id storage.LogID, epoch int32) storage.OpenResult {
	return r.Open(context.Background(), []storage.OpenSpec{{ID: id, Label: "topic", Create: true, LeaderEpoch: epoch}})[0]
}

func (r *running) mustOpen(t testing.TB, epoch int32) storage.OpenResult {
	t.Helper()
	res := r.open(testID, epoch)
	if res.Err != nil {
		t.Fatalf("open log: %v", res.Err)
	}
	return res
}

func (r *running) append(req storage.AppendRequest) (storage.AppendResult, error) {
	type answer struct {
		res storage.AppendResult
		err error
	}
	done := make(chan answer, 1)
	r.Append(context.Background(), req, func(res storage.AppendResult, err error) { done <- answer{res, err} })
	a := <-done
	return a.res, a.err
}

// readAll reads the log from an offset to its end, in small reads, and checks
// that what comes back is batches in order.
func (r *running) readAll(h storage.Handle, from, to int64) ([][]byte, error) {
	var all [][]byte
	for at := from; at < to; {
		res, err := r.Read(context.Background(), storage.ReadRequest{Handle: h, Offset: at, UpTo: to, MaxBytes: 300, AtLeastOne: true})
		if err != nil {
			return all, err
		}
		if len(res.Data) == 0 {
			return all, nil
		}
		for rest := res.Data; len(rest) > 0; {
			_, b, tail, err := recordbatch.Next(rest)
			if err != nil {
				return all, fmt.Errorf("wrong bytes from a read at %d: %w", at, err)
			}
			all = append(all, b)
			rest = tail
		}
		at = res.Next
	}
	return all, nil
}

// scanAll is readAll for headers.
func (r *running) scanAll(h storage.Handle, from, to int64) ([]storage.BatchInfo, error) {
	var all []storage.BatchInfo
	for at := from; at < to; {
		infos, err := r.Scan(context.Background(), storage.ScanRequest{Handle: h, Offset: at, UpTo: to, MaxBatches: 5})
		if err != nil || len(infos) == 0 {
			return all, err
		}
		all = append(all, infos...)
		at = infos[len(infos)-1].LastOffset + 1
	}
	return all, nil
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }
