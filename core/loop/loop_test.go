package loop

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// recorder is a body that remembers what it was stepped with.
type recorder struct {
	bursts [][]int
	at     []time.Time
	due    time.Time
	until  int // done after this many inputs; 0: never
	seen   int
	block  chan struct{} // a step waits for it, once
	inside func()
}

func (r *recorder) Step(now time.Time, burst []int) {
	if r.block != nil && len(burst) > 0 {
		b := r.block
		r.block = nil
		<-b
	}
	r.bursts = append(r.bursts, slices.Clone(burst))
	r.at = append(r.at, now)
	r.seen += len(burst)
	if !r.due.IsZero() && !r.due.After(now) {
		r.due = time.Time{}
	}
	if r.inside != nil {
		r.inside()
	}
}

func (r *recorder) Deadline() (time.Time, bool) { return r.due, !r.due.IsZero() }
func (r *recorder) Done() bool                  { return r.until > 0 && r.seen >= r.until }

func TestBurstIsOneStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &recorder{until: 101, block: make(chan struct{})}
		block := body.block
		l := New[int](body, System{}, 0)
		ended := make(chan error, 1)
		go func() { ended <- l.Run(t.Context()) }()
		_ = l.Post(t.Context(), 0)
		synctest.Wait() // the loop is inside its first step
		for i := range 100 {
			if err := l.Post(t.Context(), i+1); err != nil {
				t.Fatal(err)
			}
		}
		close(block)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if len(body.bursts) < 2 || len(body.bursts[1]) != 100 {
			t.Fatalf("%d bursts", len(body.bursts))
		}
		if got := slices.Concat(body.bursts...); !slices.IsSorted(got) || len(got) != 101 {
			t.Fatalf("order: %v", got)
		}
	})
}

func TestFullMailboxWaitsAndCompletionsDoNot(t *testing.T) {
	l := New[int](&recorder{}, System{}, 2)
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 2 {
		if err := l.Post(ctx, i); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := l.Post(ctx, 2); !errors.Is(err, context.Canceled) {
		t.Fatalf("post to a full mailbox: %v", err)
	}
	for i := range 10 {
		if !l.Complete(10 + i) {
			t.Fatal("a completion was refused")
		}
	}
	l.Turn(time.Unix(0, 0))
	if err := l.Post(t.Context(), 3); err != nil || l.Pending() != 1 {
		t.Fatalf("post after a turn: %v, %d pending", err, l.Pending())
	}
}

func TestTimersFireAtTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		body := &recorder{due: begun.Add(time.Hour)}
		ctx, cancel := context.WithCancel(t.Context())
		body.inside = func() {
			if body.due.IsZero() {
				cancel()
			}
		}
		l := New[int](body, System{}, 0)
		if err := l.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if got := body.at[0].Sub(begun); got != time.Hour {
			t.Fatalf("stepped after %s", got)
		}
	})
}

// planner is a body whose deadline each input sets, in hours from the beginning.
type planner struct {
	begun time.Time
	due   time.Time
	fired []time.Duration
	end   func()
}

func (p *planner) Step(now time.Time, burst []int) {
	if !p.due.IsZero() && !p.due.After(now) {
		p.fired = append(p.fired, now.Sub(p.begun))
		p.due = time.Time{}
	}
	for _, hours := range burst {
		if hours == 0 {
			p.end()
			continue
		}
		p.due = p.begun.Add(time.Duration(hours) * time.Hour)
	}
}
func (p *planner) Deadline() (time.Time, bool) { return p.due, !p.due.IsZero() }
func (p *planner) Done() bool                  { return false }

// A deadline that moves on, or comes nearer, is met to the moment, whatever was set
// before.
func TestDeadlinesThatMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		body := &planner{begun: time.Now(), end: cancel}
		l := New[int](body, System{}, 0)
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		at := func(hour, due int) {
			time.Sleep(time.Until(body.begun.Add(time.Duration(hour) * time.Hour)))
			if err := l.Post(ctx, due); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		at(0, 10) // is put off
		at(1, 20) // comes nearer
		at(2, 5)
		at(6, 8)
		at(7, 9)
		at(30, 40)
		at(41, 0)
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if want := []time.Duration{5 * time.Hour, 9 * time.Hour, 40 * time.Hour}; !slices.Equal(body.fired, want) {
			t.Fatalf("met at %v, want %v", body.fired, want)
		}
	})
}

func TestNothingIsTakenAfterTheEnd(t *testing.T) {
	body := &recorder{until: 1}
	l := New[int](body, System{}, 4)
	_ = l.Post(t.Context(), 1)
	if err := l.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Post(t.Context(), 2); !errors.Is(err, ErrClosed) {
		t.Fatalf("post after the end: %v", err)
	}
	if l.Complete(3) {
		t.Fatal("a completion was taken after the end")
	}
}

func TestEveryInputTakenReachesTheBody(t *testing.T) {
	body := &recorder{}
	l := New[int](body, System{}, 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	var mu sync.Mutex
	taken := 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 1000 {
				if l.Post(context.Background(), i) == nil {
					mu.Lock()
					taken++
					mu.Unlock()
				}
				if i == 500 {
					cancel()
				}
			}
		})
	}
	wg.Wait()
	<-ended
	if body.seen != taken || taken == 0 {
		t.Fatalf("%d taken, %d reached the body", taken, body.seen)
	}
}

func TestTimersAgainstAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		timers := NewTimers[int]()
		model := map[int]time.Duration{}
		zero := time.Unix(0, 0)
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				k, d := rapid.IntRange(0, 9).Draw(t, "key"), time.Duration(rapid.IntRange(0, 100).Draw(t, "at"))
				timers.Set(k, zero.Add(d))
				model[k] = d
			},
			"cancel": func(t *rapid.T) {
				k := rapid.IntRange(0, 9).Draw(t, "key")
				timers.Cancel(k)
				delete(model, k)
			},
			"pop": func(t *rapid.T) {
				now := time.Duration(rapid.IntRange(0, 100).Draw(t, "now"))
				least, some := now+1, false
				for _, d := range model {
					if d <= now && d < least {
						least, some = d, true
					}
				}
				k, due := timers.Pop(zero.Add(now))
				if due != some || (due && model[k] != least) {
					t.Fatalf("popped %d at %s (%v), the earliest is %s (%v)", k, model[k], due, least, some)
				}
				if due {
					delete(model, k)
				}
			},
			"": func(t *rapid.T) {
				if timers.Len() != len(model) {
					t.Fatalf("%d timers, want %d", timers.Len(), len(model))
				}
			},
		})
	})
}

func TestTimersAtOneInstantFireInTheOrderOfSetting(t *testing.T) {
	timers := NewTimers[int]()
	at := time.Unix(1, 0)
	for _, k := range []int{3, 1, 2, 1} {
		timers.Set(k, at)
	}
	var got []int
	for k, due := timers.Pop(at); due; k, due = timers.Pop(at) {
		got = append(got, k)
	}
	if !slices.Equal(got, []int{3, 2, 1}) {
		t.Fatalf("order %v", got)
	}
}

// BenchmarkPost is one input through the mailbox.
func BenchmarkPost(b *testing.B) {
	l := New[int](discard{}, System{}, 0)
	ctx := context.Background()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_ = l.Post(ctx, i)
		if i%64 == 0 {
			l.Turn(time.Time{})
		}
	}
}

type discard struct{}

func (discard) Step(time.Time, []int)       {}
func (discard) Deadline() (time.Time, bool) { return time.Time{}, false }
func (discard) Done() bool                  { return false }

// locking is a body whose turn leaves a lock taken when it panics.
type locking struct{ lock chan struct{} }

func (b *locking) Step(_ time.Time, burst []int) {
	b.lock <- struct{}{}
	if len(burst) > 0 {
		panic("a broken invariant")
	}
	<-b.lock
}
func (b *locking) Deadline() (time.Time, bool) { return time.Time{}, false }
func (b *locking) Done() bool                  { return false }

// A body that has panicked is not stepped again: that might wait for good for what the
// panic left behind, and hide it.
func TestBrokenBodyIsNotSteppedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New[int](&locking{lock: make(chan struct{}, 1)}, System{}, 0)
		ended := make(chan any, 1)
		go func() {
			defer func() { ended <- recover() }()
			_ = l.Run(t.Context())
		}()
		l.Complete(1)
		if p := <-ended; p == nil {
			t.Error("Run ended without a panic")
		}
	})
}
