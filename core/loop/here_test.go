package loop

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Who posts to a loop that has waited for a while has stepped its body when the post
// returns; who posts sooner leaves it to the loop.
func TestPostHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &recorder{}
		l := New[int](body, System{}, 0)
		body.inside = func() {
			if len(body.bursts) == 1 != l.Here() {
				t.Errorf("turn %d: %v", len(body.bursts), l.Here())
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		synctest.Wait()
		time.Sleep(loneMin)
		if here, err := l.PostHere(ctx, 1); !here || err != nil || len(body.bursts) != 1 {
			t.Fatalf("%v, %v, %d turns", here, err, len(body.bursts))
		}
		if here, err := l.PostHere(ctx, 2); here || err != nil {
			t.Fatalf("at once again: %v, %v", here, err)
		}
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if want := [][]int{{1}, {2}}; !slices.EqualFunc(body.bursts[:2], want, slices.Equal) {
			t.Fatalf("%v, want %v at first", body.bursts, want)
		}
	})
}

// What arrives during a turn that another has taken, and a deadline that such a turn
// sets, are the loop's to see to.
func TestTurnsHereLeaveTheRestToTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		body := &recorder{until: 4}
		l := New[int](body, System{}, 0)
		ended := make(chan error, 1)
		go func() { ended <- l.Run(t.Context()) }()
		synctest.Wait()
		body.inside = func() {
			switch len(body.bursts) {
			case 1:
				l.Complete(2)
			case 2:
				if l.Here() {
					t.Error("the second turn is not the loop's")
				}
			case 3:
				if !l.Here() {
					t.Error("the third turn is the loop's")
				}
				body.due = begun.Add(time.Hour)
			case 4:
				if got := time.Since(begun); got != time.Hour {
					t.Errorf("stepped after %s", got)
				}
				l.Complete(9)
			}
		}
		l.CompleteHere(1)
		synctest.Wait()
		l.CompleteHere(3)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

// A loop whose body has finished in a turn that another has taken ends.
func TestTurnHereMayBeTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New[int](&recorder{until: 1}, System{}, 0)
		ended := make(chan error, 1)
		go func() { ended <- l.Run(t.Context()) }()
		synctest.Wait()
		l.CompleteHere(1)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

// A body that panics ends the program, though whoever has stepped it recovers.
func TestPanicHereIsRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &recorder{}
		body.inside = func() {
			if len(body.bursts) == 1 {
				panic("a broken invariant")
			}
		}
		l := New[int](body, System{}, 0)
		ended := make(chan any, 1)
		go func() {
			defer func() { ended <- recover() }()
			_ = l.Run(t.Context())
		}()
		synctest.Wait()
		l.CompleteHere(1)
		if err, _ := (<-ended).(error); err == nil || !strings.Contains(err.Error(), "a broken invariant") {
			t.Fatalf("Run ended with %v", err)
		}
	})
}

// alone is a body that notices when two step it.
type alone struct {
	inside atomic.Bool
	seen   int
	twice  bool
}

func (a *alone) Step(_ time.Time, burst []int) {
	a.twice = a.twice || !a.inside.CompareAndSwap(false, true)
	a.seen += len(burst)
	a.inside.Store(false)
}
func (a *alone) Deadline() (time.Time, bool) { return time.Time{}, false }
func (a *alone) Done() bool                  { return false }

// Whoever steps the body, it is one at a time, and everything that is taken reaches it,
// also while the loop ends.
func TestTurnsHereAreOneAtATime(t *testing.T) {
	body := &alone{}
	l := New[int](body, System{}, 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	var taken atomic.Int64
	var wg sync.WaitGroup
	for who := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				switch who % 4 {
				case 0:
					if l.CompleteHere(i) {
						taken.Add(1)
					}
				case 1:
					if l.Post(context.Background(), i) == nil {
						taken.Add(1)
					}
				default:
					if _, err := l.PostHere(context.Background(), i); err == nil {
						taken.Add(1)
					}
				}
				if i == 1500 {
					cancel()
				}
			}
		})
	}
	wg.Wait()
	<-ended
	if body.twice || body.seen != int(taken.Load()) || body.seen == 0 {
		t.Fatalf("%d taken, %d reached the body; two at a time: %v", taken.Load(), body.seen, body.twice)
	}
}
