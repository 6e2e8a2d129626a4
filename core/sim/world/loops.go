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
	armed   bool
	timer   time.Time // if armed
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
	earliest, due := time.Time{}, false
	for i, loop := range l.loops {
		if loop.Pending() > 0 && !l.turning[i] {
			l.turning[i] = true
			l.life.After(l.w.Between(0, time.Millisecond), func() {
				l.turning[i] = false
				loop.Turn(l.life.Now())
			})
		}
		if at, ok := loop.Deadline(); ok && (!due || at.Before(earliest)) {
			earliest, due = at, true
		}
	}
	if !due || l.armed && earliest.Equal(l.timer) {
		return
	}
	l.armed, l.timer = true, earliest
	l.life.After(earliest.Sub(l.life.Now()), func() {
		if !l.armed || !l.timer.Equal(earliest) {
			return
		}
		l.armed = false
		for _, loop := range l.loops {
			if l.life.Over() { // one of them may have ended it
				return
			}
			now := l.life.Now()
			if at, ok := loop.Deadline(); ok && !now.Before(at) {
				loop.Turn(now)
			}
		}
	})
}

// Idle reports that nothing waits for a turn.
func (l *Loops) Idle() bool {
	for _, loop := range l.loops {
		if loop.Pending() > 0 {
			return false
		}
	}
	return true
}
