package replica

import (
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/image/topicconfig"
	"github.com/brokerd/brokerd/core/model"
)

// throttleSlack is for how long a throttle saves up what is not used of its rate, so that a
// timer that fires late costs nothing.
const throttleSlack = 500 * time.Millisecond

// throttle lets bytes go at a rate, which some shards share: each that has something to send
// gets the same part. Who has sent pays afterwards, so that a batch of any size passes. It
// knows the time by what it is told.
type throttle struct {
	rate  int64 // bytes a second; 0: nothing passes
	turns []turn
}

// turn is what one shard has of a throttle.
type turn struct {
	free  time.Time // from when on it may send again; before now it has saved up
	users int       // that wait to send, or are about to
	aside int       // bytes that those are about to send
}

func newThrottle(shards int) *throttle {
	return &throttle{rate: topicconfig.Unthrottled, turns: make([]turn, shards)}
}

// set changes the rate. What is owed is owed in bytes.
func (t *throttle) set(now time.Time, rate int64) (changed bool) {
	if rate == t.rate {
		return false
	}
	for i := range t.turns {
		owed := t.turns[i].free.Sub(now)
		switch {
		case t.rate == topicconfig.Unthrottled:
			t.turns[i].free = now
		case owed > 0 && rate > 0:
			t.turns[i].free = now.Add(scaled(int64(owed), t.rate, rate))
		}
	}
	t.rate = rate
	return true
}

// due is when a shard may send more. False: not while the rate is what it is.
func (t *throttle) due(shard int, now time.Time) (at time.Time, ok bool) {
	turn := &t.turns[shard]
	switch t.rate {
	case topicconfig.Unthrottled:
		return now, true
	case 0:
		return time.Time{}, false
	}
	at = turn.free
	if least := now.Add(-throttleSlack); at.Before(least) {
		at = least
	}
	return at.Add(t.cost(shard, now, turn.aside)), true
}

// pay counts what a shard has sent.
func (t *throttle) pay(shard int, now time.Time, bytes int) {
	if t.rate == topicconfig.Unthrottled || t.rate == 0 {
		return
	}
	turn := &t.turns[shard]
	cost := t.cost(shard, now, bytes)
	if least := now.Add(-throttleSlack); turn.free.Before(least) {
		turn.free = least
	}
	turn.free = turn.free.Add(cost)
}

// cost is for how long a shard may send nothing after so much, by its part of the rate.
func (t *throttle) cost(shard int, now time.Time, bytes int) time.Duration {
	sharers := int64(1)
	for i := range t.turns {
		if other := &t.turns[i]; i != shard && (other.users > 0 || other.free.After(now)) {
			sharers++
		}
	}
	return scaled(int64(bytes)*sharers, int64(time.Second), t.rate)
}

// scaled is a*b/c, up to a year.
func scaled(a, b, c int64) time.Duration {
	const most = 365 * 24 * time.Hour
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high >= uint64(c) {
		return most
	}
	q, _ := bits.Div64(high, low, uint64(c))
	if q > uint64(most) {
		return most
	}
	return time.Duration(q)
}

// throttles are those that this broker goes by as leader. (KIP-73)
type throttles struct {
	mu     sync.Mutex
	shards int
	own    *throttle                  // of what this broker sends
	theirs map[model.NodeID]*throttle // of what each follower takes from here
}

// throttled says which throttles count for what one follower is sent of a partition.
type throttled struct {
	own    bool
	theirs bool
}

func newThrottles(shards int) *throttles {
	return &throttles{shards: shards, own: newThrottle(shards), theirs: make(map[model.NodeID]*throttle)}
}

// set changes the rates. Followers that are not in theirs have none.
func (t *throttles) set(now time.Time, own int64, theirs map[model.NodeID]int64) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed = t.own.set(now, own)
	for node := range theirs {
		t.ofLocked(node)
	}
	for node, one := range t.theirs {
		rate, ok := theirs[node]
		if !ok {
			rate = topicconfig.Unthrottled
		}
		changed = one.set(now, rate) || changed
	}
	return changed
}

func (t *throttles) ofLocked(node model.NodeID) *throttle {
	one := t.theirs[node]
	if one == nil {
		one = newThrottle(t.shards)
		t.theirs[node] = one
	}
	return one
}

// eachLocked calls f for the throttles that count.
func (t *throttles) eachLocked(by throttled, node model.NodeID, f func(*throttle)) {
	if by.own {
		f(t.own)
	}
	if by.theirs {
		f(t.ofLocked(node))
	}
}

// use counts one more that waits to send, or one less.
func (t *throttles) use(by throttled, node model.NodeID, shard, more int) {
	if by == (throttled{}) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.eachLocked(by, node, func(one *throttle) { one.turns[shard].users += more })
}

// begin sets bytes aside for one that waits to send, if it may now. Else it says when it is to
// ask again; false: not before the rates have changed.
func (t *throttles) begin(by throttled, node model.NodeID, shard int, now time.Time, bytes int) (at time.Time, ok bool) {
	if by == (throttled{}) {
		return now, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok = now, true
	t.eachLocked(by, node, func(one *throttle) {
		due, ever := one.due(shard, now)
		if due.After(at) {
			at = due
		}
		ok = ok && ever
	})
	if ok && !at.After(now) {
		t.eachLocked(by, node, func(one *throttle) { one.turns[shard].aside += bytes })
	}
	return at, ok
}

// end counts what one has sent for which bytes were set aside.
func (t *throttles) end(by throttled, node model.NodeID, shard int, now time.Time, aside, sent int) {
	if by == (throttled{}) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.eachLocked(by, node, func(one *throttle) {
		one.turns[shard].aside -= aside
		one.pay(shard, now, sent)
	})
}

// throttledReplicas says which throttles count for what is sent of a partition.
type throttledReplicas struct {
	own    bool
	theirs []model.NodeID
}

// of is what counts for one follower.
func (t *throttledReplicas) of(node model.NodeID) throttled {
	return throttled{own: t.own, theirs: slices.Contains(t.theirs, node)}
}

func throttledOf(index int32, leader model.NodeID, replicas []model.NodeID, s *TopicSettings) throttledReplicas {
	t := throttledReplicas{own: s.LeaderThrottled.Has(index, int32(leader))}
	for _, node := range replicas {
		if node != leader && s.FollowerThrottled.Has(index, int32(node)) {
			t.theirs = append(t.theirs, node)
		}
	}
	return t
}

// applyThrottles takes the rates that the metadata says.
func (m *Manager) applyThrottles(img *image.Image) {
	theirs := make(map[model.NodeID]int64)
	for node, leaders := range m.leadersThrottled() {
		if _, here := leaders[m.cfg.NodeID]; !here {
			continue
		}
		rate := img.BrokerConfig(node).FollowerThrottle
		if rate != topicconfig.Unthrottled && rate > 0 {
			rate = max(1, rate/int64(len(leaders)))
		}
		theirs[node] = rate
	}
	if !m.throttles.set(m.clockNow(), img.BrokerConfig(m.cfg.NodeID).LeaderThrottle, theirs) {
		return
	}
	for _, s := range m.shards {
		s.loop.Complete(Input{kind: inputThrottles})
	}
}

// leadersThrottled are the brokers from which each throttled follower catches up. They share
// its rate: each knows from the metadata who the others are.
func (m *Manager) leadersThrottled() map[model.NodeID]map[model.NodeID]struct{} {
	out := make(map[model.NodeID]map[model.NodeID]struct{})
	for _, seen := range m.topics {
		if seen.settings.FollowerThrottled.Empty() {
			continue
		}
		for i := range seen.topic.Partitions {
			p := &seen.topic.Partitions[i]
			if p.Leader == model.NoNode {
				continue
			}
			for _, node := range p.Replicas {
				if slices.Contains(p.ISR, node) || !seen.settings.FollowerThrottled.Has(int32(i), int32(node)) {
					continue
				}
				if out[node] == nil {
					out[node] = make(map[model.NodeID]struct{})
				}
				out[node][p.Leader] = struct{}{}
			}
		}
	}
	return out
}
