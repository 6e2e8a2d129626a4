package world

import (
	"context"

	"github.com/brokerd/brokerd/core/model"
	"github.com/brokerd/brokerd/core/replica"
)

// Executor runs the calls of one life's replica.Manager when the world says.
type Executor struct {
	life    Life
	faults  *Faults
	lanes   map[replica.Lane]*lane
	pending int // calls beside the lanes that have not run yet
}

var _ replica.Executor = (*Executor)(nil)

// lane is the queue of one ordered sequence of calls.
type lane struct {
	queue   []func(context.Context)
	running bool
}

// NewExecutor makes an executor, whose calls take as long as the faults say.
func NewExecutor(life Life, faults *Faults) *Executor {
	return &Executor{life: life, faults: faults, lanes: make(map[replica.Lane]*lane)}
}

// Ordered implements replica.Executor.
func (e *Executor) Ordered(key replica.Lane, work func(context.Context)) {
	if e.life.Over() {
		return
	}
	l := e.lanes[key]
	if l == nil {
		l = &lane{}
		e.lanes[key] = l
	}
	l.queue = append(l.queue, work)
	e.runNext(l)
}

func (e *Executor) runNext(l *lane) {
	if l.running || len(l.queue) == 0 {
		return
	}
	l.running = true
	e.life.After(e.faults.StoreDelay(), func() {
		work := l.queue[0]
		l.queue = l.queue[1:]
		work(context.Background())
		l.running = false
		e.runNext(l)
	})
}

// Go implements replica.Executor.
func (e *Executor) Go(_ model.DirectoryID, work func(context.Context)) {
	if e.life.Over() {
		return
	}
	e.pending++
	e.life.After(e.faults.StoreDelay(), func() {
		e.pending--
		work(context.Background())
	})
}

// Idle reports that no call is queued.
func (e *Executor) Idle() bool {
	for _, l := range e.lanes {
		if l.running || len(l.queue) > 0 {
			return false
		}
	}
	return e.pending == 0
}
