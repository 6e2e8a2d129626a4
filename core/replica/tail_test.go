package replica

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
	"pgregory.net/rapid"
)

// TestTailReadsLikeAStore gives the same appends to a tail and to a store, and
// wants the same answers wherever the tail answers at all.
func TestTailReadsLikeAStore(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		store := newRestartable(t, memstore.Options{})
		handle := store.Open(context.Background(), []storage.OpenSpec{{ID: storage.LogID{Topic: testTopic}, Create: true}})[0].Handle
		var tl tail
		budget := tailBudget{limit: 4000}
		next, answered := int64(0), 0
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				c := chunk{base: next}
				for range rapid.IntRange(1, 4).Draw(rt, "batches") {
					n := rapid.Int64Range(1, 5).Draw(rt, "records")
					b := recordbatch.Build(nil, recordbatch.Header{
						Info:    recordbatch.Info{BaseOffset: next, LastOffset: next + n - 1, ProducerID: -1, BaseSequence: -1, Records: int32(n)},
						Payload: bytes.Repeat([]byte{byte(next)}, rapid.IntRange(0, 200).Draw(rt, "bytes")),
					})
					info, err := recordbatch.Parse(b)
					if err != nil {
						rt.Fatal(err)
					}
					c.batches, c.data, c.last = append(c.batches, info), append(c.data, b...), info.LastOffset
					next += n
				}
				store.Append(context.Background(), storage.AppendRequest{Handle: handle, BaseOffset: c.base, Batches: c.batches, Data: [][]byte{c.data}},
					func(_ storage.AppendResult, err error) {
						if err != nil {
							rt.Error(err)
						}
					})
				budget.add(&tl, c)
				if budget.used > budget.limit {
					rt.Fatalf("%d bytes held, %d allowed", budget.used, budget.limit)
				}
			},
			"read": func(rt *rapid.T) {
				req := storage.ReadRequest{
					Handle: handle, Offset: rapid.Int64Range(0, next).Draw(rt, "offset"), UpTo: rapid.Int64Range(0, next).Draw(rt, "up to"),
					MaxBytes: rapid.IntRange(0, 1000).Draw(rt, "max"), AtLeastOne: rapid.Bool().Draw(rt, "at least one"),
				}
				got, ok := tl.read(req)
				if !ok {
					return
				}
				answered++
				want, err := store.Read(context.Background(), req)
				if err != nil || !bytes.Equal(got.Data, want.Data) || got.Next != want.Next {
					rt.Fatalf("read %+v: %d bytes, next %d; the store has %d bytes, next %d, %v", req, len(got.Data), got.Next, len(want.Data), want.Next, err)
				}
				clear(got.Data) // they are ours
			},
		})
	})
}

// TestTailServesWithoutTheStore reads what was just appended while the store
// refuses reads.
func TestTailServesWithoutTheStore(t *testing.T) {
	var faults memstore.Faults
	faults.Add(memstore.Fault{Kind: memstore.OpRead, Times: -1, Class: storage.ErrCorrupt})
	cfg := testConfig()
	cfg.TailBytes = 1 << 20
	f := start(t, newRestartable(t, memstore.Options{Before: faults.Before}), newCluster(t, topicRecords(testTopic, "orders", 1)...), cfg, nil)
	for range 20 {
		f.mustProduce(part(0), "a", "b")
	}
	if got := f.valuesFrom(part(0), 3); len(got) != 37 || got[0] != "3=b" {
		t.Fatalf("%d values: %v", len(got), got)
	}
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	g := start(t, f.store, f.cluster, cfg, nil) // a new broker has no tail
	if got := g.fetchOne(part(0), 0, time.Minute); !errors.Is(got.Err, model.ErrCorruptMessage) {
		t.Fatalf("from the store: %+v", got)
	}
}
