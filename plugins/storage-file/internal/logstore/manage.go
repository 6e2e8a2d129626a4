package logstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"

	"github.com/brokerd/brokerd/plugins/storage-file/internal/vfs"
	"github.com/brokerd/brokerd/sdk/storage"
)

// errEnded: the log object is at its end; another may take its place.
var errEnded = errors.New("log ended")

// logFor returns the log object of an id, making it if there is none.
func (s *Store) logFor(id storage.LogID, label string) (*log, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil, errShutdown()
	}
	l := s.logs[id]
	if l == nil {
		l = newLog(s, id, label)
		s.logs[id] = l
	}
	return l, nil
}

// onLog queues f for the runner of the log with the id, whether or not the log
// is open, and returns where its error will come.
func (s *Store) onLog(id storage.LogID, label string, f func(l *log) error) (<-chan error, error) {
	for {
		l, err := s.logFor(id, label)
		if err != nil {
			return nil, err
		}
		done := make(chan error, 1)
		if l.enqueue(op{run: func() {
			if l.ended() {
				done <- errEnded
				return
			}
			done <- f(l)
		}}) {
			return done, nil
		}
		s.mu.Lock()
		gone := s.logs[id] != l
		s.mu.Unlock()
		if !gone {
			return nil, errShutdown() // the runners take nothing any more
		}
	}
}

func (l *log) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// wait returns what comes from done, or why it was not waited for.
func (s *Store) wait(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return storage.Errorf(storage.ErrUnknown, "the call was given up: %v", ctx.Err())
	case <-s.ended:
		return errShutdown()
	}
}

// Open implements storage.Store. Logs are opened side by side, as many at once
// as there are runners.
func (s *Store) Open(ctx context.Context, specs []storage.OpenSpec) []storage.OpenResult {
	results := make([]storage.OpenResult, len(specs))
	waits := make([]<-chan error, len(specs))
	found := make([]storage.OpenResult, len(specs)) // by the runners
	start := func(i int) error {
		var err error
		waits[i], err = s.onLog(specs[i].ID, specs[i].Label, func(l *log) (err error) {
			found[i], err = l.openAs(specs[i])
			return err
		})
		return err
	}
	for i := range specs {
		results[i].Err = start(i)
	}
	for i := range specs {
		err := results[i].Err
		for err == nil {
			if err = s.wait(ctx, waits[i]); !errors.Is(err, errEnded) {
				break
			}
			err = start(i)
		}
		if err != nil {
			results[i] = storage.OpenResult{Err: s.class(err)}
			continue
		}
		results[i] = found[i]
	}
	failed, err := s.nameDurably(specs)
	for i := range specs {
		if results[i].Err == nil && failed[specs[i].ID] {
			results[i] = storage.OpenResult{Err: err}
		}
	}
	return results
}

// openAs is the runner's part of opening the log.
func (l *log) openAs(spec storage.OpenSpec) (storage.OpenResult, error) {
	var none storage.OpenResult
	if l.open && spec.LeaderEpoch < l.seen {
		return none, errSeen(spec.LeaderEpoch, l.seen)
	}
	options := l.store.defaults(spec.Options)
	if !l.open || l.check(l.handle) != nil {
		l.options = options
		if err := l.load(spec); err != nil {
			l.endIfUnused()
			return none, fmt.Errorf("open log %s-%d: %w", spec.Label, spec.ID.Partition, err)
		}
		if spec.LeaderEpoch < l.seen {
			return none, errSeen(spec.LeaderEpoch, l.seen)
		}
	} else if err := l.takeBack(true); err != nil {
		return none, err
	}
	l.options, l.seen = options, spec.LeaderEpoch
	h := l.store.newHandle(l)
	l.mu.Lock()
	old := l.handle
	l.handle = h
	durable := l.durable
	l.mu.Unlock()
	l.store.retire(old, storage.Errorf(storage.ErrFenced, "the log was opened again"))
	result := storage.OpenResult{
		Handle: h, LogStart: l.logStart, LEO: l.leo, Durable: durable, Verdict: storage.VerdictIntact, Cut: l.cut,
	}
	if l.lost {
		result.Verdict = storage.VerdictMayHaveLostSuffix
	}
	for _, e := range l.epochs {
		result.Epochs = append(result.Epochs, storage.EpochStart{Epoch: e.Epoch, Start: e.Start})
	}
	l.cut = ""
	return result, nil
}

func errSeen(epoch, seen int32) error {
	return storage.Errorf(storage.ErrFenced, "leader epoch %d is lower than %d, which the log has seen", epoch, seen)
}

// defaults fills in what a log's options leave out, within what the format can
// hold.
func (s *Store) defaults(o storage.LogOptions) storage.LogOptions {
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = s.options.SegmentBytes
	}
	if o.SegmentAge <= 0 {
		o.SegmentAge = s.options.SegmentAge
	}
	if o.IndexIntervalBytes <= 0 {
		o.IndexIntervalBytes = s.options.IndexIntervalBytes
	}
	o.SegmentBytes = min(o.SegmentBytes, segmentBytesMax)
	return o
}

// load recovers the log from its directory, or makes it.
func (l *log) load(spec storage.OpenSpec) error {
	if l.open {
		l.settleCompletions() // the log has failed, and so do they
	}
	l.letGo()
	s := l.store
	s.mu.RLock()
	dirs := s.dirs[l.id]
	seen, hasSeen := s.seen[l.id]
	s.mu.RUnlock()
	if len(dirs) > 1 {
		return storage.Errorf(storage.ErrCorrupt, "the log has more than one directory, %s; move all but one away", dirs)
	}
	if len(dirs) == 1 {
		if err := l.recover(dirs[0]); err != nil {
			return err
		}
	} else {
		if !spec.Create {
			return storage.Errorf(storage.ErrGone, "there is no such log")
		}
		if err := s.reserve.admit(); err != nil {
			return err
		}
		dir := path.Join(s.dir, dirName(l.id, spec.Label))
		l.label = spec.Label
		err := l.create(dir)
		if errors.Is(err, os.ErrExist) {
			err = l.recover(dir) // of a creation that failed, and could not be undone
		} else if err != nil {
			l.letGo()
			_ = vfs.RemoveTree(s.fs, dir) // else it is an empty log when it is opened again
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.dirs[l.id], s.labels[l.id], s.unnamed[l.id] = []string{dir}, spec.Label, true
		s.mu.Unlock()
	}
	l.open = true
	l.seen = lastEpoch(l.epochs)
	if hasSeen {
		l.seen = max(l.seen, seen)
	}
	return nil
}

// letGo closes the files of the log, which has failed or was shut, so that no
// new sync begins. One under way is waited for: it uses the files, and may yet
// find that what it synced is not on the disk, which the next opening must know.
func (l *log) letGo() {
	l.waitSync()
	l.letGoGrant()
	l.letGoSpare()
	for _, seg := range l.segs {
		l.forget(seg)
	}
	l.segs, l.open = nil, false
	l.letGoHint()
}

// letGoHint closes the hint: what had to last was synced.
func (l *log) letGoHint() {
	if l.hint == nil {
		return
	}
	l.mu.Lock()
	pinned := l.hintPinned
	l.hintPinned = false
	l.mu.Unlock()
	if pinned {
		l.hint.Unpin()
	}
	l.hint.Retire()
	l.hint = nil
}

// endIfUnused forgets a log object that could not be opened and has no handle.
func (l *log) endIfUnused() {
	l.mu.Lock()
	unused := l.handle == 0
	l.mu.Unlock()
	if unused {
		l.shut(errClosed())
		l.end()
	}
}

// shut closes the files of the log; its handle gives why from now on.
func (l *log) shut(why error) {
	l.mu.Lock()
	l.gone = why
	if l.failed == nil {
		l.failed = errClosed()
	}
	handle := l.handle
	l.mu.Unlock()
	l.store.retire(handle, why)
	if l.open {
		l.store.mu.Lock()
		l.store.seen[l.id] = l.seen
		l.store.mu.Unlock()
	}
	l.letGo()
	l.answer()
}

// end forgets the log object, which was shut: what is queued on it fails, and
// another may take its place. Nothing may be done to the log's files after it.
func (l *log) end() {
	l.store.mu.Lock()
	delete(l.store.logs, l.id)
	l.store.mu.Unlock()
	l.mu.Lock()
	l.dead = true
	l.mu.Unlock()
}

// Close implements storage.Store.
func (s *Store) Close(ctx context.Context, handles []storage.Handle) []error {
	errs := make([]error, len(handles))
	waits := make([]<-chan error, len(handles))
	for i, h := range handles {
		l, err := s.lookup(h)
		if err != nil {
			if s.isClosing() {
				errs[i] = err
			}
			continue // closed or fenced already
		}
		done := make(chan error, 1)
		if l.enqueue(op{run: func() {
			if err := l.check(h); errors.Is(err, storage.ErrFenced) || l.ended() {
				done <- nil
				return
			}
			done <- l.close()
		}}) {
			waits[i] = done
		}
	}
	for i, done := range waits {
		if done != nil {
			errs[i] = s.wait(ctx, done)
		}
	}
	return errs
}

func (s *Store) isClosing() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.closing
}

// close flushes the log, marks it as closed in order, and ends it.
func (l *log) close() error {
	defer l.end()
	defer l.shut(storage.Errorf(storage.ErrGone, "the handle is closed"))
	if !l.open {
		return nil
	}
	if err := l.check(l.handle); err != nil {
		return err
	}
	l.dropSpare()
	// The host may have died with more on its lips.
	if err := l.takeBack(true); err != nil {
		return err
	}
	if l.ahead > l.index.Bytes {
		last := l.last()
		if err := last.Acquire(); err != nil {
			return l.writeError("close", err)
		}
		err := l.cutAhead(last)
		last.Release()
		if err != nil {
			return l.fail(fmt.Errorf("cut the zeros behind the log: %w", err))
		}
	}
	if err := l.sync(); err != nil {
		return err
	}
	l.settleCompletions()
	if l.ckpt.State == stateClean && !l.lost && l.ckpt.ActiveBytes == l.index.Bytes && l.ckpt.ActiveBase == l.index.Base {
		return nil
	}
	if err := l.refreshHint(); err != nil {
		return err
	}
	if err := l.last().WriteIndex(&l.index); err != nil {
		l.store.logger.Warn("index not written, it will be built again", "path", l.dir, "err", err)
	}
	l.lost = false
	if err := l.writeControl(stateClean); err != nil {
		return l.writeError("mark the log as closed", err)
	}
	return nil
}

// settleCompletions waits until all that is in line was answered. The log is
// synced.
func (l *log) settleCompletions() {
	answered := make(chan struct{})
	l.complete(completion{done: func(storage.AppendResult, error) { close(answered) }})
	<-answered
}

// Delete implements storage.Store.
func (s *Store) Delete(ctx context.Context, id storage.LogID) error {
	for {
		var trash []string
		done, err := s.onLog(id, "", func(l *log) error {
			defer l.end()
			l.shut(storage.Errorf(storage.ErrFenced, "the log was deleted"))
			var err error
			trash, err = s.moveAway(id)
			return err
		})
		if err == nil {
			err = s.wait(ctx, done)
		}
		if errors.Is(err, errEnded) {
			continue
		}
		if err != nil {
			return s.class(err)
		}
		for _, dir := range trash {
			if err := vfs.RemoveTree(s.fs, dir); err != nil {
				s.logger.Warn("a deleted log's files remain until the next start", "path", dir, "err", err)
			}
		}
		if len(trash) > 0 {
			s.reserve.restore()
		}
		return nil
	}
}

// moveAway renames the directories of a log, so that it is there wholly or not
// at all after a crash.
func (s *Store) moveAway(id storage.LogID) ([]string, error) {
	s.mu.Lock()
	dirs := s.dirs[id]
	delete(s.seen, id)
	delete(s.suspects, id)
	delete(s.unnamed, id)
	s.mu.Unlock()
	var trash []string
	for _, dir := range dirs {
		s.mu.Lock()
		s.deleted++
		n := s.deleted
		s.mu.Unlock()
		to := dir + "." + strconv.FormatInt(s.now().UnixNano(), 36) + "-" + strconv.Itoa(n) + deletedSuffix
		err := s.fs.Rename(dir, to)
		if errors.Is(err, os.ErrNotExist) {
			continue // an earlier Delete renamed it, and failed to sync that
		}
		if err != nil {
			return trash, fmt.Errorf("rename deleted log: %w", err)
		}
		trash = append(trash, to)
	}
	if len(dirs) > 0 {
		if err := s.names.do(); err != nil {
			return trash, fmt.Errorf("sync the store's directory: %w", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.dirs, id)
	delete(s.labels, id)
	return trash, nil
}

// Shutdown implements storage.Store. It returns when Run did.
func (s *Store) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return errShutdown()
	}
	s.closing = true
	var logs []*log
	for _, l := range s.logs {
		logs = append(logs, l)
	}
	s.mu.Unlock()
	var errs []error
	var waits []<-chan error
	for _, l := range logs {
		done := make(chan error, 1)
		if l.enqueue(op{run: func() {
			if l.ended() {
				done <- nil
				return
			}
			done <- l.close()
		}}) {
			waits = append(waits, done)
		}
	}
	for _, done := range waits {
		errs = append(errs, s.wait(ctx, done))
	}
	s.runners.close()
	select {
	case <-s.ended:
	case <-ctx.Done():
		errs = append(errs, storage.Errorf(storage.ErrUnknown, "the shutdown was not waited for: %v", ctx.Err()))
	}
	return errors.Join(errs...)
}
