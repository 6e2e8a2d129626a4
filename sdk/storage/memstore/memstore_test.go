package memstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

var (
	config = storage.Config{Identity: storage.Identity{ClusterID: "c", NodeID: 1}, ProposedDirectoryID: storage.DirectoryID{7}}
	logA   = storage.LogID{Topic: [16]byte{'a'}}
)

// outcome is what an append was completed with, and how often.
type outcome struct {
	result storage.AppendResult
	err    error
	times  int
}

func open(t *testing.T, disk *memstore.Disk, opt memstore.Options) *memstore.Store {
	t.Helper()
	store, _, err := memstore.Open(disk, config, opt)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func openLog(t *testing.T, store *memstore.Store) storage.OpenResult {
	t.Helper()
	r := store.Open(t.Context(), []storage.OpenSpec{{ID: logA, Label: "a", Create: true, LeaderEpoch: 1}})[0]
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	return r
}

// one makes the batch of the single offset.
func one(offset int64) []byte {
	return recordbatch.Build(nil, recordbatch.Header{
		Info:    recordbatch.Info{BaseOffset: offset, LastOffset: offset, LeaderEpoch: 1, MaxTimestamp: offset, Records: 1},
		Payload: fmt.Appendf(nil, "record %d", offset),
	})
}

func appendOne(t *testing.T, store *memstore.Store, h storage.Handle, offset int64) *outcome {
	t.Helper()
	data := one(offset)
	info, err := recordbatch.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	o := &outcome{}
	store.Append(t.Context(), storage.AppendRequest{
		Handle: h, LeaderEpoch: 1, BaseOffset: offset, Batches: []storage.BatchInfo{info}, Data: [][]byte{data},
	}, func(result storage.AppendResult, err error) {
		o.result, o.err = result, err
		o.times++
	})
	return o
}

// stepper keeps deferred steps until they are run.
type stepper struct{ due []func() }

func (s *stepper) add(run func()) { s.due = append(s.due, run) }

// run runs n steps, the newest first.
func (s *stepper) run(n int) {
	for range n {
		next := s.due[len(s.due)-1]
		s.due = s.due[:len(s.due)-1]
		next()
	}
}

func TestDeferredStepsKeepTheOrder(t *testing.T) {
	steps := &stepper{}
	store := open(t, &memstore.Disk{}, memstore.Options{Defer: steps.add})
	h := openLog(t, store).Handle
	var outcomes []*outcome
	for i := range int64(5) {
		outcomes = append(outcomes, appendOne(t, store, h, i))
	}
	for n := 0; len(steps.due) > 0; n++ {
		steps.run(1)
		done := 0
		for i, o := range outcomes {
			if o.times > 0 {
				done++
			}
			if o.times > 1 || o.times == 1 && (done != i+1 || o.err != nil || o.result.LEO != int64(i+1)) {
				t.Fatalf("after %d steps append %d is completed %d times: %+v, %v", n+1, i, o.times, o.result, o.err)
			}
		}
	}
	if outcomes[4].times != 1 {
		t.Error("the last append was not completed")
	}
}

func TestOpenFencesWhatHadNoEffect(t *testing.T) {
	steps := &stepper{}
	store := open(t, &memstore.Disk{}, memstore.Options{Defer: steps.add})
	h := openLog(t, store).Handle
	first, second := appendOne(t, store, h, 0), appendOne(t, store, h, 1)
	steps.run(1) // the first one's effect
	if r := openLog(t, store); r.LEO != 1 {
		t.Fatalf("an append had its effect and another had not; the LEO is %d", r.LEO)
	}
	steps.run(len(steps.due))
	for len(steps.due) > 0 {
		steps.run(1)
	}
	if first.times != 1 || first.err != nil {
		t.Errorf("the append that had its effect was completed %d times with %v", first.times, first.err)
	}
	if second.times != 1 || !errors.Is(second.err, storage.ErrFenced) {
		t.Errorf("the append that had none was completed %d times with %v; want fenced", second.times, second.err)
	}
}

func TestKillFailsWhatIsInFlight(t *testing.T) {
	steps, disk := &stepper{}, &memstore.Disk{}
	store := open(t, disk, memstore.Options{Defer: steps.add})
	h := openLog(t, store).Handle
	first, second := appendOne(t, store, h, 0), appendOne(t, store, h, 1)
	steps.run(1)
	store.Kill()
	for len(steps.due) > 0 {
		steps.run(1)
	}
	for _, o := range []*outcome{first, second} {
		if o.times != 1 || !errors.Is(o.err, storage.ErrGone) {
			t.Errorf("an append in flight was completed %d times with %v; want gone", o.times, o.err)
		}
	}
	if r := openLog(t, open(t, disk, memstore.Options{})); r.LEO != 1 || r.Verdict != storage.VerdictIntact {
		t.Errorf("after the kill the log ends at %d, verdict %d; want 1, intact", r.LEO, r.Verdict)
	}
}

func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		fault    memstore.Fault
		leo      int64
		outcomes string
	}{
		"retry before":   {memstore.Fault{Class: storage.ErrRetry}, 2, "ok retry invalid ok"},
		"full before":    {memstore.Fault{Class: storage.ErrFull}, 2, "ok full invalid ok"},
		"gone before":    {memstore.Fault{Class: storage.ErrGone}, 1, "ok gone gone gone"},
		"unknown before": {memstore.Fault{Class: storage.ErrUnknown}, 1, "ok unknown outcome gone gone"},
		"unknown after":  {memstore.Fault{Class: storage.ErrUnknown, After: true}, 2, "ok unknown outcome gone gone"},
		"another log":    {memstore.Fault{Class: storage.ErrGone, Log: storage.LogID{Partition: 9}}, 3, "ok ok ok ok"},
	} {
		t.Run(name, func(t *testing.T) {
			faults := &memstore.Faults{}
			c.fault.Kind, c.fault.Skip = memstore.OpAppend, 1
			faults.Add(c.fault)
			store := open(t, &memstore.Disk{}, memstore.Options{Before: faults.Before, After: faults.After})
			h := openLog(t, store).Handle
			var got []string
			for _, offset := range []int64{0, 1, 2, 1} { // the last repeats or replaces the one that failed
				o := appendOne(t, store, h, offset)
				if o.times != 1 {
					t.Fatalf("the append at %d was completed %d times", offset, o.times)
				}
				if o.err == nil {
					got = append(got, "ok")
					continue
				}
				got = append(got, storage.Class(o.err).Error())
			}
			if strings.Join(got, " ") != c.outcomes {
				t.Errorf("appends give %q; want %q", strings.Join(got, " "), c.outcomes)
			}
			r := openLog(t, store)
			if r.LEO != c.leo {
				t.Errorf("opened again the log ends at %d; want %d", r.LEO, c.leo)
			}
			if o := appendOne(t, store, r.Handle, r.LEO); o.err != nil {
				t.Errorf("opened again an append gives %v", o.err)
			}
		})
	}
}

func TestFaultsOfOtherCalls(t *testing.T) {
	faults := &memstore.Faults{}
	store := open(t, &memstore.Disk{}, memstore.Options{Before: faults.Before, After: faults.After})
	h := openLog(t, store).Handle
	appendOne(t, store, h, 0)
	faults.Add(memstore.Fault{Kind: memstore.OpTruncate, Class: storage.ErrUnknown, After: true})
	faults.Add(memstore.Fault{Kind: memstore.OpRead, Class: storage.ErrRetry, Times: -1})
	if _, err := store.Truncate(t.Context(), h, 1, 0); !errors.Is(err, storage.ErrUnknown) {
		t.Errorf("truncate gives %v; want unknown", err)
	}
	for range 3 {
		if _, err := store.Read(t.Context(), storage.ReadRequest{Handle: h, MaxBytes: 100}); !errors.Is(err, storage.ErrRetry) {
			t.Errorf("read gives %v; want retry", err)
		}
	}
	if r := openLog(t, store); r.LEO != 0 {
		t.Errorf("the truncation had its effect, and the LEO is %d", r.LEO)
	}
}

func TestLosePowerFollowsItsSeed(t *testing.T) {
	const total, flushed = 20, 5
	run := func(seed uint64) (int64, string) {
		disk := &memstore.Disk{}
		store := open(t, disk, memstore.Options{})
		h := openLog(t, store).Handle
		for i := range int64(total) {
			appendOne(t, store, h, i)
			if i == flushed-1 {
				store.Flush(t.Context(), []storage.Handle{h})
			}
		}
		disk.LosePower(seed)
		if o := appendOne(t, store, h, total); !errors.Is(o.err, storage.ErrGone) {
			t.Fatalf("an append after power loss gives %v", o.err)
		}
		r := openLog(t, open(t, disk, memstore.Options{}))
		if r.LEO < flushed || r.Verdict != storage.VerdictMayHaveLostSuffix {
			t.Fatalf("seed %d: the LEO is %d, with %d flushed; verdict %d", seed, r.LEO, flushed, r.Verdict)
		}
		return r.LEO, r.Cut
	}
	ends, torn := map[int64]bool{}, 0
	for seed := range uint64(60) {
		leo, cut := run(seed)
		if again, cutAgain := run(seed); again != leo || cutAgain != cut {
			t.Fatalf("seed %d loses other records the second time", seed)
		}
		ends[leo] = true
		if cut != "" {
			torn++
		}
	}
	if len(ends) < 8 || !ends[total] || torn == 0 {
		t.Errorf("60 seeds leave the ends %v, %d of them torn; want nothing, some and all lost", ends, torn)
	}
}

func TestFlipBit(t *testing.T) {
	disk := &memstore.Disk{}
	store := open(t, disk, memstore.Options{})
	h := openLog(t, store).Handle
	for i := range int64(3) {
		appendOne(t, store, h, i)
	}
	if err := disk.FlipBit(logA, 1, 8*recordbatch.HeaderBytes); err != nil {
		t.Fatal(err)
	}
	read := func(offset int64) ([]byte, error) {
		result, err := store.Read(t.Context(), storage.ReadRequest{Handle: h, Offset: offset, UpTo: 3, MaxBytes: 1000})
		return result.Data, err
	}
	if data, err := read(0); err != nil || !bytes.Equal(data, one(0)) {
		t.Errorf("a read before the damage gives %d bytes, %v", len(data), err)
	}
	if _, err := read(1); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("a read of the damage gives %v; want corrupt", err)
	}
	if data, err := read(2); err != nil || !bytes.Equal(data, one(2)) {
		t.Errorf("a read behind the damage gives %d bytes, %v", len(data), err)
	}
	for _, c := range []struct {
		offset int64
		bit    int
	}{{3, 0}, {-1, 0}, {1, -1}, {1, 1 << 20}} {
		if err := disk.FlipBit(logA, c.offset, c.bit); err == nil {
			t.Errorf("bit %d at offset %d was flipped", c.bit, c.offset)
		}
	}
}

func TestCapacity(t *testing.T) {
	disk := &memstore.Disk{}
	store := open(t, disk, memstore.Options{})
	h := openLog(t, store).Handle
	disk.SetCapacity(int64(len(one(0))) * 2)
	for i, want := range []error{nil, nil, storage.ErrFull} {
		if o := appendOne(t, store, h, int64(i)); !errors.Is(o.err, want) {
			t.Errorf("append %d to a disk with room for two gives %v; want %v", i, o.err, want)
		}
	}
	use, err := store.Usage(t.Context())
	if err != nil || use.Free != 0 || use.Total != int64(len(one(0)))*2 {
		t.Errorf("usage of a full disk is %+v, %v", use, err)
	}
	if err := store.PutBlob(t.Context(), h, "b", storage.Blob{Data: []byte("x")}); !errors.Is(err, storage.ErrFull) {
		t.Errorf("a blob on a full disk gives %v", err)
	}
	disk.SetFree(-1)
	if o := appendOne(t, store, h, 2); o.err != nil {
		t.Errorf("with the limit lifted an append gives %v", o.err)
	}
}

// TestAppendFromCompletion checks that completions which append do not deepen
// the stack.
func TestAppendFromCompletion(t *testing.T) {
	const total = 100_000
	store := open(t, &memstore.Disk{}, memstore.Options{Now: func() time.Time { return time.Time{} }})
	h := openLog(t, store).Handle
	next := int64(0)
	var chain func(storage.AppendResult, error)
	chain = func(_ storage.AppendResult, err error) {
		if err != nil {
			t.Fatal(err)
		}
		if next == total {
			return
		}
		data := one(next)
		info, _ := recordbatch.Parse(data) // it was just built
		req := storage.AppendRequest{Handle: h, LeaderEpoch: 1, BaseOffset: next, Batches: []storage.BatchInfo{info}, Data: [][]byte{data}}
		next++
		store.Append(context.Background(), req, chain)
	}
	chain(storage.AppendResult{}, nil)
	if r := openLog(t, store); r.LEO != total {
		t.Errorf("a chain of %d appends leaves the LEO at %d", total, r.LEO)
	}
}

func TestProviderKeepsDisksApart(t *testing.T) {
	p := memstore.NewProvider(memstore.Options{})
	for _, disk := range []string{"a", "b"} {
		cfg := config
		cfg.Settings = memstore.Settings(disk)
		if _, dir, err := p.Open(t.Context(), cfg); err != nil || dir != cfg.ProposedDirectoryID {
			t.Errorf("open disk %s: %v, %v", disk, dir, err)
		}
		if _, _, err := p.Open(t.Context(), cfg); !errors.Is(err, storage.ErrFenced) {
			t.Errorf("open disk %s twice: %v", disk, err)
		}
	}
	cfg := config
	cfg.Settings = []byte(`{"dsik": "a"}`)
	if _, _, err := p.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "dsik") {
		t.Errorf("an unknown setting gives %v", err)
	}
}

// FuzzAppend appends arbitrary bytes, described as honestly as can be: they are
// refused, or read back as they are.
func FuzzAppend(f *testing.F) {
	f.Add([]byte{})
	f.Add(one(0))
	f.Add(append(one(0), one(1)...))
	f.Add(append(one(0), one(0)...))
	f.Add(one(0)[:40])
	f.Fuzz(func(t *testing.T, data []byte) {
		store := open(t, &memstore.Disk{}, memstore.Options{})
		h := openLog(t, store).Handle
		var infos []storage.BatchInfo
		for rest := data; len(rest) > 0; {
			info, err := recordbatch.Parse(rest)
			if err != nil {
				break
			}
			infos = append(infos, info)
			rest = rest[min(int(info.Bytes), len(rest)):]
		}
		req := storage.AppendRequest{Handle: h, LeaderEpoch: 1, Batches: infos, Data: [][]byte{bytes.Clone(data)}}
		var failed error
		store.Append(t.Context(), req, func(_ storage.AppendResult, err error) { failed = err })
		leo := openLog(t, store).LEO
		if failed != nil {
			if !errors.Is(failed, storage.ErrInvalid) || leo != 0 {
				t.Fatalf("garbage gives %v and a LEO of %d", failed, leo)
			}
			return
		}
		h = openLog(t, store).Handle
		result, err := store.Read(t.Context(), storage.ReadRequest{Handle: h, UpTo: leo, MaxBytes: len(data)})
		if err != nil || !bytes.Equal(result.Data, data) {
			t.Fatalf("%d bytes were appended and %d are read: %v", len(data), len(result.Data), err)
		}
	})
}
