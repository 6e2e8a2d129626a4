package peer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/transport"
)

// story is one machine, of node 0, whose driver is the test.
type story struct {
	t       *testing.T
	m       *Machine
	now     time.Time
	out     []Effect // since the last look
	answers []string
}

func newStory(t *testing.T, change func(*Config)) *story {
	cfg := Defaults()
	cfg.Identity = transport.Identity{ClusterID: "c", DirectoryID: transport.DirectoryID{1}}
	if change != nil {
		change(&cfg)
	}
	m, err := New(cfg, rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	return &story{t: t, m: m, now: time.Unix(1000, 0)}
}

func (s *story) step(in Input) {
	s.t.Helper()
	var out Effects
	s.m.Step(s.now, in, &out)
	for _, e := range out.List {
		if e.Kind == Answered {
			e.Done(e.Message, e.Err)
		}
	}
	s.out = append(s.out, out.List...)
}

// take returns the effects of a kind since the last look at it.
func (s *story) take(k EffectKind) (some []Effect) {
	var rest []Effect
	for _, e := range s.out {
		if e.Kind == k {
			some = append(some, e)
		} else {
			rest = append(rest, e)
		}
	}
	s.out = rest
	return some
}

func (s *story) one(k EffectKind) Effect {
	s.t.Helper()
	some := s.take(k)
	if len(some) != 1 {
		s.t.Fatalf("%d effects %s, not one, beside %v", len(some), k, s.out)
	}
	return some[0]
}

func (s *story) none(k EffectKind) {
	s.t.Helper()
	if some := s.take(k); len(some) > 0 {
		s.t.Fatalf("%d effects %s: %+v", len(some), k, some)
	}
}

// wait lets time pass, tick by tick.
func (s *story) wait(d time.Duration) {
	s.t.Helper()
	end := s.now.Add(d)
	for range 10_000 {
		at, ok := s.m.Deadline()
		if !ok || at.After(end) {
			s.now = end
			return
		}
		s.now = latest(s.now, at)
		s.step(&Tick{})
	}
	s.t.Fatal("the machine wants to be called again and again")
}

func node1() transport.Peer {
	return transport.Peer{Identity: transport.Identity{ClusterID: "c", NodeID: 1, DirectoryID: transport.DirectoryID{2}}}
}

func (s *story) accept(link LinkID, lane transport.Lane) {
	s.step(&Accepted{Link: link, Peer: node1(), Lane: lane})
}

func (s *story) receive(link LinkID, data []byte) {
	s.step(&Received{Link: link, Data: append([]byte(nil), data...)})
}

func (s *story) ask(question string) {
	s.step(&Ask{To: address(1), Question: []byte(question), Timeout: 2 * time.Second, Done: func(answer []byte, err error) {
		switch {
		case err == nil:
			s.answers = append(s.answers, string(answer))
		case errors.Is(err, model.ErrRequestTimedOut):
			s.answers = append(s.answers, "timed out")
		default:
			s.answers = append(s.answers, transport.Class(err).Error())
		}
	}})
}

// dialTo makes the link that is dialled now.
func (s *story) dialTo(node int32) LinkID {
	s.t.Helper()
	e := s.one(Dial)
	if e.Target.NodeID != node {
		s.t.Fatalf("node %d is dialled, not node %d", e.Target.NodeID, node)
	}
	s.step(&Dialled{Link: e.Link, Peer: node1()})
	return e.Link
}

func (s *story) refuse() {
	s.t.Helper()
	s.step(&Failed{Link: s.one(Dial).Link, Err: transport.Errorf(transport.ErrRefused, "nobody is there")})
}

// written takes what was written, and says that it was taken.
func (s *story) written(link LinkID) (all [][]byte) {
	s.t.Helper()
	for _, e := range s.take(Write) {
		if e.Link != link {
			s.t.Fatalf("link %d was written on, not link %d", e.Link, link)
		}
		var whole []byte
		for _, p := range e.Parts {
			whole = append(whole, p...)
		}
		all = append(all, whole)
		s.step(&Sent{Link: link})
	}
	return all
}

func (s *story) told(k EventKind) (some []Event) {
	s.t.Helper()
	for _, e := range s.take(Told) {
		if e.Event.Kind == k {
			some = append(some, e.Event)
		}
	}
	return some
}

// One link carries what is posted and asked, and ends when nobody needs it any more.
func TestOneControlLink(t *testing.T) {
	s := newStory(t, nil)
	s.step(&Post{To: address(1), Message: []byte("one")})
	s.ask("two")
	s.step(&Post{To: address(1), Message: []byte("three")})
	link := s.dialTo(1)
	all := s.written(link)
	if len(all) != 3 || string(all[0][headerBytes:]) != "one" || string(all[1][headerBytes:]) != "two" || all[1][1] != byte(kindQuestion) {
		t.Fatalf("written: %q", all)
	}
	_, number, _, _ := parse(all[1])
	s.receive(link, append(header(kindAnswer, number+1), "to another"...))
	s.receive(link, append(header(kindAnswer, number), "four"...))
	s.receive(link, append(header(kindAnswer, number), "again"...))
	if fmt.Sprint(s.answers) != "[four]" {
		t.Fatalf("answers: %q", s.answers)
	}
	// What was written is proved to have arrived.
	s.wait(time.Second)
	ping := s.written(link)
	if len(ping) != 1 || ping[0][1] != byte(kindPing) {
		t.Fatalf("written after a second: %x", ping)
	}
	_, number, _, _ = parse(ping[0])
	s.receive(link, header(kindPong, number))
	s.wait(58 * time.Second)
	s.none(CloseLink)
	s.none(Write)
	s.wait(time.Second)
	if s.one(CloseLink).Link != link {
		t.Fatal("another link was closed")
	}
	s.step(&Ended{Link: link})
	s.wait(time.Hour)
	s.none(Dial)
	if len(s.told(Lost)) > 0 {
		t.Error("an idle link is told to be lost")
	}
}

// Pauses grow from 50 ms to 2 s, and a refusal is told, and ends questions at once.
func TestBackOff(t *testing.T) {
	s := newStory(t, nil)
	s.step(&Locate{Node: 1, Endpoint: "n1"})
	s.step(&Want{Node: 1, Wanted: true})
	most := 50 * time.Millisecond
	for range 20 {
		before := s.now
		s.refuse()
		if events := s.told(Refused); len(events) != 1 || events[0].Address != address(1) {
			t.Fatalf("told: %+v", events)
		}
		for len(s.out) == 0 {
			at, ok := s.m.Deadline()
			if !ok {
				t.Fatal("nothing is due")
			}
			s.wait(at.Sub(s.now))
		}
		if pause := s.now.Sub(before); pause < most/2 || pause > most {
			t.Fatalf("a pause of %s, not up to %s", pause, most)
		}
		most = min(2*most, 2*time.Second)
	}
	s.refuse()
	s.ask("anybody?")
	for len(s.answers) == 0 {
		s.wait(10 * time.Millisecond)
		for _, e := range s.take(Dial) {
			s.step(&Failed{Link: e.Link, Err: transport.Errorf(transport.ErrRefused, "nobody is there")})
		}
	}
	if fmt.Sprint(s.answers) != "[refused]" {
		t.Fatalf("answers: %q", s.answers)
	}
}

// A stream that stood is dialled again at once, one that did not after a pause, and one that
// is not wanted not at all.
func TestStreamsAreDialledAgain(t *testing.T) {
	s := newStory(t, nil)
	s.step(&Want{Node: 1, Wanted: true})
	s.none(Dial) // nobody knows where
	s.step(&Locate{Node: 1, Endpoint: "n1"})
	link := s.dialTo(1)
	if up := s.one(StreamUp); up.Stream != 1 || !up.Was || up.Peer != node1() {
		t.Fatalf("%+v", up)
	}
	if hello := s.written(link); len(hello) != 1 || hello[0][1] != byte(kindStream) {
		t.Fatalf("written: %x", hello)
	}
	s.wait(100 * time.Millisecond)
	s.step(&Ended{Link: link})
	s.one(StreamDown)
	s.none(Dial)
	s.wait(50 * time.Millisecond)
	link = s.dialTo(1)
	s.written(link)
	s.wait(time.Second)
	s.written(link)
	s.receive(link, []byte{0})
	s.step(&Ended{Link: link})
	if down := s.one(StreamDown); down.Stream != 2 {
		t.Fatalf("%+v", down)
	}
	link = s.dialTo(1)
	s.written(link)
	s.step(&Want{Node: 1})
	s.one(CloseLink)
	s.receive(link, []byte("it is too late for this"))
	s.step(&Ended{Link: link})
	s.one(StreamDown)
	s.none(StreamMessage)
	s.wait(time.Hour)
	s.none(Dial)
}

// Where a peer dials, what waits for it is dialled at once.
func TestWhoDialsIsThere(t *testing.T) {
	s := newStory(t, nil)
	s.step(&Locate{Node: 1, Endpoint: "n1"})
	s.step(&Want{Node: 1, Wanted: true})
	for range 10 {
		s.refuse()
		s.wait(3 * time.Second)
	}
	s.refuse()
	s.none(Dial)
	s.accept(2, transport.Control)
	s.dialTo(1)
}

// The end of a control link is a suspicion: one dial finds out.
func TestLostControlLink(t *testing.T) {
	s := newStory(t, nil)
	s.ask("one")
	link := s.dialTo(1)
	s.written(link)
	s.wait(1500 * time.Millisecond)
	s.take(Write)
	s.take(Told)
	s.step(&Ended{Link: link})
	if fmt.Sprint(s.answers) != "[closed]" || len(s.told(Lost)) != 1 {
		t.Fatalf("answers: %q, and told %+v", s.answers, s.out)
	}
	s.refuse()
	if len(s.told(Refused)) != 1 {
		t.Fatal("the refusal is not told")
	}
	s.wait(time.Hour)
	s.none(Dial)
}

// A link on which nothing comes back ends, however much was written, and the next is dialled.
func TestSilence(t *testing.T) {
	s := newStory(t, nil)
	s.step(&Post{To: address(1), Message: []byte("one")})
	link := s.dialTo(1)
	s.written(link)
	s.wait(time.Second)
	s.written(link)
	s.step(&Post{To: address(1), Message: []byte("two")})
	s.written(link)
	s.wait(4*time.Second - time.Nanosecond)
	s.none(CloseLink)
	s.wait(time.Millisecond)
	s.one(CloseLink)
	s.step(&Post{To: address(1), Message: []byte("three")})
	s.step(&Ended{Link: link})
	link = s.dialTo(1)
	if all := s.written(link); string(all[len(all)-1][headerBytes:]) != "three" {
		t.Fatalf("written: %q", all)
	}
}

// What a network may hold may take its time.
func TestSlowIsNotSilent(t *testing.T) {
	s := newStory(t, nil)
	s.step(&Post{To: address(1), Message: make([]byte, 32<<20), Bulk: true})
	link := s.dialTo(1)
	s.written(link)
	s.wait(30 * time.Second)
	s.none(CloseLink)
	s.wait(10 * time.Second)
	s.one(CloseLink)
}

// A node that did not run itself takes nobody's silence amiss.
func TestPausedItself(t *testing.T) {
	s := newStory(t, nil)
	s.step(&Post{To: address(1), Message: []byte("one")})
	link := s.dialTo(1)
	s.written(link)
	s.wait(time.Second)
	s.written(link)
	s.now = s.now.Add(30 * time.Second)
	s.step(&Tick{})
	s.none(CloseLink)
	s.wait(5 * time.Second)
	s.one(CloseLink)
}

// Of what waits for a link, the oldest posts are dropped, and questions are not.
func TestWhatWaitsIsBounded(t *testing.T) {
	s := newStory(t, func(c *Config) { c.QueueBytesMax = 1000 })
	s.ask("a")
	for i := range 20 {
		s.step(&Post{To: address(1), Message: append([]byte{byte(i)}, make([]byte, 99)...)})
	}
	link := s.dialTo(1)
	all := s.written(link)
	if len(all) != 9 || all[0][1] != byte(kindQuestion) || all[1][headerBytes] != 12 || all[8][headerBytes] != 19 {
		t.Fatalf("%d were written: %q", len(all), all)
	}
	for range asksMax {
		s.ask("b")
	}
	if len(s.answers) == 0 || s.answers[0] != "retry" {
		t.Fatalf("answers: %q", s.answers)
	}
}

// Posts are not sent when they are old; questions are, while somebody waits.
func TestOldPosts(t *testing.T) {
	s := newStory(t, nil)
	s.step(&Post{To: address(1), Message: []byte("old")})
	s.ask("new")
	s.wait(1100 * time.Millisecond)
	link := s.dialTo(1)
	if all := s.written(link); len(all) != 1 || all[0][1] != byte(kindQuestion) {
		t.Fatalf("written: %q", all)
	}
	s.wait(time.Second)
	if fmt.Sprint(s.answers) != "[timed out]" {
		t.Fatalf("answers: %q", s.answers)
	}
}

// A bulk message goes over a link of its own, which says first what it is.
func TestBulk(t *testing.T) {
	s := newStory(t, nil)
	s.step(&Post{To: address(1), Message: []byte("large"), Bulk: true})
	if e := s.out[0]; e.Target.Lane != transport.Data {
		t.Fatalf("%+v", e)
	}
	all := s.written(s.dialTo(1))
	if len(all) != 2 || len(all[0]) != headerBytes || all[0][1] != byte(kindBulk) || string(all[1][headerBytes:]) != "large" {
		t.Fatalf("written: %q", all)
	}
	s.accept(2, transport.Data)
	s.receive(2, all[0])
	s.receive(2, all[1])
	if e := s.one(Posted); string(e.Message) != "large" || e.Peer != node1() {
		t.Fatalf("%+v", e)
	}
}

// A stream's message is written as it is, without a copy, and settled when it was taken, or
// never will be.
func TestStreamMessages(t *testing.T) {
	s := newStory(t, func(c *Config) { c.StreamBytesMax = 3 << 20 })
	s.accept(2, transport.Data)
	s.receive(2, header(kindStream, 0))
	up := s.one(StreamUp)
	if up.Was {
		t.Fatal("a stream that was accepted is told to be dialled")
	}
	settled := map[int]bool{}
	part := make([]byte, 1<<20)
	send := func(i int) bool {
		var out Effects
		ok := s.m.Send(s.now, up.Stream, [][]byte{part, {byte(i)}}, func(taken bool) { settled[i] = taken }, &out)
		s.out = append(s.out, out.List...)
		return ok
	}
	if !send(0) || !send(1) {
		t.Fatal("there is room for two")
	}
	w := s.one(Write)
	if &w.Parts[0][0] != &part[0] {
		t.Error("the message was copied")
	}
	s.step(&Sent{Link: 2})
	if e := s.one(Settled); !e.Was {
		t.Error("it was taken")
	} else {
		e.Sent(e.Was)
	}
	if !send(2) || send(3) {
		t.Fatal("there is room for one more, and not for two")
	}
	s.one(CloseLink)
	if send(4) {
		t.Fatal("the stream has ended")
	}
	s.step(&Ended{Link: 2})
	for _, e := range s.take(Settled) {
		e.Sent(e.Was)
	}
	s.one(StreamDown)
	if len(settled) != 3 || !settled[0] || settled[1] || settled[2] {
		t.Fatalf("settled: %v", settled)
	}
}

// Who does not belong here has no link, and is told of.
func TestStrangers(t *testing.T) {
	id := func(cluster string, node int32, directory byte, proof transport.Proof) transport.Peer {
		return transport.Peer{Identity: transport.Identity{ClusterID: cluster, NodeID: node, DirectoryID: transport.DirectoryID{directory}}, Proof: proof}
	}
	for name, c := range map[string]struct {
		peer transport.Peer
		mine string
		ok   bool
	}{
		"a member":                {id("c", 1, 2, transport.ProofMember), "c", true},
		"more proof":              {id("c", 1, 2, transport.ProofNode), "c", true},
		"less proof":              {id("c", 1, 2, transport.ProofNone), "c", false},
		"of another cluster":      {id("d", 1, 2, transport.ProofMember), "c", false},
		"of no cluster":           {id("", 1, 2, transport.ProofMember), "c", true},
		"of some, as I have none": {id("d", 1, 2, transport.ProofMember), "", true},
		"this node itself":        {id("c", 0, 1, transport.ProofMember), "c", false},
		"this node's number":      {id("c", 0, 2, transport.ProofMember), "c", false},
		"no number":               {id("c", -1, 2, transport.ProofMember), "c", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t, func(cfg *Config) { cfg.Proof, cfg.Identity.ClusterID = transport.ProofMember, c.mine })
			s.step(&Accepted{Link: 2, Peer: c.peer, Lane: transport.Control})
			s.receive(2, append(header(kindPost, 0), "hello"...))
			if got := len(s.take(Posted)) == 1; got != c.ok {
				t.Fatalf("its post was taken: %v", got)
			}
			if rejected := len(s.take(Told)) + len(s.take(CloseLink)); (rejected == 0) != c.ok {
				t.Fatalf("%d effects say that it was rejected", rejected)
			}
			// The same where it is dialled, by its endpoint alone.
			s.step(&Ask{To: model.Address{Endpoint: "there", Node: model.NoNode}, Timeout: time.Second, Done: func([]byte, error) {}})
			s.step(&Dialled{Link: s.one(Dial).Link, Peer: c.peer})
			if closed := len(s.take(CloseLink)); (closed == 0) != c.ok {
				t.Fatalf("%d links were closed", closed)
			}
			if answered := s.take(Answered); (len(answered) == 0) != c.ok || len(answered) == 1 && answered[0].Err == nil {
				t.Fatalf("answered: %+v", answered)
			}
		})
	}
}

// Who answers for another node is not taken for it.
func TestAnotherNodeAnswers(t *testing.T) {
	s := newStory(t, nil)
	s.step(&Ask{To: address(2), Question: nil, Timeout: time.Second, Done: func(_ []byte, err error) {
		s.answers = append(s.answers, transport.Class(err).Error())
	}})
	s.step(&Dialled{Link: s.one(Dial).Link, Peer: node1()})
	s.one(CloseLink)
	if s.none(Write); fmt.Sprint(s.answers) != "[another node]" {
		t.Fatalf("answers: %q", s.answers)
	}
}

// A peer's links are bounded, the oldest goes; so are the questions that it asks.
func TestPeersAreBounded(t *testing.T) {
	s := newStory(t, nil)
	for i := range 10 {
		s.accept(LinkID(2+2*i), transport.Control)
	}
	closed := s.take(CloseLink)
	if len(closed) != 6 || closed[0].Link != 2 || closed[5].Link != 12 {
		t.Fatalf("closed: %+v", closed)
	}
	for i := range 2 * questionsMax {
		s.receive(20, header(kindQuestion, uint64(i)))
	}
	asked := s.take(Asked)
	if len(asked) != questionsMax {
		t.Fatalf("%d questions were asked", len(asked))
	}
	s.step(&Answer{Question: asked[3].Question, Answer: []byte("yes")})
	s.step(&Answer{Question: asked[3].Question, Answer: []byte("twice")})
	if all := s.written(20); len(all) != 1 || string(all[0]) != string(append(header(kindAnswer, 3), "yes"...)) {
		t.Fatalf("written: %q", all)
	}
	for range 2 { // those before are forgotten, to the last
		s.wait(time.Minute)
		for i := range questionsMax {
			s.receive(20, header(kindQuestion, uint64(i)))
		}
		if asked = s.take(Asked); len(asked) != questionsMax {
			t.Fatalf("%d questions were asked a minute later", len(asked))
		}
	}
}

// A data link that says nothing ends.
func TestSilentDataLink(t *testing.T) {
	s := newStory(t, nil)
	s.accept(2, transport.Data)
	if most := s.m.MessageBytesMax(2); most != HelloBytesMax {
		t.Errorf("a first message may have %d bytes", most)
	}
	s.wait(5 * time.Second)
	s.one(CloseLink)
}

// After Stop, all that waits is ended, and nothing is taken.
func TestStop(t *testing.T) {
	s := newStory(t, nil)
	s.ask("one")
	link := s.dialTo(1)
	s.ask("two")
	s.step(&Stop{})
	s.ask("three")
	if fmt.Sprint(s.answers) != "[closed closed closed]" || s.one(CloseLink).Link != link {
		t.Fatalf("answers: %q", s.answers)
	}
	s.step(&Ended{Link: link})
	s.accept(2, transport.Control)
	s.one(CloseLink)
	s.step(&Ended{Link: 2})
	s.wait(time.Hour)
	s.none(Dial)
	if _, ok := s.m.Deadline(); ok {
		t.Error("something is still due")
	}
}

// An endpoint that changes is used by the next dial, soon.
func TestMoved(t *testing.T) {
	s := newStory(t, nil)
	s.step(&Locate{Node: 1, Endpoint: "n1"})
	s.step(&Want{Node: 1, Wanted: true})
	for range 10 {
		s.refuse()
		s.wait(2 * time.Second)
	}
	s.refuse()
	s.step(&Locate{Node: 1, Endpoint: "elsewhere"})
	s.wait(50 * time.Millisecond)
	if e := s.one(Dial); e.Target.Endpoint != "elsewhere" {
		t.Fatalf("%+v", e)
	}
}

// A dial that takes too long is given up, and what waits goes on waiting.
func TestDialTakesTooLong(t *testing.T) {
	s := newStory(t, nil)
	s.step(&Post{To: address(1), Message: []byte("one")})
	link := s.one(Dial).Link
	s.wait(4 * time.Second)
	s.ask("two")
	s.wait(time.Second)
	if s.one(CloseLink).Link != link {
		t.Fatal("another link was closed")
	}
	s.step(&Failed{Link: link, Err: transport.Errorf(transport.ErrClosed, "given up")})
	if told := s.told(Unreached); len(told) != 1 || !errors.Is(told[0].Err, transport.ErrRetry) {
		t.Fatalf("told: %+v", told)
	}
	s.wait(50 * time.Millisecond)
	if all := s.written(s.dialTo(1)); len(all) != 1 || string(all[0][headerBytes:]) != "two" || len(s.answers) > 0 {
		t.Fatalf("written: %q, and answered: %q", all, s.answers)
	}
}
