package load

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// together lets clients go at once when it is ready, and adds up what they did: one is
// the life of each. Where one fails, cut ends what each of them waits for.
func together[C any](
	ctx context.Context, clients []C, start func() error, cut func(C),
	one func(ctx context.Context, i int, c C, begun time.Time) (Result, error),
) (Result, error) {
	g, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() {
		for _, c := range clients {
			cut(c)
		}
	})
	defer stop()
	var (
		mu    sync.Mutex
		total Result
	)
	if err := ready(start); err != nil {
		return total, err
	}
	begun := time.Now()
	for i, c := range clients {
		g.Go(func() error {
			r, err := one(ctx, i, c, begun)
			mu.Lock()
			defer mu.Unlock()
			total.add(r)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return total, err
	}
	return total, total.done(begun)
}

func ready(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}
