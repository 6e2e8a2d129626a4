package replica

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// warnings keeps lines of Warn and above.
type warnings struct {
	mu    sync.Mutex
	lines []string
}

func (w *warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (w *warnings) WithAttrs([]slog.Attr) slog.Handler           { return w }
func (w *warnings) WithGroup(string) slog.Handler                { return w }
func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += fmt.Sprint(" ", a); return true })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line)
	return nil
}

func (w *warnings) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.lines, "\n")
}

// take forgets what was logged, and counts it.
func (w *warnings) take() (lines int, text string) {
	text = w.text()
	w.mu.Lock()
	defer w.mu.Unlock()
	lines, w.lines = len(w.lines), nil
	return lines, text
}

// census knows which logs are open in the process that runs now, and how many
// openings went on side by side.
type census struct {
	*restartable
	mu      sync.Mutex
	open    map[storage.Handle]bool
	opening int
	most    int
	slow    time.Duration // an opening takes so long
}

func (c *census) Open(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult {
	c.mu.Lock()
	c.opening += len(specs)
	c.most = max(c.most, c.opening)
	c.mu.Unlock()
	if c.slow > 0 {
		timer := time.NewTimer(c.slow)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	out := c.restartable.Open(ctx, specs)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opening -= len(specs)
	for _, r := range out {
		if r.Err == nil {
			c.open[r.Handle] = true
		}
	}
	return out
}

// Close refuses handles of an earlier process, as a plugin's proxy does.
func (c *census) Close(ctx context.Context, hs []storage.Handle) []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	errs := make([]error, len(hs))
	for i, h := range hs {
		if !c.open[h] {
			errs[i] = storage.Errorf(storage.ErrGone, "its process has ended")
			continue
		}
		delete(c.open, h)
		errs[i] = c.restartable.Close(ctx, []storage.Handle{h})[0]
	}
	return errs
}

// die kills the process, and its handles with it.
func (c *census) die() {
	c.kill()
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.open)
	c.most = 0
}

func (c *census) opened() (n, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open), c.most
}

// idle runs f with a manager whose many logs are all open, and of which none is
// used.
func idle(t *testing.T, partitions int, f func(*testing.T, *fixture, *census, *warnings)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &census{restartable: newRestartable(t, memstore.Options{}), open: map[storage.Handle]bool{}}
		log := &warnings{}
		fx := start(t, c.restartable, newCluster(t, topicRecords(testTopic, "orders", partitions)...), testConfig(), func(d *Deps) {
			d.Directories[0].Store = c
			d.Logger = slog.New(log)
		})
		for i := range int32(partitions) {
			fx.mustProduce(part(i), "x")
		}
		synctest.Wait() // what the start has to do is done
		f(t, fx, c, log)
		if err := fx.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestIdleLogsAreOpenedAgainWhenTheirStoreRestarts: nobody asks for them, and
// they are opened a few at a time; the stop that follows closes all of them.
func TestIdleLogsAreOpenedAgainWhenTheirStoreRestarts(t *testing.T) {
	const partitions = 300
	idle(t, partitions, func(t *testing.T, f *fixture, c *census, log *warnings) {
		c.die()
		c.start(t)
		c.slow = time.Second
		f.Restarted("another")
		f.mustProduce(part(7), "y") // it finds out by itself, and is not opened twice
		synctest.Wait()
		if n, _ := c.opened(); n != 1 {
			t.Fatalf("%d logs are open, and nobody was told", n)
		}
		f.Restarted("main")
		time.Sleep(time.Minute)
		n, most := c.opened()
		if n < partitions || most > 64 { // 32 for each shard
			t.Errorf("%d of %d logs are open, up to %d were being opened side by side", n, partitions, most)
		}
		for i := range int32(partitions) {
			if r, err := f.find(part(i)); err != nil || r.view.Load().Status != partition.StatusServing {
				t.Errorf("partition %d does not serve", i)
			}
		}
		c.slow = 0
		if lines, text := log.take(); lines > 2+4*f.cfg.Shards {
			t.Errorf("%d lines:\n%s", lines, text)
		}
		if err := f.stop(); err != nil {
			t.Error(err)
		}
		if lines, text := log.take(); lines > 0 {
			t.Errorf("the stop says:\n%s", text)
		}
	})
}

// TestAStopClosesLogsWhoseProcessHasEnded: the store is back, and their handles
// are not.
func TestAStopClosesLogsWhoseProcessHasEnded(t *testing.T) {
	idle(t, 100, func(t *testing.T, f *fixture, c *census, log *warnings) {
		c.die()
		c.start(t)
		if err := f.stop(); err != nil {
			t.Error(err)
		}
		if open, most := c.opened(); open != 0 || most == 0 {
			t.Errorf("%d logs are left open, %d were opened to be closed", open, most)
		}
		if lines, text := log.take(); lines > 0 {
			t.Errorf("the stop says:\n%s", text)
		}
	})
}

// TestAStopWithoutItsStoreSaysSoOnce: nothing can be closed, at once or at all.
func TestAStopWithoutItsStoreSaysSoOnce(t *testing.T) {
	for _, slow := range []time.Duration{0, time.Hour} {
		idle(t, 100, func(t *testing.T, f *fixture, c *census, log *warnings) {
			c.die()
			c.slow = slow
			begun := time.Now()
			if err := f.stop(); err != nil {
				t.Error(err)
			}
			if took := time.Since(begun); took >= f.cfg.ShutdownTimeout {
				t.Errorf("it took %s", took)
			}
			if lines, text := log.take(); lines != 1 || !strings.Contains(text, "directory=main") || !strings.Contains(text, "logs=100") {
				t.Errorf("%d lines:\n%s", lines, text)
			}
			c.start(t)
		})
	}
}

// TestADeadStoreDoesNotFillTheLog: every partition meets it, again and again.
func TestADeadStoreDoesNotFillTheLog(t *testing.T) {
	const partitions = 200
	idle(t, partitions, func(t *testing.T, f *fixture, c *census, log *warnings) {
		c.die()
		for i := range int32(partitions) {
			a := makeBatch(t, batch.Options{}, "y")
			a.Partition, a.Timeout = part(i), time.Second
			f.Append(t.Context(), a, func(model.Appended) {})
		}
		time.Sleep(35 * time.Second)
		lines, text := log.take()
		if lines > 12*f.cfg.Shards {
			t.Errorf("%d lines in 35 s", lines)
		}
		seen := 0
		for line := range strings.Lines(text) {
			var n, times int
			if at := strings.Index(line, "partitions="); strings.HasPrefix(line, aboutCalls) && at >= 0 {
				if _, err := fmt.Sscanf(line[at:], "partitions=%d times=%d", &n, &times); err == nil && times >= n {
					seen = max(seen, n)
				}
			}
		}
		if seen < partitions/f.cfg.Shards/2 {
			t.Errorf("at most %d partitions in one line:\n%s", seen, text)
		}
		c.start(t)
		f.Restarted("main")
		synctest.Wait()
		if r := f.mustProduce(part(0), "z"); r.BaseOffset < 1 {
			t.Errorf("afterwards: %+v", r)
		}
	})
}
