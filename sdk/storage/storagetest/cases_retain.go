package storagetest

import (
	"fmt"
	"time"

	"github.com/brokerd/brokerd/sdk/storage"
)

// retainUnit is the segment size that the retention cases ask for.
const retainUnit = 4096

func retainCases() []Case {
	return []Case{
		{Name: "retain-age", About: "units whose newest record is older than MaxAge go, the oldest first, and no other", run: retainAge},
		{Name: "retain-size", About: "the oldest units go while the rest still has MaxBytes", run: retainSize},
		{Name: "retain-ceiling", About: "nothing at or above the ceiling goes", run: retainCeiling},
		{Name: "retain-stops", About: "retention stops at the first unit that stays, and without limits drops nothing", run: retainStops},
		{Name: "retain-future", About: "units stamped in the future, or not at all, are judged by the time at which they were written", run: retainFuture},
		{Name: "retain-once", About: "one pass drops all that is due, also behind a trim; the second drops nothing", run: retainOnce},
		{Name: "retain-segment-age", About: "SegmentAge bounds the time that a unit spans, and an opening applies new options", run: retainSegmentAge},
		{Name: "retain-kill", About: "what retention dropped does not come back after a kill", Needs: Abilities{Kill: true}, run: retainKill},
	}
}

// aged fills log n with count batches of about 400 bytes, in units of
// retainUnit bytes, each stamped as told by its number.
func (e *env) aged(n, count int, stamp func(i int) time.Time) (storage.Handle, []made) {
	r := e.logWith(storage.OpenSpec{
		ID: logID(n), Label: "aged", Create: true, LeaderEpoch: 1,
		Options: storage.LogOptions{SegmentBytes: retainUnit},
	})
	var b []made
	for i := range count {
		m := makeBatch(e.rng, endOf(b, 0), 2, 1, stamp(i).UnixMilli(), 300+e.rng.IntN(100))
		e.append(r.Handle, m.BaseOffset, m)
		b = append(b, m)
	}
	return r.Handle, b
}

// retain applies the policy, checks the log that is left, and returns how many
// batches went.
func (e *env) retain(h storage.Handle, b []made, when string, policy storage.RetainPolicy) (storage.RetainResult, int) {
	result, err := e.store.Retain(e.ctx, h, policy)
	e.must(err, when)
	leo := endOf(b, 0)
	left := trimmed(b, result.LogStart)
	if result.LogStart > policy.Ceiling && result.LogStart > 0 {
		e.failf("%s: the log starts at %d, above the ceiling %d", when, result.LogStart, policy.Ceiling)
	}
	e.checkLog(h, when, result.LogStart, leo, left)
	_, data := join(left)
	if result.LogBytes < int64(len(data)) {
		e.failf("%s: %d bytes are left of a log with %d bytes of batches", when, result.LogBytes, len(data))
	}
	return result, len(b) - len(left)
}

// batchesPerUnit bounds how many of aged's batches one unit can hold.
const batchesPerUnit = retainUnit/300 + 1

func retainAge(e *env) {
	// 100 batches, of which 60 are two hours old.
	h, b := e.aged(0, 100, func(i int) time.Time {
		if i < 60 {
			return e.start.Add(-2 * time.Hour)
		}
		return e.start.Add(-time.Minute)
	})
	policy := storage.RetainPolicy{Ceiling: endOf(b, 0), Now: e.start, MaxAge: 3 * time.Hour, MaxBytes: -1}
	if result, gone := e.retain(h, b, "retain 3 hours of records of 2", policy); gone != 0 || result.FreedBytes != 0 {
		e.failf("%d batches of 2 hours go when 3 hours are to stay (%d bytes)", gone, result.FreedBytes)
	}
	policy.MaxAge = time.Hour
	result, gone := e.retain(h, b, "retain 1 hour of records of 2", policy)
	if gone > 60 {
		e.failf("%d batches go of which 60 are too old", gone)
	}
	if gone < 60-batchesPerUnit {
		e.failf("%d batches go of 60 that are too old, in units of %d bytes", gone, retainUnit)
	}
	if result.FreedBytes <= 0 {
		e.failf("%d batches went and %d bytes were freed", gone, result.FreedBytes)
	}
	e.restart()
	e.checkOpened(e.log(0), "after retention and a restart", result.LogStart, endOf(b, 0), trimmed(b, result.LogStart))

	h, b = e.aged(1, 30, func(int) time.Time { return e.start.Add(-time.Hour) })
	result, _ = e.retain(h, b, "retain a minute of records of an hour", storage.RetainPolicy{
		Ceiling: endOf(b, 0), Now: e.start, MaxAge: time.Minute, MaxBytes: -1})
	next := e.batch(endOf(b, 0), 2, 1)
	e.append(h, next.BaseOffset, next)
	b = append(b, next)
	e.checkLog(h, "appended after all was too old", result.LogStart, next.end(), trimmed(b, result.LogStart))
}

func retainSize(e *env) {
	h, b := e.aged(0, 100, func(int) time.Time { return e.start })
	leo := endOf(b, 0)
	_, all := join(b)
	total := int64(len(all))
	policy := storage.RetainPolicy{Ceiling: leo, Now: e.start, MaxBytes: 4 * total}
	if _, gone := e.retain(h, b, "retain more than there is", policy); gone != 0 {
		e.failf("%d batches go from a log that is smaller than its limit", gone)
	}
	policy.MaxBytes = total / 2
	result, gone := e.retain(h, b, "retain half", policy)
	_, left := join(b[gone:])
	// A store may count what it keeps beside the batches, a little.
	if int64(len(left)) < policy.MaxBytes*8/10 {
		e.failf("%d bytes of batches are left of %d, with a limit of %d", len(left), total, policy.MaxBytes)
	}
	if int64(len(left)) > policy.MaxBytes+2*retainUnit {
		e.failf("%d bytes of batches are left of %d, with a limit of %d and units of %d", len(left), total, policy.MaxBytes, retainUnit)
	}
	if result.FreedBytes <= 0 {
		e.failf("%d batches went and %d bytes were freed", gone, result.FreedBytes)
	}
}

func retainCeiling(e *env) {
	h, b := e.aged(0, 100, func(int) time.Time { return e.start.Add(-time.Hour) })
	for _, ceiling := range []int64{0, 1, b[13].BaseOffset, b[40].LastOffset, b[70].BaseOffset} {
		policy := storage.RetainPolicy{Ceiling: ceiling, Now: e.start, MaxAge: time.Minute}
		result, gone := e.retain(h, b, fmt.Sprintf("retain nothing below the ceiling %d", ceiling), policy)
		if result.LogStart > ceiling || gone > countBelow(b, ceiling) {
			e.failf("%d batches go and the log starts at %d, with a ceiling of %d", gone, result.LogStart, ceiling)
		}
		if gone < countBelow(b, ceiling)-batchesPerUnit {
			e.failf("%d batches go of %d below the ceiling", gone, countBelow(b, ceiling))
		}
	}
}

func retainStops(e *env) {
	// Old records behind young ones stay.
	h, b := e.aged(0, 100, func(i int) time.Time {
		if i >= 20 && i < 60 {
			return e.start
		}
		return e.start.Add(-2 * time.Hour)
	})
	policy := storage.RetainPolicy{Ceiling: endOf(b, 0), Now: e.start, MaxBytes: -1}
	if _, gone := e.retain(h, b, "retain without limits", policy); gone != 0 {
		e.failf("%d batches go without a limit", gone)
	}
	policy.MaxAge = time.Hour
	result, gone := e.retain(h, b, "retain old records behind young ones", policy)
	if gone > 20 {
		e.failf("%d batches go; the first young one is number 20", gone)
	}
	if result.OldestAge < 0 || result.OldestAge > time.Hour {
		e.failf("the oldest unit left is %v old by its newest record, and was to go after an hour", result.OldestAge)
	}
}

func retainFuture(e *env) {
	for n, c := range []struct {
		what  string
		stamp time.Time
	}{
		{"stamped in 20 years", e.start.AddDate(20, 0, 0)},
		{"stamped a day ahead", e.start.Add(24 * time.Hour)},
		{"without a timestamp", time.UnixMilli(-1)},
	} {
		h, b := e.aged(n, 60, func(i int) time.Time {
			if i%10 == 3 || c.stamp.UnixMilli() < 0 {
				return c.stamp
			}
			return e.start.Add(-time.Minute)
		})
		policy := storage.RetainPolicy{Ceiling: endOf(b, 0), Now: time.Now().Add(time.Second), MaxAge: 30 * time.Minute, MaxBytes: -1}
		if _, gone := e.retain(h, b, "retain 30 minutes of records just written, "+c.what, policy); gone != 0 {
			e.failf("%d batches %s, just written, go after 30 minutes", gone, c.what)
		}
		policy.Now = e.start.Add(2 * time.Hour)
		result, gone := e.retain(h, b, "retain 30 minutes of records written 2 hours ago, "+c.what, policy)
		if gone < len(b)-batchesPerUnit {
			e.failf("only %d batches of %d, written 2 hours ago and %s, go after 30 minutes", gone, len(b), c.what)
		}
		// What has no timestamp is judged alike, and nobody's clock is wrong.
		if future := c.stamp.UnixMilli() >= 0; future != (result.FutureStamps > 0) {
			e.failf("batches %s: FutureStamps is %d", c.what, result.FutureStamps)
		}
	}
}

func retainOnce(e *env) {
	h, b := e.aged(0, 100, func(i int) time.Time {
		if i < 70 {
			return e.start.Add(-2 * time.Hour)
		}
		return e.start
	})
	start := b[35].LastOffset // inside a batch, in the midst of what is too old
	e.trim(h, start, start)
	_, all := join(b)
	policy := storage.RetainPolicy{Ceiling: endOf(b, 0), Now: e.start, MaxAge: time.Hour, MaxBytes: int64(len(all)) / 2}
	first, gone := e.retain(h, b, "retain behind a trim", policy)
	if gone < 70-batchesPerUnit {
		e.failf("the first pass after a trim drops %d batches of 70 that are too old", gone)
	}
	for range 2 {
		again, _ := e.retain(h, b, "retain again", policy)
		if again.LogStart != first.LogStart || again.FreedBytes != 0 {
			e.failf("a second pass moves the log start from %d to %d and frees %d bytes", first.LogStart, again.LogStart, again.FreedBytes)
		}
	}
}

func retainSegmentAge(e *env) {
	// A batch a minute, for three hours, in a log that is small.
	spec := storage.OpenSpec{ID: logID(0), Label: "aged", Create: true, LeaderEpoch: 1}
	h := e.logWith(spec).Handle
	var b []made
	for i := range 180 {
		if i == 60 { // the first hour may be one unit, the others not
			spec.Options = storage.LogOptions{SegmentAge: 10 * time.Minute}
			h = e.logWith(spec).Handle
		}
		m := e.batchAt(endOf(b, 0), 1, 1, e.start.Add(time.Duration(i-180)*time.Minute).UnixMilli())
		e.append(h, m.BaseOffset, m)
		b = append(b, m)
	}
	policy := storage.RetainPolicy{Ceiling: endOf(b, 0), Now: e.start, MaxAge: time.Hour, MaxBytes: -1}
	_, gone := e.retain(h, b, "retain an hour of three, in units of 10 minutes", policy)
	if gone > 120 || gone < 120-12 {
		e.failf("%d batches go of 120 that are too old, one a minute, in units of 10 minutes", gone)
	}
}

func retainKill(e *env) {
	h, b := e.aged(0, 60, func(i int) time.Time { return e.start.Add(time.Duration(i-60) * time.Minute) })
	for _, age := range []time.Duration{45 * time.Minute, 30 * time.Minute, 10 * time.Minute} {
		result, _ := e.retain(h, b, "retain", storage.RetainPolicy{Ceiling: endOf(b, 0), Now: e.start, MaxAge: age, MaxBytes: -1})
		e.kill()
		r := e.log(0)
		e.checkOpened(r, "after retention and a kill", result.LogStart, endOf(b, 0), trimmed(b, result.LogStart))
		h = r.Handle
	}
}
