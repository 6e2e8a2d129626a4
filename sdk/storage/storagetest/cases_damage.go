package storagetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/brokerd/brokerd/sdk/storage"
)

func damageCases() []Case {
	needs := Abilities{Damage: true, Kill: true}
	return []Case{
		{Name: "damage-tail", About: "a damaged batch past the recovery point is cut with all that follows, which is told", Needs: needs, run: damageTail},
		{Name: "damage-torn", About: "a log whose last batch was written in part, down to one byte of its header, opens without it", Needs: needs, run: damageTorn},
		{Name: "damage-length", About: "a length field of nonsense past the recovery point is cut", Needs: needs, run: damageLength},
		{Name: "damage-durable", About: "damage below the recovery point is never cut: Open or the reads that meet it give ErrCorrupt", Needs: needs, run: damageDurable},
		{Name: "damage-shortened", About: "a log that ends below its recovery point is ErrCorrupt", Needs: needs, run: damageShortened},
		{Name: "damage-blob", About: "blobs ahead of what recovery left do not come back when the log grows", Needs: needs, run: damageBlob},
		{Name: "damage-derived", About: "indexes, caches and all that can be derived are rebuilt when missing or damaged",
			Needs: Abilities{Derived: true}, run: damageDerived},
	}
}

// prepare fills logs 0 to n-1, each with durable batches that are flushed and
// more that are not.
func (e *env) prepare(n, durable, more int) [][]made {
	held := make([][]made, n)
	for i := range n {
		r := e.log(i)
		held[i] = e.fill(r.Handle, 0, durable, 1)
		e.must(e.store.Flush(e.ctx, []storage.Handle{r.Handle})[0].Err, "flush")
		held[i] = append(held[i], e.fill(r.Handle, endOf(held[i], 0), more, 1)...)
	}
	return held
}

// checkCut checks that log i holds exactly the batches given, and goes on.
func (e *env) checkCut(i int, when string, kept []made, told bool) storage.OpenResult {
	r := e.log(i)
	e.checkOpened(r, when, 0, endOf(kept, 0), kept)
	if told && r.Cut == "" {
		e.failf("%s: recovery does not tell that it dropped something", when)
	}
	other := e.fill(r.Handle, r.LEO, 3, 1)
	e.checkLog(r.Handle, when+", appended", 0, endOf(other, 0), append(slices.Clone(kept), other...))
	return r
}

// crcCovered is where the bytes begin that a batch's CRC is computed over.
const crcCovered = 21

func damageTail(e *env) {
	const logs = 12
	held := e.prepare(logs, 4, 6)
	e.must(e.backing.Kill(e.ctx), "kill the store")
	var cut [logs]int
	for i := range logs {
		cut[i] = 4 + e.rng.IntN(6)
		victim := held[i][cut[i]].data
		at := crcCovered + e.rng.IntN(len(victim)-crcCovered)
		e.must(e.backing.Overwrite(e.ctx, logID(i), victim, at, []byte{victim[at] ^ 1<<e.rng.IntN(8)}), "damage")
	}
	e.openStore()
	for i := range logs {
		when := fmt.Sprintf("batch %d of 10 damaged, 4 of them durable", cut[i])
		r := e.checkCut(i, when, held[i][:cut[i]], true)
		if r.Verdict != storage.VerdictMayHaveLostSuffix {
			e.failf("%s: an acknowledged batch was cut and the verdict is %d", when, r.Verdict)
		}
	}
}

func damageTorn(e *env) {
	const logs = 70
	held := e.prepare(logs, 2, 3)
	e.must(e.backing.Kill(e.ctx), "kill the store")
	var keep [logs]int
	for i := range logs {
		victim := held[i][4].data
		keep[i] = i
		if i > 61 {
			keep[i] = min(61+e.rng.IntN(100), len(victim)-1)
		}
		if keep[i] >= len(victim) {
			keep[i] = len(victim) - 1
		}
		e.must(e.backing.Tear(e.ctx, logID(i), victim, keep[i]), "tear")
	}
	e.openStore()
	for i := range logs {
		e.checkCut(i, fmt.Sprintf("%d bytes of the last batch of 5 written, 2 of them durable", keep[i]), held[i][:4], keep[i] > 0)
	}
	e.restart()
	for i := range logs {
		if r := e.log(i); r.Verdict != storage.VerdictIntact {
			e.failf("after recovery and an orderly shutdown, the verdict of log %d is %d", i, r.Verdict)
		}
	}
}

func damageLength(e *env) {
	lengths := []int32{0, -1, 1<<31 - 1, -1 << 31, 1, 48, 49, 1 << 20, 1 << 30}
	held := e.prepare(len(lengths), 2, 3)
	e.must(e.backing.Kill(e.ctx), "kill the store")
	for i, length := range lengths {
		const lengthField, lengthEnd = 8, 12
		victim := held[i][3].data
		if int(length) == len(victim)-lengthEnd {
			length++ // it was no nonsense
		}
		field := binary.BigEndian.AppendUint32(nil, uint32(length))
		e.must(e.backing.Overwrite(e.ctx, logID(i), victim, lengthField, field), "damage")
	}
	e.openStore()
	for i, length := range lengths {
		e.checkCut(i, fmt.Sprintf("batch 3 of 5 with a length field of %d, 2 of them durable", length), held[i][:3], true)
	}
}

func damageDurable(e *env) {
	const logs = 8
	held := e.prepare(logs, 8, 2)
	e.must(e.backing.Kill(e.ctx), "kill the store")
	var victims [logs]int
	for i := 1; i < logs; i++ { // log 0 stays whole
		victims[i] = e.rng.IntN(8)
		victim := held[i][victims[i]].data
		at := crcCovered + e.rng.IntN(len(victim)-crcCovered)
		e.must(e.backing.Overwrite(e.ctx, logID(i), victim, at, []byte{victim[at] ^ 0x55}), "damage")
	}
	e.openStore()
	r := e.log(0)
	e.checkOpened(r, "beside damaged logs", 0, endOf(held[0], 0), held[0])
	for i := 1; i < logs; i++ {
		when := fmt.Sprintf("durable batch %d of 10 damaged", victims[i])
		r, err := e.tryOpen(storage.OpenSpec{ID: logID(i), LeaderEpoch: 1})
		if err != nil {
			e.wantClass(err, "open, "+when, storage.ErrCorrupt)
			continue
		}
		if r.LEO < held[i][7].end() {
			e.failf("%s: the log was durable up to %d and ends at %d", when, held[i][7].end(), r.LEO)
		}
		got, err := e.readAll(r.Handle, 0, r.LEO)
		e.wantClass(err, "read, "+when, storage.ErrCorrupt)
		if _, want := join(held[i][:victims[i]]); !slices.Equal(got, want[:min(len(got), len(want))]) || len(got) > len(want) {
			e.failf("%s: reads return %s before they meet the damage; want at most %s", when, describe(got), describe(want))
		}
	}
}

func damageShortened(e *env) {
	held := e.prepare(3, 6, 0)
	e.must(e.backing.Kill(e.ctx), "kill the store")
	for i := range 3 {
		e.must(e.backing.Tear(e.ctx, logID(i), held[i][3].data, i*20), "tear")
	}
	e.openStore()
	for i := range 3 {
		r, err := e.tryOpen(storage.OpenSpec{ID: logID(i), LeaderEpoch: 1})
		if err == nil && r.LEO >= endOf(held[i], 0) {
			_, err = e.readAll(r.Handle, 0, r.LEO)
		}
		e.wantClass(err, "open and read a log of 6 durable batches that was torn in the fourth", storage.ErrCorrupt)
	}
}

func damageBlob(e *env) {
	held := e.prepare(1, 2, 3)[0]
	leo := endOf(held, 0)
	r := e.log(0)
	e.put(r.Handle, "below", 1, []byte("below"))
	e.put(r.Handle, "at-end", leo, []byte("at the end"))
	e.must(e.backing.Kill(e.ctx), "kill the store")
	e.must(e.backing.Tear(e.ctx, logID(0), held[4].data, 5), "tear")
	e.openStore()
	r = e.logAt(0, 2)
	check := func(when string) {
		e.wantBlob(r.Handle, when, "below", 1, []byte("below"))
		e.wantBlob(r.Handle, when, "at-end", 0, nil)
	}
	check("the log's end was lost")
	e.fill(r.Handle, r.LEO, 10, 2)
	check("the log's end was lost, and others were appended")
	e.restart()
	r = e.logAt(0, 2)
	check("and after a restart")
}

func damageDerived(e *env) {
	for round := range 6 {
		_, b, base := e.stamped(round, 60)
		leo := endOf(b, 0)
		if round%2 == 0 || !e.target.Abilities().Kill {
			e.must(e.store.Shutdown(e.ctx), "shut down")
		} else {
			e.must(e.backing.Kill(e.ctx), "kill the store")
		}
		e.must(e.backing.DamageDerived(e.ctx, e.rng.Uint64()), "damage what is derived")
		e.openStore()
		r := e.log(round)
		h := r.Handle
		when := fmt.Sprintf("with what is derived damaged (%d)", round)
		e.checkOpened(r, when, 0, leo, b)
		for range 100 {
			e.must(e.tryTimestamp(b, 0, storage.TimestampQuery{Handle: h, Timestamp: base + e.rng.Int64N(leo+60), UpTo: leo}), when)
			e.must(e.tryRead(b, storage.ReadRequest{Handle: h, Offset: e.rng.Int64N(leo), UpTo: leo, MaxBytes: 700, AtLeastOne: true}), when)
		}
	}
}

func fullCases() []Case {
	needs := Abilities{Fill: true}
	return []Case{
		{Name: "full", About: "without room appends give ErrFull and do nothing, while reads, trims, retention, truncation and deletes work", Needs: needs, run: full},
		{Name: "full-frees", About: "retention and deletes free room, and appends go on", Needs: needs, run: fullFrees},
		{Name: "full-restart", About: "a full store opens, with everything that was acknowledged", Needs: needs, run: fullRestart},
	}
}

// fillUp appends to log n until the store is full, and returns what was
// acknowledged.
func (e *env) fillUp(n int) (storage.Handle, []made) {
	r := e.logWith(storage.OpenSpec{ID: logID(n), Label: "full", Create: true, LeaderEpoch: 1, Options: storage.LogOptions{SegmentBytes: 16 << 10}})
	var b []made
	e.must(e.backing.SetFree(e.ctx, 200<<10), "limit the room")
	for {
		m := makeBatch(e.rng, endOf(b, 0), 3, 1, e.start.Add(-2*time.Hour).UnixMilli(), 4000)
		_, err := e.tryAppend(request(r.Handle, 1, m.BaseOffset, m))
		if errors.Is(err, storage.ErrFull) {
			return r.Handle, b
		}
		e.must(err, "append to a store that is filling up")
		if b = append(b, m); len(b) > 10_000 {
			e.failf("a store with room for 200 KiB takes %d batches of 4000 bytes", len(b))
		}
	}
}

func full(e *env) {
	h, b := e.fillUp(0)
	leo := endOf(b, 0)
	if len(b) < 10 {
		e.failf("a store with room for 200 KiB is full after %d batches of 4000 bytes", len(b))
	}
	for range 3 {
		_, err := e.tryAppend(request(h, 1, leo, makeBatch(e.rng, leo, 3, 1, 0, 20_000)))
		e.wantClass(err, "append to a full store", storage.ErrFull)
	}
	e.checkLog(h, "in a full store", 0, leo, b)
	e.trim(h, b[2].BaseOffset, b[2].BaseOffset)
	b, _ = e.truncate(h, 1, b, 0, b[len(b)-2].BaseOffset)
	e.checkLog(h, "trimmed and truncated in a full store", b[2].BaseOffset, endOf(b, 0), b[2:])
	e.must(e.backing.SetFree(e.ctx, -1), "lift the limit")
	next := e.batch(endOf(b, 0), 2, 1)
	e.append(h, next.BaseOffset, next)
}

func fullFrees(e *env) {
	h, b := e.fillUp(0)
	leo := endOf(b, 0)
	result, err := e.store.Retain(e.ctx, h, storage.RetainPolicy{Ceiling: leo, Now: e.start, MaxBytes: 40 << 10})
	e.must(err, "retain in a full store")
	if result.FreedBytes < 64<<10 {
		e.failf("retention of 40 KiB in a full store of 200 KiB frees %d bytes", result.FreedBytes)
	}
	next := makeBatch(e.rng, leo, 3, 1, 0, 4000)
	e.appendWhenRoom(h, next)
	b = append(b, next)
	e.checkLog(h, "after room was freed", result.LogStart, next.end(), trimmed(b, result.LogStart))

	h, b = e.fillUp(1)
	e.must(e.store.Delete(e.ctx, logID(0)), "delete in a full store")
	e.appendWhenRoom(h, makeBatch(e.rng, endOf(b, 0), 3, 1, 0, 4000))
}

// appendWhenRoom appends a batch, for which room was freed that may take a
// moment to be had.
func (e *env) appendWhenRoom(h storage.Handle, m made) {
	const tries, pause = 100, 20 * time.Millisecond
	for range tries {
		_, err := e.tryAppend(request(h, 1, m.BaseOffset, m))
		if err == nil {
			return
		}
		e.wantClass(err, "append after room was freed", storage.ErrFull)
		select {
		case <-time.After(pause):
		case <-e.ctx.Done():
		}
	}
	e.failf("room was freed and appends give ErrFull still, after %v", tries*pause)
}

func fullRestart(e *env) {
	_, b := e.fillUp(0)
	e.restart()
	r := e.log(0)
	e.checkOpened(r, "a full store, after a restart", 0, endOf(b, 0), b)
	if e.target.Abilities().Kill {
		e.kill()
		r = e.log(0)
		e.checkOpened(r, "a full store, after a kill", 0, endOf(b, 0), b)
	}
	e.must(e.backing.SetFree(e.ctx, -1), "lift the limit")
	next := e.batch(endOf(b, 0), 2, 1)
	e.append(r.Handle, next.BaseOffset, next)
}
