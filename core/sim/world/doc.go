// Package world is what every simulation stands on: virtual time and the events to come,
// of which a seed decides the order; the loops and the executor of one life of a process,
// run by the world in place of goroutines; and the faults of stores.
//
// It never waits, reads no real clock and starts no goroutine: whoever runs a World does it
// from one goroutine. It knows nothing of what is simulated.
package world
