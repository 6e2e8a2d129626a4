package partition

import (
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// opening is what is known between OpenLog and serving.
type opening struct {
	leo      int64
	scanFrom int64 // the next header to look at
	checked  int   // appends under way that were found in the log
	opened   Opened
	ready    bool // Opened has come
}

// openAnew fences whatever is under way and opens the log, because the leader
// epoch or the log's settings are new.
func (m *Machine) openAnew(out *Effects) {
	m.fence(out)
	m.fruitless = 0
	m.openLog(out)
}

// fence turns away from what is under way through the present opening.
func (m *Machine) fence(out *Effects) {
	m.failTrims(out, fmt.Errorf("the log is being opened again: %w", model.ErrStorage))
	m.dropCopies(out)
	m.endSession()
	m.flushing, m.flushHeld, m.seeks = false, false, false
	m.retaining, m.retainHeld, m.snapshotting = false, false, false
	m.opening, m.drain = opening{}, drain{}
	m.gen++
}

// reopen fences and opens the log after a fault, at once the first time and
// later and later while the store does nothing that it is asked.
func (m *Machine) reopen(now time.Time, out *Effects, why string) {
	m.fence(out)
	out.Notices = append(out.Notices, Notice{Kind: NoticeReopening, From: m.stored, To: m.next, Text: why})
	if m.fruitless > 0 {
		m.state = stateBackoff
		out.setTimer(TimerBackoff, now.Add(m.backoff(m.fruitless)))
		m.fruitless++
		return
	}
	m.fruitless++
	m.openLog(out)
}

func (m *Machine) openLog(out *Effects) {
	m.state = stateOpening
	out.Open = &OpenLog{Gen: m.gen, Epoch: m.epoch}
}

// backoff is how long to wait before the n-th repetition.
func (m *Machine) backoff(n int) time.Duration {
	d := m.limits.BackoffMin
	for ; n > 1 && d < m.limits.BackoffMax; n-- {
		d *= 2
	}
	return min(d, m.limits.BackoffMax)
}

// openFailed goes on, or offline, by what the fault promises.
func (m *Machine) openFailed(now time.Time, out *Effects, fault Fault, err error) {
	switch fault {
	case FaultRetry, FaultUnknown, FaultGone, FaultFull:
		m.gen++
		m.state = stateBackoff
		m.opening = opening{}
		m.why = fmt.Errorf("open the log: %w", causeOf(fault, err))
		out.setTimer(TimerBackoff, now.Add(m.backoff(m.fruitless)))
		m.fruitless++
		out.Notices = append(out.Notices, Notice{Kind: NoticeFailed, Err: err, Text: "open the log"})
	default:
		m.goOffline(out, fmt.Errorf("open the log: %w", causeOf(fault, err)))
	}
}

// causeOf never is nil.
func causeOf(fault Fault, err error) error {
	if err == nil {
		return fmt.Errorf("the store reports %s", fault)
	}
	return err
}

// opened takes the state of the log and looks at what it does not say: the
// producers, or, when those are known, what became of the appends under way.
func (m *Machine) opened(now time.Time, in *Opened, out *Effects) {
	if in.Gen != m.gen || m.state != stateOpening || m.opening.ready {
		return
	}
	if in.Fault != FaultNone {
		m.openFailed(now, out, in.Fault, in.Err)
		return
	}
	if n := len(in.Epochs); n > 0 && in.Epochs[n-1].Epoch > m.epoch {
		m.goOffline(out, fmt.Errorf("the log holds leader epoch %d, this one is %d", in.Epochs[n-1].Epoch, m.epoch))
		return
	}
	if m.fellBack(in.LEO) {
		m.lost(in, out)
		if m.state == stateOffline {
			return
		}
	} else {
		m.whole.lacks = false
		if !m.known && m.whole.among {
			m.owes(in.LEO)
		}
	}
	m.opening = opening{leo: in.LEO, opened: *in, ready: true}
	m.opening.opened.LogStart = min(in.LogStart, in.LEO)
	if m.known {
		m.opening.scanFrom = m.stored
	} else {
		m.opening.scanFrom = m.restoreProducers(now, in)
	}
	m.scanOrFinish(now, out)
}

// restoreProducers reads the snapshot and returns from where the log is to be
// scanned. A snapshot that ends before the log begins is not believed: between
// the two, batches have been trimmed that it does not know, and a producer that
// is not known at all is served better than one whose last batches are missing.
func (m *Machine) restoreProducers(now time.Time, in *Opened) int64 {
	m.producers.reset()
	m.snapshotOffset, m.snapshotSafe = -1, -1
	if !in.SnapshotPresent || in.SnapshotOffset > in.LEO || in.SnapshotOffset < in.LogStart {
		return in.LogStart
	}
	if err := decodeProducers(m.producers, now, in.Snapshot); err != nil {
		return in.LogStart // it is derived, and rebuilt from the log
	}
	m.snapshotOffset, m.snapshotSafe = in.SnapshotOffset, in.SnapshotOffset
	return in.SnapshotOffset
}

func (m *Machine) scanOrFinish(now time.Time, out *Effects) {
	if m.opening.scanFrom >= m.opening.leo {
		m.finishOpening(now, out)
		return
	}
	out.Scan = &Scan{Gen: m.gen, From: m.opening.scanFrom, UpTo: m.opening.leo, Max: m.limits.ScanBatches}
}

// scanned takes headers, until the end.
func (m *Machine) scanned(now time.Time, in *Scanned, out *Effects) {
	if in.Gen == m.gen && m.seeks {
		m.sought(now, in, out)
		return
	}
	if in.Gen != m.gen || m.state != stateOpening || !m.opening.ready {
		return
	}
	if in.Fault == FaultCorrupt && !m.known {
		m.producersUnknown(now, in, out)
		return
	}
	if in.Fault != FaultNone {
		m.openFailed(now, out, in.Fault, in.Err)
		return
	}
	for i := range in.Batches {
		b := &in.Batches[i]
		if b.LastOffset < m.opening.scanFrom {
			continue
		}
		if m.known && !m.unsettled {
			if !m.isOurs(b) {
				m.goOffline(out, fmt.Errorf("%w: at offset %d", errForeign, b.BaseOffset))
				return
			}
			m.opening.checked++
		} else {
			m.producers.replay(now, b)
			m.sinceSnapshot++
		}
		m.opening.scanFrom = b.LastOffset + 1
	}
	if len(in.Batches) == 0 {
		m.opening.scanFrom = m.opening.leo // the rest is a gap
	}
	m.scanOrFinish(now, out)
}

// producersUnknown goes on without producers, because the log that would tell of
// them is damaged: what can be read is served, and a producer that is not known
// is served better than one whose last batches are missing.
func (m *Machine) producersUnknown(now time.Time, in *Scanned, out *Effects) {
	m.producers.reset()
	m.snapshotOffset, m.snapshotSafe = -1, -1
	out.Notices = append(out.Notices, Notice{
		Kind: NoticeFailed, Err: causeOf(in.Fault, in.Err), From: m.opening.scanFrom, To: m.opening.leo,
		Text: "look for producers in a damaged log; repeats of what they sent before this start are not recognised",
	})
	m.damagedAt(m.opening.scanFrom)
	m.opening.scanFrom = m.opening.leo
	m.finishOpening(now, out)
}

// isOurs reports whether a batch of the log is the next append under way.
func (m *Machine) isOurs(b *recordbatch.Info) bool {
	if m.opening.checked >= m.inflight.len() {
		return false
	}
	e := &m.inflight.at(m.opening.checked).batch
	return e.BaseOffset == b.BaseOffset && e.LastOffset == b.LastOffset && e.Bytes == b.Bytes &&
		e.ProducerID == b.ProducerID && e.ProducerEpoch == b.ProducerEpoch && e.BaseSequence == b.BaseSequence &&
		e.MaxTimestamp == b.MaxTimestamp && e.Records == b.Records
}

// finishOpening settles what was under way and begins to serve.
func (m *Machine) finishOpening(now time.Time, out *Effects) {
	in := &m.opening.opened
	switch {
	case m.known && m.unsettled:
		m.stored, m.next = in.LEO, in.LEO
		m.durable = max(m.durable, min(in.Durable, in.LEO))
	case m.known:
		if !m.settleInflight(in.LEO, out) {
			return
		}
		m.durable = max(m.durable, min(in.Durable, in.LEO))
	default:
		m.logStart, m.stored, m.next = in.LogStart, in.LEO, in.LEO
		m.durable = min(in.Durable, in.LEO)
		m.hw = min(m.hw, in.LEO)
		m.producers.adopt(m.early)
		m.early = nil
	}
	m.unsettled = false
	m.logStart, m.first = max(m.logStart, in.LogStart), -1
	m.hw = max(m.hw, m.logStart)
	m.outlivedDamage()
	m.openedAs(now, in)
	if in.MayHaveLost && !m.known {
		out.Notices = append(out.Notices, Notice{Kind: NoticeMayHaveLost, From: in.LEO, To: in.LEO,
			Text: "the store may have lost some at the end"})
	}
	m.known, m.why = true, nil
	m.opening = opening{}
	out.Notices = append(out.Notices, Notice{Kind: NoticeOpened, From: m.logStart, To: m.stored})
	m.armTimers(now, out)
	if m.refusals > refusalsMax {
		m.giveUpInflight(out)
	}
	m.resubmit(now, out)
}

// openedAs begins to lead, or to follow, with what the log holds.
func (m *Machine) openedAs(now time.Time, in *Opened) {
	epochs := (&epochCache{starts: in.Epochs}).trimmed(m.logStart)
	if m.role == roleFollower {
		m.state, m.epochs = stateFollowing, epochs
		return
	}
	m.state = stateLeading
	if m.epochs.last() != m.epoch {
		m.epochStart = m.stored
	}
	m.epochs = epochs.assigned(m.epoch, m.epochStart)
	m.remark(now)
}

// settleInflight takes what landed for acknowledged. It reports false, and has
// gone offline, when the log ends where none of our appends does.
func (m *Machine) settleInflight(leo int64, out *Effects) bool {
	landed := 0
	for m.inflight.len() > 0 && m.inflight.at(0).batch.LastOffset < leo {
		m.landed(out)
		landed++
	}
	if m.stored != leo || landed != m.opening.checked {
		m.goOffline(out, fmt.Errorf("%w: it ends at %d, our appends at %d", errForeign, leo, m.stored))
		return false
	}
	return true
}

// refusalsMax is how often the same appends may be refused as invalid before
// their clients are told.
const refusalsMax = 3

// giveUpInflight answers clients whose appends the store will not take.
func (m *Machine) giveUpInflight(out *Effects) {
	out.Notices = append(out.Notices, Notice{Kind: NoticeRefused, From: m.stored, To: m.next,
		Text: "the store refuses these appends as invalid"})
	m.refuseInflight(out, fmt.Errorf("the store refused the append: %w", model.ErrStorage))
	m.refusals = 0
}

// resubmit sends all that is under way again, the same bytes at the same
// offsets.
func (m *Machine) resubmit(now time.Time, out *Effects) {
	for i := range m.inflight.len() {
		e := m.inflight.at(i)
		e.batch.LeaderEpoch = m.epoch
		out.Appends = append(out.Appends, m.appendLog(e))
	}
	if m.inflight.len() > 0 {
		m.progressAt = now
		m.armStall(now, out)
	}
}
