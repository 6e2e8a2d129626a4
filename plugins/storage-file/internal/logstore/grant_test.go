package logstore

import (
	"bytes"
	"context"
	"errors"
	"math"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/segment"
	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

// host writes under a grant, through the file system below the store.
type host struct {
	storage.Grant
	handle  storage.Handle
	require storage.Survives
	file    vfs.File
}

func newHost(s *running, h storage.Handle, epoch int32, require storage.Survives) (*host, error) {
	g, err := s.grant(context.Background(), h, epoch, require)
	if err != nil {
		return nil, err
	}
	if g.File != nil {
		_ = g.File.Close() // the file is opened by its name
	}
	l, err := s.lookup(h)
	if err != nil {
		return nil, err
	}
	f, err := s.below.Open(path.Join(l.dir, segment.Name(l.snapshot().active.Base, segment.LogSuffix)), vfs.Existing)
	return &host{g, h, require, f}, err
}

func (o *host) fits(b []byte) bool {
	info := parse(b)
	return o.Pos+int64(len(b))+int64(o.EndMark) <= o.Limit && info.LastOffset <= o.MaxOffset && info.MaxTimestamp <= o.MaxTimestamp
}

// write writes batches with one call, and returns how to tell of them.
func (o *host) write(batches ...[]byte) (storage.AppendRequest, error) {
	req := request(o.handle, parse(batches[0]).BaseOffset, o.require, batches...)
	req.LeaderEpoch, req.Granted, req.Pos = o.LeaderEpoch, o.ID, o.Pos
	vec := slices.Concat(req.Data, [][]byte{make([]byte, o.EndMark)})
	n, err := o.file.WriteVecAt(vec, o.Pos)
	req.Data = nil
	if err == nil {
		o.Pos += int64(n - o.EndMark)
	}
	return req, err
}

// mustHost appends a first batch, so that the log can be lent, and lends it.
func mustHost(t *testing.T, s *running, res storage.OpenResult, epoch int32, require storage.Survives) *host {
	t.Helper()
	if res.LEO == 0 {
		if _, err := s.append(request(res.Handle, 0, 0, batch(0, 1, epoch, 50, 1000))); err != nil {
			t.Fatal(err)
		}
	}
	o, err := newHost(s, res.Handle, epoch, require)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func mustWrite(t *testing.T, o *host, batches ...[]byte) storage.AppendRequest {
	t.Helper()
	req, err := o.write(batches...)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// expectLog reads the log and compares it.
func expectLog(t *testing.T, s *running, h storage.Handle, want ...[]byte) {
	t.Helper()
	got, err := s.readAll(h, 0, end(want[len(want)-1]))
	if err != nil || len(got) != len(want) {
		t.Fatalf("read %d batches of %d: %v", len(got), len(want), err)
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("batch %d is another one", i)
		}
	}
}

func config64K() Config {
	cfg := testConfig("boot-1")
	cfg.Options.SegmentBytes = 64 << 10
	return cfg
}

// What was told is read, and a plain append goes on behind it.
func TestToldAppends(t *testing.T) {
	s := mustStart(t, vfs.NewMem(vfs.MemConfig{}), config64K())
	res := s.mustOpen(t, 2)
	o := mustHost(t, s, res, 2, 0)
	if o.LEO != 1 || o.LeaderEpoch != 2 || o.Gaps || o.Limit != 64<<10 || o.EndMark != 0 ||
		o.MaxTimestamp != 1000+(24*time.Hour).Milliseconds() || o.MaxOffset != math.MaxInt32 {
		t.Errorf("grant %+v", o.Grant)
	}
	want := [][]byte{batch(0, 1, 2, 50, 1000), batch(1, 2, 2, 70, 1001), batch(3, 1, 2, 80, 1002), batch(4, 1, 2, 90, 1003), batch(5, 3, 2, 20, 1004)}
	for i, req := range []storage.AppendRequest{mustWrite(t, o, want[1], want[2]), mustWrite(t, o, want[3])} {
		if got, err := s.append(req); err != nil || got.LEO != int64(4+i) || got.GrantOver {
			t.Fatalf("told append %d: %+v, %v", i, got, err)
		}
	}
	if got, err := s.append(request(res.Handle, 5, storage.SurvivesMachine, want[4])); err != nil || got.Durable != 8 {
		t.Fatalf("plain append: %+v, %v", got, err)
	}
	expectLog(t, s, res.Handle, want...)
}

// A wrong description is refused, and the log takes no appends until it was opened
// again, which finds what was written.
func TestToldAppendsAreChecked(t *testing.T) {
	first, next := batch(0, 1, 1, 50, 1000), batch(1, 2, 1, 70, 1001)
	for name, spoil := range map[string]func(*storage.AppendRequest){
		"grant":  func(r *storage.AppendRequest) { r.Granted += 5 },
		"place":  func(r *storage.AppendRequest) { r.Pos++ },
		"offset": func(r *storage.AppendRequest) { r.BaseOffset++ },
		"gap":    func(r *storage.AppendRequest) { r.Batches[0].BaseOffset++ },
		"epoch":  func(r *storage.AppendRequest) { r.Batches[0].LeaderEpoch++ },
		"size":   func(r *storage.AppendRequest) { r.Batches[0].Bytes = 5 },
		"limit":  func(r *storage.AppendRequest) { r.Batches[0].Bytes = 1 << 20 },
		"order":  func(r *storage.AppendRequest) { r.Batches[0].LastOffset = 0 },
		"none":   func(r *storage.AppendRequest) { r.Batches = nil },
		"data":   func(r *storage.AppendRequest) { r.Data = [][]byte{next} },
		"fenced": func(r *storage.AppendRequest) { r.LeaderEpoch = 0 },
	} {
		s := mustStart(t, vfs.NewMem(vfs.MemConfig{}), config64K())
		res := s.mustOpen(t, 1)
		o := mustHost(t, s, res, 1, 0)
		good := mustWrite(t, o, next)
		bad := good
		bad.Batches = append([]storage.BatchInfo(nil), good.Batches...)
		spoil(&bad)
		if _, err := s.append(bad); err == nil {
			t.Errorf("%s: not refused", name)
		}
		if _, err := s.append(good); !errors.Is(err, storage.ErrUnknown) {
			t.Errorf("%s: the append after it: %v", name, err)
		}
		if _, err := s.append(request(res.Handle, 1, 0, next)); !errors.Is(err, storage.ErrUnknown) {
			t.Errorf("%s: a plain append after it: %v", name, err)
		}
		again := s.mustOpen(t, 1)
		if again.LEO != 3 || again.Verdict != storage.VerdictIntact {
			t.Errorf("%s: opened again at %d, verdict %d", name, again.LEO, again.Verdict)
		}
		expectLog(t, s, again.Handle, first, next)
	}
}

// Whoever opens or closes the log, in the same life or after a kill, finds what was
// written and not told, and nothing of a write that was cut short.
func TestUntoldIsFound(t *testing.T) {
	want := [][]byte{batch(0, 1, 1, 50, 1000), batch(1, 2, 1, 70, 1001), batch(3, 1, 1, 80, 1002), batch(4, 2, 1, 300, 1003)}
	torn := batch(6, 2, 1, 400, 1004)
	for name, again := range map[string]func(t *testing.T, fs *vfs.Mem, s *running, h storage.Handle) *running{
		"opened again": func(_ *testing.T, _ *vfs.Mem, s *running, _ storage.Handle) *running { return s },
		"closed": func(t *testing.T, _ *vfs.Mem, s *running, h storage.Handle) *running {
			if err := s.Close(t.Context(), []storage.Handle{h})[0]; err != nil {
				t.Error(err)
			}
			return s
		},
		"shut down": func(t *testing.T, fs *vfs.Mem, s *running, _ storage.Handle) *running {
			if err := s.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			return mustStart(t, fs, config64K())
		},
		"killed": func(t *testing.T, fs *vfs.Mem, _ *running, _ storage.Handle) *running {
			return mustStart(t, fs.AfterKill(vfs.MemConfig{}), config64K())
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem(vfs.MemConfig{})
			s := mustStart(t, fs, config64K())
			res := s.mustOpen(t, 1)
			o := mustHost(t, s, res, 1, 0)
			if _, err := s.append(mustWrite(t, o, want[1])); err != nil {
				t.Fatal(err)
			}
			mustWrite(t, o, want[2], want[3])
			if _, err := o.file.WriteVecAt([][]byte{torn[:300]}, o.Pos); err != nil {
				t.Fatal(err)
			}
			s = again(t, fs, s, res.Handle)
			found := s.mustOpen(t, 2)
			if found.LEO != 6 || found.Verdict != storage.VerdictIntact || len(found.Epochs) != 1 {
				t.Errorf("found %+v", found)
			}
			last := batch(6, 1, 2, 10, 1005)
			if _, err := s.append(request(found.Handle, 6, 0, last)); err != nil {
				t.Fatal(err)
			}
			expectLog(t, s, found.Handle, append(want, last)...)
		})
	}
}

// A write that failed, and was not told, leaves nothing that a later opening could
// take for the log's: not when the host appends without the grant, nor when it
// gives it back.
func TestFailedWriteGoes(t *testing.T) {
	ends := map[string]func(t *testing.T, s *running, o *host){
		"append": func(t *testing.T, s *running, o *host) {
			if _, err := s.append(request(o.handle, 1, 0, batch(1, 1, 1, 10, 1001))); err != nil {
				t.Error(err)
			}
		},
		"end": func(t *testing.T, s *running, o *host) {
			if err := (files{s.Store}).End(t.Context(), o.handle, o.ID+1); err != nil {
				t.Error(err)
			}
			if err := (files{s.Store}).End(t.Context(), o.handle, o.ID); err != nil {
				t.Error(err)
			}
			if _, err := s.append(storage.AppendRequest{
				Handle: o.handle, LeaderEpoch: 1, BaseOffset: 1, Granted: o.ID, Pos: o.Pos,
				Batches: []storage.BatchInfo{parse(batch(1, 1, 1, 10, 1001))},
			}); !errors.Is(err, storage.ErrUnknown) {
				t.Errorf("an append under a grant that was given back: %v", err)
			}
		},
		"trim": func(t *testing.T, s *running, o *host) {
			if _, err := s.Trim(t.Context(), o.handle, 0); err != nil {
				t.Error(err)
			}
		},
		"retain": func(t *testing.T, s *running, o *host) {
			if _, err := s.Retain(t.Context(), o.handle, storage.RetainPolicy{MaxBytes: -1}); err != nil {
				t.Error(err)
			}
		},
		"truncate": func(t *testing.T, s *running, o *host) {
			if _, err := s.Truncate(t.Context(), o.handle, 1, 1); err != nil {
				t.Error(err)
			}
		},
		"replace": func(t *testing.T, s *running, o *host) {
			if err := s.Replace(t.Context(), storage.ReplaceRequest{Handle: o.handle, From: 1, To: 1}); err != nil {
				t.Error(err)
			}
		},
		"grant": func(t *testing.T, s *running, o *host) {
			if _, err := s.grant(t.Context(), o.handle, 1, 0); err != nil {
				t.Error(err)
			}
		},
	}
	for name, act := range ends {
		fs := vfs.NewMem(vfs.MemConfig{})
		s := mustStart(t, fs, config64K())
		res := s.mustOpen(t, 1)
		o := mustHost(t, s, res, 1, 0)
		mustWrite(t, o, batch(1, 1, 1, 10, 1001), batch(2, 1, 1, 10, 1001)) // as far as it came
		o.Pos = int64(len(batch(0, 1, 1, 50, 1000)))
		act(t, s, o)
		leo := mustLog(t, s, res.Handle).snapshot().leo
		again := mustStart(t, fs.AfterKill(vfs.MemConfig{}), config64K()).mustOpen(t, 1)
		if again.LEO != leo || leo > 2 || again.Cut != "" {
			t.Errorf("%s: the log ends at %d, not %d (cut %q)", name, again.LEO, leo, again.Cut)
		}
	}
}

// While a grant is out under which appends are acknowledged before they are told,
// a flush does not note that everything is synced; afterwards it does. Under a
// grant whose appends all wait for a sync, a loss of power leaves no doubt.
func TestGrantsAndVerdicts(t *testing.T) {
	for _, c := range []struct {
		require storage.Survives
		end     bool
		want    storage.Verdict
	}{
		{storage.SurvivesUnset, false, storage.VerdictMayHaveLostSuffix},
		{storage.SurvivesProcess, true, storage.VerdictIntact},
		{storage.SurvivesMachine, false, storage.VerdictIntact},
	} {
		fs := vfs.NewMem(vfs.MemConfig{})
		s := mustStart(t, fs, config64K())
		res := s.mustOpen(t, 1)
		if _, err := s.append(request(res.Handle, 0, storage.SurvivesMachine, batch(0, 1, 1, 50, 1000))); err != nil {
			t.Fatal(err)
		}
		o, err := newHost(s, res.Handle, 1, c.require)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.append(mustWrite(t, o, batch(1, 1, 1, 50, 1000))); err != nil {
			t.Fatal(err)
		}
		if c.end {
			if err := (files{s.Store}).End(t.Context(), o.handle, o.ID); err != nil {
				t.Fatal(err)
			}
		}
		mustLog(t, s, res.Handle).loose = false // as after some seconds without appends
		if f := s.Flush(t.Context(), []storage.Handle{res.Handle})[0]; f.Err != nil || f.Durable != 2 {
			t.Fatalf("flush: %+v", f)
		}
		again := mustStart(t, fs.AfterPowerLoss(vfs.MemConfig{}, newRand(1)), testConfig("boot-2")).mustOpen(t, 1)
		if again.LEO != 2 || again.Verdict != c.want {
			t.Errorf("require %d, ended %v: LEO %d, verdict %d, want %d", c.require, c.end, again.LEO, again.Verdict, c.want)
		}
	}
}

// An epoch that was noted for a grant under which nothing was written is forgotten
// with it: batches of an older epoch may follow in a later life.
func TestUnusedEpochIsForgotten(t *testing.T) {
	fs := vfs.NewMem(vfs.MemConfig{})
	s := mustStart(t, fs, config64K())
	res := s.mustOpen(t, 1)
	mustHost(t, s, res, 5, 0)
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = mustStart(t, fs, config64K())
	res = s.mustOpen(t, 5)
	if _, err := s.append(request(res.Handle, 1, 0, batch(1, 1, 5, 10, 1000))); err != nil {
		t.Fatal(err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = mustStart(t, fs, config64K())
	res = s.mustOpen(t, 5)
	if _, err := s.grant(t.Context(), res.Handle, 9, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = mustStart(t, fs, config64K())
	res = s.mustOpen(t, 5)
	if _, err := s.append(request(res.Handle, 2, 0, batch(2, 1, 5, 10, 1000))); err != nil {
		t.Fatal(err)
	}
	again := mustStart(t, fs.AfterKill(vfs.MemConfig{}), config64K()).mustOpen(t, 5)
	if again.LEO != 3 || again.Cut != "" {
		t.Errorf("LEO %d, cut %q", again.LEO, again.Cut)
	}
}

// A log is not lent when that is of no use or not safe, and a host is told when a
// grant is over.
func TestGrantsAreRefused(t *testing.T) {
	ctx := context.Background()
	fs := vfs.NewMem(vfs.MemConfig{})
	cfg := config64K()
	cfg.ReserveBytes = 4 << 10
	s := mustStart(t, fs, cfg)
	res := s.mustOpen(t, 3)
	grant := func(epoch int32) error {
		_, err := s.grant(ctx, res.Handle, epoch, 0)
		return err
	}
	if err := grant(3); !errors.Is(err, storage.ErrRetry) {
		t.Errorf("an empty segment: %v", err)
	}
	if _, err := s.append(request(res.Handle, 0, 0, batch(0, 1, 3, 60<<10, 1000))); err != nil {
		t.Fatal(err)
	}
	if err := grant(3); !errors.Is(err, storage.ErrRetry) {
		t.Errorf("a full segment: %v", err)
	}
	if _, err := s.append(request(res.Handle, 1, 0, batch(1, 1, 3, 10<<10, 1000))); err != nil {
		t.Fatal(err)
	}
	if err := grant(2); !errors.Is(err, storage.ErrFenced) {
		t.Errorf("an old epoch: %v", err)
	}
	if _, err := s.grant(ctx, res.Handle, 3, storage.SurvivesStore); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("a level that no file has: %v", err)
	}
	if _, err := s.grant(ctx, res.Handle+7, 3, 0); !errors.Is(err, storage.ErrGone) {
		t.Errorf("a handle that is not: %v", err)
	}
	o, err := newHost(s, res.Handle, 3, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.reserve.release()
	fs.SetCapacity(fs.Used() + 1000)
	if got, err := s.append(mustWrite(t, o, batch(2, 1, 3, 10, 1000))); err != nil || !got.GrantOver {
		t.Errorf("without a reserve: %+v, %v", got, err)
	}
	if got, err := s.append(mustWrite(t, o, batch(3, 1, 3, 10, 1000))); err != nil || got.LEO != 4 {
		t.Errorf("an append that was on its way: %+v, %v", got, err)
	}
	if err := grant(3); !errors.Is(err, storage.ErrRetry) {
		t.Errorf("no room: %v", err)
	}
}
