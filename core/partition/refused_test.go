package partition

import (
	"errors"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// TestRefusedMeansThatNothingIsInTheLog: an error says so only where no offset was
// given, or where the store has promised it; all others leave it open.
func TestRefusedMeansThatNothingIsInTheLog(t *testing.T) {
	full := errors.New("no room")
	for _, tt := range []struct {
		name    string
		isr     int
		before  func(step func(Input), m *Machine) // before the append
		after   func(step func(Input), m *Machine) // while it is under way
		want    error
		refused bool
	}{
		{name: "too few in sync", isr: 1, want: model.ErrNotEnoughReplicas, refused: true},
		{name: "not the leader", isr: 2, before: func(step func(Input), _ *Machine) { step(&Resign{Epoch: 2}) },
			want: model.ErrNotLeaderOrFollower, refused: true},
		{name: "another epoch", isr: 2, before: func(step func(Input), m *Machine) {
			step(&Lead{Epoch: 2, ISR: []model.NodeID{1, 2}, Replicas: assignment(3), Target: 3})
			step(&Opened{Gen: m.gen})
		}, want: model.ErrNotLeaderOrFollower, refused: true},
		{name: "offline", isr: 2, before: func(step func(Input), m *Machine) {
			step(&ReadFailed{Gen: m.gen, Fault: FaultGone})
			step(&Opened{Gen: m.gen, Fault: FaultFenced, Err: full})
		}, want: model.ErrStorage, refused: true},
		{name: "no room", isr: 2, after: func(step func(Input), m *Machine) {
			step(&AppendDone{Gen: m.gen, Fault: FaultFull, Err: full})
		}, want: model.ErrStorage, refused: true},
		{name: "goes offline", isr: 2, after: func(step func(Input), m *Machine) {
			step(&AppendDone{Gen: m.gen, Fault: FaultUnknown, Err: full})
			step(&Opened{Gen: m.gen, Fault: FaultFenced, Err: full})
		}, want: model.ErrStorage},
		{name: "resigns", isr: 2, after: func(step func(Input), _ *Machine) { step(&Resign{Epoch: 2}) }, want: model.ErrNotLeaderOrFollower},
		{name: "skips an epoch", isr: 2, after: func(step func(Input), _ *Machine) {
			step(&Lead{Epoch: 3, ISR: []model.NodeID{1, 2}, Replicas: assignment(3), Target: 3})
		}, want: model.ErrNotLeaderOrFollower},
		{name: "time is up", isr: 2, after: func(step func(Input), _ *Machine) { step(&Fired{Timer: TimerDeadline}) }, want: model.ErrRequestTimedOut},
		{name: "time is up in the queue", isr: 2, before: func(step func(Input), m *Machine) {
			step(&ReadFailed{Gen: m.gen, Fault: FaultGone})
		}, after: func(step func(Input), _ *Machine) { step(&Fired{Timer: TimerDeadline}) }, want: model.ErrRequestTimedOut, refused: true},
		{name: "stored, and too few in sync then", isr: 2, after: func(step func(Input), m *Machine) {
			step(&AppendDone{Gen: m.gen, LEO: 1})
			step(&Resign{Epoch: 2})
		}, want: model.ErrNotLeaderOrFollower},
	} {
		t.Run(tt.name, func(t *testing.T) {
			settings := DefaultSettings()
			settings.MinISR = 2
			m := New(Config{Node: 1, Limits: DefaultLimits(), Settings: settings})
			now := time.Unix(1000, 0)
			var got []Response
			step := func(in Input) {
				var out Effects
				m.Step(now, in, &out)
				got = append(got, out.Responses...)
			}
			step(&Lead{Epoch: 1, ISR: []model.NodeID{1, 2}[:tt.isr], Replicas: assignment(3), Target: 3})
			step(&Opened{Gen: m.gen})
			if tt.before != nil {
				tt.before(step, m)
			}
			under := model.LeaderEpoch(1)
			step(&Append{ID: 7, Acks: model.AcksAll, Deadline: now.Add(time.Minute), Under: &under, Batch: recordbatch.Info{Records: 1, Bytes: 100, ProducerID: -1}})
			now = now.Add(time.Hour)
			if tt.after != nil {
				tt.after(step, m)
			}
			if len(got) != 1 || !errors.Is(got[0].Err, tt.want) || got[0].Refused != tt.refused {
				t.Errorf("answers %+v, want %v, refused %v", got, tt.want, tt.refused)
			}
		})
	}
}
