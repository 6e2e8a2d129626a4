package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/brokerd/brokerd/core/group"
	"github.com/brokerd/brokerd/core/loop"
	"github.com/brokerd/brokerd/core/model"
)

// request is a question on its way. It is answered or refused, once.
type request struct {
	// commit and committed are of a commit, which comes so often that it is used again
	// when it was answered: the machine's input, and who is told. The rest is of others.
	commit    group.Commit
	committed func(model.CommittedOffsets)

	// input makes the machine's input of it.
	input func(group.RequestID) group.Input
	// answer gets the machine's answer.
	answer func(group.Answer)
	// fail tells why there is none.
	fail func(error)
	// of a List: the machines that have not answered yet, and what to do when all have.
	partial int
	through func()
}

// ask makes the machine's input.
func (q *request) ask(id group.RequestID) group.Input {
	if q.committed == nil {
		return q.input(id)
	}
	q.commit.ID = id
	return &q.commit
}

// refuse tells why there is no answer.
func (q *request) refuse(err error) {
	if q.committed == nil {
		q.fail(err)
		return
	}
	q.committed(model.CommittedOffsets{Err: err})
}

// asking makes a request whose answer is of one type.
func asking[A group.Answer](input func(group.RequestID) group.Input, done func(A), failed func(error)) *request {
	return &request{input: input, fail: failed, answer: func(a group.Answer) {
		got, ok := a.(A)
		if !ok {
			panic(fmt.Sprintf("coordinator: the machine answered with %T", a))
		}
		done(got)
	}}
}

// Join implements the port of the edge.
func (m *Manager) Join(ctx context.Context, q model.JoinGroup, done func(model.JoinedGroup)) {
	m.ask(ctx, q.Group, asking(
		func(id group.RequestID) group.Input { return &group.Join{ID: id, JoinGroup: q} },
		func(a group.Joined) { done(a.JoinedGroup) },
		func(err error) { done(model.JoinedGroup{Generation: -1, MemberID: q.MemberID, Err: err}) }))
}

// Sync implements the port of the edge.
func (m *Manager) Sync(ctx context.Context, q model.SyncGroup, done func(model.SyncedGroup)) {
	m.ask(ctx, q.Group, asking(
		func(id group.RequestID) group.Input { return &group.Sync{ID: id, SyncGroup: q} },
		func(a group.Synced) { done(a.SyncedGroup) },
		func(err error) { done(model.SyncedGroup{Err: err}) }))
}

// Heartbeat implements the port of the edge.
func (m *Manager) Heartbeat(ctx context.Context, q model.GroupHeartbeat, done func(error)) {
	m.ask(ctx, q.Group, asking(
		func(id group.RequestID) group.Input { return &group.Heartbeat{ID: id, GroupHeartbeat: q} },
		func(a group.Done) { done(a.Err) }, done))
}

// Leave implements the port of the edge.
func (m *Manager) Leave(ctx context.Context, q model.LeaveGroup, done func(model.LeftGroup)) {
	m.ask(ctx, q.Group, asking(
		func(id group.RequestID) group.Input { return &group.Leave{ID: id, LeaveGroup: q} },
		func(a group.Left) { done(a.LeftGroup) },
		func(err error) { done(model.LeftGroup{Err: err}) }))
}

// Commit implements the port of the edge.
func (m *Manager) Commit(ctx context.Context, q model.CommitOffsets, done func(model.CommittedOffsets)) {
	r, ok := m.commits.Get().(*request)
	if !ok {
		r = &request{}
	}
	r.commit.CommitOffsets, r.committed = q, done
	m.ask(ctx, q.Group, r)
}

// tellCommitted answers a commit, which is used for another afterwards.
func (s *Shard) tellCommitted(q *request, a group.Answer) {
	got, ok := a.(group.Committed)
	if !ok {
		panic(fmt.Sprintf("coordinator: the machine answered a commit with %T", a))
	}
	s.events.Committed(stored(got.CommittedOffsets))
	done := q.committed
	*q = request{}
	s.host.answered(q)
	done(got.CommittedOffsets)
}

// answered implements host: nobody knows the commit any more.
func (m *Manager) answered(q *request) { m.commits.Put(q) }

// stored counts the offsets of a commit that are in the log.
func stored(a model.CommittedOffsets) int {
	if a.Err != nil {
		return 0
	}
	n := 0
	for _, err := range a.Offsets {
		if err == nil {
			n++
		}
	}
	return n
}

// FetchOffsets implements the port of the edge.
func (m *Manager) FetchOffsets(ctx context.Context, q model.FetchOffsets, done func(model.FetchedOffsets)) {
	m.ask(ctx, q.Group, asking(
		func(id group.RequestID) group.Input { return &group.FetchOffsets{ID: id, FetchOffsets: q} },
		func(a group.Fetched) { done(a.FetchedOffsets) },
		func(err error) { done(model.FetchedOffsets{Err: err}) }))
}

// DeleteOffsets implements the port of the edge.
func (m *Manager) DeleteOffsets(ctx context.Context, q model.DeleteOffsets, done func(model.DeletedOffsets)) {
	m.ask(ctx, q.Group, asking(
		func(id group.RequestID) group.Input { return &group.DeleteOffsets{ID: id, DeleteOffsets: q} },
		func(a group.Deleted) { done(a.DeletedOffsets) },
		func(err error) { done(model.DeletedOffsets{Err: err}) }))
}

// Describe implements the port of the edge.
func (m *Manager) Describe(ctx context.Context, name string, done func(model.DescribedGroup)) {
	m.ask(ctx, name, asking(
		func(id group.RequestID) group.Input { return &group.Describe{ID: id, Group: name} },
		func(a group.Described) { done(a.DescribedGroup) },
		func(err error) { done(model.DescribedGroup{Group: name, Err: err}) }))
}

// Delete implements the port of the edge.
func (m *Manager) Delete(ctx context.Context, name string, done func(error)) {
	m.ask(ctx, name, asking(
		func(id group.RequestID) group.Input { return &group.Delete{ID: id, Group: name} },
		func(a group.Done) { done(a.Err) }, done))
}

// ask hands a question to the shard that owns the group's partition.
func (m *Manager) ask(ctx context.Context, name string, q *request) {
	v := m.view.Load()
	if v.partitions == 0 {
		q.refuse(fmt.Errorf("there is no topic %s yet: %w", model.OffsetsTopic, model.ErrNotCoordinator))
		return
	}
	index := PartitionOf(name, v.partitions)
	m.post(ctx, m.shardOf(index), Input{kind: inputAsk, index: index, ask: q})
}

// post waits for room in the shard's mailbox.
func (m *Manager) post(ctx context.Context, s *Shard, in Input) {
	err := s.loop.Post(ctx, in)
	switch {
	case err == nil:
	case errors.Is(err, loop.ErrClosed):
		in.ask.refuse(errStopping())
	default:
		in.ask.refuse(fmt.Errorf("the coordinator is busy: %w", err))
	}
}

// ask gives a question its number and hands it to the machine.
func (s *Shard) ask(now time.Time, index int32, q *request) {
	h := s.hosted[index]
	switch {
	case s.stopping:
		q.refuse(errStopping())
	case h == nil:
		q.refuse(fmt.Errorf("partition %d of %s is not led by this broker: %w", index, model.OffsetsTopic, model.ErrNotCoordinator))
	default:
		s.step(now, h, q.ask(s.number(q)))
	}
}

func (s *Shard) number(q *request) group.RequestID {
	s.lastID++
	s.requests[s.lastID] = q
	return s.lastID
}

// respond gives an answer to whoever asked.
func (s *Shard) respond(r *group.Response) {
	q := s.requests[r.ID]
	if q == nil {
		panic(fmt.Sprintf("coordinator: the machine answered request %d, which is not open", r.ID))
	}
	delete(s.requests, r.ID)
	if q.committed != nil {
		s.tellCommitted(q, r.Answer)
		return
	}
	q.answer(r.Answer)
}
