package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"
)

const (
	// servedMax is how long after a fault each partition may take to acknowledge again, on a
	// machine that has other things to do.
	servedMax = 30 * time.Second
	// restartedMax is the same where all brokers were killed.
	restartedMax = 10 * time.Second
	inSyncMax    = 60 * time.Second
	calmMax      = 400 * time.Millisecond
)

// event is a kind of fault.
type event struct {
	name  string
	about string
	do    func(r *run) (what string, err error)
	// altered: it is done to brokers of a main of the tests' own.
	altered bool
	// lane: it cuts one lane alone, as only network namespaces can.
	lane bool
}

// events are all kinds of them.
func events() []event {
	return append([]event{
		{name: "kill-leader", about: "kill -9 of the leader of a partition", do: (*run).killLeader},
		{name: "kill-follower", about: "kill -9 of a follower", do: (*run).killFollower},
		{name: "kill-controller", about: "kill -9 of the active controller", do: (*run).killController},
		{name: "kill-two", about: "kill -9 of two at once", do: (*run).killTwo},
		{name: "kill-all", about: "kill -9 of all three at once", do: (*run).killAll},
		{name: "wipe", about: "kill -9 of a broker, which comes back without its disk", do: (*run).wipe},
		{name: "stop", about: "SIGSTOP for a while", do: (*run).pause},
		{name: "storage", about: "kill -9 of a storage plugin", do: func(r *run) (string, error) { return r.killPlugin(storagePlugin) }},
		{name: "transport", about: "kill -9 of a transport plugin", do: func(r *run) (string, error) { return r.killPlugin(transportPlugin) }},
		{name: "stop-storage", about: "SIGSTOP of a storage plugin for a while", do: (*run).pauseStorage},
		{name: "term", about: "SIGTERM and a new start", do: (*run).term},
		{name: "rolling", about: "SIGTERM and a new start of each in turn", do: (*run).rolling},
		{name: "cut", about: "a broker cut off both ways for a while", do: (*run).cut},
		{name: "cut-one-way", about: "a broker that is not heard, or hears nothing, for a while", do: (*run).cutOneWay},
		{name: "cut-pair", about: "two brokers cut off from each other for a while", do: (*run).cutPair},
		{name: "cut-controller", about: "a broker's control lane cut off from the active controller", do: (*run).cutController, altered: true, lane: true},
		{name: "cut-controllers", about: "a broker's control lane cut off from all controllers", do: (*run).cutControllers, altered: true, lane: true},
		{name: "clock", about: "the wall clock of a broker, or of each, is set by minutes to days, to and fro", do: (*run).jumpClock, altered: true},
	}, diskEvents()...)
}

// run is one run of faults.
type run struct {
	*cluster
	rng *rand.Rand
	out io.Writer
	// longest is how long a fault lasts at most.
	longest time.Duration
	// restarted is how long it took until each partition acknowledged, when all had been
	// killed.
	restarted []time.Duration
}

// between draws a time.
func (r *run) between(least, most time.Duration) time.Duration {
	return least + time.Duration(r.rng.Int64N(int64(most-least)))
}

func (r *run) any() int { return 1 + r.rng.IntN(brokers) }

// wait lets time pass: how long a fault lasts is what is asked for.
func wait(d time.Duration) { <-time.After(d) }

// roles are a drawn partition's leader and followers.
func (r *run) roles() (partition, leader int, followers []int, err error) {
	partition = r.rng.IntN(partitions)
	err = eventually(servedMax, func() error {
		s, err := r.state(0)
		if err != nil {
			return err
		}
		if leader = s.leaders[partition]; leader < 1 {
			return fmt.Errorf("partition %d has no leader", partition)
		}
		followers = nil
		for _, n := range s.replicas[partition] {
			if int(n) != leader {
				followers = append(followers, int(n))
			}
		}
		slices.Sort(followers)
		return nil
	})
	return partition, leader, followers, err
}

func (r *run) killLeader() (string, error) {
	p, leader, _, err := r.roles()
	if err != nil {
		return "", err
	}
	return r.killOne(leader, fmt.Sprintf("leads partition %d", p))
}

func (r *run) killFollower() (string, error) {
	p, _, followers, err := r.roles()
	if err != nil {
		return "", err
	}
	return r.killOne(followers[r.rng.IntN(len(followers))], fmt.Sprintf("follows partition %d", p))
}

func (r *run) killController() (string, error) {
	var q quorum
	err := eventually(servedMax, func() (err error) {
		q, err = r.quorum()
		if err == nil && q.leader < 1 {
			err = errors.New("nobody leads the quorum")
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return r.killOne(q.leader, "is the active controller")
}

func (r *run) killOne(n int, why string) (string, error) {
	down := r.between(0, r.longest*3/5)
	if err := r.node(n).end(syscall.SIGKILL); err != nil {
		return "", err
	}
	wait(down)
	return fmt.Sprintf("broker %d, which %s, down for %s", n, why, down.Round(time.Millisecond)), r.node(n).start()
}

func (r *run) killTwo() (string, error) {
	pair, down := r.rng.Perm(brokers)[:2], r.between(0, r.longest*3/5)
	for _, i := range pair {
		r.nodes[i].dismiss()
	}
	for _, i := range pair {
		if err := r.nodes[i].end(syscall.SIGKILL); err != nil {
			return "", err
		}
	}
	wait(down)
	for _, i := range pair {
		if err := r.nodes[i].start(); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("brokers %d and %d, down for %s", pair[0]+1, pair[1]+1, down.Round(time.Millisecond)), nil
}

// wipe takes the disk of one broker, when all replicas are in sync, so that the others have
// everything that was acknowledged; it votes again when this returns, so that no more than one
// of three votes is ever lost.
func (r *run) wipe() (string, error) {
	n, down := r.any(), r.between(0, r.longest*3/5)
	if err := r.awaitInSync(); err != nil {
		return "", err
	}
	before, err := r.quorum()
	if err != nil {
		return "", err
	}
	if err := r.node(n).end(syscall.SIGKILL); err != nil {
		return "", err
	}
	wait(down)
	if err := r.node(n).wipe(); err != nil {
		return "", err
	}
	if err := r.node(n).start(); err != nil {
		return "", err
	}
	return fmt.Sprintf("broker %d, down for %s", n, down.Round(time.Millisecond)), eventually(inSyncMax, func() error {
		now, err := r.quorum()
		if err == nil && (len(now.voters) != brokers || now.voters[n] == before.voters[n]) {
			err = fmt.Errorf("broker %d does not vote again: %v", n, now.voters)
		}
		return err
	})
}

func (r *run) killAll() (string, error) {
	order := r.rng.Perm(brokers)
	for _, i := range order {
		r.nodes[i].dismiss()
	}
	for _, i := range order {
		if err := r.nodes[i].end(syscall.SIGKILL); err != nil {
			return "", err
		}
	}
	began, mark := time.Now(), r.ledger.mark()
	if err := r.startAll(); err != nil {
		return "", err
	}
	err := eventually(servedMax, func() error { return r.ledger.passed(mark) })
	took := time.Since(began)
	r.restarted = append(r.restarted, took)
	if err == nil && took > restartedMax {
		r.ledger.violate(notServed, "all were killed, and served %s after their start", took.Round(time.Millisecond))
	}
	return fmt.Sprintf("served %s after the start", took.Round(time.Millisecond)), err
}

func (r *run) pause() (string, error) {
	n, d := r.any(), r.between(r.longest/10, r.longest)
	r.node(n).signal(syscall.SIGSTOP)
	wait(d)
	r.node(n).signal(syscall.SIGCONT)
	return fmt.Sprintf("broker %d for %s", n, d.Round(time.Millisecond)), nil
}

func (r *run) findPlugin(n int, name string) (pid int, err error) {
	err = eventually(servedMax, func() error {
		pid, err = r.node(n).plugin(name)
		return err
	})
	return pid, err
}

func (r *run) killPlugin(name string) (string, error) {
	n := r.any()
	pid, err := r.findPlugin(n, name)
	if err != nil {
		return "", err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return "", err
	}
	began := time.Now()
	err = eventually(servedMax, func() error {
		next, err := r.node(n).plugin(name)
		if err == nil && next == pid {
			err = fmt.Errorf("the process that was killed is there")
		}
		return err
	})
	return fmt.Sprintf("of broker %d, whose next was there after %s", n, time.Since(began).Round(time.Millisecond)), err
}

func (r *run) pauseStorage() (string, error) {
	n, d := r.any(), r.between(r.longest/10, r.longest)
	pid, err := r.findPlugin(n, storagePlugin)
	if err != nil {
		return "", err
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return "", err
	}
	wait(d)
	_ = syscall.Kill(pid, syscall.SIGCONT) // it may have been killed, since it did not answer
	return fmt.Sprintf("of broker %d for %s", n, d.Round(time.Millisecond)), nil
}

func (r *run) term() (string, error) {
	n, down := r.any(), r.between(0, r.longest*2/5)
	if err := r.node(n).end(syscall.SIGTERM); err != nil {
		return "", err
	}
	wait(down)
	return fmt.Sprintf("broker %d, down for %s", n, down.Round(time.Millisecond)), r.node(n).start()
}

func (r *run) rolling() (string, error) {
	what := ""
	for _, i := range r.rng.Perm(brokers) {
		b := r.nodes[i]
		began := time.Now()
		if err := b.end(syscall.SIGTERM); err != nil {
			return what, err
		}
		what += fmt.Sprintf("broker %d ended in %s; ", b.n, time.Since(began).Round(time.Millisecond))
		if err := b.start(); err != nil {
			return what, err
		}
		if err := r.awaitInSync(); err != nil {
			return what, fmt.Errorf("after the restart of broker %d: %w", b.n, err)
		}
	}
	return what, nil
}

// lasting is how long the cuts last, and what becomes of what they kept.
func (r *run) lasting(what string) (string, error) {
	d, reset := r.between(r.longest/10, r.longest), r.rng.IntN(2) == 0
	wait(d)
	kept, err := r.mend(reset)
	return fmt.Sprintf("%s for %s, and %s", what, d.Round(time.Millisecond), kept), err
}

// severed cuts directions, and waits.
func (r *run) severed(what string, directions ...[2]int) (string, error) {
	for _, d := range directions {
		if err := r.sever(d[0], d[1]); err != nil {
			return what, err
		}
	}
	return r.lasting(what)
}

func (r *run) others(n int) []int {
	return slices.DeleteFunc([]int{1, 2, 3}, func(m int) bool { return m == n })
}

func (r *run) cut() (string, error) {
	n := r.any()
	m := r.others(n)
	return r.severed(fmt.Sprintf("broker %d", n), [2]int{n, m[0]}, [2]int{m[0], n}, [2]int{n, m[1]}, [2]int{m[1], n})
}

func (r *run) cutOneWay() (string, error) {
	n := r.any()
	m := r.others(n)
	if r.rng.IntN(2) == 0 {
		return r.severed(fmt.Sprintf("broker %d heard nothing", n), [2]int{m[0], n}, [2]int{m[1], n})
	}
	return r.severed(fmt.Sprintf("broker %d was not heard", n), [2]int{n, m[0]}, [2]int{n, m[1]})
}

func (r *run) cutPair() (string, error) {
	m := r.others(r.any())
	return r.severed(fmt.Sprintf("brokers %d and %d", m[0], m[1]), [2]int{m[0], m[1]}, [2]int{m[1], m[0]})
}

// one has one event happen; settle: and waits until all serves again, with all replicas in sync.
// It returns the longest pause.
func (r *run) one(number int, e event, settle bool) (pause time.Duration) {
	wait(r.between(0, calmMax))
	r.ledger.watchPauses()
	began := time.Now()
	what, err := e.do(r)
	if err != nil {
		r.ledger.violate(notServed, "event %d, %s, %s: %v", number, e.name, what, err)
	}
	say(r.out, "%s %4d %-15s %s", began.Format("15:04:05.000"), number, e.name, what)
	if !settle {
		pause = r.ledger.pause()
		say(r.out, "; pause %s\n", pause.Round(time.Millisecond))
		return pause
	}
	mark := r.ledger.mark()
	if err := eventually(servedMax, func() error { return r.ledger.passed(mark) }); err != nil {
		r.ledger.violate(notServed, "after event %d, %s, %s: %v", number, e.name, what, err)
	}
	pause = r.ledger.pause()
	served := time.Since(began)
	if err := r.awaitInSync(); err != nil {
		r.ledger.violate(notServed, "after event %d, %s, %s: %v", number, e.name, what, err)
	}
	say(r.out, "; pause %s, served after %s, in sync after %s\n",
		pause.Round(time.Millisecond), served.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	return pause
}
