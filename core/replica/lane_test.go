package replica

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

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/model"
)

// An append that comes alone is answered when Append returns: nobody was woken for it.
func TestAppendAloneIsDoneByWhoAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1)
		f.mustProduce(part(0), "first") // when the log is open
		for i := range 10 {
			synctest.Wait() // the shard, and its lane, wait for something to do
			time.Sleep(time.Millisecond)
			a := makeBatch(t, batch.Options{}, "v")
			a.Partition = part(0)
			var got model.Appended
			f.Append(t.Context(), a, func(r model.Appended) { got = r })
			if got.Err != nil || got.BaseOffset != int64(i+1) {
				t.Fatalf("append %d has %+v when Append returns", i, got)
			}
		}
	})
}

// Work runs in its order, one after the other, whoever does it; what is set aside is done
// with it.
func TestLaneIsHelped(t *testing.T) {
	q := newLaneQueue()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() { defer close(ended); q.run(ctx) }()
	const posters, each = 4, 2000
	var got [posters][]int
	var inside atomic.Bool
	var wg, work sync.WaitGroup
	work.Add(posters * each)
	for p := range posters {
		wg.Go(func() {
			for i := range each {
				q.put(func(context.Context) {
					defer work.Done()
					if !inside.CompareAndSwap(false, true) {
						t.Error("two at a time")
					}
					got[p] = append(got[p], i)
					inside.Store(false)
				}, i%2 == 0)
				if i%2 != 0 {
					q.help()
				}
			}
		})
	}
	wg.Wait()
	work.Wait()
	cancel()
	<-ended
	for p := range posters {
		if len(got[p]) != each || !slices.IsSorted(got[p]) {
			t.Errorf("poster %d: %d calls, in order: %v", p, len(got[p]), slices.IsSorted(got[p]))
		}
	}
}

// A helper runs work with the context of all work; the runner sleeps on, and ends.
func TestHelperRunsWithTheRunnersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newLaneQueue()
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, 7))
		ended := make(chan struct{})
		go func() { defer close(ended); q.run(ctx) }()
		synctest.Wait()
		ran := 0
		q.put(func(ctx context.Context) {
			ran, _ = ctx.Value(key{}).(int)
			cancel()
		}, false)
		q.help()
		if ran != 7 {
			t.Fatalf("ran with %d when help returned", ran)
		}
		<-ended
	})
}

// A call that panics ends the program, though whoever has made it recovers.
func TestPanicOfAHelperIsTheRunners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newLaneQueue()
		ended := make(chan any, 1)
		go func() {
			defer func() { ended <- recover() }()
			q.run(t.Context())
		}()
		synctest.Wait()
		q.put(func(context.Context) { panic(errors.New("a broken store")) }, false)
		q.help()
		if err, _ := (<-ended).(error); err == nil || !strings.Contains(err.Error(), "a broken store") {
			t.Fatalf("the runner ended with %v", err)
		}
	})
}
