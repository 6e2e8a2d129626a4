package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/memory"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
	"pgregory.net/rapid"
)

// poisoned lends buffers like memory.Buffers, and spoils what it gets back, so that
// whoever still reads it finds no batch there.
type poisoned struct {
	memory.Buffers
	mu  sync.Mutex
	out map[*byte]bool
}

func newPoisoned() *poisoned { return &poisoned{out: map[*byte]bool{}} }

func (p *poisoned) Get(n int) []byte {
	b := p.Buffers.Get(n)
	p.mu.Lock()
	defer p.mu.Unlock()
	if first := &b[:1][0]; p.out[first] {
		panic("a buffer is lent twice")
	} else {
		p.out[first] = true
	}
	return b
}

func (p *poisoned) Put(b []byte) {
	first := &b[:1][0]
	p.mu.Lock()
	if !p.out[first] {
		panic("a buffer is given back that was not lent")
	}
	delete(p.out, first)
	p.mu.Unlock()
	for i := range b[:cap(b)] {
		b[:cap(b)][i] = 0xdb
	}
	p.Buffers.Put(b)
}

// lent is how many buffers are out.
func (p *poisoned) lent() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.out)
}

// anyBatch is a batch with some records at an offset.
func anyBatch(rt *rapid.T, base int64, bytesMax int) ([]byte, recordbatch.Info) {
	n := rapid.Int64Range(1, 5).Draw(rt, "records")
	b := recordbatch.Build(nil, recordbatch.Header{
		Info:    recordbatch.Info{BaseOffset: base, LastOffset: base + n - 1, ProducerID: -1, BaseSequence: -1, Records: int32(n)},
		Payload: bytes.Repeat([]byte{byte(base)}, rapid.IntRange(0, bytesMax).Draw(rt, "bytes")),
	})
	info, err := recordbatch.Parse(b)
	if err != nil {
		rt.Fatal(err)
	}
	return b, info
}

func (got *tailRead) give() {
	for _, e := range got.extents {
		e.release()
	}
	*got = tailRead{}
}

// TestTailReadsLikeAStore gives the same appends to tails and to a store, and
// wants the same answers wherever a tail answers at all. Answers that are being sent
// keep their bytes, whatever is dropped meanwhile.
func TestTailReadsLikeAStore(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const logs = 3
		store := newRestartable(t, memstore.Options{})
		buffers := newPoisoned()
		all := newTails(rapid.Int64Range(0, 100_000).Draw(rt, "limit"), buffers)
		var handles [logs]storage.Handle
		var ends, kept [logs]int64 // of the logs, and of what their tails were given
		var tls [logs]tail
		for i := range handles {
			handles[i] = store.Open(context.Background(), []storage.OpenSpec{{ID: storage.LogID{Topic: testTopic, Partition: int32(i)}, Create: true}})[0].Handle
		}
		type sending struct {
			got  tailRead
			want []byte
		}
		var sent []sending
		frames := 0 // that are lent
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) { // batches for several logs, in one frame or not
				var frame *model.Frame
				var parts [][]byte
				var infos []recordbatch.Info
				var of []int
				for range rapid.IntRange(1, 4).Draw(rt, "batches") {
					i := rapid.IntRange(0, logs-1).Draw(rt, "log")
					b, info := anyBatch(rt, ends[i], rapid.SampledFrom([]int{100, 20_000}).Draw(rt, "large"))
					ends[i] = info.LastOffset + 1
					parts, infos, of = append(parts, b), append(infos, info), append(of, i)
				}
				if rapid.Bool().Draw(rt, "frame") {
					whole := slices.Concat(parts...)
					frame = lendFrame(whole, &frames)
					for i := range parts {
						parts[i], whole = whole[:len(parts[i])], whole[len(parts[i]):]
					}
				}
				for i, info := range infos {
					store.Append(context.Background(), storage.AppendRequest{
						Handle: handles[of[i]], BaseOffset: info.BaseOffset, Batches: infos[i : i+1], Data: parts[i : i+1],
					}, func(_ storage.AppendResult, err error) {
						if err != nil {
							rt.Error(err)
						}
					})
					if rapid.IntRange(0, 20).Draw(rt, "skip") > 0 { // else it has a gap, and begins anew
						all.add(&tls[of[i]], info.BaseOffset, info.LastOffset, parts[i], frame)
						kept[of[i]] = info.LastOffset + 1
					}
				}
				if frame != nil {
					frame.Drop()
				}
			},
			"read": func(rt *rapid.T) {
				i := rapid.IntRange(0, logs-1).Draw(rt, "log")
				req := storage.ReadRequest{
					Handle: handles[i], Offset: rapid.Int64Range(0, ends[i]).Draw(rt, "offset"), UpTo: rapid.Int64Range(0, kept[i]).Draw(rt, "up to"),
					MaxBytes: rapid.IntRange(0, 60_000).Draw(rt, "max"), AtLeastOne: rapid.Bool().Draw(rt, "at least one"),
				}
				var got tailRead
				if !tls[i].read(&req, &got) {
					return
				}
				data := slices.Concat(got.parts...)
				want, err := store.Read(context.Background(), req)
				if err != nil || !bytes.Equal(data, want.Data) || got.next != want.Next || got.bytes != len(data) {
					rt.Fatalf("read %+v: %d bytes, next %d; the store has %d bytes, next %d, %v", req, len(data), got.next, len(want.Data), want.Next, err)
				}
				if one, ok := tls[i].size(req.Offset, req.UpTo); ok && req.AtLeastOne && one > len(data) {
					rt.Fatalf("the first batch has %d bytes, read were %d", one, len(data))
				}
				sent = append(sent, sending{got, data})
			},
			"send": func(rt *rapid.T) {
				if len(sent) == 0 {
					return
				}
				one := sent[0]
				sent = sent[1:]
				if !bytes.Equal(slices.Concat(one.got.parts...), one.want) {
					rt.Fatal("what is being sent has changed")
				}
				one.got.give()
			},
			"reset": func(rt *rapid.T) { all.reset(&tls[rapid.IntRange(0, logs-1).Draw(rt, "log")]) },
			"": func(rt *rapid.T) {
				var extents []*extent
				for i := range sent {
					extents = append(extents, sent[i].got.extents...)
				}
				if holds := all.holds(extents); all.used != holds || all.used > all.limit {
					rt.Fatalf("%d bytes counted, %d held, %d allowed", all.used, holds, all.limit)
				}
			},
		})
		for i := range sent {
			sent[i].got.give()
		}
		for i := range tls {
			all.reset(&tls[i])
		}
		if all.used != 0 || all.sent.Load() != 0 || len(all.frames) != 0 || all.oldest != nil || all.newest != nil || buffers.lent() != 0 || frames != 0 {
			rt.Fatalf("%d bytes, %d of answers, %d frames, %d lent, and %d buffers are left", all.used, all.sent.Load(), len(all.frames), frames, buffers.lent())
		}
	})
}

// lendFrame is a frame of these bytes, which are spoiled when nobody keeps it.
func lendFrame(whole []byte, lent *int) *model.Frame {
	*lent++
	f := model.NewFrame(len(whole), func() {
		*lent--
		for i := range whole {
			whole[i] = 0xdb
		}
	})
	f.Keep()
	return f
}

// holds counts the memory of what is in tails and of what is sent.
func (s *tails) holds(sent []*extent) (n int64) {
	extents, frames := map[*extent]bool{}, map[*keptFrame]bool{}
	for e := s.oldest; e != nil; e = e.newer {
		sent = append(sent, e)
	}
	for _, e := range sent {
		if extents[e] {
			continue
		}
		extents[e] = true
		n += e.cost
		if e.frame != nil && !frames[e.frame] {
			frames[e.frame] = true
			n += e.frame.bytes
		}
	}
	return n
}

func (t *tail) span() string {
	if len(t.extents) == 0 {
		return "-"
	}
	return fmt.Sprint(t.extents[0].base, "-", t.newest().last)
}

// TestOldestBytesGoFirst: one budget for all logs, and nobody's share.
func TestOldestBytesGoFirst(t *testing.T) {
	const size = 10_000
	all := newTails(10*(size+extentBytes), newPoisoned())
	var a, b tail
	add := func(to *tail, base int64) { all.add(to, base, base, make([]byte, size), &model.Frame{Bytes: size}) }
	for _, step := range []struct {
		to   *tail
		n    int64
		a, b string
	}{
		{to: &a, n: 5, a: "0-4", b: "-"},
		{to: &b, n: 5, a: "0-4", b: "0-4"},
		{to: &b, n: 3, a: "3-4", b: "0-7"}, // the busy one takes what the other has longest
		{to: &b, n: 4, a: "-", b: "2-11"},
		{to: &a, n: 1, a: "5-5", b: "3-11"},
	} {
		base := int64(0)
		if e := step.to.newest(); e != nil {
			base = e.last + 1
		} else if step.to == &a && b.newest() != nil {
			base = 5
		}
		for i := range step.n {
			add(step.to, base+i)
		}
		if a.span() != step.a || b.span() != step.b {
			t.Fatalf("tails hold %s and %s, want %s and %s", a.span(), b.span(), step.a, step.b)
		}
	}
}

// live is what the heap holds after a collection.
func live() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestTailsHoldWhatTheyCount: requests of which little is stored, and readers that do
// not take what they ask for, keep no more from being freed than the budget.
func TestTailsHoldWhatTheyCount(t *testing.T) {
	const limit, frameBytes = 16 << 20, 1 << 20
	all := newTails(limit, memory.NewBuffers(16<<20))
	var tl tail
	var unread []tailRead
	before := live()
	base := int64(0)
	for i := range 300 { // 300 MiB of frames, of each of which little is stored
		frame := make([]byte, frameBytes)
		of := &model.Frame{Bytes: len(frame)}
		stored := []int{20_000, 100, keepBytes}[i%3]
		all.add(&tl, base, base, frame[:stored], of)
		var got tailRead
		if tl.read(&storage.ReadRequest{Offset: base, UpTo: base + 1, MaxBytes: frameBytes}, &got) && !all.crowded() {
			unread = append(unread, got)
		} else {
			got.give()
		}
		base++
		if all.used > limit {
			t.Fatalf("%d bytes are counted", all.used)
		}
	}
	if grown := live() - before; grown > limit+limit/8 {
		t.Errorf("%d MiB are held, %d allowed", grown>>20, limit>>20)
	}
	if n := tl.newest(); n == nil || n.last != base-1 {
		t.Error("readers that do not read leave no room for a tail")
	}
	for i := range unread {
		unread[i].give()
	}
	all.reset(&tl)
	if grown := live() - before; all.used != 0 || grown > limit/8 {
		t.Errorf("%d bytes are counted, %d KiB held, when all is sent and forgotten", all.used, grown>>10)
	}
	runtime.KeepAlive(unread)
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
