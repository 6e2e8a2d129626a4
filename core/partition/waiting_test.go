package partition

import (
	"errors"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/sdk/recordbatch"
)

// TestWhatWaitsForTheHighWatermarkIsBounded: the store takes everything, and the
// high watermark stays where it is, because a follower or a flush is missing.
func TestWhatWaitsForTheHighWatermarkIsBounded(t *testing.T) {
	const queued, inFlight, sent = 10, 4, 100
	for _, tt := range []struct {
		name string
		isr  []model.NodeID
		want error
	}{
		{"a follower lags", []model.NodeID{1, 2}, model.ErrNotEnoughReplicas},
		{"nothing is flushed", []model.NodeID{1}, model.ErrStorage},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limits := DefaultLimits()
			limits.QueuedBatches, limits.InFlightBatches = queued, inFlight
			m := New(Config{Node: 1, Limits: limits, Settings: DefaultSettings()})
			now := time.Unix(1000, 0)
			var out Effects
			answers := map[RequestID]error{}
			step := func(in Input) {
				out.Reset()
				m.Step(now, in, &out)
				for _, r := range out.Responses {
					answers[r.ID] = r.Err
				}
			}
			step(&Lead{Epoch: 1, ISR: tt.isr, Replicas: tt.isr, Target: len(tt.isr)})
			step(&Opened{Gen: m.gen})
			var calls []AppendLog
			send := func(id RequestID) {
				step(&Append{ID: id, Acks: model.AcksAll, Deadline: now.Add(time.Minute), Batch: recordbatch.Info{Records: 1, Bytes: 100, ProducerID: -1}})
				calls = append(calls, out.Appends...)
			}
			land := func() {
				for len(calls) > 0 {
					a := calls[0]
					calls = calls[1:]
					step(&AppendDone{Gen: a.Gen, Base: a.Base, Last: a.Last, LEO: a.Last + 1})
					calls = append(calls, out.Appends...)
				}
			}
			most := 0
			for id := range RequestID(sent) {
				send(id)
				if id%(inFlight+queued) == inFlight+queued-1 { // the store answers when no more fit before it
					land()
				}
				most = max(most, m.waiting.len())
			}
			land()
			most = max(most, m.waiting.len())
			if bound := 2*queued + inFlight; most > bound || most < queued {
				t.Errorf("%d wait, want %d to %d", most, queued, bound)
			}
			if len(answers) != sent-m.waiting.len() {
				t.Errorf("%d of %d are answered, and %d wait", len(answers), sent, m.waiting.len())
			}
			for id, err := range answers {
				if !errors.Is(err, tt.want) {
					t.Errorf("request %d: %v, want %v", id, err, tt.want)
				}
			}
			send(1000)
			if !errors.Is(answers[1000], tt.want) {
				t.Errorf("while they wait: %v, want %v", answers[1000], tt.want)
			}
			now = now.Add(2 * time.Minute)
			step(&Fired{Timer: TimerDeadline})
			if m.waiting.len() != 0 || !errors.Is(answers[0], model.ErrRequestTimedOut) {
				t.Errorf("past their deadline %d wait, the first was told %v", m.waiting.len(), answers[0])
			}
			send(1001)
			land()
			step(&Subscribe{Node: 2, BrokerEpoch: 1, Session: 1, Epoch: 1, LEO: m.stored, Counted: m.stored, LastEpoch: 1})
			step(&FlushDone{Gen: m.gen, Durable: m.stored})
			if err, answered := answers[1001]; !answered || err != nil {
				t.Errorf("with room again: answered %v, %v", answered, err)
			}
		})
	}
}
