package replica

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// allRoom is as much memory as is asked for.
type allRoom struct{}

func (allRoom) Reserve(_ context.Context, _, most int) (int, error) { return most, nil }
func (allRoom) Short() <-chan struct{}                              { return nil }

// withTail is a manager that keeps tails in memory that nobody spoils, and reads no
// store.
func withTail(t testing.TB, partitions int) *fixture {
	var faults memstore.Faults
	faults.Add(memstore.Fault{Kind: memstore.OpRead, Times: -1, Class: storage.ErrCorrupt})
	cfg := testConfig()
	cfg.TailBytes = 64 << 20
	return start(t, newRestartable(t, memstore.Options{Before: faults.Before}), newCluster(t, topicRecords(testTopic, "orders", partitions)...), cfg,
		func(d *Deps) { d.Buffers = memory.NewBuffers(16 << 20) })
}

// fill puts batches at the ends of partitions, about so many bytes in each, as clients
// send them: each batch in a frame of its own.
func (f *fixture) fill(partitions, bytes, batchBytes int) {
	f.t.Helper()
	value := strings.Repeat("v", batchBytes-80)
	for i := range int32(partitions) {
		for range bytes / batchBytes {
			a := makeBatch(f.t, batch.Options{}, value)
			a.Frame = model.NewFrame(len(a.Data), nil)
			if r := f.produce(part(i), a); r.Err != nil {
				f.t.Fatal(r.Err)
			}
		}
	}
}

// question asks for all of some partitions, from an offset on.
func question(partitions int, offset int64) model.Fetch {
	q := model.Fetch{MaxBytes: 100 << 20, MinBytes: 1, Room: allRoom{}}
	for i := range int32(partitions) {
		q.Partitions = append(q.Partitions, model.FetchPartition{
			Partition: part(i), Offset: offset, LogStart: -1, MaxBytes: 1 << 20, CurrentEpoch: model.NoEpoch, LastFetchedEpoch: model.NoEpoch,
		})
	}
	return q
}

// answerTo fetches, and fails where it gets less than it should.
func (f *fixture) answerTo(q model.Fetch, least int) {
	a := f.Fetch(context.Background(), q)
	n := 0
	for i := range a.Partitions {
		n += a.Partitions[i].Bytes()
	}
	if n < least {
		f.t.Fatalf("%d bytes, want %d: %v", n, least, a.Partitions[0].Err)
	}
	a.Release()
}

// Reading from memory takes none, however many partitions and batches are read, and
// neither does finding nothing, nor waiting.
func TestFetchFromTailAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the detector makes pools forget")
	}
	const partitions = 20
	f := withTail(t, partitions)
	f.fill(partitions, 100_000, 20_000)
	f.fill(partitions, 10_000, 200)
	end := f.fetchOne(part(0), 0, 0).HighWatermark
	inVain := question(partitions, end)
	inVain.MaxWait = 10 * time.Microsecond
	for _, c := range []struct {
		name  string
		q     model.Fetch
		least int
	}{
		{"all of 1 partition", question(1, 0), 100_000},
		{"all of 20", question(partitions, 0), partitions * 100_000},
		{"small batches of 20", question(partitions, end-30), partitions * 4_000},
		{"nothing new in 20", question(partitions, end), 0},
		{"waiting for 20 in vain", inVain, 0},
	} {
		for range 3 {
			f.answerTo(c.q, c.least)
		}
		if n := testing.AllocsPerRun(200, func() { f.answerTo(c.q, c.least) }); n > 0.5 {
			t.Errorf("%s: %.1f allocations", c.name, n)
		}
	}
}

// Reading from a store takes little, whatever is read.
func TestFetchFromStoreAllocatesLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("the detector makes pools forget")
	}
	store := &bufStore{restartable: newRestartable(t, memstore.Options{})}
	f := start(t, store.restartable, newCluster(t, topicRecords(testTopic, "orders", 20)...), testConfig(),
		func(d *Deps) { d.Buffers, d.Directories[0].Store = memory.NewBuffers(16<<20), store })
	f.fill(20, 40_000, 20_000)
	store.data = make([]byte, 20_000)
	q := question(20, 0)
	for range 3 {
		f.answerTo(q, 20*20_000)
	}
	const perFetch = 12 // its deadline
	if n := testing.AllocsPerRun(200, func() { f.answerTo(q, 20*20_000) }); n > perFetch {
		t.Errorf("%.1f allocations", n)
	}
}

// bufStore reads the same from everywhere, into the caller's buffer.
type bufStore struct {
	*restartable
	data []byte
}

func (s *bufStore) Read(_ context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
	n := copy(req.Buf, s.data)
	return storage.ReadResult{Data: req.Buf[:n], Next: req.UpTo}, nil
}

// A buffer is not used for anything else while an answer has it, and a large one is not
// kept for little.
func TestFetchBuffers(t *testing.T) {
	buffers := newPoisoned()
	store := &bufStore{restartable: newRestartable(t, memstore.Options{})}
	f := start(t, store.restartable, newCluster(t, topicRecords(testTopic, "orders", 1)...), testConfig(),
		func(d *Deps) { d.Buffers, d.Directories[0].Store = buffers, store })
	f.mustProduce(part(0), "a")
	q := question(1, 0)
	for _, n := range []int{0, 1, 10_000, 600_000, 1 << 20} {
		store.data = bytes.Repeat([]byte("r"), n)
		a := f.Fetch(t.Context(), q)
		held := buffers.lent()
		other := f.Fetch(t.Context(), q)
		if got := slices.Concat(a.Partitions[0].Data...); !bytes.Equal(got, store.data) {
			t.Errorf("%d bytes are others than the %d that were read", len(got), n)
		}
		if a.Memory < n || a.Memory > max(2*n+n/2, min(n, 1)<<12) || held != min(n, 1) {
			t.Errorf("%d bytes take %d of memory in %d buffers", n, a.Memory, held)
		}
		other.Release()
		a.Release()
		if left := buffers.lent(); left != 0 {
			t.Errorf("%d buffers are lent when all was released", left)
		}
	}
}

// failingReads keeps what it was given to read into, and writes there when it has
// failed: as a call of which only the waiting has ended.
type failingReads struct {
	*restartable
	bufs [][]byte
}

func (s *failingReads) Read(_ context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
	s.bufs = append(s.bufs, req.Buf)
	return storage.ReadResult{}, storage.Errorf(storage.ErrRetry, "busy")
}

// A buffer whose read has failed is not used again.
func TestFailedReadKeepsItsBuffer(t *testing.T) {
	buffers := newPoisoned()
	store := &failingReads{restartable: newRestartable(t, memstore.Options{})}
	f := start(t, store.restartable, newCluster(t, topicRecords(testTopic, "orders", 1)...), testConfig(),
		func(d *Deps) { d.Buffers, d.Directories[0].Store = buffers, store })
	f.mustProduce(part(0), "a")
	for range 3 {
		f.Fetch(t.Context(), question(1, 0)).Release()
	}
	if len(store.bufs) != 3 || buffers.lent() != 3 {
		t.Errorf("%d reads have failed, %d buffers are still lent", len(store.bufs), buffers.lent())
	}
}

// Whoever gives an answer back twice would give it to two others.
func TestFetchReleasedTwice(t *testing.T) {
	f := newFixture(t, 1)
	f.mustProduce(part(0), "a")
	a := f.Fetch(t.Context(), question(1, 0))
	a.Release()
	defer func() {
		if recover() == nil {
			t.Error("nobody noticed")
		}
	}()
	a.Release()
}

func (r *replica) watched() int {
	r.watchers.mu.Lock()
	defer r.watchers.mu.Unlock()
	return r.watchers.count
}

type countedReads struct {
	*restartable
	bytes atomic.Int64
}

func (s *countedReads) Read(ctx context.Context, req storage.ReadRequest) (storage.ReadResult, error) {
	res, err := s.restartable.Read(ctx, req)
	s.bytes.Add(int64(len(res.Data)))
	return res, err
}

// A fetch that waits for many bytes is woken when they are there, and not by each
// append; what it has read it has read once.
func TestFetchIsWokenWhenThereIsEnough(t *testing.T) {
	store := &countedReads{restartable: newRestartable(t, memstore.Options{})}
	f := start(t, store.restartable, newCluster(t, topicRecords(testTopic, "orders", 2)...), testConfig(), func(d *Deps) { d.Directories[0].Store = store })
	value := strings.Repeat("v", 990)
	f.mustProduce(part(0), value)
	f.mustProduce(part(1), value)
	q := question(2, 0)
	q.MinBytes, q.MaxWait = 50_000, time.Hour
	got := make(chan *model.FetchAnswer, 1)
	go func() { got <- f.Fetch(context.Background(), q) }()
	one := int64(len(makeBatch(t, batch.Options{}, value).Data))
	for (*f.replicas.Load())[part(1)].watched() == 0 || store.bytes.Load() < 2*one {
		runtime.Gosched()
	}
	for n := 2 * one; n < 45_000; n += one {
		f.mustProduce(part(int32(n%2)), value)
		if read := store.bytes.Load(); read > 2*one {
			t.Fatalf("%d bytes were read when %d of %d were there", read, n, q.MinBytes)
		}
	}
	f.mustProduce(part(1), strings.Repeat("v", 20_000))
	a := <-got
	if n := int64(a.Partitions[0].Bytes() + a.Partitions[1].Bytes()); n < 50_000 || store.bytes.Load() != n {
		t.Errorf("answered with %d bytes, %d were read", n, store.bytes.Load())
	}
	a.Release()
}

// Everybody who waits for a partition is woken, also where they are many, and while
// others come and go.
func TestManyWait(t *testing.T) {
	f := withTail(t, 2)
	for i := range int32(2) {
		f.mustProduce(part(i), "v") // both are open: one that is not yet may be answered so
	}
	const readers, rounds = 200, 20
	var wg sync.WaitGroup
	for i := range readers {
		wg.Go(func() {
			q := question(2, 0)
			q.MaxWait = time.Hour
			if i%10 == 0 {
				q.MinBytes = 200
			}
			for q.Partitions[0].Offset+q.Partitions[1].Offset < rounds {
				a := f.Fetch(context.Background(), q)
				for p := range a.Partitions {
					if got := &a.Partitions[p]; got.Bytes() > 0 {
						q.Partitions[p].Offset = got.HighWatermark // all that is below it fits
					} else if got.Err != nil {
						t.Error(got.Err)
						return
					}
				}
				a.Release()
			}
		})
	}
	for i := range int32(rounds + 2) { // two more, lest those who want two at once wait for ever
		f.mustProduce(part(i%2), strings.Repeat("v", 100))
	}
	wg.Wait()
}

// BenchmarkFetchTail reads what was appended last.
func BenchmarkFetchTail(b *testing.B) {
	for _, size := range []int{200, 16_000, 1_000_000} {
		b.Run(fmt.Sprintf("1MB of %d", size), func(b *testing.B) {
			f := withTail(b, 1)
			f.fill(1, 1_000_000, size)
			q := question(1, 0)
			b.SetBytes(1_000_000)
			b.ReportAllocs()
			for b.Loop() {
				f.answerTo(q, 900_000)
			}
		})
	}
}

// BenchmarkFetchNothing finds nothing new.
func BenchmarkFetchNothing(b *testing.B) {
	for _, partitions := range []int{1, 100} {
		b.Run(fmt.Sprint(partitions), func(b *testing.B) {
			f := withTail(b, partitions)
			f.fill(partitions, 1000, 1000)
			q := question(partitions, 1)
			b.ReportAllocs()
			for b.Loop() {
				f.answerTo(q, 0)
			}
		})
	}
}

// BenchmarkFetchWaits is an append while so many wait for it.
func BenchmarkFetchWaits(b *testing.B) {
	for _, readers := range []int{1, 1000} {
		b.Run(fmt.Sprint(readers), func(b *testing.B) {
			f := withTail(b, 1)
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			var answered atomic.Int64
			for range readers {
				wg.Go(func() {
					q := question(1, 0)
					q.MaxWait = time.Hour
					for ctx.Err() == nil {
						a := f.Fetch(ctx, q)
						if a.Partitions[0].Bytes() > 0 {
							answered.Add(1)
						}
						q.Partitions[0].Offset = a.Partitions[0].HighWatermark
						a.Release()
					}
				})
			}
			a := makeBatch(b, batch.Options{}, strings.Repeat("v", 100))
			b.ReportAllocs()
			for b.Loop() {
				f.produce(part(0), a)
			}
			b.ReportMetric(float64(answered.Load())/float64(b.N), "answers/op")
			cancel()
			wg.Wait()
		})
	}
}
