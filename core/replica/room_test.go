package replica

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// tightRoom grants no more than free beyond what must be, and remembers.
type tightRoom struct {
	free  int
	size  int
	waits []int // how much was waited for
	short chan struct{}
}

func (r *tightRoom) Reserve(_ context.Context, least, most int) (int, error) {
	if least > r.size && least > r.free {
		r.waits = append(r.waits, least)
	}
	r.size = max(least, min(most, r.free))
	return r.size, nil
}

func (r *tightRoom) Short() <-chan struct{} { return r.short }

func fetchInto(r *tightRoom, maxBytes, minBytes int, wait time.Duration) model.Fetch {
	return model.Fetch{
		Partitions: []model.FetchPartition{
			{Partition: part(0), LogStart: -1, MaxBytes: maxBytes, CurrentEpoch: model.NoEpoch, LastFetchedEpoch: model.NoEpoch},
			{Partition: part(1), LogStart: -1, MaxBytes: maxBytes, CurrentEpoch: model.NoEpoch, LastFetchedEpoch: model.NoEpoch},
		},
		MaxBytes: maxBytes, MinBytes: minBytes, MaxWait: wait, Room: r,
	}
}

// A fetch reads no more than it has room for, waits for room for one batch only,
// and answers with what it has where it may not have more.
func TestFetchReadsWhatThereIsRoomFor(t *testing.T) {
	for _, tails := range []int64{0, 1 << 20} { // from the store, and from memory
		cfg := testConfig()
		cfg.TailBytes = tails
		f := start(t, newRestartable(t, memstore.Options{}), newCluster(t, topicRecords(testTopic, "orders", 2)...), cfg, nil)
		value := strings.Repeat("v", 10_000)
		for range 20 {
			f.mustProduce(part(0), value)
			f.mustProduce(part(1), value)
		}
		one := len(makeBatch(t, batch.Options{}, value).Data)
		for _, c := range []struct {
			name      string
			free, max int
			batches   int
			waits     int // at most
		}{
			{"all there is", 1 << 20, 1 << 20, 40, 0},
			{"room for three and a half", 7 * one / 2, 1 << 20, 6, 1}, // the least, of 64 KiB, is waited for
			{"less asked for than a batch", 1 << 20, 100, 1, 0},
			{"nothing asked for", 1 << 20, 0, 1, 0},
			{"less than a batch is free", 10, 100, 1, 2},
		} {
			r := &tightRoom{free: c.free}
			bytes := 0
			answer := f.Fetch(t.Context(), fetchInto(r, c.max, min(c.max, 20*len(value)), time.Minute))
			for _, p := range answer.Partitions {
				if p.Err != nil {
					t.Fatalf("%s: %v", c.name, p.Err)
				}
				bytes += p.Bytes()
			}
			memory := answer.Memory
			answer.Release()
			got := bytes / one
			if got != c.batches || memory > max(r.size, one)*5/4 || memory < bytes || len(r.waits) > c.waits || (len(r.waits) == 0) != (c.waits == 0) {
				t.Errorf("%s, tails %d: %d batches of %d bytes in room for %d, waited for %v", c.name, tails, got, bytes, r.size, r.waits)
			}
		}
	}
}

// A fetch that waits for more is answered when memory is short, and while it
// waits it holds what it has read, and no more.
func TestFetchWaitsNoLongerWhenMemoryIsShort(t *testing.T) {
	f := newFixture(t, 2)
	f.mustProduce(part(0), "a")
	r := &tightRoom{free: 1 << 20, short: make(chan struct{})}
	close(r.short)
	got := f.Fetch(t.Context(), fetchInto(r, 1<<20, 1<<20, time.Hour))
	if n := got.Partitions[0].Bytes(); n == 0 || r.size != got.Memory || got.Memory > max(4<<10, n+n/4) {
		t.Fatalf("%d bytes, in memory %d, in room for %d", n, got.Memory, r.size)
	}
}
