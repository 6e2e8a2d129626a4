package replica

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/brokerd/brokerd/core/batch"
	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/partition"
	"github.com/brokerd/brokerd/sdk/recordbatch"
	"github.com/brokerd/brokerd/sdk/storage"
	"github.com/brokerd/brokerd/sdk/storage/memstore"
)

// slowStore holds appends until it is told to go on, and then looks at their bytes. It
// answers some with an error, and looks at their bytes afterwards.
type slowStore struct {
	*restartable
	t *testing.T

	mu     sync.Mutex
	held   chan func()
	errs   []error       // of the next appends
	landed chan struct{} // the next append is in the log before it is held
}

func (s *slowStore) Append(ctx context.Context, req storage.AppendRequest, done func(storage.AppendResult, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		done(storage.AppendResult{}, err)
		s.look(req)
		return
	}
	if s.landed != nil {
		s.restartable.Append(ctx, req, func(res storage.AppendResult, err error) {
			s.held <- func() {
				s.look(req)
				done(res, err)
			}
		})
		close(s.landed)
		s.landed = nil
		return
	}
	s.held <- func() {
		s.look(req)
		s.restartable.Append(ctx, req, done)
	}
}

func (s *slowStore) look(req storage.AppendRequest) {
	for _, part := range req.Data {
		if err := recordbatch.CheckCRC(part); err != nil {
			s.t.Errorf("the store finds %v", err)
		}
	}
}

// The bytes of an append whose client was told that time is up stay as they are while
// a store may still read them, or is to be given them again.
func TestBytesUnderWayAreNotSpent(t *testing.T) {
	for _, c := range []struct {
		name   string
		errs   []error // of the store, before it takes the append
		framed bool
		freed  bool // in the end
	}{
		{name: "under way"},
		{name: "under way, in a frame", framed: true, freed: true},
		{name: "to be given again", errs: []error{storage.ErrRetry, storage.ErrRetry, storage.ErrRetry, storage.ErrRetry, storage.ErrRetry}},
		{name: "of unknown outcome", errs: []error{storage.ErrUnknown}},
		{name: "of unknown outcome, in a frame", errs: []error{storage.ErrUnknown}, framed: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := &slowStore{restartable: newRestartable(t, memstore.Options{}), t: t, errs: c.errs, held: make(chan func(), 100)}
			f := start(t, store.restartable, newCluster(t, topicRecords(testTopic, "orders", 1)...), testConfig(), func(d *Deps) {
				d.Directories[0].Store = store
			})
			a := makeBatch(t, batch.Options{}, "v")
			a.Partition, a.Timeout = part(0), 200*time.Millisecond // the store has it by then
			freed := make(chan struct{})
			if c.framed {
				a.Frame = model.NewFrame(len(a.Data), func() { close(freed) })
				a.Frame.Keep()
			}
			answer := make(chan model.Appended, 1)
			f.Append(t.Context(), a, func(r model.Appended) { answer <- r })
			r := <-answer
			if !errors.Is(r.Err, model.ErrRequestTimedOut) || r.Spent {
				t.Fatalf("got %+v", r)
			}
			if c.framed {
				a.Frame.Drop()
			}
			select {
			case <-freed:
				t.Fatal("the frame was freed")
			case goOn := <-store.held:
				goOn()
			}
			select {
			case <-freed:
				if !c.freed {
					t.Fatal("the frame was freed")
				}
			case r := <-f.answerOf(part(0), "after", store.held):
				if r.Err != nil || r.BaseOffset != 1 || !r.Spent {
					t.Fatalf("the next one: %+v", r)
				}
			}
			if c.freed {
				<-freed
			}
		})
	}
}

// answerOf appends another batch, through a store that holds appends.
func (f *fixture) answerOf(p model.Partition, value string, held <-chan func()) <-chan model.Appended {
	a := makeBatch(f.t, batch.Options{}, value)
	a.Partition = p
	answer := make(chan model.Appended, 1)
	f.Append(context.Background(), a, func(r model.Appended) { answer <- r })
	(<-held)()
	return answer
}

// An append that a new opening has found in the log is answered, though the call that
// brought it there is still out.
func TestBytesOfACallThatIsOutAreNotSpent(t *testing.T) {
	store := &slowStore{restartable: newRestartable(t, memstore.Options{}), t: t, held: make(chan func(), 1)}
	f := start(t, store.restartable, newCluster(t, topicRecords(testTopic, "orders", 1)...), testConfig(), func(d *Deps) {
		d.Directories[0].Store = store
	})
	landed := make(chan struct{})
	store.landed = landed
	a := makeBatch(t, batch.Options{}, "v")
	a.Partition = part(0)
	answer := make(chan model.Appended, 1)
	f.Append(t.Context(), a, func(r model.Appended) { answer <- r })
	<-landed
	r, err := f.find(part(0))
	if err != nil {
		t.Fatal(err)
	}
	r.shard.tell(r, &partition.ReadFailed{Gen: r.view.Load().Gen, Fault: partition.FaultGone}) // opens again
	if got := <-answer; got.Err != nil || got.Spent {
		t.Fatalf("got %+v", got)
	}
	(<-store.held)()
	if got := <-f.answerOf(part(0), "after", store.held); got.Err != nil || !got.Spent {
		t.Fatalf("the next one: %+v", got)
	}
}
