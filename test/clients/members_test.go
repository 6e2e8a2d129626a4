package clients

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	groupPartitions = 6
	// settleTimeout is how long a group may take until all members have what is theirs:
	// the start of slow drivers and two rebalances.
	settleTimeout = 60 * time.Second
	// deathTimeout is the same after a kill: a session of 6 s, a rebalance of 10 s, and
	// as much again for a busy machine.
	deathTimeout = 32 * time.Second
	// emptyTimeout is how soon a group is empty after its members have left: well
	// below a session, after which it would be by itself.
	emptyTimeout = 4 * time.Second
	// comebackLimit is how soon a killed member has to be back: within its session. A
	// machine too busy for that gets another chance, up to comebacksMax in all.
	comebackLimit = 5 * time.Second
	comebacksMax  = 5
	// writeEvery is how often each partition gets a record while members come and go.
	writeEvery = 50 * time.Millisecond
	// watchEvery is how often the group's commits are looked at.
	watchEvery = 50 * time.Millisecond
)

// group is a group of drivers on one topic, and what they told.
type group struct {
	r           *run
	p           program
	addr        string
	topic, name string

	mu        sync.Mutex
	members   []*member
	delivered map[place]bool
	committed map[int32]int64 // the greatest offset that a member told
	wrong     []string        // what must not have been
}

// member is one driver in a group. What it told is guarded by the group's mutex.
type member struct {
	name    string
	driver  *driver
	gone    bool
	has     map[int32]bool
	changes int             // assignments that it told
	first   map[int32]int64 // the first record of each partition that it ever got
	fresh   map[int32]int64 // partitions it just got, and what others had told of commits then
}

// newGroup is a group without members on a topic.
func (r *run) newGroup(addr string, p program, topic string) *group {
	return &group{r: r, p: p, addr: addr, topic: topic, name: r.newName("group"),
		delivered: make(map[place]bool), committed: make(map[int32]int64)}
}

// join starts a member.
func (g *group) join(name string, more ...string) *member {
	g.r.Helper()
	m := &member{name: name, has: map[int32]bool{}, first: map[int32]int64{}, fresh: map[int32]int64{}}
	args := append([]string{"member", "bootstrap=" + g.addr, "topic=" + g.topic, "group=" + g.name}, more...)
	d, err := startDriver(g.p, func(e event) { g.told(m, e) }, args...)
	if err != nil {
		g.r.Fatal(err)
	}
	m.driver = d
	g.r.Cleanup(func() {
		d.kill()
		if g.r.Failed() {
			g.r.Logf("member %s told on stderr:\n%s", name, d.stderr.String())
		}
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members = append(g.members, m)
	return m
}

// told keeps what a member said.
func (g *group) told(m *member, e event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch e.Event {
	case "assigned":
		g.assigned(m, e.Partitions)
	case "record":
		g.delivered[place{e.Partition, e.Offset}] = true
		if _, ok := m.first[e.Partition]; !ok {
			m.first[e.Partition] = e.Offset
		}
		// Nothing that was committed before the member got the partition is delivered to it.
		if since, ok := m.fresh[e.Partition]; ok && e.Offset < since {
			g.wrong = append(g.wrong, fmt.Sprintf("member %s got partition %d from offset %d, when %d was committed already", m.name, e.Partition, e.Offset, since))
		}
		delete(m.fresh, e.Partition)
	case "committed":
		g.committed[e.Partition] = max(g.committed[e.Partition], e.Offset)
	default:
		g.wrong = append(g.wrong, fmt.Sprintf("member %s told %q", m.name, e.Event))
	}
}

func (g *group) assigned(m *member, partitions []int32) {
	m.changes++
	now := make(map[int32]bool)
	for _, partition := range partitions {
		now[partition] = true
		if !m.has[partition] {
			m.fresh[partition] = g.committed[partition]
		}
	}
	m.has = now
}

// kill kills a member as a machine would.
func (g *group) kill(m *member) {
	m.driver.kill()
	g.mu.Lock()
	defer g.mu.Unlock()
	m.gone, m.has = true, nil
}

// leave makes a member leave.
func (g *group) leave(m *member) {
	g.r.Helper()
	if err := m.driver.leave(g.r.Context()); err != nil {
		g.r.Fatalf("member %s: %v", m.name, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	m.gone, m.has = true, nil
}

// settle waits until every partition has one member, and every member a partition.
func (g *group) settle(limit time.Duration, when string) {
	g.r.Helper()
	if err := eventually(g.r.within(limit), g.settled); err != nil {
		g.r.Fatalf("%s: %v", when, err)
	}
}

func (g *group) settled() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	owners := make(map[int32]string)
	for _, m := range g.members {
		if m.gone {
			continue
		}
		select {
		case <-m.driver.done:
			return fmt.Errorf("member %s ended: %s", m.name, lastLine(m.driver.stderr.String()))
		default:
		}
		if len(m.has) == 0 {
			return fmt.Errorf("member %s has nothing, after %d changes", m.name, m.changes)
		}
		for partition := range m.has {
			if other, taken := owners[partition]; taken {
				return fmt.Errorf("members %s and %s both have partition %d", other, m.name, partition)
			}
			owners[partition] = m.name
		}
	}
	if len(owners) != groupPartitions {
		return fmt.Errorf("partitions have the owners %v, want one for each of %d", owners, groupPartitions)
	}
	return nil
}

// owned is what a member has, sorted.
func (g *group) owned(m *member) []int32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(m.has))
}

// changesOf is how often a member told what it has.
func (g *group) changesOf(m *member) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return m.changes
}

// commits asks the broker for the group's offsets: those of partitions without one
// are missing.
func (g *group) commits(ctx context.Context, a *kadm.Client) (map[int32]int64, error) {
	all, err := a.FetchOffsets(ctx, g.name)
	if err != nil {
		return nil, fmt.Errorf("fetch offsets: %w", err)
	}
	if err := all.Error(); err != nil {
		return nil, fmt.Errorf("fetch offsets: %w", err)
	}
	out := make(map[int32]int64)
	for partition, o := range all[g.topic] {
		out[partition] = o.At
	}
	return out, nil
}

// watch asks for the group's commits, again and again until the context ends, and
// tells of each that went back.
func (g *group) watch(ctx context.Context) error {
	a := g.r.admin(g.addr)
	last := make(map[int32]int64)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, err := g.commits(ctx, a)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		for partition, before := range last {
			if at, ok := now[partition]; !ok || at < before {
				return fmt.Errorf("the commit of partition %d went from %d back to %d (there is one: %t)", partition, before, at, ok)
			}
		}
		last = now
	}
}

// write writes a record to each partition, again and again until the context ends,
// and returns how many each has got.
func (g *group) write(ctx context.Context) (int64, error) {
	c := g.r.client(g.addr, kgo.DefaultProduceTopic(g.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	first := startTime()
	for n := int64(0); ; n++ {
		select {
		case <-ctx.Done():
			return n, nil
		case <-tick.C:
		}
		var rs []*kgo.Record
		for partition := range int32(groupPartitions) {
			rec := expected(int(n)*groupPartitions+int(partition), first)
			rec.Partition = partition
			rs = append(rs, rec)
		}
		// Not with ctx: a round that has begun is written. Nor with a delivery timeout,
		// which franz-go counts from the records' timestamps.
		round, cancel := context.WithTimeout(g.r.Context(), askTimeout)
		err := c.ProduceSync(round, rs...).FirstErr()
		cancel()
		if err != nil {
			return n, fmt.Errorf("write: %w", err)
		}
	}
}

// background runs a loop beside the case. The function it returns ends the loop and
// returns its error; so does the end of the case.
func (r *run) background(loop func(ctx context.Context) error) (end func() error) {
	ctx, cancel := context.WithCancel(r.Context())
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = loop(ctx)
	}()
	end = func() error {
		cancel()
		<-done
		return err
	}
	r.Cleanup(func() { _ = end() })
	return end
}

// members: two members share a topic, a third joins, the first is killed; no record
// is missed, and none delivered again that had been committed.
func members(r *run, c *client, p program, protocol string) {
	g := r.newGroup(r.addr, p, r.topic(r.addr, "members", groupPartitions))
	var written int64
	endWriting := r.background(func(ctx context.Context) (err error) { written, err = g.write(ctx); return err })
	endWatching := r.background(g.watch)

	first := g.join("first", "protocol="+protocol)
	second := g.join("second", "protocol="+protocol)
	g.settle(settleTimeout, "two members")
	g.rebalances(protocol)
	third := g.join("third", "protocol="+protocol)
	g.settle(settleTimeout, "a third member joined")
	g.kill(first)
	g.settle(deathTimeout, "the first member was killed")

	if err := endWriting(); err != nil {
		r.Fatal(err)
	}
	g.waitDelivered(written)
	g.waitCommitted(c, written*groupPartitions)
	g.leave(second)
	g.leave(third)
	if err := endWatching(); err != nil {
		r.Error(err)
	}
	g.checkEnd(written)
}

// waitDelivered waits until each partition's records up to an offset have come to a
// member.
func (g *group) waitDelivered(end int64) {
	g.r.Helper()
	err := eventually(g.r.within(settleTimeout), func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		for partition := range int32(groupPartitions) {
			for offset := range end {
				if !g.delivered[place{partition, offset}] {
					return fmt.Errorf("offset %d of partition %d has come to no member", offset, partition)
				}
			}
		}
		return nil
	})
	if err != nil {
		g.r.Fatal(err)
	}
}

// waitCommitted waits until members have told the commits of so many records, if they
// tell of them: a rebalance may have refused some, which members then repeat.
func (g *group) waitCommitted(c *client, records int64) {
	g.r.Helper()
	if !c.has(commits) {
		return
	}
	err := eventually(g.r.within(settleTimeout), func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		if sum := sumOf(g.committed); sum != records {
			return fmt.Errorf("members told commits of %d records, want %d: %v", sum, records, g.committed)
		}
		return nil
	})
	if err != nil {
		g.r.Fatal(err)
	}
}

func sumOf(offsets map[int32]int64) int64 {
	var sum int64
	for _, at := range offsets {
		sum += at
	}
	return sum
}

// checkEnd looks at a group that all members have left, after all records up to an
// offset had been delivered.
func (g *group) checkEnd(end int64) {
	g.r.Helper()
	a := g.r.admin(g.addr)
	at, err := g.commits(g.r.within(askTimeout), a)
	if err != nil {
		g.r.Fatal(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for partition := range int32(groupPartitions) {
		if at[partition] != end {
			g.r.Errorf("partition %d is committed up to %d, want %d", partition, at[partition], end)
		}
	}
	for _, w := range g.wrong {
		g.r.Errorf("%s", w)
	}
	err = eventually(g.r.within(emptyTimeout), func() error { return g.inState(a, "Empty") })
	if err != nil {
		g.r.Errorf("after all members have left: %v", err)
	}
}

// describe asks for the broker's own word on the group.
func (g *group) describe(a *kadm.Client) (kadm.DescribedGroup, error) {
	described, err := a.DescribeGroups(g.r.within(askTimeout), g.name)
	if err == nil {
		err = described[g.name].Err
	}
	if err != nil {
		return kadm.DescribedGroup{}, fmt.Errorf("describe group: %w", err)
	}
	return described[g.name], nil
}

// inState checks the group's state.
func (g *group) inState(a *kadm.Client, want string) error {
	d, err := g.describe(a)
	if err == nil && d.State != want {
		err = fmt.Errorf("the group is %s with %d members, want %s", d.State, len(d.Members), want)
	}
	return err
}

// rebalances checks that the members have agreed on a protocol of the given kind: all
// cooperative ones, and no others, say so in their name.
func (g *group) rebalances(kind string) {
	g.r.Helper()
	a := g.r.admin(g.addr)
	err := eventually(g.r.within(settleTimeout), func() error {
		d, err := g.describe(a)
		if err == nil && (d.State != "Stable" || strings.Contains(d.Protocol, "cooperative") != (kind == "cooperative")) {
			err = fmt.Errorf("the group is %s by %q, want a protocol that is %s", d.State, d.Protocol, kind)
		}
		return err
	})
	if err != nil {
		g.r.Fatal(err)
	}
}

// staticMembers: a static member that is killed and comes back within its session has
// what it had, and the other one hears nothing of it (KIP-345).
func staticMembers(r *run, _ *client, p program) {
	g := r.newGroup(r.addr, p, r.topic(r.addr, "static", groupPartitions))
	first := g.join("first", "instance=one")
	second := g.join("second", "instance=two")
	g.settle(settleTimeout, "two members")
	for range comebacksMax {
		had, changes := g.owned(first), g.changesOf(second)
		killed := time.Now()
		g.kill(first)
		first = g.join("first again", "instance=one")
		g.settle(settleTimeout, "the first member came back")
		if took := time.Since(killed); took > comebackLimit {
			r.Logf("coming back took %s, more than a session: once more", took)
			continue
		}
		if has := g.owned(first); !slices.Equal(has, had) {
			r.Errorf("the first member has %v, and had %v before it was killed", has, had)
		}
		// A rebalance that had begun by now would await the second member.
		if err := g.inState(r.admin(r.addr), "Stable"); err != nil {
			r.Error(err)
		}
		if now := g.changesOf(second); now != changes {
			r.Errorf("the second member was told %d times what it has, when the first one came back", now-changes)
		}
		g.leave(first)
		g.leave(second)
		return
	}
	r.Fatalf("in %d attempts the first member never came back within its session", comebacksMax)
}
