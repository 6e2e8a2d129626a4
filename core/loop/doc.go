// Package loop is the single-owner event loop: one goroutine owns a body of
// state, and everything that happens to it arrives as an input.
//
// It owns the mailbox in front of a body, the timers behind it, and the clock
// that both are told the time by. It never interprets an input, never runs a
// body on two goroutines, and starts no goroutine: Run is the caller's.
//
// A simulator steps the same body without Run: Turn takes what has arrived and
// the time as an argument, and returns.
//
// Invariants, tested in this package: inputs of one poster reach the body in
// the order in which they were posted; a burst is what had arrived when the
// body became free, so that a busy loop is woken once for many inputs; after
// Run has returned nothing is accepted; timers that are due at one instant fire
// in the order in which they were set.
package loop
