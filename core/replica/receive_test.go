package replica

import (
	"slices"
	"testing"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/core/replica/streamwire"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// notes is Streams that notes what it is told.
type notes struct {
	sent  [][]byte
	ended []StreamID
}

func (n *notes) Want(model.NodeID, bool) {}
func (n *notes) End(s StreamID)          { n.ended = append(n.ended, s) }
func (n *notes) Send(_ StreamID, parts [][]byte, sent func(bool)) bool {
	n.sent = append(n.sent, slices.Concat(parts...))
	sent(true)
	return true
}

// peered is a manager on one goroutine, which leads partition 0 and follows broker 2 in
// partition 1, with a stream of each kind.
type peered struct {
	*stepped
	notes   *notes
	buffers *poisoned
	cluster *cluster
}

const leadsOver, followsOver StreamID = 1, 2

// first is the session of its first subscription, in its broker's registration at offset 1.
const first partition.Session = 1<<sessionBits + 1

func newPeered(t *testing.T) *peered {
	t.Helper()
	s := newStepped(t)
	p := &peered{stepped: s, notes: &notes{}, buffers: newPoisoned()}
	cfg := testConfig()
	cfg.OpenWait, cfg.CopyBytes, cfg.TailBytes = 0, 64<<10, 64<<10
	m, err := New(cfg, Deps{
		Directories: []Directory{{ID: testDir, Name: "main", Store: s.store}},
		Logger:      discard(), Clock: s.clock, Executor: s.exec, Streams: p.notes, Buffers: p.buffers,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.m = m
	c := newCluster(t, &image.BrokerRecord{ID: 2, Directories: []model.DirectoryID{{0xd2}}},
		&image.TopicRecord{ID: testTopic, Name: "orders", ReplicationFactorTarget: 2})
	for i, leader := range []model.NodeID{1, 2} {
		c.apply(&image.PartitionRecord{Partition: part(int32(i)), Registration: image.Partition{
			Replicas: []model.NodeID{1, 2}, Directories: []model.DirectoryID{testDir, {0xd2}}, ISR: []model.NodeID{1, 2}, Leader: leader,
		}})
	}
	p.cluster = c
	m.Apply(c.img)
	m.StreamUp(leadsOver, 2, false)
	m.StreamUp(followsOver, 2, true)
	s.settle()
	return p
}

// say has broker 2 say something on a stream.
func (p *peered) say(s StreamID, message []byte) {
	room := p.m.StreamRoom(s, len(message))
	if room == nil {
		p.notes.ended = append(p.notes.ended, s)
		return
	}
	copy(room, message)
	p.m.StreamMessage(s, room)
	p.settle()
}

var hello = streamwire.AppendHello(nil, streamwire.Hello{Version: 1, Node: 2, BrokerEpoch: 2})

func entries(kind streamwire.Kind, add func(b []byte) []byte) []byte {
	b, at := streamwire.Begin(nil, kind)
	b = add(b)
	streamwire.Finish(b, at)
	return b
}

func accepted(session partition.Session) []byte {
	return entries(streamwire.KindAnswer, func(b []byte) []byte {
		return streamwire.AppendAnswer(b, &streamwire.Answer{Partition: part(1), Session: session})
	})
}

func asks(session partition.Session) []byte {
	return entries(streamwire.KindSubscribe, func(b []byte) []byte {
		return streamwire.AppendSubscribe(b, &streamwire.Subscribe{Partition: part(0), Session: session, LastEpoch: -1})
	})
}

func data(session partition.Session, from int64, batches []byte) []byte {
	b, at := streamwire.BeginData(nil)
	b = streamwire.AppendHead(b, &streamwire.Head{Partition: part(1), Session: session, From: from, Bytes: int32(len(batches))})
	streamwire.FinishData(b, at, len(batches))
	return append(b, batches...)
}

func batchAt(t testing.TB, base int64, value string) []byte {
	b := makeBatch(t, batch.Options{}, value).Data
	recordbatch.Stamp(b, base, 0)
	return b
}

func (p *peered) leo(i int32) int64 { return (*p.m.replicas.Load())[part(i)].view.Load().LEO }

// TestADamagedBatchIsNotCopied: the partition asks again, and its stream lasts.
func TestADamagedBatchIsNotCopied(t *testing.T) {
	p := newPeered(t)
	p.say(followsOver, append(slices.Clone(hello), accepted(first)...))
	p.say(followsOver, data(first, 0, batchAt(t, 0, "good")))
	if p.leo(1) != 1 {
		t.Fatalf("the log ends at %d, want 1", p.leo(1))
	}
	bad := batchAt(t, 1, "bad")
	bad[len(bad)-1] ^= 1
	p.say(followsOver, data(first, 1, bad))
	p.say(followsOver, data(first, 1, batchAt(t, 1, "late")))
	if p.leo(1) != 1 || len(p.notes.ended) > 0 {
		t.Fatalf("the log ends at %d, want 1; ended are %v", p.leo(1), p.notes.ended)
	}
	p.notes.sent = nil
	p.clock.now = p.clock.now.Add(p.m.cfg.Limits.BackoffMax)
	p.settle()
	var again []streamwire.Subscribe
	for _, m := range p.notes.sent {
		sections(t, m, func(s streamwire.Section) {
			if s.Kind == streamwire.KindSubscribe {
				e, _, err := streamwire.ReadSubscribe(s.Body)
				if err != nil {
					t.Error(err)
				}
				again = append(again, e)
			}
		})
	}
	if len(again) != 1 || again[0].Session != first+1 || again[0].LEO != 1 {
		t.Fatalf("it asks %+v, want once more, from 1", again)
	}
	if n := p.buffers.lent(); n > 2 { // the tail's
		t.Fatalf("%d buffers are lent", n)
	}
}

// TestWhatEndsAStream: a peer that says what it must not, or more than it was granted.
func TestWhatEndsAStream(t *testing.T) {
	other := streamwire.AppendHello(nil, streamwire.Hello{Version: 1, Node: 3, BrokerEpoch: 2})
	credit := streamwire.AppendCredit(nil, streamwire.Credit{Released: 1, Window: 1})
	big := batchAt(t, 0, string(make([]byte, 30<<10)))
	for name, test := range map[string]struct {
		over StreamID
		says [][]byte
	}{
		"no hello":                    {leadsOver, [][]byte{asks(1)}},
		"another's hello":             {leadsOver, [][]byte{other}},
		"two hellos":                  {leadsOver, [][]byte{hello, hello}},
		"a leader's part":             {leadsOver, [][]byte{hello, data(first, 0, nil)}},
		"a follower's part":           {followsOver, [][]byte{hello, asks(1)}},
		"it is no message":            {followsOver, [][]byte{hello, {1, 2, 3}}},
		"it releases what it had not": {leadsOver, [][]byte{hello, credit}},
		"a message without bound":     {leadsOver, [][]byte{hello, make([]byte, 2<<20)}},
	} {
		p := newPeered(t)
		for _, m := range test.says {
			p.say(test.over, m)
		}
		if !slices.Equal(p.notes.ended, []StreamID{test.over}) {
			t.Errorf("%s: ended are %v", name, p.notes.ended)
		}
	}
	p := newPeered(t)
	p.m.StreamMessage(followsOver, append(slices.Clone(hello), accepted(first)...))
	for range 3 { // without a turn in between nothing is released
		p.m.StreamMessage(followsOver, data(first, 0, big))
	}
	if !slices.Equal(p.notes.ended, []StreamID{followsOver}) {
		t.Errorf("more than was granted: ended are %v", p.notes.ended)
	}
	p.settle()
}

// TestAFollowerWhoseStreamHasEndedIsNotReckonedWith, nor is one that speaks of an earlier
// subscription, on whatever stream.
func TestAFollowerWhoseStreamHasEndedIsNotReckonedWith(t *testing.T) {
	p := newPeered(t)
	r := (*p.m.replicas.Load())[part(0)]
	live := func() bool { return r.machine.Followers(nil)[0].Live }
	p.say(leadsOver, append(slices.Clone(hello), asks(5)...))
	if !live() {
		t.Fatal("a follower has subscribed, and is not reckoned with")
	}
	const again StreamID = 3
	p.m.StreamUp(again, 2, false)
	p.say(again, append(slices.Clone(hello), asks(4)...))
	if sub := r.subscriberOf(2); sub.feed.link.id != leadsOver || sub.session != 5 {
		t.Fatalf("what came late is taken: session %d on stream %d", sub.session, sub.feed.link.id)
	}
	p.m.StreamDown(again)
	p.settle()
	if !live() {
		t.Fatal("a follower is not reckoned with after another of its streams has ended")
	}
	p.m.StreamDown(leadsOver)
	p.settle()
	if live() || len(r.subscribers) > 0 {
		t.Fatal("a follower is reckoned with, and its stream has ended")
	}
}

// TestStreamsEndWithARegistration: the peer's, or this broker's own.
func TestStreamsEndWithARegistration(t *testing.T) {
	for node, dir := range map[model.NodeID]model.DirectoryID{1: testDir, 2: {0xd2}} {
		p := newPeered(t)
		p.say(leadsOver, hello)
		p.say(followsOver, hello)
		p.m.Apply(p.cluster.apply(&image.TopicRecord{ID: model.TopicID{9}, Name: "other"}))
		if len(p.notes.ended) > 0 {
			t.Fatalf("ended are %v", p.notes.ended)
		}
		p.m.Apply(p.cluster.apply(&image.BrokerRecord{ID: node, Directories: []model.DirectoryID{dir}, Incarnation: [16]byte{7}}))
		if !slices.Equal(p.notes.ended, []StreamID{leadsOver, followsOver}) {
			t.Errorf("broker %d is registered anew: ended are %v", node, p.notes.ended)
		}
	}
}

// FuzzMessages: whatever a peer says, nothing panics, and what its messages took of memory
// comes back.
func FuzzMessages(f *testing.F) {
	ack := entries(streamwire.KindAck, func(b []byte) []byte {
		return streamwire.AppendAck(b, &streamwire.Ack{Partition: part(0), Session: 1, LEO: 1})
	})
	end := entries(streamwire.KindEnd, func(b []byte) []byte {
		return streamwire.AppendEnd(b, &streamwire.End{Partition: part(1), Session: first})
	})
	credit := streamwire.AppendCredit(nil, streamwire.Credit{Window: 1 << 20})
	f.Add(false, slices.Concat(credit, asks(1), ack), ack)
	f.Add(true, slices.Concat(accepted(first), data(first, 0, batchAt(f, 0, "a"))), slices.Concat(data(first, 1, batchAt(f, 1, "b")), end))
	f.Fuzz(func(t *testing.T, follows bool, one, two []byte) {
		p := newPeered(t)
		over := leadsOver
		if follows {
			over = followsOver
		}
		a := makeBatch(t, batch.Options{}, "a")
		a.Partition, a.Acks = part(0), model.AcksLeader
		p.m.Append(t.Context(), a, func(model.Appended) {})
		p.say(over, append(slices.Clone(hello), one...))
		p.say(over, two)
		p.m.StreamDown(over)
		p.m.Stop()
		p.settle()
		for _, s := range p.m.shards {
			for _, r := range s.replicas {
				s.tails.reset(&r.tail)
			}
		}
		if n := p.buffers.lent(); n > 0 {
			t.Fatalf("%d buffers are not given back", n)
		}
	})
}
