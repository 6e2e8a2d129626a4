package logstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
)

// script runs a workload that touches every kind of operation, until the file
// system dies under it, and keeps what it was promised.
type script struct {
	s *running
	// scale is how many times larger batches and segments are than usual.
	scale int
	h     storage.Handle
	r     *rand.Rand

	epoch int32
	// batches that were handed to the store, in order; of those the first acked
	// were acknowledged, and the first durable survive a loss of power.
	batches [][]byte
	acked   int
	durable int
	start   int64
	// mayStart is a log start that was asked for and not confirmed.
	mayStart int64
	// cutTo is where a truncation that was not confirmed would have cut.
	cutTo int64
	// replaced: the range of a replacement that was not confirmed, or was.
	old, new  [][]byte // the whole log before and after
	unsettled bool
	blob      int64 // greatest offset of a blob that was stored
}

func (c *script) leo() int64 {
	if len(c.batches) == 0 {
		return 0
	}
	return end(c.batches[len(c.batches)-1])
}

func parse(b []byte) storage.BatchInfo {
	info, err := recordbatch.Parse(b)
	if err != nil {
		panic(err) // the test's own batch
	}
	return info
}

func end(b []byte) int64 { return parse(b).LastOffset + 1 }

// scaleOf makes the batches of every other seed so large that zeros are written
// ahead of them.
func scaleOf(seed uint64) int { return 1 + 31*int(seed%2) }

func (c *script) config(boot string) Config {
	cfg := testConfig(boot)
	cfg.Options.SegmentBytes *= int64(c.scale)
	return cfg
}

// run returns at the first error.
func (c *script) run() error {
	res := c.s.open(testID, c.epoch)
	if res.Err != nil {
		return res.Err
	}
	c.h = res.Handle
	steps := []func() error{
		c.append(3, storage.SurvivesProcess), c.append(2, storage.SurvivesMachine), c.append(4, storage.SurvivesProcess),
		c.flush, c.granted(3, storage.SurvivesMachine), c.granted(3, storage.SurvivesProcess),
		c.putBlob, c.append(3, storage.SurvivesProcess), c.newEpoch, c.granted(2, storage.SurvivesProcess),
		c.append(5, storage.SurvivesMachine), c.granted(4, storage.SurvivesMachine),
		c.truncate, c.append(3, storage.SurvivesProcess), c.trim, c.append(3, storage.SurvivesProcess),
		c.granted(2, storage.SurvivesProcess), c.newEpoch,
		c.replace, c.append(3, storage.SurvivesMachine), c.granted(3, storage.SurvivesProcess), c.retain, c.append(2, storage.SurvivesProcess),
		c.granted(5, storage.SurvivesProcess), c.reopen, c.append(3, storage.SurvivesProcess), c.granted(3, storage.SurvivesMachine),
		c.flush, c.append(1, storage.SurvivesProcess),
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (c *script) append(n int, require storage.Survives) func() error {
	return func() error {
		for range n {
			b := batch(c.leo(), 1+c.r.Int32N(3), c.epoch, c.scale*(50+c.r.IntN(200)), int64(1000+len(c.batches)))
			base := c.leo()
			c.batches = append(c.batches, b)
			res, err := c.s.append(request(c.h, base, require, b))
			if err != nil {
				return err
			}
			c.acked = len(c.batches)
			if require == storage.SurvivesMachine {
				c.durable = c.acked
			}
			for c.durable < c.acked && end(c.batches[c.durable]) <= res.Durable {
				c.durable++
			}
		}
		return nil
	}
}

// granted writes batches as a host does, as long as they fit, and tells of some of
// them at once, of some later, and of the last, by chance, never: the next step
// opens the log, or takes back the grant.
func (c *script) granted(n int, require storage.Survives) func() error {
	return func() error {
		host, err := newHost(c.s, c.h, c.epoch, require)
		if errors.Is(err, storage.ErrRetry) {
			return nil
		}
		if err != nil {
			return err
		}
		var untold []storage.AppendRequest
		tell := func() error {
			for _, req := range untold {
				res, err := c.s.append(req)
				if err != nil {
					return err
				}
				if require == storage.SurvivesMachine {
					c.acked++
					c.durable = c.acked
				}
				for c.durable < c.acked && end(c.batches[c.durable]) <= res.Durable {
					c.durable++
				}
			}
			untold = nil
			return nil
		}
		for range n {
			b := batch(c.leo(), 1+c.r.Int32N(3), c.epoch, c.scale*(50+c.r.IntN(200)), int64(1000+len(c.batches)))
			if !host.fits(b) {
				break
			}
			c.batches = append(c.batches, b)
			req, err := host.write(b)
			if err != nil {
				return err
			}
			untold = append(untold, req)
			if require != storage.SurvivesMachine {
				c.acked = len(c.batches)
			}
			if require == storage.SurvivesMachine || c.r.IntN(3) == 0 {
				if err := tell(); err != nil {
					return err
				}
			}
		}
		if c.r.IntN(2) == 0 {
			return c.newEpoch()
		}
		return tell()
	}
}

func (c *script) flush() error {
	res := c.s.Flush(context.Background(), []storage.Handle{c.h})[0]
	if res.Err == nil {
		c.durable = c.acked
	}
	return res.Err
}

func (c *script) newEpoch() error {
	c.epoch++
	res := c.s.open(testID, c.epoch)
	c.h = res.Handle
	return res.Err
}

func (c *script) truncate() error {
	keep := len(c.batches) - 4
	c.cutTo = end(c.batches[keep-1])
	all := c.batches
	if c.r.IntN(2) == 0 {
		// The log goes on in another file.
		if _, err := c.s.lease(context.Background(), c.h, c.cutTo); err != nil {
			return err
		}
	}
	c.acked, c.durable = keep, min(c.durable, keep)
	if _, err := c.s.Truncate(context.Background(), c.h, c.epoch, c.cutTo); err != nil {
		return err
	}
	c.batches = all[:keep:keep]
	c.cutTo = 0
	return nil
}

func (c *script) trim() error {
	c.mayStart = end(c.batches[2]) - 1
	start, err := c.s.Trim(context.Background(), c.h, c.mayStart)
	if err == nil {
		c.start = start
	}
	return err
}

// replace takes out every other batch of a range.
func (c *script) replace() error {
	req := storage.ReplaceRequest{Handle: c.h, From: parse(c.batches[4]).BaseOffset, To: end(c.batches[8])}
	var rest [][]byte
	rest = append(rest, c.batches[:4]...)
	for i := 4; i <= 8; i += 2 {
		b := c.batches[i]
		req.Batches = append(req.Batches, parse(b))
		req.Data = append(req.Data, b...)
		rest = append(rest, b)
	}
	rest = append(rest, c.batches[9:]...)
	durable := c.durable
	c.old, c.new, c.unsettled = c.batches, rest, true
	if err := c.s.Replace(context.Background(), req); err != nil {
		return err
	}
	c.unsettled = false
	gone := len(c.batches) - len(rest)
	c.batches, c.acked = rest, c.acked-gone
	if durable > 8 {
		c.durable = durable - gone
	} else {
		c.durable = min(durable, 4)
	}
	return nil
}

func (c *script) retain() error {
	c.mayStart = max(c.mayStart, c.leo()-3)
	res, err := c.s.Retain(context.Background(), c.h, storage.RetainPolicy{
		Ceiling: c.mayStart, Now: time.UnixMilli(2000), MaxBytes: int64(1200 * c.scale),
	})
	if err == nil {
		c.start = res.LogStart
	}
	return err
}

func (c *script) putBlob() error {
	c.blob = c.leo()
	return c.s.PutBlob(context.Background(), c.h, "state", storage.Blob{Offset: c.blob, Data: fmt.Append(nil, c.blob)})
}

func (c *script) reopen() error {
	if err := c.s.Close(context.Background(), []storage.Handle{c.h})[0]; err != nil {
		return err
	}
	c.durable = c.acked
	res := c.s.open(testID, c.epoch)
	c.h = res.Handle
	if res.Err == nil && (res.Verdict != storage.VerdictIntact || res.LEO != c.leo()) {
		return fmt.Errorf("after an orderly close: LEO %d, verdict %d", res.LEO, res.Verdict)
	}
	return res.Err
}

// check opens what the crash left and compares it with the promises.
func (c *script) check(fs vfs.FS, boot string, power bool) error {
	s, err := start(fs, c.config(boot))
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	defer s.stop()
	res := s.open(testID, c.epoch)
	if res.Err != nil {
		return fmt.Errorf("open the log: %w", res.Err)
	}
	if res.LogStart < c.start || res.LogStart > max(c.start, c.mayStart) {
		return fmt.Errorf("log start %d, not between %d and %d", res.LogStart, c.start, c.mayStart)
	}
	if res.LEO < res.LogStart || res.Durable > res.LEO {
		return fmt.Errorf("log start %d, durable %d, LEO %d", res.LogStart, res.Durable, res.LEO)
	}
	must := c.acked
	if power {
		must = c.durable
	}
	got, err := s.readAll(res.Handle, res.LogStart, res.LEO)
	if err != nil {
		return fmt.Errorf("read: %w (verdict %d, cut %q)", err, res.Verdict, res.Cut)
	}
	err = c.compare(got, c.batches, must, &res)
	if c.unsettled && err != nil {
		must -= len(c.old) - len(c.new)
		err = c.compare(got, c.new, max(must, 0), &res)
	}
	if err != nil {
		return fmt.Errorf("%w (verdict %d, cut %q)", err, res.Verdict, res.Cut)
	}
	if power && res.Verdict == storage.VerdictIntact && c.acked > must && c.cutTo == 0 && !c.unsettled {
		if err := c.compare(got, c.batches, c.acked, &res); err != nil {
			return fmt.Errorf("the verdict is intact, but %w", err)
		}
	}
	if !power && res.Verdict != storage.VerdictIntact {
		return fmt.Errorf("verdict %d after a kill (cut %q)", res.Verdict, res.Cut)
	}
	if b, found, err := s.GetBlob(context.Background(), res.Handle, "state"); err != nil || found && b.Offset > res.LEO {
		return fmt.Errorf("blob of %d at LEO %d: %w", b.Offset, res.LEO, err)
	}
	return goOn(s, &res, c.epoch)
}

// compare checks that got is a run of want: from the log start on, and at least
// as far as must.
func (c *script) compare(got, want [][]byte, must int, res *storage.OpenResult) error {
	for len(want) > 0 && end(want[0]) <= res.LogStart {
		want, must = want[1:], must-1
	}
	if len(got) < must {
		return fmt.Errorf("%d batches from %d on, of %d that were promised", len(got), res.LogStart, must)
	}
	if len(got) > len(want) {
		return fmt.Errorf("%d batches, but only %d were appended", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			return fmt.Errorf("batch %d from the log start is another one: offset %d, not %d", i, parse(got[i]).BaseOffset, parse(want[i]).BaseOffset)
		}
	}
	return nil
}

// goOn appends to the log after recovery, and opens it again cleanly.
func goOn(s *running, res *storage.OpenResult, epoch int32) error {
	b := batch(res.LEO, 2, epoch, 100, 5000)
	if _, err := s.append(request(res.Handle, res.LEO, storage.SurvivesMachine, b)); err != nil {
		return fmt.Errorf("append after recovery: %w", err)
	}
	if err := s.Close(context.Background(), []storage.Handle{res.Handle})[0]; err != nil {
		return fmt.Errorf("close after recovery: %w", err)
	}
	again := s.open(testID, epoch)
	if again.Err != nil || again.LEO != res.LEO+2 || again.LogStart != res.LogStart {
		return fmt.Errorf("after close: log %d to %d, not %d to %d: %w", again.LogStart, again.LEO, res.LogStart, res.LEO+2, again.Err)
	}
	got, err := s.readAll(again.Handle, res.LEO, again.LEO)
	if err != nil || len(got) != 1 || !bytes.Equal(got[0], b) {
		return fmt.Errorf("read after close: %d batches, %w", len(got), err)
	}
	return nil
}

var errCrash = errors.New("crash")

// crashAt makes changes fail from the n-th on.
func crashAt(n int64) (vfs.MemConfig, *atomic.Bool) {
	dead := new(atomic.Bool)
	return vfs.MemConfig{Before: func(op vfs.Op) error {
		if int64(op.N) >= n {
			dead.Store(true)
		}
		if dead.Load() {
			return errCrash
		}
		return nil
	}}, dead
}

// crashLater makes a file system refuse all changes once so many were made as are left,
// which are as good as endless at first.
func crashLater() (cfg vfs.MemConfig, left *atomic.Int64) {
	left = new(atomic.Int64)
	left.Store(1 << 40)
	return vfs.MemConfig{Before: func(vfs.Op) error {
		if left.Add(-1) < 0 {
			return errCrash
		}
		return nil
	}}, left
}

// At every change of the file system the process dies, or the power fails; what
// was acknowledged at its level is there, and the log goes on.
func TestCrashAtEveryChange(t *testing.T) {
	seeds := uint64(3)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		crashed := true
		for n := int64(1); crashed; n++ {
			cfg, dead := crashAt(n)
			fs := vfs.NewMem(cfg)
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			c := &script{r: r, epoch: 1, scale: scaleOf(seed)}
			s, err := start(fs, c.config("boot-1"))
			if err == nil {
				c.s = s
				err = c.run()
				dead.Store(true)
				s.stop()
			}
			crashed = err != nil
			if crashed && !dead.Load() {
				t.Fatalf("seed %d, change %d: %v", seed, n, err)
			}
			if err := c.check(fs.AfterKill(vfs.MemConfig{}), "boot-1", false); err != nil {
				t.Fatalf("seed %d, killed at change %d: %v", seed, n, err)
			}
			for range 3 {
				if err := c.check(fs.AfterPowerLoss(vfs.MemConfig{}, r), "boot-2", true); err != nil {
					t.Fatalf("seed %d, power lost at change %d: %v", seed, n, err)
				}
			}
			again := 1 + r.Int64N(12)
			cfg, dead = crashAt(again)
			fs = fs.AfterPowerLoss(cfg, r)
			recoverOnly(fs, "boot-2")
			dead.Store(true)
			if err := c.check(fs.AfterKill(vfs.MemConfig{}), "boot-2", true); err != nil {
				t.Fatalf("seed %d, power lost at change %d, killed at change %d of recovery: %v", seed, n, again, err)
			}
			if err := c.check(fs.AfterPowerLoss(vfs.MemConfig{}, r), "boot-3", true); err != nil {
				t.Fatalf("seed %d, power lost at change %d, again at change %d of recovery: %v", seed, n, again, err)
			}
		}
	}
}

// recoverOnly opens the log on a file system that may die under it.
func recoverOnly(fs vfs.FS, boot string) {
	s, err := start(fs, testConfig(boot))
	if err != nil {
		return
	}
	s.open(testID, 9) // its outcome is what the caller looks at
	s.stop()
}
