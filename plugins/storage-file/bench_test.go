package storagefile

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// inFlight is how many appends are under way at once.
const inFlight = 64

// BenchmarkAppend appends batches to one log, with 64 in flight.
func BenchmarkAppend(b *testing.B) {
	for _, level := range []struct {
		name    string
		require storage.Survives
	}{{"process", storage.SurvivesProcess}, {"machine", storage.SurvivesMachine}} {
		for _, size := range []int{1 << 10, 16 << 10} {
			b.Run(fmt.Sprintf("%s/%dKiB", level.name, size>>10), func(b *testing.B) { benchAppend(b, size, level.require) })
		}
	}
}

func benchAppend(b *testing.B, size int, require storage.Survives) {
	ctx := context.Background()
	p := &provider{fs: vfs.OS{}, now: time.Now}
	store, _, err := p.Open(ctx, config(b.TempDir()+"/store"))
	if err != nil {
		b.Fatal(err)
	}
	res := store.Open(ctx, []storage.OpenSpec{{ID: storage.LogID{Partition: 1}, Label: "bench", Create: true}})[0]
	if res.Err != nil {
		b.Fatal(res.Err)
	}
	type slot struct {
		data  []byte
		infos []storage.BatchInfo
	}
	free := make(chan *slot, inFlight)
	for range inFlight {
		data := recordbatch.Build(nil, recordbatch.Header{
			Info:    recordbatch.Info{LastOffset: 9, Records: 10, ProducerID: -1, BaseSequence: -1},
			Payload: make([]byte, size-recordbatch.HeaderBytes),
		})
		info, err := recordbatch.Parse(data)
		if err != nil {
			b.Fatal(err)
		}
		free <- &slot{data, []storage.BatchInfo{info}}
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	base := int64(0)
	for range b.N {
		s := <-free
		recordbatch.Stamp(s.data, base, 0)
		s.infos[0].BaseOffset, s.infos[0].LastOffset = base, base+9
		store.Append(ctx, storage.AppendRequest{
			Handle: res.Handle, BaseOffset: base, Batches: s.infos, Data: [][]byte{s.data}, Require: require,
		}, func(_ storage.AppendResult, err error) {
			if err != nil {
				b.Error(err)
			}
			free <- s
		})
		base += 10
	}
	for range inFlight {
		<-free
	}
	b.StopTimer()
	if err := store.Shutdown(ctx); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkToldAppend tells of batches that a host has written under grants, a
// burst of them at once, as they come from a host that waits for none.
func BenchmarkToldAppend(b *testing.B) {
	for _, burst := range []int{1, 64} {
		b.Run(fmt.Sprintf("burst%d", burst), func(b *testing.B) { benchTold(b, burst) })
	}
}

func benchTold(b *testing.B, burst int) {
	ctx := context.Background()
	p := &provider{fs: vfs.OS{}, now: time.Now}
	store, _, err := p.Open(ctx, config(b.TempDir()+"/store"))
	if err != nil {
		b.Fatal(err)
	}
	res := store.Open(ctx, []storage.OpenSpec{{ID: storage.LogID{Partition: 1}, Label: "bench", Create: true}})[0]
	if res.Err != nil {
		b.Fatal(res.Err)
	}
	data := recordbatch.Build(nil, recordbatch.Header{
		Info:    recordbatch.Info{Records: 1, ProducerID: -1, BaseSequence: -1},
		Payload: make([]byte, 200),
	})
	info, err := recordbatch.Parse(data)
	if err != nil {
		b.Fatal(err)
	}
	answers := make(chan error, burst)
	tell := func(_ storage.AppendResult, err error) { answers <- err }
	req := storage.AppendRequest{Handle: res.Handle, Batches: []storage.BatchInfo{info}, Data: [][]byte{data}}
	store.Append(ctx, req, tell)
	if err := <-answers; err != nil {
		b.Fatal(err)
	}
	var g storage.Grant
	infos := make([]storage.BatchInfo, burst)
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += burst {
		if g.File == nil || g.Pos+int64(burst*len(data)) > g.Limit {
			if g, err = store.Files().Grant(ctx, res.Handle, 0, storage.SurvivesProcess); err != nil {
				b.Fatal(err)
			}
		}
		for i := range infos {
			infos[i] = info
			infos[i].BaseOffset, infos[i].LastOffset = g.LEO, g.LEO
			recordbatch.Stamp(data, g.LEO, 0)
			if _, err := g.File.WriteAt(data, g.Pos); err != nil {
				b.Fatal(err)
			}
			req := storage.AppendRequest{Handle: res.Handle, BaseOffset: g.LEO, Batches: infos[i : i+1], Granted: g.ID, Pos: g.Pos}
			store.Append(ctx, req, tell)
			g.Pos, g.LEO = g.Pos+int64(len(data)), g.LEO+1
		}
		for range infos {
			if err := <-answers; err != nil {
				b.Fatal(err)
			}
		}
	}
	b.StopTimer()
	if err := g.File.Close(); err != nil {
		b.Error(err)
	}
	if err := store.Shutdown(ctx); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkColdRead reads 4 KiB from the midst of segments that nobody has read
// for long: 64 logs of 40 segments, each read in a segment that was not read
// since all others were.
func BenchmarkColdRead(b *testing.B) {
	const logs, batches = 64, 400
	ctx := context.Background()
	p := &provider{fs: vfs.OS{}, now: time.Now}
	cfg := config(b.TempDir() + "/store")
	store, _, err := p.Open(ctx, cfg)
	if err != nil {
		b.Fatal(err)
	}
	specs := make([]storage.OpenSpec, logs)
	for i := range specs {
		specs[i] = storage.OpenSpec{
			ID: storage.LogID{Partition: int32(i)}, Label: "bench", Create: true, Options: storage.LogOptions{SegmentBytes: 40 << 10},
		}
	}
	opened := store.Open(ctx, specs)
	var waits sync.WaitGroup
	for _, res := range opened {
		if res.Err != nil {
			b.Fatal(res.Err)
		}
		for i := range int64(batches) {
			data := recordbatch.Build(nil, recordbatch.Header{
				Info:    recordbatch.Info{BaseOffset: i, LastOffset: i, Records: 1, ProducerID: -1, BaseSequence: -1},
				Payload: make([]byte, 4<<10-recordbatch.HeaderBytes),
			})
			info, err := recordbatch.Parse(data)
			if err != nil {
				b.Fatal(err)
			}
			waits.Add(1)
			store.Append(ctx, storage.AppendRequest{Handle: res.Handle, BaseOffset: i, Batches: []storage.BatchInfo{info}, Data: [][]byte{data}},
				func(_ storage.AppendResult, err error) {
					defer waits.Done()
					if err != nil {
						b.Error(err)
					}
				})
		}
	}
	waits.Wait()
	b.ReportAllocs()
	b.ResetTimer()
	for n := range b.N {
		at := int64(n*10) % batches
		_, err := store.Read(ctx, storage.ReadRequest{
			Handle: opened[(n/(batches/10))%logs].Handle, Offset: at, UpTo: batches, MaxBytes: 4 << 10, AtLeastOne: true,
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	if err := store.Shutdown(ctx); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkCreate makes 1,000 logs in one call.
func BenchmarkCreate(b *testing.B) {
	const logs = 1000
	ctx := context.Background()
	p := &provider{fs: vfs.OS{}, now: time.Now}
	store, _, err := p.Open(ctx, config(b.TempDir()+"/store"))
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for n := range b.N {
		specs := make([]storage.OpenSpec, logs)
		for i := range specs {
			specs[i] = storage.OpenSpec{ID: storage.LogID{Topic: [16]byte{byte(n), 1}, Partition: int32(i)}, Label: "bench", Create: true}
		}
		for _, res := range store.Open(ctx, specs) {
			if res.Err != nil {
				b.Fatal(res.Err)
			}
		}
	}
	b.StopTimer()
	if err := store.Shutdown(ctx); err != nil {
		b.Fatal(err)
	}
}
