package lifecycle

import (
	"errors"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
)

var (
	mine  = [16]byte{1}
	other = [16]byte{2}
)

// stage steps a machine in a time of its own.
type stage struct {
	t   *testing.T
	m   *Machine
	now time.Time
	out Effects
}

func newStage(t *testing.T) *stage {
	t.Helper()
	cfg := Defaults()
	cfg.Incarnation = mine
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &stage{t: t, m: m, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func (s *stage) step(in Input) *Effects {
	s.out = Effects{}
	s.m.Step(s.now, in, &s.out)
	return &s.out
}

// due lets the time of the deadline come.
func (s *stage) due() *Effects {
	s.t.Helper()
	at, ok := s.m.Deadline()
	if !ok {
		s.t.Fatal("nothing is due any more")
	}
	if at.After(s.now) {
		s.now = at
	}
	return s.step(&Due{})
}

// register registers the broker under an epoch, and returns the heartbeat that follows.
func (s *stage) register(epoch model.BrokerEpoch) Heartbeat {
	s.t.Helper()
	asked := s.due().Register
	if asked == nil || asked.Incarnation != mine {
		s.t.Fatalf("asks for %v, want to register", asked)
	}
	return s.beat(s.step(&Registered{Call: asked.Call, Epoch: epoch}))
}

func (s *stage) beat(out *Effects) Heartbeat {
	s.t.Helper()
	if len(out.Heartbeats) != 1 {
		s.t.Fatalf("%d heartbeats, want one", len(out.Heartbeats))
	}
	return out.Heartbeats[0]
}

func (s *stage) epoch(want model.BrokerEpoch) {
	s.t.Helper()
	if got, ok := s.m.Epoch(); got != want || ok != (want != 0) {
		s.t.Errorf("broker epoch is %d (%v), want %d", got, ok, want)
	}
}

func TestRegistersAndCatchesUp(t *testing.T) {
	s := newStage(t)
	if b := s.register(7); b.Epoch != 7 || b.Offset != 0 {
		t.Errorf("first heartbeat %+v", b)
	}
	if !s.m.Fenced() {
		t.Error("not fenced before the metadata says so")
	}
	b := s.beat(s.step(&Seen{Offset: 9, Registered: true, Incarnation: mine, Epoch: 7, Fenced: true}))
	if b.Offset != 9 || !s.m.Fenced() {
		t.Errorf("heartbeat %+v when the registration is seen, fenced %v", b, s.m.Fenced())
	}
	s.step(&Seen{Offset: 10, Registered: true, Incarnation: mine, Epoch: 7})
	if s.m.Fenced() {
		t.Error("fenced after the metadata says that it is not")
	}
	s.epoch(7)
}

func TestBeatsWhateverIsAnswered(t *testing.T) {
	s := newStage(t)
	last := s.register(7)
	from := s.now
	for range 10 {
		b := s.beat(s.due())
		if b.Call <= last.Call {
			t.Errorf("call %d follows %d", b.Call, last.Call)
		}
		last = b
	}
	if got := s.now.Sub(from); got != 10*Defaults().Every {
		t.Errorf("10 heartbeats without an answer took %s", got)
	}
}

func TestRegistersAgainLater(t *testing.T) {
	s := newStage(t)
	pause := time.Duration(0)
	for range 6 {
		asked := s.due().Register
		if asked == nil {
			t.Fatal("does not register")
		}
		s.step(&Registered{Call: asked.Call, Err: model.ErrDuplicateBroker})
		at, _ := s.m.Deadline()
		next := at.Sub(s.now)
		if next < pause || next > Defaults().RetryMax {
			t.Errorf("a pause of %s follows one of %s", next, pause)
		}
		pause = next
	}
	asked := s.due().Register // whose answer is lost
	again := s.due().Register
	if again == nil || again.Call == asked.Call {
		t.Fatalf("after %s without an answer it asks for %v", Defaults().RegisterMax, again)
	}
	if s.step(&Registered{Call: asked.Call, Epoch: 5}); s.m.epoch != 0 {
		t.Error("an answer that came too late counts")
	}
	s.step(&Registered{Call: again.Call, Epoch: 6})
	s.epoch(6)
}

func TestMetadataTellsBeforeTheAnswer(t *testing.T) {
	s := newStage(t)
	asked := s.due().Register
	b := s.beat(s.step(&Seen{Offset: 8, Registered: true, Incarnation: mine, Epoch: 8, Fenced: true}))
	if b.Epoch != 8 || b.Offset != 8 {
		t.Errorf("heartbeat %+v", b)
	}
	if out := s.step(&Registered{Call: asked.Call, Epoch: 8}); out.Heartbeats != nil || out.Register != nil {
		t.Errorf("the answer, that tells nothing new, leads to %+v", out)
	}
	s.epoch(8)
}

func TestOldMetadataIsLeftAside(t *testing.T) {
	s := newStage(t)
	s.register(7)
	s.step(&Seen{Offset: 10, Registered: true, Incarnation: mine, Epoch: 7})
	s.step(&Seen{Offset: 9, Registered: true, Incarnation: mine, Epoch: 7, Fenced: true})
	if s.m.Fenced() {
		t.Error("older metadata counts")
	}
	// The registration of an earlier life is none of this one.
	s = newStage(t)
	if out := s.step(&Seen{Offset: 9, Registered: true, Incarnation: other, Epoch: 5}); out.Ended != nil || !s.m.Fenced() {
		t.Errorf("an earlier life's registration leads to %+v, fenced %v", out, s.m.Fenced())
	}
	asked := s.due().Register
	s.step(&Registered{Call: asked.Call, Epoch: 5})
	s.epoch(0)
}

func TestStaleEpochRegistersAnew(t *testing.T) {
	s := newStage(t)
	first := s.register(7)
	asked := s.step(&Beaten{Call: first.Call, Err: model.ErrStaleBrokerEpoch}).Register
	if asked == nil {
		t.Fatal("does not register anew")
	}
	s.epoch(0)
	s.step(&Registered{Call: asked.Call, Epoch: 12})
	s.epoch(12)
	if out := s.step(&Beaten{Call: first.Call, Err: model.ErrStaleBrokerEpoch}); out.Register != nil {
		t.Error("an answer to the earlier registration's heartbeat counts")
	}
	s.epoch(12)
}

func TestOtherErrorsChangeNothing(t *testing.T) {
	s := newStage(t)
	b := s.register(7)
	out := s.step(&Beaten{Call: b.Call, Err: model.ErrNotController})
	if out.Register != nil || out.Ended != nil || !s.m.LastHeard().IsZero() {
		t.Errorf("an answer that says nothing leads to %+v", out)
	}
	b = s.beat(s.due())
	s.step(&Beaten{Call: b.Call})
	if !s.m.LastHeard().Equal(s.now) {
		t.Error("an answer is not noted")
	}
	s.epoch(7)
}

// TestLeaseIsFromWhenItWasAskedFor: an answer counts from when its heartbeat was sent, where the
// broker serves by it, and only once the metadata is here that it is by.
func TestLeaseIsFromWhenItWasAskedFor(t *testing.T) {
	s := newStage(t)
	s.register(7)
	s.step(&Seen{Offset: 9, Registered: true, Incarnation: mine, Epoch: 7})
	b := s.beat(s.due())
	sent := s.now
	s.now = s.now.Add(3 * time.Second) // of a pause
	s.step(&Beaten{Call: b.Call, Offset: 9})
	if got := s.m.LastHeard(); !got.Equal(sent) {
		t.Fatalf("heard %v after it was sent", got.Sub(sent))
	}
	// Meanwhile it was fenced, and is served by others.
	b = s.beat(s.due())
	s.step(&Beaten{Call: b.Call, Fenced: true, Offset: 9})
	if got := s.m.LastHeard(); !got.Equal(sent) {
		t.Fatal("one that is fenced is taken for one that leads")
	}
	b = s.beat(s.due())
	again := s.now
	s.step(&Beaten{Call: b.Call, Offset: 12})
	if got := s.m.LastHeard(); !got.Equal(sent) {
		t.Fatal("it does not know yet what was taken from it")
	}
	s.step(&Seen{Offset: 11, Registered: true, Incarnation: mine, Epoch: 7, Fenced: true})
	if got := s.m.LastHeard(); !got.Equal(sent) {
		t.Fatal("likewise")
	}
	s.step(&Seen{Offset: 12, Registered: true, Incarnation: mine, Epoch: 7})
	if got := s.m.LastHeard(); !got.Equal(again) {
		t.Fatalf("heard %v after it was sent, now that all is known", got.Sub(again))
	}
}

// TestLeaseGoesOnWhileTheMetadataIsLate: each answer is by metadata that is not here yet, and
// the broker is heard of all the same, by the first of them.
func TestLeaseGoesOnWhileTheMetadataIsLate(t *testing.T) {
	s := newStage(t)
	s.register(7)
	s.step(&Seen{Offset: 9, Registered: true, Incarnation: mine, Epoch: 7})
	for n := int64(10); n < 20; n++ {
		first := s.beat(s.due())
		sent := s.now
		s.step(&Beaten{Call: first.Call, Offset: 10 * n})
		second := s.beat(s.due())
		s.step(&Beaten{Call: second.Call, Offset: 10*n + 5})
		s.step(&Seen{Offset: 10 * n, Registered: true, Incarnation: mine, Epoch: 7})
		if got := s.m.LastHeard(); !got.Equal(sent) {
			t.Fatalf("round %d: heard %v after it was sent", n, got.Sub(sent))
		}
	}
}

func TestReplaced(t *testing.T) {
	s := newStage(t)
	s.register(7)
	out := s.step(&Seen{Offset: 20, Registered: true, Incarnation: other, Epoch: 20})
	if out.Ended == nil || !errors.Is(out.Ended.Err, model.ErrDuplicateBroker) {
		t.Fatalf("another process is this broker, and that leads to %+v", out)
	}
	if _, ok := s.m.Deadline(); ok {
		t.Error("it goes on")
	}
	if out := s.step(&Due{}); out.Register != nil || out.Heartbeats != nil {
		t.Errorf("after the end it asks for %+v", out)
	}
}

func TestLeaves(t *testing.T) {
	s := newStage(t)
	s.register(7)
	b := s.beat(s.step(&Leave{}))
	if !b.Leave {
		t.Fatal("the heartbeat does not say that the broker wants to end")
	}
	if s.step(&Beaten{Call: b.Call}).Ended != nil {
		t.Error("ends before it may")
	}
	b = s.beat(s.due())
	if out := s.step(&Beaten{Call: b.Call, MayEnd: true}); out.Ended == nil || out.Ended.Err != nil {
		t.Errorf("it may end, and that leads to %+v", out)
	}
}

func TestLeavesWithoutRegistration(t *testing.T) {
	s := newStage(t)
	s.due()
	if out := s.step(&Leave{}); out.Ended == nil || out.Ended.Err != nil {
		t.Errorf("a broker that nobody knows is to end, and that leads to %+v", out)
	}
	s = newStage(t)
	s.register(7)
	b := s.beat(s.step(&Leave{}))
	if out := s.step(&Beaten{Call: b.Call, Err: model.ErrStaleBrokerEpoch}); out.Ended == nil || out.Register != nil {
		t.Errorf("a broker that leaves was forgotten, and that leads to %+v", out)
	}
}

func TestOfflineDirectories(t *testing.T) {
	s := newStage(t)
	s.register(7)
	b := s.beat(s.step(&Offline{Directories: []model.DirectoryID{{3}}}))
	if len(b.Offline) != 1 || b.Offline[0] != (model.DirectoryID{3}) {
		t.Errorf("heartbeat %+v", b)
	}
	s.step(&Beaten{Call: b.Call})
	until := s.now.Add(2 * Defaults().OfflineMax)
	for s.now.Before(until) {
		if out := s.due(); out.Ended != nil {
			t.Fatalf("the controller has heard of it, and the broker ends: %v", out.Ended.Err)
		}
	}
}

// TestEndsWhereNobodyHearsOfADirectory: nobody else can lead what it holds while this broker
// is taken for one that serves. (FR-33, KIP-858)
func TestEndsWhereNobodyHearsOfADirectory(t *testing.T) {
	for _, c := range []struct {
		name string
		step func(s *stage, before Heartbeat)
		goes bool // on
	}{
		{name: "silence", step: func(*stage, Heartbeat) {}},
		{name: "an answer to what was said before", step: func(s *stage, before Heartbeat) { s.step(&Beaten{Call: before.Call}) }},
		{name: "refused", step: func(s *stage, _ Heartbeat) {
			s.step(&Beaten{Call: s.beat(s.due()).Call, Err: model.ErrNotController})
		}},
		{name: "told, and registered anew", step: func(s *stage, _ Heartbeat) {
			s.step(&Beaten{Call: s.beat(s.due()).Call})
			s.step(&Seen{Offset: 9, Registered: true, Incarnation: mine, Epoch: 9, Fenced: true})
		}},
		{name: "told", goes: true, step: func(s *stage, _ Heartbeat) { s.step(&Beaten{Call: s.beat(s.due()).Call}) }},
		{name: "it serves again", goes: true, step: func(s *stage, _ Heartbeat) { s.step(&Offline{}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			before := s.register(7)
			s.step(&Offline{Directories: []model.DirectoryID{{3}}})
			until := s.now.Add(Defaults().OfflineMax)
			c.step(s, before)
			for late := until.Add(2 * Defaults().Every); s.now.Before(late) && s.out.Ended == nil; {
				if out := s.due(); out.Ended != nil && s.now.Before(until) {
					t.Fatalf("ends %v too early", until.Sub(s.now))
				}
			}
			if _, on := s.m.Deadline(); on != c.goes {
				t.Errorf("goes on: %v, want %v", on, c.goes)
			}
			if !c.goes && (s.out.Ended == nil || !errors.Is(s.out.Ended.Err, model.ErrStorage)) {
				t.Errorf("ends with %+v", s.out.Ended)
			}
		})
	}
}

func TestConfig(t *testing.T) {
	for _, change := range []func(*Config){
		func(c *Config) { c.Incarnation = [16]byte{} },
		func(c *Config) { c.Every = 0 },
		func(c *Config) { c.RetryMin = 0 },
		func(c *Config) { c.RetryMax = c.RetryMin - 1 },
		func(c *Config) { c.RegisterMax = 0 },
		func(c *Config) { c.OfflineMax = 0 },
	} {
		c := Defaults()
		c.Incarnation = mine
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}
