package replica

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/image/topicconfig"
	"github.com/brokerd/brokerd/core/model"
	"pgregory.net/rapid"
)

// TestThrottleRate: whatever the shards do, and however late they look, no more passes than
// the rate and what was saved up, but for one slice of each; and one that always has something
// to send gets all of the rate when the others have nothing.
func TestThrottleRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards := rapid.IntRange(1, 4).Draw(t, "shards")
		rate := rapid.Int64Range(1, 1<<33).Draw(t, "rate")
		busy := rapid.IntRange(1, shards).Draw(t, "busy") // shards that always have something
		slice := int(min(sliceBytes, max(1, rate/8)))
		one := newThrottle(shards)
		began := time.Unix(1000, 0)
		now := began
		one.set(now, rate)
		for i := range busy {
			one.turns[i].users = 1
		}
		sent := make([]int64, shards)
		all := int64(0)
		for now.Sub(began) < 20*time.Second {
			now = now.Add(time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(300*time.Millisecond)).Draw(t, "later")))
			for i := range busy {
				for {
					at, ok := one.due(i, now)
					if !ok || at.After(now) {
						break
					}
					one.pay(i, now, slice)
					sent[i] += int64(slice)
					all += int64(slice)
				}
			}
			most := float64(rate)*(now.Sub(began)+throttleSlack).Seconds() + float64(busy*slice)
			if float64(all) > most+1 {
				t.Fatalf("%d bytes in %s at %d a second", all, now.Sub(began), rate)
			}
		}
		least := float64(rate)*(now.Sub(began)-time.Second).Seconds() - float64(busy*slice)
		if float64(all) < least {
			t.Errorf("only %d bytes in %s at %d a second", all, now.Sub(began), rate)
		}
		if most, fewest := slices.Max(sent[:busy]), slices.Min(sent[:busy]); float64(most-fewest) > float64(rate) {
			t.Errorf("they got %v", sent)
		}
	})
}

// TestThrottleChanges: what is owed is owed in bytes, and nothing is owed that passed without
// a throttle.
func TestThrottleChanges(t *testing.T) {
	now := time.Unix(1000, 0)
	due := func(one *throttle) time.Duration {
		at, ok := one.due(0, now)
		if !ok {
			return -1
		}
		return at.Sub(now)
	}
	one := newThrottle(2)
	one.pay(0, now, 1<<30)
	if got := due(one); got != 0 {
		t.Errorf("without a throttle: due in %s", got)
	}
	one.set(now, 1000)
	one.pay(0, now, 4000)
	if got := due(one); got != 4*time.Second {
		t.Errorf("4000 bytes at 1000 a second: due in %s", got)
	}
	one.set(now, 4000)
	if got := due(one); got != time.Second {
		t.Errorf("then at 4000: due in %s", got)
	}
	one.turns[1].users = 1
	one.pay(0, now, 4000)
	if got := due(one); got != 3*time.Second {
		t.Errorf("4000 more, of half the rate: due in %s", got)
	}
	one.set(now, 0)
	if got := due(one); got != -1 {
		t.Errorf("at 0: due in %s", got)
	}
	one.set(now, topicconfig.Unthrottled)
	if got := due(one); got != 0 {
		t.Errorf("lifted: due in %s", got)
	}
	one.set(now, 1)
	one.pay(0, now, 1<<62)
	if got := due(one); got <= 0 {
		t.Errorf("more than can be counted: due in %s", got)
	}
}

// TestThrottlesAllocateNothing: a turn costs no memory.
func TestThrottlesAllocateNothing(t *testing.T) {
	all := newThrottles(2)
	now := time.Unix(1000, 0)
	all.set(now, 1<<30, map[model.NodeID]int64{2: 1 << 30})
	by := throttled{own: true, theirs: true}
	if n := testing.AllocsPerRun(1000, func() {
		now = now.Add(time.Millisecond)
		all.use(by, 2, 1, 1)
		if _, ok := all.begin(by, 2, 1, now, sliceBytes); !ok {
			t.Error("it may never pass")
		}
		all.end(by, 2, 1, now, sliceBytes, 1000)
		all.use(by, 2, 1, -1)
	}); n > 0 {
		t.Errorf("%v allocations a turn", n)
	}
}

// TestLeadersShareAFollowersRate: those from which it catches up, and nobody else.
func TestLeadersShareAFollowersRate(t *testing.T) {
	f := newFleet(t, 4, 3, nil)
	f.throttle(-1, 1000, "", "0:3,1:3,2:3,0:4")
	f.elect(part(1), 2)
	rates := func(want ...int64) {
		t.Helper()
		for i, want := range want {
			b := f.brokers[model.NodeID(i+1)]
			b.throttles.mu.Lock()
			got := b.throttles.ofLocked(3).rate
			b.throttles.mu.Unlock()
			if got != want {
				t.Errorf("broker %d sends broker 3 %d bytes a second, want %d", i+1, got, want)
			}
		}
	}
	const none = topicconfig.Unthrottled
	rates(none, none, none)
	f.mesh.cut(3, 1, true)
	f.mesh.cut(3, 2, true)
	without := []model.NodeID{1, 2, 4}
	f.apply(&image.PartitionChangeRecord{Partition: part(0), ISR: without})
	rates(1000, none, none)
	f.apply(&image.PartitionChangeRecord{Partition: part(1), ISR: without})
	f.apply(&image.PartitionChangeRecord{Partition: part(2), ISR: without})
	rates(500, 500, none)
	f.throttle(-1, 1, "", "*")
	rates(1, 1, none)
	f.throttle(-1, 0, "", "1:3")
	rates(none, 0, none)
	f.throttle(-1, -1, "", "*")
	rates(none, none, none)
}

// throttle sets or takes away what counts for a fleet's topic: rates in bytes a second, -1 for
// none, and lists of replicas.
func (f *fleet) throttle(leaderRate, followerRate int64, leaders, followers string) {
	var records []image.Record
	set := func(r model.Resource, key, value string, unset bool) {
		records = append(records, &image.ConfigRecord{Resource: r, Key: key, Value: value, Unset: unset})
	}
	topic := model.Resource{Type: model.ResourceTopic, Name: "orders"}
	set(topic, "leader.replication.throttled.replicas", leaders, false)
	set(topic, "follower.replication.throttled.replicas", followers, false)
	for key, rate := range map[string]int64{"leader.replication.throttled.rate": leaderRate, "follower.replication.throttled.rate": followerRate} {
		set(model.BrokerResource(model.NoNode), key, fmt.Sprint(rate), rate < 0)
	}
	f.apply(records...)
}

// behindBy cuts a follower off until it has left the ISR, has the leader append batches of so
// many bytes meanwhile, and joins it again when then is done.
func (f *fleet) behindBy(node model.NodeID, batches, bytes int, then func()) {
	f.mesh.cut(node, 1, true)
	f.produce(1, part(0), "alone")
	f.eventually("it leaves the ISR", func() bool { return !slices.Contains(f.isr(part(0)), node) })
	for range batches {
		f.produce(1, part(0), strings.Repeat("x", bytes))
	}
	then()
	f.mesh.cut(node, 1, false)
}

// TestCatchUpIsThrottled: by the leader's rate, and by the follower's, and only where the
// replica is listed.
func TestCatchUpIsThrottled(t *testing.T) {
	const batches, bytes, rate = 20, 100_000, 1_000_000
	for name, throttle := range map[string]func(*fleet){
		"leader":             func(f *fleet) { f.throttle(rate, -1, "0:1", "") },
		"follower":           func(f *fleet) { f.throttle(-1, rate, "", "0:2,0:3") },
		"all":                func(f *fleet) { f.throttle(3*rate, rate, "*", "*") },
		"rates alone":        func(f *fleet) { f.throttle(1, 1, "", "") },
		"others' replicas":   func(f *fleet) { f.throttle(1, 1, "0:2,1:1", "0:3,1:2") },
		"lists alone":        func(f *fleet) { f.throttle(-1, -1, "*", "*") },
		"rates of anybody's": func(f *fleet) { f.throttle(rate, rate, "*", "0:3") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 3, 1, nil)
			f.behindBy(2, batches, bytes, func() { throttle(f) })
			began := time.Now()
			f.eventually("it is in sync again", func() bool { return slices.Contains(f.isr(part(0)), 2) })
			throttled := name != "rates alone" && name != "others' replicas" && name != "lists alone"
			least := time.Duration(batches*bytes-sliceBytes)*time.Second/rate - throttleSlack
			if took := time.Since(began); throttled && took < least {
				t.Errorf("%d bytes took %s, at %d bytes a second", batches*bytes, took, rate)
			}
		})
	}
}

// TestThrottledInSync: those in sync are never throttled, also when they have been listed, and
// one that is stopped is waited for by nobody. It goes on when the throttle is lifted.
func TestThrottledInSync(t *testing.T) {
	for _, lift := range []func(f *fleet){
		func(f *fleet) { f.throttle(-1, 0, "*", "") },
		func(f *fleet) { f.throttle(0, -1, "", "*") },
		func(f *fleet) { f.throttle(0, 0, "0:2,1:1", "0:3,1:2") },
		func(f *fleet) { f.throttle(1<<30, 1<<30, "*", "*") },
	} {
		f := newFleet(t, 3, 1, nil)
		f.throttle(0, 0, "*", "*")
		for range 20 {
			f.produce(1, part(0), strings.Repeat("x", 100_000))
		}
		if got := f.isr(part(0)); len(got) != 3 {
			t.Fatalf("the ISR is %v", got)
		}
		f.behindBy(2, 3, 1000, func() {})
		for range 50 {
			f.produce(1, part(0), "meanwhile")
		}
		if got := f.isr(part(0)); !slices.Equal(got, []model.NodeID{1, 3}) {
			t.Errorf("at a rate of 0 the ISR is %v", got)
		}
		if v := (*f.brokers[2].replicas.Load())[part(0)].view.Load(); v.LEO > 21 {
			t.Errorf("at a rate of 0 it got to %d", v.LEO)
		}
		lift(f)
		f.eventually("it is in sync again", func() bool { return len(f.isr(part(0))) == 3 })
	}
}

// TestCatchUpLeavesRoom: of what catches up, no more than a little is under way at a time, of
// all partitions together, so that what goes to those in sync does not wait behind it; and all
// of them come to the end.
func TestCatchUpLeavesRoom(t *testing.T) {
	const partitions = 30
	f := newFleet(t, 2, partitions, func(c *Config) {
		c.TailBytes = 64 << 20
		c.Limits.AppendStall = time.Hour // what holds is no fault of the log
	})
	f.mesh.cut(2, 1, true)
	for i := range partitions {
		f.apply(&image.PartitionChangeRecord{Partition: part(int32(i)), ISR: []model.NodeID{1}})
	}
	for range 4 {
		for i := range partitions {
			f.produce(1, part(int32(i)), strings.Repeat("x", 200_000))
		}
	}
	f.stores[2].hold.Store(true)
	f.mesh.cut(2, 1, false)
	most := int64(f.brokers[1].cfg.Shards) * (catchUpBytes + sliceBytes)
	f.eventually("it gets what it may", func() bool { return f.stores[2].bytes.Load() > most*3/4 })
	for range 20 {
		f.produce(1, part(0), "goes on")
	}
	if got := f.mesh.counts().most; got > most {
		t.Errorf("%d bytes were under way at a time, want at most %d", got, most)
	}
	f.stores[2].letGo()
	f.eventually("all are in sync", func() bool {
		for i := range partitions {
			if len(f.isr(part(int32(i)))) < 2 {
				return false
			}
		}
		return true
	})
}

// TestThrottlesLoseNothing: while rates and lists change under load, a follower is cut off
// again and again, what is acknowledged is there, and every catch-up ends.
func TestThrottlesLoseNothing(t *testing.T) {
	const partitions = 3
	f := newFleet(t, 3, partitions, func(c *Config) { c.Limits.LagMax = 20 * time.Millisecond })
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 2))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	acked := map[model.Partition]map[int64]string{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ctx.Err() == nil; n++ {
			p, v := part(int32(n%partitions)), fmt.Sprint(n)
			r := f.brokers[1].produce(p, makeBatch(f.t, batch.Options{}, v+strings.Repeat(" ", n%7*5000)))
			if r.Err == nil {
				if acked[p] == nil {
					acked[p] = map[int64]string{}
				}
				acked[p][r.BaseOffset] = v
			}
		}
	}()
	lists := []string{"", "*", "0:1", "1:2,2:3", "0:2,1:1,2:2"}
	rates := []int64{-1, 0, 20_000, 2_000_000}
	for range 60 {
		f.throttle(rates[rng.IntN(4)], rates[rng.IntN(4)], lists[rng.IntN(len(lists))], lists[rng.IntN(len(lists))])
		f.mesh.cut(model.NodeID(2+rng.IntN(2)), 1, rng.IntN(2) == 0)
		<-time.After(time.Duration(rng.IntN(20)) * time.Millisecond)
	}
	cancel()
	<-ended
	f.mesh.cut(2, 1, false)
	f.mesh.cut(3, 1, false)
	f.throttle(2_000_000, 2_000_000, "*", "*")
	f.eventually("all are in sync", func() bool {
		for i := range partitions {
			if len(f.isr(part(int32(i)))) < 3 {
				return false
			}
		}
		return true
	})
	f.throttle(-1, -1, "", "")
	for p, values := range acked {
		if len(values) == 0 {
			t.Errorf("partition %d has acknowledged nothing", p.Index)
		}
		f.holds(p, values)
	}
}

// Replicas that a throttle stops altogether keep nobody from reading who comes back beside
// them, though each had something read when it fell behind.
func TestThrottledReplicasHoldNoReads(t *testing.T) {
	const partitions = 24
	f := newFleet(t, 2, partitions, func(c *Config) {
		c.Shards, c.TailBytes = 1, 1<<10 // whatever is sent is read first
		c.Limits.InFlightBytes, c.Limits.AppendStall = 300_000, time.Hour
	})
	var stopped []string
	for i := 1; i < partitions; i++ {
		stopped = append(stopped, fmt.Sprintf("%d:1", i))
	}
	f.throttle(0, -1, strings.Join(stopped, ","), "")
	f.stores[2].hold.Store(true)
	fallBehind := func(from, to int) {
		var produced sync.WaitGroup
		for i := from; i < to; i++ {
			for range 6 {
				produced.Go(func() { f.produce(1, part(int32(i)), strings.Repeat("x", 200_000)) })
			}
		}
		produced.Wait()
		f.eventually("they have left the ISR", func() bool {
			for i := from; i < to; i++ {
				if len(f.isr(part(int32(i)))) > 1 {
					return false
				}
			}
			return true
		})
	}
	fallBehind(1, partitions)
	fallBehind(0, 1)
	f.stores[2].letGo()
	f.eventually("the one that is not throttled is in sync", func() bool { return len(f.isr(part(0))) == 2 })
}
