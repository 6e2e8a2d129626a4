package clients

import "fmt"

// resumeAfterBroker: a member goes on at the commits after the broker was killed that
// coordinated the group. One of several stays dead, one alone comes back.
func resumeAfterBroker(r *run, c *client, p program) {
	resume(r, c, p, func(brokers *cluster, group string) error {
		found := r.admin(brokers.addr()).FindGroupCoordinators(r.within(askTimeout), group)
		if err := found.Error(); err != nil {
			return err
		}
		b := brokers.brokers[found[group].NodeID-1]
		b.Kill()
		if len(brokers.brokers) > 1 {
			return nil
		}
		return b.start()
	})
}

// resumeAfterPlugin: a member goes on at the commits after the plugins were killed.
func resumeAfterPlugin(r *run, c *client, p program) {
	resume(r, c, p, func(brokers *cluster, _ string) error { return brokers.killPlugins(r.within(startTimeout)) })
}

// resume lets a member consume and commit, kills something while no member is
// there, and checks that another one goes on where the first stood.
func resume(r *run, c *client, p program, kill func(brokers *cluster, group string) error) {
	b := r.ownCluster()
	g := r.newGroup(b.addr(), p, r.topic(b.addr(), "resume", groupPartitions))
	first := startTime()
	produced := r.produce(b.addr(), g.topic, 0, first, "none")
	m := g.join("before")
	g.settle(settleTimeout, "one member")
	g.waitRecords(len(produced))
	g.waitCommitted(c, int64(len(produced)))
	g.leave(m)
	before, err := g.commits(r.within(askTimeout), r.admin(b.addr()))
	if err != nil {
		r.Fatal(err)
	}
	if sum := sumOf(before); sum != int64(len(produced)) {
		r.Fatalf("%d records are committed, want %d: %v", sum, len(produced), before)
	}

	produced = append(produced, r.produce(b.addr(), g.topic, len(produced), first, "none")...)
	if err := kill(b, g.name); err != nil {
		r.Fatal(err)
	}
	again := g.join("after")
	g.settle(settleTimeout, "one member, after the kill")
	g.waitRecords(len(produced))
	g.waitCommitted(c, int64(len(produced)))
	g.leave(again)
	for partition, at := range before {
		if got, ok := again.first[partition]; !ok || got != at {
			r.Errorf("the member began partition %d at %d (at all: %t), and %d was committed", partition, got, ok, at)
		}
	}
	after, err := g.commits(r.within(askTimeout), r.admin(b.living()))
	if err != nil {
		r.Fatal(err)
	}
	if sum := sumOf(after); sum != int64(len(produced)) {
		r.Errorf("%d records are committed in the end, want %d: %v", sum, len(produced), after)
	}
	for _, w := range g.wrong {
		r.Errorf("%s", w)
	}
}

// waitRecords waits until so many records have come to members.
func (g *group) waitRecords(n int) {
	g.r.Helper()
	err := eventually(g.r.within(settleTimeout), func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.delivered) < n {
			return fmt.Errorf("%d records have come to members, want %d", len(g.delivered), n)
		}
		return nil
	})
	if err != nil {
		g.r.Fatal(err)
	}
}
