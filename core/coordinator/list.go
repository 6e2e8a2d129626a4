package coordinator

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/brokerd/brokerd/core/group"
	"github.com/brokerd/brokerd/core/model"
)

// listing gathers the answers of all shards to one List.
type listing struct {
	done func(model.ListedGroups)

	mu     sync.Mutex
	shards int // that are not through yet
	sum    model.ListedGroups
}

// add takes the groups of one machine.
func (l *listing) add(a model.ListedGroups) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum.Groups = append(l.sum.Groups, a.Groups...)
	if l.sum.Err == nil {
		l.sum.Err = a.Err
	}
}

// through ends one shard's part.
func (l *listing) through() {
	l.mu.Lock()
	l.shards--
	last := l.shards == 0
	l.mu.Unlock()
	if last {
		l.done(l.sum)
	}
}

// List implements the port of the edge.
func (m *Manager) List(ctx context.Context, done func(model.ListedGroups)) {
	l := &listing{done: done, shards: len(m.shards)}
	for _, s := range m.shards {
		q := &request{
			input:  func(id group.RequestID) group.Input { return &group.List{ID: id} },
			answer: func(a group.Answer) { l.add(a.(group.Listed).ListedGroups) },
			fail: func(err error) {
				l.add(model.ListedGroups{Err: err})
				l.through()
			},
		}
		q.through = l.through
		m.post(ctx, s, Input{kind: inputList, ask: q})
	}
}

// list asks every machine. The question is open until the last has answered.
func (s *Shard) list(now time.Time, q *request) {
	if s.stopping {
		q.refuse(errStopping())
		return
	}
	q.partial = len(s.hosted)
	if q.partial == 0 {
		q.through()
		return
	}
	for _, h := range s.inOrder() {
		one := &request{}
		one.answer = func(a group.Answer) {
			q.answer(a)
			s.oneListed(q)
		}
		one.fail = func(err error) {
			q.answer(group.Listed{ListedGroups: model.ListedGroups{Err: err}})
			s.oneListed(q)
		}
		s.step(now, h, q.input(s.number(one)))
	}
}

func (s *Shard) oneListed(q *request) {
	if q.partial--; q.partial == 0 {
		q.through()
	}
}

// Census counts the groups of this broker, and their members. It waits for the shards
// until ctx ends.
func (m *Manager) Census(ctx context.Context) (group.Census, error) {
	sum := group.Census{Groups: make(map[model.GroupState]int)}
	counted := make(chan group.Census, len(m.shards))
	for _, s := range m.shards {
		if err := s.loop.Post(ctx, Input{kind: inputCensus, seldom: &seldom{counted: counted}}); err != nil {
			return sum, fmt.Errorf("count the groups: %w", err)
		}
	}
	for range m.shards {
		select {
		case part := <-counted:
			for state, n := range part.Groups {
				sum.Groups[state] += n
			}
			sum.Members += part.Members
		case <-ctx.Done():
			return sum, fmt.Errorf("count the groups: %w", ctx.Err())
		}
	}
	return sum, nil
}

// Memory is how many bytes the groups of this broker keep, and how many they may.
func (m *Manager) Memory() (used, total int64) {
	if kept := m.deps.Memory.Kept; kept != nil {
		return kept.Used(), kept.Total()
	}
	return 0, 0
}

// count answers one shard's part of a Census.
func (s *Shard) count(counted chan<- group.Census) {
	var c group.Census
	for _, h := range s.hosted {
		h.machine.Count(&c)
	}
	counted <- c
}
