package storagetest

import (
	"errors"
	"time"

	"github.com/brokerd/brokerd/sdk/storage"
)

func filesCases() []Case {
	leases, grants := Offers{Leases: true}, Offers{Grants: true}
	kill := Abilities{Kill: true}
	return []Case{
		{Name: "files-offered", About: "Files is nil exactly when neither grants nor leases are among the capabilities", run: filesOffered},
		{Name: "files-lock-leases", About: "a store that lends leases is locked as long as a host holds its lock, also when it was killed",
			Needs: kill, Offers: leases, run: lockKilled},
		{Name: "files-lock-grants", About: "a store that grants writes is locked as long as a host holds its lock, also when it was killed",
			Needs: kill, Offers: grants, run: lockKilled},
		{Name: "files-lock-shutdown", About: "and also when it was shut down", Offers: leases, run: lockShutdown},
	}
}

func filesOffered(e *env) {
	check := func(when string) {
		caps, files := e.store.Capabilities(), e.store.Files()
		if offered := caps.Grants || caps.Leases; offered != (files != nil) {
			e.failf("%s: the capabilities are %+v, and Files is there: %v", when, caps, files != nil)
		}
		if files == nil {
			return
		}
		r := e.log(0)
		b := e.fill(r.Handle, r.LEO, 3, 1)
		if _, err := files.Grant(e.ctx, r.Handle, 1, storage.SurvivesUnset); err == nil && !caps.Grants {
			e.failf("%s: a store that does not say so grants writes", when)
		}
		if _, err := files.Lease(e.ctx, r.Handle, b[0].BaseOffset); err == nil && !caps.Leases {
			e.failf("%s: a store that does not say so lends leases", when)
		}
	}
	check("at first")
	check("again")
	e.restart()
	check("after a restart")
}

func lockKilled(e *env) {
	var b []made
	for range 3 {
		r := e.log(0)
		b = append(b, e.fill(r.Handle, r.LEO, 5, 1)...)
		e.refusedWhileLocked(func() { e.must(e.backing.Kill(e.ctx), "kill the store") })
		e.checkOpened(e.log(0), "after a kill, and a lock held for longer", 0, endOf(b, 0), b)
	}
}

func lockShutdown(e *env) {
	r := e.log(0)
	b := e.fill(r.Handle, 0, 5, 1)
	e.refusedWhileLocked(func() { e.must(e.store.Shutdown(e.ctx), "shut down") })
	e.checkOpened(e.log(0), "after a shutdown, and a lock held for longer", 0, endOf(b, 0), b)
}

// refusedWhileLocked ends the store, checks that it can not be opened before the
// last copy of its lock is closed, and opens it.
func (e *env) refusedWhileLocked(end func()) {
	first, err := e.store.Files().Lock()
	e.must(err, "get the lock")
	second, err := e.store.Files().Lock()
	e.must(err, "get the lock again")
	end()
	refused := func(when string) {
		_, _, err := e.backing.Open(e.ctx, e.backing.Config())
		e.wantClass(err, "open a store that was ended, "+when, storage.ErrFenced)
	}
	refused("while a host holds its lock")
	e.must(first.Close(), "close the lock")
	refused("while a host holds its lock by another descriptor")
	e.must(second.Close(), "close the lock")
	e.openUnlocked()
}

// openUnlocked opens a store whose lock no host holds any more. What has carried the lock to
// the host may still be about to close its own copy.
func (e *env) openUnlocked() {
	const patience, pause = 5 * time.Second, time.Millisecond
	for end := time.Now().Add(patience); ; {
		err := e.tryOpenStore()
		if !errors.Is(err, storage.ErrFenced) || time.Now().After(end) {
			e.must(err, "open a store whose lock is let go of")
			return
		}
		select {
		case <-e.ctx.Done():
		case <-time.After(pause):
		}
	}
}
