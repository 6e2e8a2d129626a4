package logstore

import (
	"context"
	"slices"
	"sync"
	"time"
)

// noteAfter is how long no log must have been opened before those are noted as clean
// whose checkpoint was left as it was: what clients wait for comes first, and a log that
// is appended to meanwhile needs no note.
const noteAfter = 2 * time.Second

// openings are logs that were recovered, and whose checkpoint does not say it yet.
type openings struct {
	wake chan struct{} // capacity 1

	mu   sync.Mutex
	logs []*log
}

func newOpenings() *openings { return &openings{wake: make(chan struct{}, 1)} }

func (o *openings) add(l *log) {
	o.mu.Lock()
	o.logs = append(o.logs, l)
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *openings) take() (logs []*log) {
	o.mu.Lock()
	defer o.mu.Unlock()
	logs, o.logs = o.logs, nil
	return logs
}

// run notes logs, one after the other, until ctx ends.
func (o *openings) run(ctx context.Context) {
	timer := time.NewTimer(noteAfter)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
			timer.Reset(noteAfter)
		case <-timer.C:
			for _, l := range o.take() {
				if err := l.do(ctx, l.noteRecovered); err != nil && ctx.Err() == nil {
					l.store.logger.Debug("not noted that a log is clean", "path", l.dir, "err", err)
				}
			}
		}
	}
}

// stands says whether the checkpoint may stay as it is, having been written by a life
// that was killed: it tells the next opening all that it must know, but for the recovery
// point, which the hint has. So a log that is appended to, as most are that were, is
// not noted twice.
func (r *recovery) stands() bool {
	l, c := r.l, &r.l.ckpt
	return r.hasCkpt && !r.changed && !r.suspect && l.cut == "" &&
		c.State != stateClean && c.BootID == l.store.bootID &&
		c.Lost == l.lost && c.Gaps == l.gaps && slices.Equal(c.Holes, l.holes) &&
		c.Segments == l.segsFrom(l.logStart) && c.ActiveBase == l.last().Base() &&
		len(r.scanned) == 1 && r.scanned[0] == l.last()
}

// keepCheckpoint leaves the checkpoint as it is, and has its recovery point made durable.
func (r *recovery) keepCheckpoint() error {
	l := r.l
	if err := syncHint(l.hint); err != nil {
		return err
	}
	l.pointSynced = l.hinted
	if l.ckpt.State == stateLoose {
		l.recovered = true
		l.store.openings.add(l)
	}
	return nil
}

// noteRecovered makes the checkpoint say that nothing was appended since the log was
// recovered, if that is so: a loss of power then takes nothing.
func (l *log) noteRecovered() error {
	if !l.recovered || !l.open || l.failure() != nil {
		return nil
	}
	l.recovered = false
	if l.grant != nil || l.durableNow() != l.leo {
		return nil
	}
	return l.writeCheckpoint(stateClean)
}
