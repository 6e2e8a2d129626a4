// Package controller decides what becomes of commands that change the cluster's
// metadata: it is the machine behind the active controller.
//
// A command is decided against the metadata as it will be once everything in
// flight is committed, so that two commands in flight see each other; what it
// decides is metadata records, which change nothing until core/image replays
// them. Answers wait for the commit that they rest on.
//
// It is a value: no goroutine, lock, clock, context or logger. It never does
// I/O, and never changes an image.
//
// Invariants: a command that fails leaves nothing behind; each item of a command
// is decided on its own, and one item all or nothing; every record that it
// proposes fits the metadata before it; no answer comes before its commit; no
// allocation is of a size that a client names before that size was checked.
// Tested in machine_test.go, placement_test.go and the stories in testdata.
package controller
