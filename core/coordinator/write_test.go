package coordinator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// errRefused is what a store without room makes of an append.
var errRefused = fmt.Errorf("no room: %w", model.ErrStorage)

func TestWritesOfOneTurnAreOneBatch(t *testing.T) {
	s := newStepped(t, 1, nil)
	s.turn()
	var answers []*answer[model.CommittedOffsets]
	for i := range 100 {
		answers = append(answers, s.commit(fmt.Sprint("group-", i), int64(i)))
	}
	s.turn()
	for _, a := range answers {
		if err := committed(a); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.log.appends); n != 1 {
		t.Errorf("%d batches", n)
	}
	a := s.log.appends[0]
	if a.Acks != model.AcksAll || *a.Under != 0 || a.Timeout != appendTimeout {
		t.Errorf("appended with %+v", a)
	}
}

func TestBatchesKeepToTheTopicsLimit(t *testing.T) {
	const limit = 400
	s := newStepped(t, 1, nil)
	s.Apply(s.cluster.apply(&image.ConfigRecord{
		Resource: model.Resource{Type: model.ResourceTopic, Name: model.OffsetsTopic}, Key: "max.message.bytes", Value: fmt.Sprint(limit),
	}))
	s.turn()
	var answers []*answer[model.CommittedOffsets]
	for i := range 20 {
		answers = append(answers, s.commit(fmt.Sprint("group-", i), int64(i)))
	}
	large := &answer[model.CommittedOffsets]{t: t}
	o := offset(0, 1)
	o.Metadata = strings.Repeat("m", limit)
	s.Commit(t.Context(), model.CommitOffsets{Group: "large", Generation: -1, Retention: -1, Offsets: []model.GroupOffset{o}}, large.done)
	last := s.commit("last", 1)
	s.turn()
	for _, a := range append(answers, last) {
		if err := committed(a); err != nil {
			t.Error(err)
		}
	}
	if err := committed(large); err == nil || errors.Is(err, errNoAnswer) {
		t.Errorf("a write that never fits: %v", err)
	}
	if n := len(s.log.appends); n < 5 || n > 15 {
		t.Errorf("%d batches", n)
	}
	for _, a := range s.log.appends {
		if len(a.Data) > limit {
			t.Errorf("a batch of %d bytes", len(a.Data))
		}
	}
	if !strings.Contains(s.lines.String(), "max.message.bytes") {
		t.Errorf("nobody was told why:\n%s", s.lines)
	}
}

// While a store is slow, what comes is packed together instead of sent after.
func TestFewAppendsAreUnderWay(t *testing.T) {
	s := newStepped(t, 1, nil)
	s.turn()
	s.log.answer = func(model.Append) (model.Appended, bool) { return model.Appended{}, false }
	var answers []*answer[model.CommittedOffsets]
	for i := range 50 {
		answers = append(answers, s.commit(fmt.Sprint("group-", i), int64(i)))
		s.turn()
	}
	if n := len(s.log.open); n != appendsEach {
		t.Fatalf("%d appends are under way", n)
	}
	for len(s.log.open) > 0 {
		done := s.log.open[0]
		s.log.open = s.log.open[1:]
		done(model.Appended{})
		s.turn()
	}
	for i, a := range answers {
		if err := committed(a); err != nil {
			t.Fatalf("commit %d: %v", i, err)
		}
	}
	if n := len(s.log.appends); n > 2*appendsEach {
		t.Errorf("%d appends", n)
	}
}

func TestAllPartitionsTogetherKeepToTheShardsLimit(t *testing.T) {
	s := newStepped(t, 300, nil)
	s.turn()
	s.log.answer = func(model.Append) (model.Appended, bool) { return model.Appended{}, false }
	var answers []*answer[model.CommittedOffsets]
	for i := range 2000 {
		answers = append(answers, s.commit(fmt.Sprint("group-", i), int64(i)))
		if i%10 == 0 {
			s.turn()
		}
	}
	s.turn()
	if n := len(s.log.open); n != appendsMax {
		t.Fatalf("%d appends are under way", n)
	}
	answered := func() (n int) {
		for _, a := range answers {
			n += a.times
		}
		return n
	}
	for len(s.log.open) > 0 {
		before := answered()
		done := s.log.open[0]
		s.log.open = s.log.open[1:]
		done(model.Appended{})
		s.turn()
		if answered() == before {
			t.Fatal("nobody is told of an append that was answered")
		}
	}
	for i, a := range answers {
		if err := committed(a); err != nil {
			t.Fatalf("commit %d: %v", i, err)
		}
	}
}

// A refused write is told, and what was committed before stays.
func TestRefusedWrites(t *testing.T) {
	s := newStepped(t, 1, nil)
	s.turn()
	s.mustCommit("g", 1)
	s.log.answer = func(model.Append) (model.Appended, bool) { return model.Appended{Err: errRefused, Refused: true}, true }
	for range 100 {
		a := s.commit("g", 2)
		s.turn()
		if err := committed(a); !errors.Is(err, model.ErrNotCoordinator) {
			t.Fatalf("told %v", err)
		}
		s.now = s.now.Add(100 * time.Millisecond)
	}
	s.mustHave("g", 1)
	s.log.answer = nil
	s.mustCommit("g", 3)
	s.mustHave("g", 3)
	if loads := s.events.get(&s.events.loads); loads != 1 {
		t.Errorf("the log was read %d times", loads)
	}
	if refused, lines := s.events.get(&s.events.refused), strings.Count(s.lines.String(), "records were not written"); refused != 100 || lines != 1 {
		t.Errorf("%d refusals counted, %d logged", refused, lines)
	}
}

// A name from a client does not fill the log.
func TestLongNamesAreCut(t *testing.T) {
	s := newStepped(t, 1, nil)
	s.turn()
	s.log.answer = func(model.Append) (model.Appended, bool) { return model.Appended{Err: errRefused, Refused: true}, true }
	name := strings.Repeat("g", 32000)
	s.commit(name, 1)
	s.turn()
	if lines := s.lines.String(); strings.Contains(lines, name) || !strings.Contains(lines, "group="+name[:nameMax]+"...") {
		t.Errorf("logged: %.400s", lines)
	}
}

// An answer that overtakes earlier ones is not told before them.
func TestAnswersAreToldInOrder(t *testing.T) {
	s := newStepped(t, 1, nil)
	s.turn()
	s.log.answer = func(model.Append) (model.Appended, bool) { return model.Appended{}, false }
	first := s.commit("g", 1)
	s.turn()
	second := s.commit("g", 2)
	s.turn()
	s.log.open[1](model.Appended{Err: errRefused, Refused: true})
	s.turn()
	if second.times > 0 {
		t.Fatalf("the second was told %v before the first", second.value)
	}
	s.log.open[0](model.Appended{})
	s.turn()
	if err := committed(first); err != nil {
		t.Errorf("the first: %v", err)
	}
	if err := committed(second); !errors.Is(err, model.ErrNotCoordinator) {
		t.Errorf("the second: %v", err)
	}
	s.mustHave("g", 1)
}

// Where it is not known whether a write is in the log, the log tells.
func TestUnknownOutcomes(t *testing.T) {
	for _, landed := range []bool{true, false} {
		t.Run(fmt.Sprint("landed=", landed), func(t *testing.T) {
			s := newStepped(t, 1, nil)
			s.turn()
			s.mustCommit("g", 1)
			s.log.answer = func(a model.Append) (model.Appended, bool) {
				if landed {
					s.log.put(0, a.Data, true)
				}
				return model.Appended{Err: fmt.Errorf("the leader has changed: %w", model.ErrNotLeaderOrFollower)}, true
			}
			a := s.commit("g", 2)
			s.turn()
			if err := committed(a); !errors.Is(err, model.ErrNotCoordinator) {
				t.Errorf("told %v", err)
			}
			s.log.answer = nil
			want := int64(1)
			if landed {
				want = 2
			}
			s.mustHave("g", want)
			s.mustCommit("g", 3)
			if loads := s.events.get(&s.events.loads); loads != 2 {
				t.Errorf("the log was read %d times", loads)
			}
		})
	}
}

// What an earlier machine has asked to write may come into the log after the end that
// a load would read to: it is waited for.
func TestLoadWaitsForEarlierAppends(t *testing.T) {
	s := newStepped(t, 1, nil)
	s.turn()
	s.mustCommit("g", 1)
	var held []model.Append
	s.log.answer = func(a model.Append) (model.Appended, bool) {
		held = append(held, a)
		return model.Appended{}, false
	}
	lost := s.commit("g", 2)
	s.turn()
	late := s.commit("g", 3)
	s.turn()
	s.log.open[0](model.Appended{Err: fmt.Errorf("not enough: %w", model.ErrNotEnoughReplicasAfter)})
	s.turn()
	if committed(lost) == nil || committed(late) == nil || late.times != 1 {
		t.Fatalf("told %v, %v", lost.value, late.value)
	}
	if _, err := s.fetch("g"); !errors.Is(err, model.ErrCoordinatorLoading) {
		t.Fatalf("answered with %v while an append is under way", err)
	}
	s.advance(loadTold)
	if !strings.Contains(s.lines.String(), "1 earlier appends are not answered yet") {
		t.Errorf("nobody was told what is waited for:\n%s", s.lines)
	}
	s.log.put(0, held[1].Data, true)
	s.log.open[1](model.Appended{})
	s.log.answer = nil
	s.turn()
	s.mustHave("g", 3)
}

func TestLeadership(t *testing.T) {
	s := newStepped(t, 1, nil)
	s.turn()
	s.mustCommit("g", 1)
	parked := &answer[model.JoinedGroup]{t: t}
	join := model.JoinGroup{Group: "g", MemberID: "", ProtocolType: "consumer", Protocols: []model.GroupProtocol{{Name: "range"}},
		SessionTimeout: 10 * time.Second, RebalanceTimeout: time.Minute, ClientID: "c"}
	first := &answer[model.JoinedGroup]{t: t}
	s.Join(context.Background(), join, first.done)
	s.turn()
	if first.times != 1 || first.value.Err != nil {
		t.Fatalf("the first member: %+v", first.value)
	}
	s.Join(context.Background(), join, parked.done) // it waits for the first
	s.turn()

	s.Apply(s.cluster.apply(leaderChange(offsetsID, model.NoNode)))
	s.turn()
	if parked.times != 1 || !errors.Is(parked.value.Err, model.ErrNotCoordinator) {
		t.Errorf("who waited was told %+v", parked.value)
	}
	if _, err := s.fetch("g"); !errors.Is(err, model.ErrNotCoordinator) {
		t.Errorf("without leadership: %v", err)
	}
	s.Apply(s.cluster.apply(leaderChange(offsetsID, 1)))
	s.turn()
	s.mustHave("g", 1)
	s.Apply(s.cluster.apply(leaderChange(offsetsID, 1)))
	s.turn()
	s.log.appends = nil
	a := s.commit("other", 4)
	s.turn()
	if err := committed(a); err != nil || *s.log.appends[0].Under != 3 {
		t.Errorf("after an epoch: %v, written under %d", err, *s.log.appends[0].Under)
	}
	s.Apply(s.cluster.apply(leaderChange(ordersID, 1))) // nothing that concerns groups
	if n := s.Loops()[0].Pending(); n != 0 {
		t.Errorf("%d inputs for nothing", n)
	}
}

func TestStop(t *testing.T) {
	s := newStepped(t, 2, nil)
	s.turn()
	s.log.answer = func(model.Append) (model.Appended, bool) { return model.Appended{}, false }
	writing := s.commit("g", 1)
	s.Stop() // in the same turn
	s.turn()
	shard := s.shards[0]
	if writing.times != 0 || shard.Done() {
		t.Fatal("a stop does not wait for what is being written")
	}
	refused := s.commit("g", 2)
	s.turn()
	if err := committed(refused); !errors.Is(err, model.ErrCoordinatorNotAvailable) {
		t.Errorf("after the stop: %v", err)
	}
	s.log.open[0](model.Appended{})
	s.turn()
	if err := committed(writing); err != nil || !shard.Done() {
		t.Errorf("what was written: %v, done %v", err, shard.Done())
	}
}

// Images before this start's registration may lack what was committed last.
func TestImagesBeforeTheRegistration(t *testing.T) {
	s := newStepped(t, 1, nil)
	s.turn()
	s.mustCommit("g", 1)
	s.incarnation = [16]byte{7}
	s.restart(nil)
	if n := s.Loops()[0].Pending(); n > 0 {
		t.Fatalf("%d inputs from an image that may be behind", n)
	}
	s.Apply(s.cluster.apply(&image.BrokerRecord{ID: 1, Incarnation: s.incarnation, Directories: []model.DirectoryID{testDir}}))
	s.turn()
	s.mustHave("g", 1)
}
