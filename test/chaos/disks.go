package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/brokerd/brokerd/test/faultfs"
)

// endless is how long an operation hangs that nobody ends.
const endless = time.Hour

// diskEvents are the kinds of faults of disks.
func diskEvents() []event {
	return []event{
		{name: "slow-disk", about: "the disk of a broker is slow, or answers nothing, for a while", do: (*run).slowDisk},
		{name: "slow-follower", about: "the disk of a follower is slow, or hangs, at one partition's log for a while", do: (*run).slowFollower},
		{name: "full-disk", about: "the disk of a broker is full for a while", do: (*run).fullDisk},
		{name: "disk-errors", about: "the disk of a broker answers with I/O errors for a while", do: (*run).diskErrors},
	}
}

func ofDisks(e event) bool {
	return slices.ContainsFunc(diskEvents(), func(d event) bool { return d.name == e.name })
}

// withoutDisks are the options for a machine that is known to mount no disks of faults: what
// needs one is left out, aloud.
func withoutDisks(opts options) options {
	tell := func(format string, args ...any) { say(os.Stderr, format+"\n", args...) }
	if opts.powerCuts == 0 && !slices.ContainsFunc(opts.events, ofDisks) || !faultfs.Missing(tell) {
		return opts
	}
	opts.powerCuts = 0
	opts.events = slices.DeleteFunc(slices.Clone(opts.events), ofDisks)
	return opts
}

// disks are one for each broker, in a mount namespace of theirs, which has a boot ID too.
type disks struct {
	ns  *faultfs.Namespace
	dir string
}

// disk is where a broker has its data.
type disk struct {
	*faultfs.Disk
	of *disks
	at string
}

// addDisks gives each broker a disk of faults at its directory. It is for brokers that were
// never started.
func (c *cluster) addDisks(dir string) error {
	ns, err := faultfs.NewNamespace()
	if err != nil {
		return err
	}
	c.disks = &disks{ns: ns, dir: dir}
	for _, b := range c.nodes {
		fs, err := faultfs.New(filepath.Join(dir, fmt.Sprintf("disk-%d", b.n)))
		if err != nil {
			return err
		}
		d := &disk{Disk: fs, of: c.disks, at: b.dir}
		if err := os.MkdirAll(b.dir, 0o755); err != nil {
			return err
		}
		if err := d.mount(); err != nil {
			return err
		}
		b.disk = d
	}
	return nil
}

func (d *disk) mount() error {
	return d.of.ns.Do(func() error { return d.Mount(d.at) })
}

func (d *disk) unmount() error { return d.of.ns.Do(d.Unmount) }

// wipe loses all that is on the disk.
func (d *disk) wipe() error { return errors.Join(d.unmount(), d.Wipe(), d.mount()) }

// removeDisks leaves what they hold in the brokers' directories. It is for when no process is
// left.
func (c *cluster) removeDisks() error {
	if c.disks == nil {
		return nil
	}
	var errs error
	for _, b := range c.nodes {
		if b.disk != nil {
			errs = errors.Join(errs, b.disk.unmount(), b.disk.Export(b.dir))
		}
	}
	c.disks.ns.Close()
	return errs
}

// logsName is the directory of a broker's logs below its data.
const logsName = "main"

// log finds where the topic's partition has its log.
func (d *disk) log(partition int) (path string, err error) {
	begins := fmt.Sprintf("%s-%d.", topicName, partition)
	err = eventually(servedMax, func() error {
		for _, name := range d.Names("/" + logsName) {
			if strings.HasPrefix(name, begins) {
				path = "/" + logsName + "/" + name
				return nil
			}
		}
		return fmt.Errorf("there is no log %s", begins)
	})
	return path, err
}

// ofBrokenDisk reports whether a broker has ended since its disk failed, or was full: one that
// can't keep the metadata log, or begin on such a disk, ends and says so. It is started again.
func ofBrokenDisk(tail string) bool {
	return strings.Contains(tail, syscall.EIO.Error()) || strings.Contains(tail, syscall.ENOSPC.Error())
}

// suffers lets a broker's disk have faults for a while, in which they must hit something.
func (r *run) suffers(n int, what string, all ...faultfs.Fault) (string, error) {
	d, lasts := r.node(n).disk, r.between(r.longest/10, r.longest)
	before := d.Hits()
	d.Set(all...)
	err := r.hit(d, before, lasts)
	d.Set()
	return fmt.Sprintf("broker %d, %s, for %s (%d operations)", n, what, lasts.Round(time.Millisecond), d.Hits()-before), err
}

func (r *run) hit(d *disk, before int64, lasts time.Duration) error {
	wait(lasts)
	return eventually(servedMax, func() error {
		if d.Hits() == before {
			return errors.New("no operation met the fault")
		}
		return nil
	})
}

// slowly is how slow a disk is, in words and figures.
func (r *run) slowly(path string) (string, []faultfs.Fault) {
	if r.rng.IntN(3) == 0 {
		return "which answers no write", []faultfs.Fault{{Path: path, Ops: faultfs.Writes | faultfs.Syncs | faultfs.Names, Least: endless, Most: endless}}
	}
	write, sync := r.between(0, 80*time.Millisecond), r.between(0, 400*time.Millisecond)
	return fmt.Sprintf("whose writes take up to %s and syncs %s", write.Round(time.Millisecond), sync.Round(time.Millisecond)), []faultfs.Fault{
		{Path: path, Ops: faultfs.Writes | faultfs.Names, Least: write / 4, Most: write},
		{Path: path, Ops: faultfs.Syncs, Least: sync / 4, Most: sync},
	}
}

func (r *run) slowDisk() (string, error) {
	n := r.any()
	what, all := r.slowly("")
	return r.suffers(n, what, all...)
}

func (r *run) slowFollower() (string, error) {
	p, _, followers, err := r.roles()
	if err != nil {
		return "", err
	}
	n := followers[r.rng.IntN(len(followers))]
	path, err := r.node(n).disk.log(p)
	if err != nil {
		return "", err
	}
	what, all := r.slowly(path)
	return r.suffers(n, fmt.Sprintf("which follows partition %d, at whose log it has a disk %s", p, what), all...)
}

// fullRoomMax is the most that a full disk has left.
const fullRoomMax = 64 << 10

func (r *run) fullDisk() (string, error) {
	n, room := r.any(), r.rng.Int64N(fullRoomMax)
	d, lasts := r.node(n).disk, r.between(r.longest/10, r.longest)
	before := d.Hits()
	d.Fill(room)
	err := r.hit(d, before, lasts)
	d.Fill(-1)
	return fmt.Sprintf("broker %d, which has %d bytes left, for %s (%d operations)", n, room, lasts.Round(time.Millisecond), d.Hits()-before), err
}

func (r *run) diskErrors() (string, error) {
	n := r.any()
	kinds := []struct {
		what string
		ops  faultfs.Ops
	}{
		{"writes", faultfs.Writes}, {"syncs", faultfs.Syncs | faultfs.Writes}, {"openings", faultfs.Opens | faultfs.Writes | faultfs.Names},
		{"all", faultfs.Opens | faultfs.Writes | faultfs.Names | faultfs.Syncs | faultfs.Reads},
	}
	kind := kinds[r.rng.IntN(len(kinds))]
	path, where := "", "everywhere"
	if r.rng.IntN(2) == 0 {
		path, where = "/"+logsName, "at its logs"
	}
	return r.suffers(n, fmt.Sprintf("whose disk fails %s %s", kind.what, where), faultfs.Fault{Path: path, Ops: kind.ops, Err: syscall.EIO})
}
