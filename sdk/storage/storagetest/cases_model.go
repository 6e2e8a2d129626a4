package storagetest

import (
	"fmt"
	"slices"

	"github.com/brokerd/brokerd/sdk/storage"
)

func modelCases() []Case {
	return []Case{
		{Name: "model", About: "a random sequence of calls, with restarts, gives what a model of the contract gives",
			run: func(e *env) { e.runModel(endRestart) }},
		{Name: "model-kill", About: "with kills in between under load, everything acknowledged is there, byte for byte, and nothing twice",
			Needs: Abilities{Kill: true}, run: func(e *env) { e.runModel(endKill) }},
		{Name: "model-power", About: "with losses of power in between, everything durable is there and the log stays a prefix",
			Needs: Abilities{LosePower: true}, run: func(e *env) { e.runModel(endPower) }},
	}
}

// ending is how a store's life ends in a run of the model.
type ending int

const (
	endRestart ending = iota
	endKill
	endPower
)

// The size of a run: lives of the store, calls in each, logs.
const (
	modelLives = 6
	modelCalls = 60
	modelLogs  = 3
)

// model is what one log must hold.
type model struct {
	n       int
	handle  storage.Handle
	epoch   int32
	start   int64
	leo     int64
	durable int64 // known to survive loss of power
	batches []made
	blobs   map[string]storage.Blob
	lent    []*borrowed // leases that are held
}

func (e *env) runModel(end ending) {
	logs := make([]*model, modelLogs)
	for i := range logs {
		logs[i] = &model{n: i, epoch: 1, blobs: map[string]storage.Blob{}}
	}
	for range modelLives {
		for _, m := range logs {
			m.open(e, "at the beginning of a life")
		}
		for range modelCalls {
			logs[e.rng.IntN(len(logs))].call(e)
		}
		switch end {
		case endRestart:
			for _, m := range logs {
				m.check(e, "at the end of a life")
				m.durable = m.leo
			}
			e.must(e.store.Shutdown(e.ctx), "shut the store down")
			endAll(e, logs)
			e.openStore()
		case endKill:
			flights := make([][]made, len(logs))
			var acks []func() int
			for i, m := range logs {
				flights[i] = e.batches(m.leo, 30, m.epoch)
				acks = append(acks, m.launch(e, flights[i]))
			}
			e.must(e.backing.Kill(e.ctx), "kill the store")
			endAll(e, logs)
			acked := make([]int, len(logs))
			for i := range logs {
				acked[i] = acks[i]()
			}
			e.openStore()
			for i, m := range logs {
				m.adopt(e, flights[i], acked[i])
			}
		case endPower:
			e.must(e.backing.LosePower(e.ctx, e.rng.Uint64()), "lose power")
			for _, m := range logs {
				e.endLeases(m.lent) // what they were of may be lost
				m.lent = nil
			}
			e.openStore()
			for _, m := range logs {
				m.lost(e)
			}
		}
	}
	for _, m := range logs {
		m.open(e, "at the end")
	}
}

// endAll ends the leases of a store that has ended, none of which has changed.
func endAll(e *env, logs []*model) {
	for _, m := range logs {
		e.unchanged("at the end of a life", m.lent)
		e.endLeases(m.lent)
		m.lent = nil
	}
}

// launch has batches under way, and returns how many of them are known to survive
// a kill.
func (m *model) launch(e *env, list []made) func() int {
	if e.store.Capabilities().Grants && e.rng.IntN(2) == 0 {
		g := m.host(e)
		written := 0
		if err := g.tryGrant(); err != nil {
			e.wantClass(err, "ask for a grant", storage.ErrRetry)
		}
		for ; written < len(list) && g.fits(list[written]); written++ {
			if req := g.write(list[written]); written < 10 {
				e.begin(req)
			}
		}
		g.drop()
		return func() int { return written }
	}
	pending := e.launch(m.handle, list, e.rng.IntN(20))
	return func() int { return acknowledged(pending) }
}

// host is a host of the log as it is now.
func (m *model) host(e *env) *host {
	return e.host(storage.OpenResult{Handle: m.handle, LEO: m.leo}, m.epoch)
}

// open opens the log and checks it.
func (m *model) open(e *env, when string) {
	r := e.logWith(storage.OpenSpec{
		ID: logID(m.n), Label: "model", Create: true, LeaderEpoch: m.epoch,
		Options: storage.LogOptions{SegmentBytes: 4096, IndexIntervalBytes: 512},
	})
	if r.LogStart != m.start || r.LEO != m.leo {
		e.failf("log %d %s opens with offsets %d to %d; the model has %d to %d", m.n, when, r.LogStart, r.LEO, m.start, m.leo)
	}
	m.handle = r.Handle
	m.check(e, when)
}

// check compares the open log with the model.
func (m *model) check(e *env, when string) {
	when = fmt.Sprintf("log %d %s", m.n, when)
	e.checkLog(m.handle, when, m.start, m.leo, trimmed(m.batches, m.start))
	for name, blob := range m.blobs {
		e.wantBlob(m.handle, when, name, blob.Offset, blob.Data)
	}
}

// adopt takes over what a kill left of appends in flight.
func (m *model) adopt(e *env, flights []made, acked int) {
	r := e.logWith(storage.OpenSpec{ID: logID(m.n), Label: "model", LeaderEpoch: m.epoch})
	kept := countBelow(flights, r.LEO)
	if kept < acked {
		e.failf("log %d: %d appends in flight were acknowledged before a kill, and the LEO is %d, with %d of them", m.n, acked, r.LEO, kept)
	}
	m.batches = slices.Concat(m.batches, flights[:kept])
	m.leo = endOf(flights[:kept], m.leo)
}

// lost takes over what loss of power left.
func (m *model) lost(e *env) {
	r := e.logWith(storage.OpenSpec{ID: logID(m.n), Label: "model", Create: true, LeaderEpoch: m.epoch})
	if r.LEO < m.durable {
		e.failf("log %d: durable up to %d, and after power loss the LEO is %d", m.n, m.durable, r.LEO)
	}
	if r.LEO < m.leo && r.Verdict != storage.VerdictMayHaveLostSuffix {
		e.failf("log %d: it ended at %d, ends at %d after power loss, and the verdict is %d", m.n, m.leo, r.LEO, r.Verdict)
	}
	m.batches = slices.Clip(m.batches[:countBelow(m.batches, r.LEO)])
	m.leo = min(m.leo, r.LEO)
	m.dropBlobs()
}

func (m *model) dropBlobs() {
	for name, blob := range m.blobs {
		if blob.Offset > m.leo {
			m.blobs[name] = storage.Blob{}
		}
	}
}

// call makes one random call.
func (m *model) call(e *env) {
	switch n := e.rng.IntN(100); {
	case n < 35:
		m.append(e)
	case n < 42:
		m.repeat(e)
	case n < 48:
		m.wrongAppend(e)
	case n < 62:
		m.look(e)
	case n < 67:
		e.must(e.store.Flush(e.ctx, []storage.Handle{m.handle})[0].Err, "flush")
		m.durable = m.leo
	case n < 73:
		m.truncate(e)
	case n < 78:
		m.trim(e)
	case n < 82:
		m.retain(e)
	case n < 88:
		m.replace(e)
	case n < 94:
		m.blob(e)
	case n < 98:
		m.epoch += e.rng.Int32N(3)
		m.open(e, "opened again")
	default:
		e.must(e.store.Close(e.ctx, []storage.Handle{m.handle})[0], "close")
		m.durable = m.leo
		m.open(e, "closed and opened again")
	}
}

func (m *model) append(e *env) {
	for range 1 + e.rng.IntN(4) {
		base := m.leo
		if e.rng.IntN(10) == 0 {
			base += e.rng.Int64N(5) // a gap
		}
		b := e.batches(base, 1+e.rng.IntN(3), m.epoch)
		if e.store.Capabilities().Grants && e.rng.IntN(3) == 0 {
			m.host(e).grantedOnce(b)
		} else {
			e.append(m.handle, m.leo, b...)
		}
		m.batches, m.leo = append(m.batches, b...), endOf(b, base)
	}
}

// grantedOnce appends the batches under a grant of their own, if there is one.
func (g *host) grantedOnce(list []made) {
	defer g.drop()
	g.granted(list...)
}

// repeat appends what is there already, if anything is.
func (m *model) repeat(e *env) {
	held := m.whole()
	if len(held) == 0 {
		return
	}
	first := e.rng.IntN(len(held))
	last := min(first+1+e.rng.IntN(3), len(held))
	_, err := e.tryAppend(request(m.handle, m.epoch, held[first].BaseOffset, held[first:last]...))
	e.must(err, fmt.Sprintf("repeat the append at %d", held[first].BaseOffset))
}

// whole returns the batches that are wholly at or above the log start.
func (m *model) whole() []made {
	held := trimmed(m.batches, m.start)
	if len(held) > 0 && held[0].BaseOffset < m.start {
		held = held[1:]
	}
	return held
}

func (m *model) wrongAppend(e *env) {
	switch e.rng.IntN(3) {
	case 0:
		base := m.leo + 1 + e.rng.Int64N(10)
		e.refuse("append above the LEO", request(m.handle, m.epoch, base, e.batch(base, 2, m.epoch)))
	case 1:
		bad := e.batch(m.leo, 2, m.epoch)
		bad.data[crcCovered+e.rng.IntN(len(bad.data)-crcCovered)] ^= 1 << e.rng.IntN(8)
		e.refuse("append a damaged batch", request(m.handle, m.epoch, m.leo, bad))
	case 2:
		_, err := e.tryAppend(request(m.handle, m.epoch-1, m.leo, e.batch(m.leo, 2, m.epoch-1)))
		e.wantClass(err, "append with a lower leader epoch", storage.ErrFenced)
	}
}

// look reads, scans and searches somewhere.
func (m *model) look(e *env) {
	held := trimmed(m.batches, m.start)
	offset := m.start + e.rng.Int64N(m.leo-m.start+1)
	upTo := m.start + e.rng.Int64N(m.leo-m.start+3)
	e.must(e.tryRead(held, storage.ReadRequest{
		Handle: m.handle, Offset: offset, UpTo: upTo, MaxBytes: e.rng.IntN(2000), AtLeastOne: e.rng.IntN(2) == 0,
	}), "read")
	e.must(e.tryScan(held, storage.ScanRequest{Handle: m.handle, Offset: offset, UpTo: upTo, MaxBatches: e.rng.IntN(9)}), "scan")
	e.must(e.tryTimestamp(held, m.start, storage.TimestampQuery{
		Handle:    m.handle,
		Kind:      storage.TimestampKind(e.rng.IntN(2)),
		Timestamp: e.start.UnixMilli() - 1_000_000 + offset - 3 + e.rng.Int64N(7),
		UpTo:      upTo,
	}), "search by time")
	if e.store.Capabilities().Leases && offset < m.leo {
		if lent := e.borrow(m.handle, held, offset); lent != nil {
			m.lent = append(m.lent, lent)
		}
	}
	if n := len(m.lent); n > 5 {
		e.unchanged("in the model", m.lent)
		e.giveBack(m.lent[:3]...)
		m.lent = slices.Clone(m.lent[3:])
	}
}

func (m *model) truncate(e *env) {
	to := m.start + e.rng.Int64N(m.leo-m.start+1)
	if e.rng.IntN(2) == 0 {
		to = max(m.start, m.leo-e.rng.Int64N(10))
	}
	if to == m.leo {
		return
	}
	m.batches, m.leo = e.truncate(m.handle, m.epoch, m.batches, m.start, to)
	m.durable = min(m.durable, m.leo)
	m.dropBlobs()
}

func (m *model) trim(e *env) {
	to := m.start + e.rng.Int64N((m.leo-m.start)/3+1)
	if e.rng.IntN(20) == 0 {
		to = m.leo + e.rng.Int64N(50)
	}
	e.trim(m.handle, to, to)
	m.start, m.leo, m.durable = to, max(m.leo, to), max(m.durable, to)
	m.batches = slices.Clone(trimmed(m.batches, to))
}

func (m *model) retain(e *env) {
	_, all := join(m.batches)
	policy := storage.RetainPolicy{
		Ceiling:  m.start + e.rng.Int64N(m.leo-m.start+1),
		Now:      e.start,
		MaxBytes: int64(len(all)) / 2,
	}
	result, err := e.store.Retain(e.ctx, m.handle, policy)
	e.must(err, "retain")
	if result.LogStart < m.start || result.LogStart > policy.Ceiling && result.LogStart != m.start {
		e.failf("retaining %+v moves the log start from %d to %d", policy, m.start, result.LogStart)
	}
	m.start = result.LogStart
	m.durable = max(m.durable, m.start)
	m.batches = slices.Clone(trimmed(m.batches, m.start))
}

func (m *model) replace(e *env) {
	held := m.whole()
	if len(held) < 2 {
		return
	}
	skip := len(m.batches) - len(held)
	first := e.rng.IntN(len(held) - 1)
	last := first + 1 + e.rng.IntN(len(held)-first-1)
	m.batches = e.replaceSome(m.handle, m.batches, skip+first, skip+last)
}

func (m *model) blob(e *env) {
	name := fmt.Sprintf("blob-%d", e.rng.IntN(4))
	if e.rng.IntN(4) == 0 {
		e.put(m.handle, name, 0, nil)
		m.blobs[name] = storage.Blob{}
		return
	}
	blob := storage.Blob{Offset: m.leo - e.rng.Int64N(m.leo/4+1), Data: randomBytes(e.rng, 1+e.rng.IntN(300))}
	e.put(m.handle, name, blob.Offset, blob.Data)
	m.blobs[name] = blob
}
