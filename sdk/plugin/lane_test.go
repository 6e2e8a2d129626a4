package plugin_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/brokerd/brokerd/sdk/plugin"
	"github.com/brokerd/brokerd/sdk/plugin/plugintest"
	"github.com/brokerd/brokerd/sdk/storage"
)

// held is a store that keeps appends until it is told to complete them.
type held struct {
	storage.Store
	came chan struct{}

	mu      sync.Mutex
	waiting []heldAppend
	calls   []string
	bytes   int
}

type heldAppend struct {
	req  storage.AppendRequest
	done func(storage.AppendResult, error)
}

func newHeld() *held { return &held{came: make(chan struct{}, 10000)} }

func (h *held) Info() storage.Info { return storage.Info{Name: "held"} }

func (h *held) Open(context.Context, storage.Config) (storage.Store, storage.DirectoryID, error) {
	return heldStore{h}, storage.DirectoryID{}, nil
}

type heldStore struct{ *held }

func (heldStore) Open(_ context.Context, specs []storage.OpenSpec) []storage.OpenResult {
	out := make([]storage.OpenResult, len(specs))
	for i, s := range specs {
		out[i].Handle = storage.Handle(s.ID.Partition)
	}
	return out
}

func (heldStore) Capabilities() storage.Capabilities { return storage.Capabilities{} }

func (h heldStore) Append(_ context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
	h.mu.Lock()
	h.waiting = append(h.waiting, heldAppend{req, done})
	h.bytes += int(req.Bytes())
	h.mu.Unlock()
	h.came <- struct{}{}
}

func (h heldStore) Flush(_ context.Context, handles []storage.Handle) []storage.FlushResult {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, "flush")
	return make([]storage.FlushResult, len(handles))
}

func (h heldStore) Trim(_ context.Context, _ storage.Handle, to int64) (int64, error) {
	return to, nil
}

func (h heldStore) Usage(context.Context) (storage.Usage, error) { return storage.Usage{}, nil }

// wait returns when n more appends came.
func (h *held) wait(t *testing.T, n int) {
	t.Helper()
	limit := time.After(10 * time.Second)
	for range n {
		select {
		case <-h.came:
		case <-limit:
			t.Fatal("an append did not come")
		}
	}
}

// complete completes what waits on a handle.
func (h *held) complete(handle storage.Handle) {
	h.mu.Lock()
	var due, rest []heldAppend
	for _, a := range h.waiting {
		if a.req.Handle == handle {
			due = append(due, a)
		} else {
			rest = append(rest, a)
		}
	}
	h.waiting = rest
	h.mu.Unlock()
	for _, a := range due {
		a.done(storage.AppendResult{LEO: a.req.BaseOffset + 1}, nil)
	}
}

// eachCarrier runs a test over a gRPC stream and over the fast lane.
func eachCarrier(t *testing.T, test func(*testing.T, plugin.Carrier)) {
	for _, by := range []plugin.Carrier{plugin.CarrierGRPC, plugin.CarrierSocket} {
		t.Run(by.String(), func(t *testing.T) { test(t, by) })
	}
}

// connect opens a held store behind a lane.
func connect(t *testing.T, by plugin.Carrier) (*held, *plugin.Store) {
	t.Helper()
	h := newHeld()
	link, err := plugintest.Connect(h, by)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Break)
	s, _, err := link.Store(t.Context(), storage.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return h, s
}

// results gathers completions.
type results struct {
	mu   sync.Mutex
	errs map[int64]error
	seen []int64
	n    chan struct{}
}

func newResults() *results { return &results{errs: map[int64]error{}, n: make(chan struct{}, 10000)} }

func (r *results) append(ctx context.Context, t *testing.T, s storage.Store, h storage.Handle, base int64, bytes int) {
	s.Append(ctx, appendOf(h, base, bytes), func(_ storage.AppendResult, err error) {
		r.mu.Lock()
		if _, twice := r.errs[base]; twice {
			t.Errorf("append at %d completed twice", base)
		}
		r.errs[base] = err
		r.seen = append(r.seen, base)
		r.mu.Unlock()
		r.n <- struct{}{}
	})
}

// count is how many completed.
func (r *results) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

func (r *results) wait(t *testing.T, n int) {
	t.Helper()
	limit := time.After(10 * time.Second)
	for range n {
		select {
		case <-r.n:
		case <-limit:
			t.Fatal("an append did not complete")
		}
	}
}

func TestLogsDoNotWaitForEachOther(t *testing.T) { eachCarrier(t, testLogsDoNotWaitForEachOther) }

func testLogsDoNotWaitForEachOther(t *testing.T, by plugin.Carrier) {
	h, s := connect(t, by)
	slow, quick := newResults(), newResults()
	slow.append(t.Context(), t, s, 1, 0, 100)
	quick.append(t.Context(), t, s, 2, 0, 100)
	h.wait(t, 2)
	h.complete(2)
	quick.wait(t, 1)
	if slow.count() != 0 {
		t.Error("the other log's append completed")
	}
	h.complete(1)
	slow.wait(t, 1)
}

func TestFlushComesAfterAppendsInFlight(t *testing.T) {
	eachCarrier(t, testFlushComesAfterAppendsInFlight)
}

func testFlushComesAfterAppendsInFlight(t *testing.T, by plugin.Carrier) {
	h, s := connect(t, by)
	r := newResults()
	r.append(t.Context(), t, s, 1, 0, 100)
	h.wait(t, 1)
	flushed := make(chan storage.FlushResult, 1)
	go func() { flushed <- s.Flush(t.Context(), []storage.Handle{1})[0] }()
	if res := s.Flush(t.Context(), []storage.Handle{2})[0]; res.Err != nil { // another log's flush passes
		t.Fatal(res.Err)
	}
	select {
	case <-flushed:
		t.Error("flushed while an append was in flight")
	case <-time.After(20 * time.Millisecond):
	}
	h.complete(1)
	if res := <-flushed; res.Err != nil {
		t.Error(res.Err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	r.append(t.Context(), t, s, 1, 1, 100)
	h.wait(t, 1)
	if res := s.Flush(ctx, []storage.Handle{1})[0]; !errors.Is(res.Err, storage.ErrUnknown) {
		t.Errorf("a flush that waits too long: %v, want unknown", res.Err)
	}
}

// A trim that overtook appends in flight could empty the log that they are for.
func TestTrimComesAfterAppendsInFlight(t *testing.T) {
	eachCarrier(t, testTrimComesAfterAppendsInFlight)
}

func testTrimComesAfterAppendsInFlight(t *testing.T, by plugin.Carrier) {
	h, s := connect(t, by)
	r := newResults()
	r.append(t.Context(), t, s, 1, 0, 100)
	h.wait(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if start, err := s.Trim(ctx, 1, 1); !errors.Is(err, storage.ErrUnknown) {
		t.Errorf("trim with an append in flight: %d, %v; want unknown when its time is over", start, err)
	}
	h.complete(1)
	r.wait(t, 1)
	if start, err := s.Trim(t.Context(), 1, 1); err != nil || start != 1 {
		t.Errorf("trim: %d, %v", start, err)
	}
}

func TestExpiredAppendEndsThoseBehindIt(t *testing.T) {
	eachCarrier(t, testExpiredAppendEndsThoseBehindIt)
}

func testExpiredAppendEndsThoseBehindIt(t *testing.T, by plugin.Carrier) {
	h, s := connect(t, by)
	r, other := newResults(), newResults()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r.append(ctx, t, s, 1, 0, 100)
	for base := range int64(9) {
		r.append(t.Context(), t, s, 1, base+1, 100)
	}
	other.append(t.Context(), t, s, 2, 0, 100)
	h.wait(t, 11)
	r.wait(t, 10)
	for i, base := range r.seen {
		if int64(i) != base || !errors.Is(r.errs[base], storage.ErrUnknown) {
			t.Errorf("completion %d is of append %d: %v; want unknown, in order", i, base, r.errs[base])
		}
	}
	r.append(t.Context(), t, s, 1, 10, 100)
	r.wait(t, 1)
	if !errors.Is(r.errs[10], storage.ErrGone) {
		t.Errorf("append after it: %v, want gone", r.errs[10])
	}
	h.complete(1) // late answers, which nobody may see
	h.complete(2)
	other.wait(t, 1)
	if err := other.errs[0]; err != nil {
		t.Errorf("the other log's append: %v", err)
	}
	if n := r.count(); n != 11 {
		t.Errorf("%d completions", n)
	}
}

func TestCancelledAppendIsUnknown(t *testing.T) { eachCarrier(t, testCancelledAppendIsUnknown) }

func testCancelledAppendIsUnknown(t *testing.T, by plugin.Carrier) {
	h, s := connect(t, by)
	r := newResults()
	ctx, cancel := context.WithCancel(t.Context())
	r.append(ctx, t, s, 1, 0, 100)
	h.wait(t, 1)
	cancel()
	r.wait(t, 1)
	if !errors.Is(r.errs[0], storage.ErrUnknown) || !errors.Is(r.errs[0], context.Canceled) {
		t.Errorf("%v, want unknown by cancellation", r.errs[0])
	}
}

// What is in flight is bounded in number and in bytes; a caller waits no longer
// than its context, and then nothing was done.
func TestWindowIsBounded(t *testing.T) { eachCarrier(t, testWindowIsBounded) }

func testWindowIsBounded(t *testing.T, by plugin.Carrier) {
	for name, c := range map[string]struct{ bytes, fit int }{
		"in number": {100, 640},
		"in bytes":  {8 << 20, 8},
	} {
		t.Run(name, func(t *testing.T) {
			h, s := connect(t, by)
			r := newResults()
			for base := range int64(c.fit) {
				r.append(t.Context(), t, s, storage.Handle(base+1), base, c.bytes)
			}
			h.wait(t, c.fit)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			defer cancel()
			above := newResults()
			above.append(ctx, t, s, 999, 0, c.bytes)
			above.wait(t, 1)
			if err := above.errs[0]; !errors.Is(err, storage.ErrRetry) {
				t.Errorf("above the window: %v, want retry", err)
			}
			h.complete(1)
			above.append(t.Context(), t, s, 999, 1, c.bytes)
			h.wait(t, 1)
			h.complete(999)
			above.wait(t, 1)
			if err := above.errs[1]; err != nil {
				t.Errorf("with room again: %v", err)
			}
		})
	}
}

func TestBrokenLaneEndsEverything(t *testing.T) { eachCarrier(t, testBrokenLaneEndsEverything) }

func testBrokenLaneEndsEverything(t *testing.T, by plugin.Carrier) {
	h := newHeld()
	link, err := plugintest.Connect(h, by)
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := link.Store(t.Context(), storage.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := newResults()
	for base := range int64(100) {
		r.append(t.Context(), t, s, storage.Handle(base%7+1), base, 5000)
	}
	h.wait(t, 100)
	link.Break()
	r.wait(t, 100)
	for base, err := range r.errs {
		if !errors.Is(err, storage.ErrUnknown) {
			t.Errorf("append %d: %v, want unknown", base, err)
		}
	}
	if _, err := s.Usage(t.Context()); !errors.Is(err, storage.ErrGone) {
		t.Errorf("usage: %v, want gone", err)
	}
	if _, err := s.Read(t.Context(), storage.ReadRequest{Handle: 1}); !errors.Is(err, storage.ErrGone) {
		t.Errorf("read: %v, want gone", err)
	}
	r.append(t.Context(), t, s, 1, 1000, 100)
	r.wait(t, 1)
	if !errors.Is(r.errs[1000], storage.ErrGone) {
		t.Errorf("append: %v, want gone", r.errs[1000])
	}
	for n := range storage.Handle(7) {
		h.complete(n + 1) // to nobody
	}
}
