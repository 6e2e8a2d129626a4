package faultfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// bootIDFile holds an ID that is new at each start of the machine.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// Namespace is a mount namespace, of one thread of this process and of the processes that it
// starts: mounts are gone when all of those are, however they end. Its methods may be called
// concurrently.
type Namespace struct {
	work   chan func()
	closed chan struct{}
	booted bool
}

// NewNamespace needs root. Its thread lives until Close.
func NewNamespace() (*Namespace, error) {
	ns := &Namespace{work: make(chan func()), closed: make(chan struct{})}
	entered := make(chan error)
	go func() {
		// It is never unlocked: the thread ends with this goroutine.
		runtime.LockOSThread()
		defer close(ns.closed)
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if entered <- err; err != nil {
			return
		}
		for f := range ns.work {
			f()
		}
	}()
	if err := <-entered; err != nil {
		return nil, fmt.Errorf("make a mount namespace, which needs root: %w", err)
	}
	return ns, nil
}

// Do has f run in the namespace, as the only one; what f starts is in it too.
func (ns *Namespace) Do(f func() error) error {
	done := make(chan error)
	ns.work <- func() { done <- f() }
	return <-done
}

// Close ends its thread, and so the processes that it has started and that are to end with
// their parent.
func (ns *Namespace) Close() {
	close(ns.work)
	<-ns.closed
}

// Boot has processes started from now on see another boot ID, which is kept in a file of a
// directory.
func (ns *Namespace) Boot(dir, id string) error {
	file := filepath.Join(dir, "boot_id")
	return ns.Do(func() error {
		if ns.booted {
			if err := unix.Unmount(bootIDFile, unix.MNT_DETACH); err != nil {
				return fmt.Errorf("take back the boot ID: %w", err)
			}
		}
		// Not the file that processes may still see.
		err := errors.Join(os.WriteFile(file+".new", []byte(id+"\n"), 0o444), os.Rename(file+".new", file))
		if err == nil {
			err = unix.Mount(file, bootIDFile, "", unix.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("mount another boot ID: %w", err)
		}
		ns.booted = true
		return nil
	})
}
