package world

import "time"

// Loop is a loop that the world turns, in place of a goroutine.
type Loop interface {
	Pending() int
	Deadline() (time.Time, bool)
	Turn(now time.Time)
}

// Loops are the loops of one life.
type Loops struct {
	w       *World
	life    Life
	loops   []Loop
	turning []bool // by loop: a turn is scheduled
	timer   time.Time
}

// NewLoops makes an empty set.
func NewLoops(w *World, life Life) *Loops { return &Loops{w: w, life: life} }

// Add adds a loop.
func (l *Loops) Add(loop Loop) {
	l.loops = append(l.loops, loop)
	l.turning = append(l.turning, false)
}

// Pump schedules turns of loops that have something to do. It is called after every
// event.
func (l *Loops) Pump() {
	if l.life.Over() {
		return
	}
	earliest := time.Time{}
	for i, loop := range l.loops {
		if loop.Pending() > 0 && !l.turning[i] {
			l.turning[i] = true
			l.life.After(l.w.Between(0, time.Millisecond), func() {
				l.turning[i] = false
				loop.Turn(l.life.Now())
			})
		}
		if at, ok := loop.Deadline(); ok && (earliest.IsZero() || at.Before(earliest)) {
			earliest = at
		}
	}
	if earliest.IsZero() || earliest.Equal(l.timer) {
		return
	}
	l.timer = earliest
	l.life.After(earliest.Sub(l.life.Now()), func() {
		if !l.timer.Equal(earliest) {
			return
		}
		l.timer = time.Time{}
		for _, loop := range l.loops {
			loop.Turn(l.life.Now())
		}
	})
}

// Idle: nothing waits for a turn.
func (l *Loops) Idle() bool {
	for _, loop := range l.loops {
		if loop.Pending() > 0 {
			return false
		}
	}
	return true
}
