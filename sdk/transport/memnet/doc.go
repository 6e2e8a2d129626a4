// Package memnet is the network in memory: package transport's contract kept in one
// process, with every fault that the contract lets a network have, on request. Where the
// words of the contract leave a doubt, read what happens here.
//
// It has two layers. A Machine is a network as a value: nodes, links between them, and
// what is under way. Time is an argument and what it draws comes from a seed, so that
// one seed and the same calls are the same history. A Network is a Machine that
// transports share, in the time of a clock; it is a provider of them, for tests.
//
// It owns what may go wrong between nodes: see Faults, Death and Pause. The Machine
// never waits, starts a goroutine, locks, reads a clock or logs; the Network never starts
// a goroutine but for its one timer. Neither leaves the process, and neither hides
// anything from whoever can read its memory.
package memnet
