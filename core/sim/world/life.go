package world

import "time"

// Life is one life of a process, by its own clock. What it was to do ends with it.
type Life interface {
	Now() time.Time
	// After does something when so much of the process's own time has passed, unless the
	// life is over by then.
	After(d time.Duration, do func())
	Over() bool
}

// Plain is a life whose clock is the world's, and that goes on until it is ended.
type Plain struct {
	w    *World
	over bool
}

// NewLife begins a life.
func (w *World) NewLife() *Plain { return &Plain{w: w} }

// Now implements Life.
func (l *Plain) Now() time.Time { return l.w.Now() }

// After implements Life.
func (l *Plain) After(d time.Duration, do func()) {
	l.w.After(d, func() {
		if !l.over {
			do()
		}
	})
}

// Over implements Life.
func (l *Plain) Over() bool { return l.over }

// End ends the life.
func (l *Plain) End() { l.over = true }
