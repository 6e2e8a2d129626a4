package replica

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// sickStore is a store of which some calls fail, or are not answered.
type sickStore struct {
	*restartable
	hangs  atomic.Bool   // nothing is answered
	holds  atomic.Uint64 // appends to this handle are not answered; 0: to none
	last   atomic.Uint64 // the handle that was appended to last
	broken atomic.Bool   // nothing is written
	shuts  atomic.Bool   // as broken, and what has failed does not open again
	well   chan struct{}
}

var errBroken = storage.Errorf(storage.ErrUnknown, "input/output error")

func (s *sickStore) wait(ctx context.Context) error {
	if !s.hangs.Load() {
		return nil
	}
	select {
	case <-s.well:
		return nil
	case <-ctx.Done():
		return storage.Errorf(storage.ErrUnknown, "%v", ctx.Err())
	}
}

func (s *sickStore) Append(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
	s.last.Store(uint64(req.Handle))
	switch {
	case s.shuts.Load():
		done(storage.AppendResult{}, storage.Errorf(storage.ErrGone, "read-only file system"))
	case s.broken.Load():
		done(storage.AppendResult{}, errBroken)
	case s.hangs.Load():
		go func() {
			if err := s.wait(ctx); err != nil {
				done(storage.AppendResult{}, err)
				return
			}
			s.restartable.Append(ctx, req, done)
		}()
	case s.holds.Load() == uint64(req.Handle):
		go func() {
			<-s.well
			s.restartable.Append(ctx, req, done)
		}()
	default:
		s.restartable.Append(ctx, req, done)
	}
}

func (s *sickStore) Open(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult {
	if !s.shuts.Load() {
		return s.restartable.Open(ctx, specs)
	}
	out := make([]storage.OpenResult, len(specs))
	for i := range out {
		out[i].Err = storage.Errorf(storage.ErrGone, "read-only file system")
	}
	return out
}

func (s *sickStore) PutBlob(ctx context.Context, h storage.Handle, name string, b storage.Blob) error {
	if s.broken.Load() {
		return errBroken
	}
	return s.restartable.PutBlob(ctx, h, name, b)
}

func (s *sickStore) Usage(ctx context.Context) (storage.Usage, error) {
	if err := s.wait(ctx); err != nil {
		return storage.Usage{}, err
	}
	return s.restartable.Usage(ctx)
}

// TestAStoreThatDoesNotServeIsOffline: whoever tells the controller hears in time of a store
// that hangs, fails or is dead, used or not, and that it serves again; and never of one that
// is idle, or comes back soon. (FR-31, FR-32)
func TestAStoreThatDoesNotServeIsOffline(t *testing.T) {
	for _, c := range []struct {
		name string
		used bool
		logs int // 0: two
		ails func(s *sickStore)
		ends func(t *testing.T, f *fixture, s *sickStore)
	}{
		{
			name: "hangs", used: true, ails: func(s *sickStore) { s.hangs.Store(true) },
			ends: func(_ *testing.T, _ *fixture, s *sickStore) { s.hangs.Store(false); close(s.well) },
		}, {
			name: "hangs, idle", ails: func(s *sickStore) { s.hangs.Store(true) },
			ends: func(_ *testing.T, _ *fixture, s *sickStore) { s.hangs.Store(false); close(s.well) },
		}, {
			name: "does not write", used: true, ails: func(s *sickStore) { s.broken.Store(true) },
			ends: func(_ *testing.T, _ *fixture, s *sickStore) { s.broken.Store(false) },
		}, {
			name: "does not write, and no log opens", used: true, logs: 1, ails: func(s *sickStore) { s.shuts.Store(true) },
			ends: func(_ *testing.T, _ *fixture, s *sickStore) { s.shuts.Store(false) },
		}, {
			name: "dead", used: true, ails: func(s *sickStore) { s.kill() },
			ends: func(t *testing.T, f *fixture, s *sickStore) { s.start(t); f.Restarted("main") },
		}, {
			name: "dead, idle", ails: func(s *sickStore) { s.kill() },
			ends: func(t *testing.T, f *fixture, s *sickStore) { s.start(t); f.Restarted("main") },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &sickStore{restartable: newRestartable(t, memstore.Options{}), well: make(chan struct{})}
				cfg := testConfig()
				f := start(t, store.restartable, newCluster(t, topicRecords(testTopic, "orders", cmp.Or(c.logs, 2))...), cfg, func(d *Deps) {
					d.Directories[0].Store = store
				})
				f.mustProduce(part(0), "x")
				// offline asks as a heartbeat does, until it is as wanted, or for so long.
				offline := func(want bool, most time.Duration) (took time.Duration, ok bool) {
					begun := time.Now()
					for time.Since(begun) < most {
						if got := f.Offline(); slices.Contains(got, testDir) == want {
							return time.Since(begun), true
						}
						time.Sleep(200 * time.Millisecond) // of the bubble
					}
					return most, false
				}
				if _, is := offline(true, time.Minute); is {
					t.Fatal("a store that is idle is offline")
				}
				c.ails(store)
				answers := make(chan model.Appended, 1)
				if c.used {
					a := makeBatch(t, batch.Options{}, "y")
					a.Partition, a.Timeout = part(0), time.Hour
					f.Append(t.Context(), a, func(r model.Appended) { answers <- r })
				}
				took, is := offline(true, time.Minute)
				if least, most := cfg.DirectoryTimeout/2, 2*cfg.DirectoryTimeout; !is || took < least || took > most {
					t.Fatalf("offline %v after %v, want it after %v to %v", is, took, least, most)
				}
				if _, is := offline(false, 20*time.Second); is {
					t.Fatal("it serves, and does not")
				}
				c.ends(t, f, store)
				if took, is := offline(false, time.Minute); !is || took > cfg.DirectoryTimeout {
					t.Fatalf("serves %v after %v", is, took)
				}
				if c.used {
					if r := <-answers; r.Err != nil {
						t.Fatalf("what was under way: %v", r.Err)
					}
				}
				if took, is := offline(true, 20*time.Second); is {
					t.Fatalf("offline again after %v", took)
				}
				if err := f.stop(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestALogThatHangsIsNoStoreThatServes: the appends to one log are not answered, while those to
// another are, at once, or there are none, and the store answers all else.
func TestALogThatHangsIsNoStoreThatServes(t *testing.T) {
	t.Run("others are answered", func(t *testing.T) { testALogThatHangs(t, true) })
	t.Run("there are no others", func(t *testing.T) { testALogThatHangs(t, false) })
}

func testALogThatHangs(t *testing.T, others bool) {
	synctest.Test(t, func(t *testing.T) {
		store := &sickStore{restartable: newRestartable(t, memstore.Options{}), well: make(chan struct{})}
		cfg := testConfig()
		f := start(t, store.restartable, newCluster(t, topicRecords(testTopic, "orders", 2)...), cfg, func(d *Deps) {
			d.Directories[0].Store = store
		})
		f.mustProduce(part(0), "x")
		store.holds.Store(store.last.Load())
		answer := make(chan model.Appended, 1)
		a := makeBatch(t, batch.Options{}, "y")
		a.Partition, a.Timeout = part(0), time.Hour
		f.Append(t.Context(), a, func(r model.Appended) { answer <- r })
		const beat = 200 * time.Millisecond
		begun := time.Now()
		for !slices.Contains(f.Offline(), testDir) {
			if took := time.Since(begun); took > cfg.DirectoryTimeout+beat {
				t.Fatalf("not offline after %v", took)
			}
			if others {
				f.mustProduce(part(1), "z")
			}
			time.Sleep(beat) // of the bubble
		}
		if took := time.Since(begun); took <= cfg.DirectoryTimeout {
			t.Errorf("offline after %v", took)
		}
		store.holds.Store(0)
		close(store.well)
		if r := <-answer; r.Err != nil {
			t.Errorf("what was under way: %v", r.Err)
		}
		if dead := f.Offline(); len(dead) > 0 {
			t.Error("it serves again, and is offline")
		}
		if err := f.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// busyStore answers one append after the other, each a while after the last.
type busyStore struct {
	*restartable
	takes time.Duration
	mu    sync.Mutex
	free  time.Time // when it has answered what it has taken
}

func (s *busyStore) Append(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.free.Before(now) {
		s.free = now
	}
	s.free = s.free.Add(s.takes)
	time.AfterFunc(time.Until(s.free), func() { s.restartable.Append(ctx, req, done) })
}

// TestAStoreThatIsBehindServes: appends wait for longer than a store may do nothing, to one log
// or at many, and it answers all the time.
func TestAStoreThatIsBehindServes(t *testing.T) {
	for _, c := range []struct {
		name          string
		logs, appends int // of each
	}{
		{"one log", 1, 4},
		{"many logs", 50, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := testConfig()
				store := &busyStore{restartable: newRestartable(t, memstore.Options{})}
				f := start(t, store.restartable, newCluster(t, topicRecords(testTopic, "orders", c.logs)...), cfg, func(d *Deps) {
					d.Directories[0].Store = store
				})
				for i := range c.logs {
					f.mustProduce(part(int32(i)), "x")
				}
				all := c.logs * c.appends
				store.takes = 4 * cfg.DirectoryTimeout / time.Duration(all)
				answers := make(chan model.Appended, all)
				for range c.appends {
					for i := range c.logs {
						a := makeBatch(t, batch.Options{}, "y")
						a.Partition, a.Timeout = part(int32(i)), time.Hour
						f.Append(t.Context(), a, func(r model.Appended) { answers <- r })
						synctest.Wait() // so that each is a call of its own
					}
				}
				begun := time.Now()
				for len(answers) < all {
					if slices.Contains(f.Offline(), testDir) {
						t.Fatalf("offline after %v, with %d appends of %d answered", time.Since(begun), len(answers), all)
					}
					time.Sleep(50 * time.Millisecond) // of the bubble
				}
				if took := time.Since(begun); took < 2*cfg.DirectoryTimeout {
					t.Errorf("all were answered after %v: that is not slow", took)
				}
				for range all {
					if r := <-answers; r.Err != nil {
						t.Error(r.Err)
					}
				}
				if err := f.stop(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
