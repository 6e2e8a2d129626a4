// Package controller decides what becomes of commands that change the cluster's
// metadata: it is the machine behind the active controller.
//
// A command is decided against the metadata as it will be once everything in
// flight is committed, so that two commands in flight see each other; what it
// decides is metadata records, which change nothing until core/image replays
// them. Answers wait for the commit that they rest on, but for heartbeats that
// change nothing.
//
// It owns the leases of brokers, and who leads and is in sync: by registrations,
// heartbeats and their absence, by what leaders ask for, and by what operators
// ask for. What it knows beside the metadata (leases, offsets that brokers have,
// reports of logs) is forgotten with the leadership, and told again.
//
// It is a value: no goroutine, lock, clock, context or logger. It never does
// I/O, and never changes an image. Of the time it is given only differences
// count, but for what an image.Loss says of when it was.
//
// Invariants: a command that fails leaves nothing behind; each item of a command
// is decided on its own, and one item all or nothing; every record that it
// proposes fits the metadata before it; no answer comes before its commit; no
// allocation is of a size that a client names before that size was checked.
// (machine_test.go, placement_test.go, the stories in testdata)
//
// A partition below its target is raised one replica at a time, by reassignments which are in
// the metadata, so that any controller goes on with them, or ends them: RaisesMax at once, on
// brokers that have been there for a while. What an operator has said of how many there are to be
// counts before it. (raise_test.go, testdata/raise)
//
// A partition epoch rises with every change, and a leader epoch has one leader;
// nobody joins an ISR who is fenced, shuts down, or began another life; without an
// operator's word nobody leads who was neither in the ISR nor in the ELR, or has
// the longest log where all of those may have lost something, by what was said under that
// partition epoch, and either is kept in the
// metadata (image.Loss); what one death changes is one proposal; a controller that was not
// awake ends no lease; one seed decides the same records. (clusterchecks_test.go, the stories in testdata)
package controller
