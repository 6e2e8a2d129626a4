package partition

import (
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// copying is a follower in a session, whose store answers at once.
type copying struct {
	m       *Machine
	in      Replicate
	done    AppendDone
	out     Effects
	batches [1]recordbatch.Info
	seq     int32
}

func newCopying() *copying {
	c := &copying{m: New(Config{Node: 1, Limits: DefaultLimits(), Settings: DefaultSettings()})}
	c.m.Step(epochZero, &Follow{Epoch: 1, Leader: 2, ISR: assignment(2), Replicas: assignment(2), Target: 2}, &c.out)
	c.m.Step(epochZero, &Opened{Gen: c.m.gen}, &c.out)
	c.m.Step(epochZero, &Reached{Node: 2, Up: true}, &c.out)
	c.m.Step(epochZero, &Subscribed{Node: 2, Session: 1, Epoch: 1}, &c.out)
	c.in = Replicate{Session: 1, Epoch: 1}
	c.done = AppendDone{Gen: c.m.gen}
	return c
}

// copy reports whether a batch was copied and acknowledged.
func (c *copying) copy() bool {
	c.out.Reset()
	c.in.From, c.in.HighWater = c.m.next, c.m.next
	c.batches[0] = *idempotent(1, 0, c.seq, c.m.next, 1)
	c.batches[0].LeaderEpoch, c.batches[0].Bytes = 1, 100
	c.in.Batches = c.batches[:]
	c.m.Step(epochZero, &c.in, &c.out)
	c.done.Base, c.done.Last, c.done.LEO = c.out.Copies[0].Base, c.out.Copies[0].Last, c.out.Copies[0].Last+1
	c.m.Step(epochZero, &c.done, &c.out)
	c.seq = nextSequence(c.seq)
	return len(c.out.Releases) == 1 && c.out.Ack != nil && c.out.Ack.LEO == c.m.stored
}

// leading is a leader of three, whose store and followers answer at once.
type leading struct {
	appender
	acks [2]Acknowledged
}

func newLeading() *leading {
	l := &leading{}
	l.m = New(Config{Node: 1, Limits: DefaultLimits(), Settings: DefaultSettings()})
	l.in = Append{Acks: model.AcksAll, LogAppendTime: -1}
	l.m.Step(epochZero, &Lead{Epoch: 1, ISR: assignment(3), Replicas: assignment(3), Target: 3}, &l.out)
	l.m.Step(epochZero, &Opened{Gen: l.m.gen}, &l.out)
	for i := range l.acks {
		node := model.NodeID(i + 2)
		l.m.Step(epochZero, &Subscribe{Node: node, BrokerEpoch: 1, Session: 1, Epoch: 1, LastEpoch: model.NoEpoch}, &l.out)
		l.acks[i] = Acknowledged{Node: node, Session: 1, Epoch: 1}
	}
	l.done = AppendDone{Gen: l.m.gen}
	return l
}

// append reports whether the batch was answered when both had acknowledged it.
func (l *leading) append() bool {
	l.out.Reset()
	l.in.Batch = *idempotent(1, 0, l.seq, 0, 1)
	l.in.Deadline = epochZero.Add(time.Minute)
	l.m.Step(epochZero, &l.in, &l.out)
	l.done.Base, l.done.Last, l.done.LEO = l.out.Appends[0].Base, l.out.Appends[0].Last, l.out.Appends[0].Last+1
	l.m.Step(epochZero, &l.done, &l.out)
	early := len(l.out.Responses)
	for i := range l.acks {
		l.acks[i].LEO = l.done.LEO
		l.m.Step(epochZero, &l.acks[i], &l.out)
	}
	l.seq = nextSequence(l.seq)
	return early == 0 && len(l.out.Responses) == 1 && l.out.Responses[0].Err == nil
}

func TestReplicationAllocatesNothing(t *testing.T) {
	c, l := newCopying(), newLeading()
	if n := testing.AllocsPerRun(1000, func() {
		if !c.copy() {
			t.Fatal(c.out)
		}
	}); n > 0 {
		t.Errorf("%v allocations for a batch that is copied", n)
	}
	if n := testing.AllocsPerRun(1000, func() {
		if !l.append() {
			t.Fatal(l.out.Responses)
		}
	}); n > 0 {
		t.Errorf("%v allocations for a batch that two others acknowledge", n)
	}
}

// BenchmarkCopy is one batch of the leader's from Replicate to its Ack.
func BenchmarkCopy(b *testing.B) {
	c := newCopying()
	b.ReportAllocs()
	for b.Loop() {
		if !c.copy() {
			b.Fatal(c.out)
		}
	}
}

// BenchmarkAppendReplicated is one batch from Append to its answer, with two followers.
func BenchmarkAppendReplicated(b *testing.B) {
	l := newLeading()
	b.ReportAllocs()
	for b.Loop() {
		if !l.append() {
			b.Fatal(l.out.Responses)
		}
	}
}
