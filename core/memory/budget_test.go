package memory_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/brokerd/brokerd/core/memory"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTryAcquire(t *testing.T) {
	b := memory.New(10)
	for _, step := range []struct {
		n    int64
		want bool
		used int64
	}{{6, true, 6}, {5, false, 6}, {4, true, 10}, {1, false, 10}, {0, true, 10}} {
		if got := b.TryAcquire(step.n); got != step.want || b.Used() != step.used {
			t.Fatalf("TryAcquire(%d) = %v with %d used, want %v with %d", step.n, got, b.Used(), step.want, step.used)
		}
	}
	b.Release(10)
	if b.Used() != 0 || b.Total() != 10 {
		t.Fatalf("used %d of %d after all was released", b.Used(), b.Total())
	}
}

func TestTooMuch(t *testing.T) {
	b := memory.New(10)
	if err := b.Acquire(context.Background(), 11); !errors.Is(err, memory.ErrTooMuch) {
		t.Fatalf("Acquire(11) of 10: %v", err)
	}
	if b.Used() != 0 {
		t.Fatalf("used %d", b.Used())
	}
}

func TestReleaseTooMuchPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("releasing what was never acquired went unnoticed")
		}
	}()
	memory.New(10).Release(1)
}

// A great request at the head of the line is not passed by small ones.
func TestFIFO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(10)
		ctx := t.Context()
		must(t, b.Acquire(ctx, 6))
		var order []int64
		var mu sync.Mutex
		for _, n := range []int64{10, 1, 2} {
			go func() {
				must(t, b.Acquire(ctx, n))
				mu.Lock()
				order = append(order, n)
				mu.Unlock()
			}()
			synctest.Wait()
		}
		if b.TryAcquire(1) {
			t.Fatal("TryAcquire passed by those who wait")
		}
		b.Release(6)
		synctest.Wait()
		b.Release(10)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(order) != 3 || order[0] != 10 {
			t.Fatalf("granted in the order %v", order)
		}
		if b.Used() != 3 {
			t.Fatalf("used %d", b.Used())
		}
	})
}

// Whoever gives up lets those behind go on.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(10)
		must(t, b.Acquire(t.Context(), 6))
		gaveUp, cancel := context.WithCancel(t.Context())
		failed, granted := make(chan error, 1), make(chan error, 1)
		go func() { failed <- b.Acquire(gaveUp, 9) }()
		synctest.Wait()
		go func() { granted <- b.Acquire(t.Context(), 4) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Fatalf("the one who gave up got %v", err)
		}
		select {
		case err := <-granted:
			must(t, err)
		default:
			t.Fatal("the one behind still waits")
		}
		if b.Used() != 10 {
			t.Fatalf("used %d", b.Used())
		}
	})
}

// Many who come, wait, give up and go: never above the total, nothing left.
func TestNeverAboveTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(1, 50).Draw(t, "total")
		wants := rapid.SliceOfN(rapid.Int64Range(0, 60), 1, 40).Draw(t, "wants")
		b := memory.New(total)
		var held atomic.Int64
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		for i, n := range wants {
			wg.Go(func() {
				mine := ctx
				if i%3 == 0 {
					var stop context.CancelFunc
					mine, stop = context.WithCancel(ctx)
					go stop()
				}
				if b.Acquire(mine, n) != nil {
					return
				}
				if got := held.Add(n); got > total {
					t.Errorf("%d bytes held of %d", got, total)
				}
				held.Add(-n)
				b.Release(n)
			})
		}
		wg.Wait()
		cancel()
		if b.Used() != 0 {
			t.Fatalf("%d bytes left", b.Used())
		}
		if !b.TryAcquire(total) {
			t.Fatal("a waiter was left in line")
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func BenchmarkAcquireRelease(b *testing.B) {
	budget := memory.New(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		if budget.Acquire(b.Context(), 100) == nil {
			budget.Release(100)
		}
	}
}
