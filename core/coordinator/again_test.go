package coordinator

import (
	"fmt"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/image"
	"github.com/brokerd/brokerd/core/model"
)

// errOpen leaves open whether an append is in the log.
var errOpen = fmt.Errorf("the replica went offline: %w", model.ErrStorage)

// A partition that goes offline tells first of what is under way, and then of what is
// stored and waits: whatever the order, one machine takes the place of the one that
// does not know its log any more. A second would let the members that it has read
// expire, and write that down.
func TestOneMachineTakesOver(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			s := newStepped(t, 1, nil)
			s.turn()
			s.mustCommit("g", 1)
			s.log.answer = func(model.Append) (model.Appended, bool) { return model.Appended{}, false }
			var asked []*answer[model.CommittedOffsets]
			for i := range order {
				asked = append(asked, s.commit("g", int64(2+i)))
				s.turn()
			}
			for _, i := range order {
				s.log.open[i](model.Appended{Err: errOpen})
			}
			s.log.answer = nil
			s.turn()
			for i, a := range asked {
				if committed(a) == nil || a.times != 1 {
					t.Errorf("commit %d: told %d times, %v", i, a.times, a.value)
				}
			}
			s.mustHave("g", 1)
			if loads := s.events.get(&s.events.loads); loads != 2 {
				t.Errorf("the log was read %d times", loads)
			}
		})
	}
}

// What a machine has asked to be written, and was not sent yet, is not sent when it
// ends: those who wait for it have been told, and what it rests on may not be in the log.
func TestNothingIsSentForAMachineThatHasEnded(t *testing.T) {
	s := newStepped(t, 1, nil)
	s.turn()
	s.mustCommit("g", 1)
	s.log.answer = func(model.Append) (model.Appended, bool) { return model.Appended{}, false }
	var asked []*answer[model.CommittedOffsets]
	for i := range appendsEach + 3 {
		asked = append(asked, s.commit("g", int64(2+i)))
		s.turn()
	}
	sent := len(s.log.appends)
	s.log.open[0](model.Appended{Err: errOpen})
	s.turn()
	if n := len(s.log.appends); n != sent {
		t.Errorf("%d appends after the end", n-sent)
	}
	for i, a := range asked {
		if committed(a) == nil || a.times != 1 {
			t.Errorf("commit %d: told %d times, %v", i, a.times, a.value)
		}
	}
	s.log.answer = nil
	for _, done := range s.log.open[1:] {
		done(model.Appended{Err: errRefused, Refused: true})
	}
	s.turn()
	s.mustHave("g", 1)
}

// A write that cannot even be sent is told at once, also where it waited for room: no
// other input is needed for that.
func TestWhatWaitedForRoomIsToldAtOnce(t *testing.T) {
	s := newStepped(t, appendsMax+1, func(c *Config) { c.Groups.CommitTimeout = time.Hour })
	s.turn()
	s.log.answer = func(model.Append) (model.Appended, bool) { return model.Appended{}, false }
	inPartition := func(index int32) string {
		for i := 0; ; i++ {
			if name := fmt.Sprint("group-", i); PartitionOf(name, appendsMax+1) == index {
				return name
			}
		}
	}
	for i := range int32(appendsMax) {
		s.commit(inPartition(i), 1)
	}
	s.turn()
	large := &answer[model.CommittedOffsets]{t: t}
	o := offset(0, 1)
	o.Metadata = string(make([]byte, 4000))
	s.Commit(t.Context(), model.CommitOffsets{Group: inPartition(appendsMax), Generation: -1, Retention: -1, Offsets: []model.GroupOffset{o}}, large.done)
	s.turn()
	s.shards[0].batchBytes = 1000
	s.log.open[0](model.Appended{})
	s.turn()
	if committed(large) == nil || large.times != 1 {
		t.Errorf("told %d times, %v", large.times, large.value)
	}
}

// A topic that is made anew under the same name has another log: what is still under way
// to the old one is not waited for.
func TestATopicThatIsMadeAnewWaitsForNothingOfTheOldOne(t *testing.T) {
	s := newStepped(t, 1, nil)
	s.turn()
	s.log.answer = func(model.Append) (model.Appended, bool) { return model.Appended{}, false }
	old := s.commit("g", 1)
	s.turn()
	s.log.answer = nil
	s.cluster.apply(&image.TopicRemovalRecord{ID: offsetsID, Name: model.OffsetsTopic})
	s.Apply(s.cluster.apply(topicRecords(model.TopicID{0x1f}, model.OffsetsTopic, 1)...))
	s.turn()
	s.mustHave("g", -1)
	s.mustCommit("g", 2)
	s.log.open[0](model.Appended{Err: errOpen})
	s.turn()
	if committed(old) == nil || old.times != 1 {
		t.Errorf("told %d times, %v", old.times, old.value)
	}
	s.mustHave("g", 2)
}
